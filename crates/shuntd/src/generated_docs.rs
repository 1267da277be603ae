//! Pages of docs/ that are generated from the daemon's source. The tests compare the pages in the repository with what
//! would be generated now.

use clap::Parser;
use shunt_api::{DaemonArguments, FailureCode};
use shunt_bpf::abi::{REASONS, Reason, ReasonKind};
use std::{env, fs, path::PathBuf};

const UNIT: &str = include_str!("../../../packaging/shuntd@.service");

/// Compares a page with the file in docs/, or writes the file if SHUNT_BLESS=1.
pub(crate) fn assert_kept_page(name: &str, generated: &str) {
    let path = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("../../docs").join(name);
    if env::var_os("SHUNT_BLESS").is_some_and(|v| v == "1") {
        fs::write(&path, generated).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == generated,
        "docs/{name} is out of date; rewrite it: SHUNT_BLESS=1 cargo test -p shuntd kept"
    );
}

fn reasons() -> String {
    let mut page = "\
# Reasons

Shunt counts each packet that goes through Linux under a reason, and also each packet that Linux forwarded but that
taught no flow. `shunt status` shows the counts, `shunt why` names the reason of a connection, `shunt watch` shows
reasons as they occur, and the metrics have them in the label `reason`. The names of reasons do not change between
versions.

This page is generated from the daemon's source: `shunt why` prints the same texts.
[ARCHITECTURE.md](../ARCHITECTURE.md#words) explains the terms punt, proof, action and epoch;
[limitations.md](limitations.md) explains the limits behind some of the reasons.
"
    .to_owned();
    let kinds = [
        (ReasonKind::Punt, "Punts: the packet goes to Linux"),
        (
            ReasonKind::Refusal,
            "Refusals: Linux forwarded the packet and nothing is learned, or a flow is retired",
        ),
        (ReasonKind::Drop, "Drops: the fast path took the packet and lost it"),
    ];
    for (kind, title) in kinds {
        page += &format!("\n## {title}\n");
        for Reason { name, meaning, remedy, .. } in REASONS.iter().filter(|reason| reason.kind == kind) {
            page += &format!("\n### {name}\n\n{}. {}.\n", capital(meaning), capital(remedy));
        }
    }
    page
}

fn capital(sentence: &str) -> String {
    let (first, rest) = sentence.split_at(1);
    first.to_uppercase() + rest
}

#[test]
fn the_kept_page_of_reasons_is_current() {
    assert_kept_page("reasons.md", &reasons());
}

#[test]
fn the_systemd_unit_uses_options_and_exit_codes_that_exist() {
    let value = |key: &str| UNIT.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    let command = value("ExecStart=").replace("%i", "lan").replace("$OPTIONS", "--port lan0 --port wan0");
    let arguments = DaemonArguments::try_parse_from(command.split_whitespace()).unwrap();
    assert_eq!((arguments.instance.as_str(), arguments.ports.len()), ("lan", 2));
    let permanent =
        [FailureCode::Usage, FailureCode::BadConfig, FailureCode::AlreadyRunning, FailureCode::GroupMissing];
    let codes = permanent.map(|code| code.exit_code().to_string());
    assert_eq!(value("RestartPreventExitStatus="), codes.join(" "));
}
