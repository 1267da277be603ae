//! Pages of docs/ that are generated from the daemon's source. The tests compare the pages in the repository with what
//! would be generated now.

use clap::Parser;
use shunt_api::{ChangeEffect, Config, DaemonArguments, FailureCode, KeyAnswer};
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

fn reload() -> String {
    let mut page = "\
# Changing the configuration while the daemon runs

`shunt reload` lets the running daemon read its configuration file again. So do `systemctl reload shuntd@default` and
SIGHUP. The daemon checks the file as `shunt up --dry-run` does, and applies what differs from what runs: all of it or,
if something is wrong, nothing. `shunt reload --dry-run` says what would change.

```console
# shunt reload --dry-run
# shunt reload --dry-run --config /etc/shunt/new.toml
# shunt reload
```

- **A wrong file** is refused with the error that a start would print; the daemon goes on with what it has, and the exit
  code is not 0. So is a file that does not stop changing while it is read. Write the new file beside the old one and
  rename it: half a file may be a valid one.
- **A key that needs a restart** keeps everything from being applied (exit code 31, `needs-restart`; also with
  `--dry-run`). `shunt reload --partial` applies the others.
- **Queues that no packet passes**, such as those of a device that is no port, are no error: the answer names them and
  says why, and the file is applied.
- **Another file** can be tried with `--dry-run --config FILE`: the answer has the keys that differ from what runs, the
  old value and the new one, what each needs, and the error if a start with it would fail. `shunt up --dry-run --config
  FILE` says the same while the instance runs. The daemon goes on to read the file that it was started with: to use
  another one, install it there.
- **Options of the command line** override the file, as at the start; the answer names these keys.
- **`shunt status`** says when the configuration was last read again and what came of it, and which keys of the file
  differ from what runs, within a few seconds. [The history](guide/history.md) has each reload with its cause.
- **Flows** that do not depend on what changes stay fast: no packet of theirs takes the slow path for a reload, except
  for keys under *relearn*, where all flows prove themselves again, which takes a packet or two of each.

This page is generated from the daemon's source.
"
    .to_owned();
    let effects = [
        (ChangeEffect::InPlace, "In place", "These are applied while flows go on."),
        (ChangeEffect::Relearn, "Relearn", "These are applied, and flows prove themselves again."),
        (
            ChangeEffect::Restart,
            "Restart",
            "These need a restart: `shunt restart`, or `systemctl restart shuntd@default` if systemd runs the instance.",
        ),
    ];
    for (effect, title, what) in effects {
        page += &format!("\n## {title}\n\n{what}\n\n");
        for KeyAnswer { key, how, restart_when, .. } in
            Config::answers().iter().filter(|one| one.effect == effect)
        {
            let restart =
                restart_when.map_or_else(String::new, |when| format!(" A restart is needed if {when}."));
            page += &format!("- `{key}`: {how}.{restart}\n");
        }
    }
    page
}

#[test]
fn the_kept_page_of_reloads_is_current() {
    assert_kept_page("reload.md", &reload());
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
    assert_eq!(value("ExecReload="), "/usr/local/bin/shunt reload --instance %i");
    let permanent =
        [FailureCode::Usage, FailureCode::BadConfig, FailureCode::AlreadyRunning, FailureCode::GroupMissing];
    let codes = permanent.map(|code| code.exit_code().to_string());
    assert_eq!(value("RestartPreventExitStatus="), codes.join(" "));
}
