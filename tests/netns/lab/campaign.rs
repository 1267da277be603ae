//! `shunt bench run`: a campaign between namespaces, interrupted and continued.

use super::gen_command::bench;
use nix::sys::signal::Signal;
use serde_json::Value;
use shunt_testkit::{Shunt, require_root, skip, wait_until};
use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
};

/// The gateway of the last step does not answer.
const CAMPAIGN: &str = r#"
[common]
tx = "t0"
rx = "t1"
gateway = "192.0.2.1"
one-way = true
time = "500ms"

[[step]]
name = "long"
bench = "sweep"
from = "1M"
to = "6M"
step = "1M"

[[step]]
name = "short"
bench = "sweep"
to = "1M"
from = "1M"

[[step]]
name = "astray"
bench = "sweep"
gateway = "192.0.2.77"
"#;

const FIRST: &str = "t0 to t1 at 1Mbit";

fn results(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap_or_default()).unwrap_or_default()
}

#[test]
fn an_interrupted_campaign_keeps_its_results_and_continues() {
    if !require_root() {
        return;
    }
    let bench = bench();
    let out = bench.shunt.directory().join("out");
    let command =
        format!("bench run {} --output {}", bench.shunt.file("c.toml", CAMPAIGN).display(), out.display());
    let mut running = bench.shunt.start(&command);
    let first = out.join("01-long.json");
    wait_until("a run is kept", || results(&first)["readings"].get(FIRST).is_some());
    running.signal(Signal::SIGINT);
    wait_until("the campaign has ended", || running.ended().is_some());
    assert_eq!(running.ended(), Some(Some(130)), "{}", running.err());
    let last = running.err().lines().last().unwrap_or_default().to_owned();
    let missing = "shunt: interrupted; missing: long, short, astray; run the same command again to measure the steps that are missing";
    assert_eq!(last, missing);
    assert!(running.out().starts_with("== long\n"), "{}", running.out());
    assert!(running.out().contains("long    interrupted"), "{}", running.out());
    assert_eq!(results(&first)["complete"], false);

    let printed = bench.shunt.run(&command);
    assert_eq!(printed.code, Some(2), "{}{}", printed.err, printed.out);
    let last = printed.err.lines().last().unwrap_or_default();
    assert_eq!(
        last,
        "shunt: failed: astray; run the same command again to measure the steps that are missing"
    );
    assert!(printed.out.contains("astray: t0: 192.0.2.77 does not answer ARP"), "{}", printed.out);
    let long = results(&first);
    assert_eq!((&long["complete"], &long["conditions"]["campaign"]["step"]), (&true.into(), &"long".into()));
    assert_eq!(long["conditions"]["campaign"]["text"], CAMPAIGN);
    assert_eq!(long["readings"][FIRST]["runs"].as_array().map(Vec::len), Some(1));
    assert_eq!(results(&out.join("01-long.interrupted-1.json"))["complete"], false);
    assert_eq!(results(&out.join("02-short.json"))["complete"], true);
    let page = fs::read_to_string(out.join("report.html")).unwrap_or_default();
    assert!(page.contains(FIRST), "the page lacks readings");
}

#[test]
fn a_wrong_campaign_is_refused_before_the_measurement() {
    if !require_root() {
        return;
    }
    let bench = bench();
    let out = bench.shunt.directory().join("out");
    let file = bench.shunt.file("c.toml", &CAMPAIGN.replace("one-way = true", "one-way = \"yes\""));
    let printed = bench.shunt.run(&format!("bench run {} --output {}", file.display(), out.display()));
    let why = format!("shunt: {}: step 1 (`long`): one-way: expected true or false\n", file.display());
    assert_eq!((printed.code, printed.err.as_str()), (Some(18), why.as_str()));
    assert!(!out.exists());
}

#[test]
fn a_campaign_without_root_is_refused_in_one_line() {
    if !require_root() {
        return;
    }
    let bench = bench();
    let shunt = Shunt::on(&bench.host).by("setpriv --reuid=65534 --regid=65534 --clear-groups");
    fs::set_permissions(shunt.directory(), Permissions::from_mode(0o777)).unwrap();
    if shunt.run("--version").code != Some(0) {
        return skip("another user cannot execute the programs");
    }
    let run = |text: &str| {
        let out = shunt.directory().join("out");
        let file = shunt.file("c.toml", text);
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        (shunt.run(&format!("bench run {} --output {}", file.display(), out.display())), out)
    };
    let (printed, out) = run(CAMPAIGN);
    assert_eq!(
        (printed.code, printed.err.lines().count(), printed.out.as_str()),
        (Some(10), 1, ""),
        "{printed:?}"
    );
    assert!(printed.err.starts_with("shunt: root is needed"), "{printed:?}");
    assert!(!out.exists());
    // The campaign names a router that does not exist.
    let (printed, out) = run("[[step]]\nbench = \"ndr\"\nquick = true\nsimulate = \"capacity_pps=7e5\"\n");
    assert_eq!(printed.code, Some(0), "{printed:?}");
    assert!(out.exists());
}
