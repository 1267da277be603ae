//! Pages of docs/ that are generated from the daemon's source. The tests compare the pages in the repository with what
//! would be generated now.

use crate::Arguments;
use clap::{CommandFactory, Parser};
use clap_mangen::{
    Man,
    roff::{Inline, Roff, bold, italic, roman},
};
use shunt_api::{FILES, FailureCode};
use shunt_bpf::abi::{REASONS, Reason, ReasonKind};
use std::{env, fs, path::Path};

const SOURCE: &str = concat!("shunt ", env!("CARGO_PKG_VERSION"));
const CONFIGURATION: &str = include_str!("../../../packaging/shunt.toml");

const UNIT: &str = include_str!("../../../packaging/shuntd@.service");

/// Compares a page with the file in docs/, or writes the file if SHUNT_BLESS=1.
pub(crate) fn assert_kept_page(name: &str, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
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

Shunt counts each packet that goes through Linux under a reason, and also each packet that Linux forwarded but from which no flow was
learned. `shunt status` shows the counts, `shunt why` names the reason of a connection, `shunt watch` shows reasons as they occur, and the
metrics have them in the label `reason`. The names of reasons do not change between versions.

This page is generated from the daemon's source: `shunt why` prints the same texts. [ARCHITECTURE.md](../ARCHITECTURE.md#words) explains
the terms punt, proof, action and epoch; [limitations.md](limitations.md) explains the limits behind some of the reasons.
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

fn daemon() -> String {
    let mut page = Vec::new();
    Man::new(Arguments::command()).section("8").source(SOURCE).render(&mut page).unwrap();
    let mut more = Roff::new();
    let items = |page: &mut Roff, title: &str, items: &[(&str, &str)]| {
        page.control("SH", [title]);
        for (what, text) in items {
            page.control("TP", []).text([italic(*what)]).text(words(text));
        }
    };
    let signals = [
        (
            "SIGTERM, SIGINT",
            "The daemon detaches from its ports and exits. Connections continue through Linux.",
        ),
        (
            "SIGKILL",
            "The kernel removes the daemon's programs. The socket stays, and so do tc filters on kernels without TCX; --cleanup \
             and the next start of the instance remove them.",
        ),
    ];
    items(&mut more, "SIGNALS", &signals);
    items(&mut more, "FILES", &FILES);
    let variables = [
        ("SHUNT_RUNTIME_DIR", "The directory of sockets and logs, instead of /run/shunt."),
        (
            "NOTIFY_SOCKET, WATCHDOG_USEC",
            "Set by systemd. The daemon reports by sd_notify(3) when it is ready, that it is alive, and when it stops.",
        ),
    ];
    items(&mut more, "ENVIRONMENT", &variables);
    more.control("SH", ["EXIT STATUS"]).text(words(
        "0 after a stop on request. Otherwise one of the numbers listed in shunt(1); the last line on standard error names \
         the cause and what to do about it.",
    ));
    see_also(&mut more, "shunt(1), shunt-up(1), shunt.toml(5)");
    String::from_utf8(page).unwrap() + &more.to_roff()
}

fn configuration() -> String {
    let mut page = Roff::new();
    page.control("TH", ["shunt.toml", "5", "", SOURCE]);
    page.control("SH", ["NAME"]).text([roman("shunt.toml - the configuration of shuntd")]);
    for (nth, block) in CONFIGURATION.trim_end().split("\n\n").enumerate() {
        let (comment, keys): (Vec<&str>, Vec<&str>) = block.lines().partition(|line| line.starts_with('#'));
        let comment: Vec<&str> = comment.iter().map(|line| line.trim_start_matches("# ")).collect();
        // An example comes behind an empty line of the comment.
        let mut parts = comment.splitn(2, |line| *line == "#");
        match (nth, &keys[..]) {
            (0, []) => page.control("SH", ["DESCRIPTION"]),
            (1.., [key]) => {
                if nth == 1 {
                    page.control("SH", ["KEYS"]);
                }
                let (key, value) = key.split_once(" = ").unwrap_or((key, ""));
                let value = if value.is_empty() { String::new() } else { format!(" = {value}") };
                page.control("TP", []).text([bold(key), roman(value)])
            }
            _ => panic!("not a comment with a key below it:\n{block}"),
        };
        page.text(words(&parts.next().unwrap_or_default().join(" ")));
        if let Some(example) = parts.next() {
            page.control("nf", []);
            for line in example {
                page.text([roman(line.trim_start_matches('#'))]);
            }
            page.control("fi", []);
        }
    }
    see_also(&mut page, "shuntd(8), shunt-up(1)");
    page.render()
}

fn see_also(page: &mut Roff, pages: &str) {
    page.control("SH", ["SEE ALSO"]).text(words(pages));
}

/// Sets text between backticks in bold: commands, options and values.
fn words(text: &str) -> Vec<Inline> {
    let parts = text.split('`').enumerate();
    parts.map(|(nth, part)| if nth % 2 == 0 { roman(part) } else { bold(part) }).collect()
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
fn the_kept_manual_pages_are_current() {
    assert_kept_page("man/shuntd.8", &daemon());
    assert_kept_page("man/shunt.toml.5", &configuration());
}

#[test]
fn the_systemd_unit_uses_options_and_exit_codes_that_exist() {
    let value = |key: &str| UNIT.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    let command = value("ExecStart=").replace("%i", "lan").replace("$OPTIONS", "--port lan0 --port wan0");
    let arguments = Arguments::try_parse_from(command.split_whitespace()).unwrap();
    assert_eq!((arguments.instance.as_str(), arguments.ports.len()), ("lan", 2));
    let permanent =
        [FailureCode::Usage, FailureCode::BadConfig, FailureCode::AlreadyRunning, FailureCode::GroupMissing];
    let codes = permanent.map(|code| code.exit_code().to_string());
    assert_eq!(value("RestartPreventExitStatus="), codes.join(" "));
}
