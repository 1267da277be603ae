//! The page for LuCI, in LuCI's own scripts and in a browser, with a daemon that forwards. `luci/look.cjs` has the
//! requirements, `luci/router.cjs` the web server of a router with LuCI.

use shunt_testkit::{Crossing, Shunt, require_root, rulesets, silent_router, tree};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Stdio,
    thread,
    time::Duration,
};

/// Between two packets, so that the busiest connection of the page has some.
const PACE: Duration = Duration::from_millis(10);

/// LuCI's sources, the browser and what drives it. None, after a message, without SHUNT_LUCI: `make test` runs without
/// it, as no package has LuCI's sources.
fn requirements() -> Option<[PathBuf; 3]> {
    let Some(luci) = env::var_os("SHUNT_LUCI").filter(|path| !path.is_empty()) else {
        let how = "packaging/openwrt/page-check.sh says how to get them";
        eprintln!("SKIP the page in LuCI: SHUNT_LUCI names no sources of LuCI; {how}");
        return None;
    };
    let luci = PathBuf::from(luci);
    let scripts = luci.join("modules/luci-base/htdocs/luci-static/resources/luci.js");
    assert!(scripts.is_file(), "SHUNT_LUCI: there is no {}", scripts.display());
    let modules = tree::target().join("browser/node_modules");
    let programs = ["chromium-headless-shell", "chromium"].map(|name| Path::new("/usr/bin").join(name));
    let program = programs.into_iter().find(|path| path.exists() && modules.exists());
    Some([luci, program.expect("no browser, or nothing that drives it: run packaging/browser.sh"), modules])
}

#[test]
fn a_browser_shows_the_page_in_luci_and_turns_hosts_off_and_on() {
    let Some([luci, browser, modules]) = requirements() else { return };
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let shunt = Shunt::on(lab.router());
    shunt.done("up");
    lab.router().run("sysctl -qw net.netfilter.nf_conntrack_acct=1");
    let packet = lab.lan().udp_to(4000, lab.wan().at(5001)).payload("x".repeat(1000));
    let [host, server] = [packet.source(), packet.destination()].map(|end| end.unwrap().ip().to_string());
    let pictures = modules.with_file_name("pictures");
    fs::create_dir_all(&pictures).unwrap();
    let root = tree::root();
    let mut look = lab.router().command("node");
    look.arg(root.join("tests/netns/daemon/luci/look.cjs"))
        .arg(luci)
        .arg(root.join("packaging/openwrt/files"))
        .args([&browser, &pictures])
        .args([&host, &server])
        .args([&Shunt::program(), "--instance", shunt.instance()])
        .env("NODE_PATH", modules)
        .env("SHUNT_RUNTIME_DIR", shunt.directory())
        .stdin(Stdio::null());
    let looked = thread::scope(|scope| {
        let looking = scope.spawn(move || look.output().unwrap());
        let there = Crossing::between(lab.lan(), lab.wan());
        while !looking.is_finished() {
            there.from.send(&packet);
            thread::sleep(PACE);
        }
        looking.join().unwrap()
    });
    let faults = String::from_utf8_lossy(&looked.stdout);
    assert!(looked.status.success(), "{faults}{}", String::from_utf8_lossy(&looked.stderr));
}
