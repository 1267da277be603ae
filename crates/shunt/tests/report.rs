//! `shunt report` as a process, and its page in a browser.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod tree;

use shunt_lab::Results;
use std::{
    env, fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn files() -> PathBuf {
    tree::package().join("../shunt-report/src/sample")
}

fn report(directory: &Path, args: &[&str]) -> Output {
    Command::new(tree::shunt()).arg("report").args(args).current_dir(directory).output().unwrap()
}

#[test]
fn a_wrong_file_gives_exit_code_18_and_one_line_with_its_name() {
    let place = tempfile::tempdir().unwrap();
    let whole = fs::read_to_string(files().join("tc.json")).unwrap();
    fs::write(place.path().join("good.json"), &whole).unwrap();
    let newer = &whole.replace("\"version\": 1", "\"version\": 7");
    let refusal = |text: &str| Results::parse(text).unwrap_err().to_string();
    for (text, why) in [
        ("", "the file is empty".to_owned()),
        (&whole[..999], refusal(&whole[..999])),
        (newer, refusal(newer)),
        ("[1, 2]", refusal("[1, 2]")),
    ] {
        fs::write(place.path().join("bad.json"), text).unwrap();
        let ran = report(place.path(), &["good.json", "bad.json", "-o", "page.html"]);
        let err = String::from_utf8(ran.stderr).unwrap();
        assert_eq!((ran.status.code(), ran.stdout.len(), err.lines().count()), (Some(18), 0, 1), "{err}");
        assert!(err.starts_with(&format!("shunt: bad.json: {why}")), "{err}");
        assert!(!place.path().join("page.html").exists());
    }
    for (args, code) in [
        (&["none.json"][..], 18),
        (&["good.json", "-o", "none/page.html"], 18),
        (&[], 2),
        (&["good.json", "--format", "pdf"], 2),
    ] {
        assert_eq!(report(place.path(), args).status.code(), Some(code), "{args:?}");
    }
}

#[test]
fn a_printed_report_equals_a_written_one() {
    let place = tempfile::tempdir().unwrap();
    fs::copy(files().join("xdp.json"), place.path().join("xdp.json")).unwrap();
    for form in ["html", "json", "csv"] {
        let printed = report(place.path(), &["xdp.json", "--format", form]);
        let written = report(place.path(), &["xdp.json", "--format", form, "-o", "out"]);
        assert!(printed.status.success() && written.status.success());
        assert_eq!(written.stdout, b"out written, from 1 file\n");
        assert!(printed.stdout.len() > 1000 && printed.stdout == fs::read(place.path().join("out")).unwrap());
    }
}

/// Checks the page at the widths of a phone and a desktop, light, dark and printed; see `look.cjs` for the
/// requirements.
#[test]
fn a_browser_shows_the_page_and_makes_no_request() {
    let program = tree::shunt();
    let target = program.ancestors().nth(2).unwrap();
    let modules = target.join("browser/node_modules");
    let browser = ["chromium-headless-shell", "chromium"].map(|name| Path::new("/usr/bin").join(name));
    let Some(browser) = browser.iter().find(|path| path.exists() && modules.exists()) else {
        let why = "no browser, or no library to drive it; `make browser-test` installs both";
        assert!(
            !env::var("SHUNT_BROWSER_TEST").is_ok_and(|v| v == "1"),
            "SHUNT_BROWSER_TEST=1 forbids skipping: {why}"
        );
        writeln!(io::stderr(), "SKIP the page in a browser: {why}").unwrap();
        return;
    };
    let pictures = target.join("browser/pictures");
    fs::create_dir_all(&pictures).unwrap();
    let page = pictures.join("page.html");
    let made =
        report(&files(), &["tc.json", "xdp.json", "size.json", "odd.json", "-o", page.to_str().unwrap()]);
    assert!(made.status.success(), "{made:?}");
    let looked = Command::new("node")
        .arg(tree::package().join("tests/look.cjs"))
        .args([&page, browser, &pictures])
        .env("NODE_PATH", &modules)
        .output()
        .unwrap();
    let faults = String::from_utf8_lossy(&looked.stdout);
    assert!(looked.status.success(), "{faults}{}", String::from_utf8_lossy(&looked.stderr));
    assert!(fs::read(pictures.join("print.pdf")).unwrap().starts_with(b"%PDF"));
    let json = report(&files(), &["tc.json", "xdp.json", "size.json", "odd.json", "--json"]).stdout;
    let value = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).unwrap();
    assert_eq!(value(&fs::read(pictures.join("download.json")).unwrap()), value(&json));
}
