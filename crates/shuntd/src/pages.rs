//! Pages of docs/ that are made from what the daemon is. They are kept, and compared with what would be made.

use crate::{Arguments, reasons::Text};
use clap::{CommandFactory, Parser};
use clap_mangen::{
    Man,
    roff::{Inline, Roff, bold, italic, roman},
};
use shunt_api::{FILES, FailureCode};
use shunt_bpf::abi::{FIRST_REFUSAL, REASONS};
use std::{env, fs, path::Path};

const SOURCE: &str = concat!("shunt ", env!("CARGO_PKG_VERSION"));
const CONFIGURATION: &str = include_str!("../../../packaging/shunt.toml");

const UNIT: &str = include_str!("../../../packaging/shuntd@.service");

/// Compares with a kept file of docs/, or with SHUNT_BLESS=1 keeps what is.
pub(crate) fn compare_with_kept(name: &str, made: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    if env::var_os("SHUNT_BLESS").is_some_and(|v| v == "1") {
        fs::write(&path, made).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == made,
        "docs/{name} is not current; `SHUNT_BLESS=1 cargo test -p shuntd kept` writes it anew"
    );
}

fn reasons() -> String {
    let mut page = "\
# Reasons

Each packet that goes through Linux does so for a reason, and so does each that Linux forwarded and that taught nothing. `shunt status`
counts them, `shunt why` names those of a connection, `shunt watch` shows them as they occur, and in the metrics they are the label
`reason`. The names do not change.

The daemon says the same of each as this page, which is made from its source; \"it\" is the flow. What punt, proof, action or epoch mean is in
[ARCHITECTURE.md](../ARCHITECTURE.md#words), and what lies behind some of them in [limitations.md](limitations.md).

## Punts: the packet goes to Linux
"
    .to_owned();
    for (number, name) in REASONS {
        if *number == FIRST_REFUSAL {
            page +=
                "\n## Refusals: Linux forwarded it, and nothing is learned; or a flow is taken out of use\n";
        }
        let Text { meaning, remedy, .. } = crate::reasons::text(name).unwrap();
        page += &format!("\n### {name}\n\n{}. {}.\n", capital(meaning), capital(remedy));
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
        ("SIGTERM, SIGINT", "It undoes what it did to the ports, and ends. Connections go on through Linux."),
        (
            "SIGKILL",
            "The kernel takes its programs away; --cleanup, and the next start of the instance, remove what stays: the \
             socket, and filters on kernels without TCX.",
        ),
    ];
    items(&mut more, "SIGNALS", &signals);
    items(&mut more, "FILES", &FILES);
    let variables = [("SHUNT_RUNTIME_DIR", "The directory of sockets and logs, if it is not /run/shunt.")];
    items(&mut more, "ENVIRONMENT", &variables);
    more.control("SH", ["EXIT STATUS"]).text(words(
        "0 where it was told to end. Otherwise one of the numbers that stand in shunt(1), and the last line on standard \
         error says what is in the way and what to do about it.",
    ));
    see_also(&mut more, "shunt(1), shunt-up(1), shunt.toml(5)");
    String::from_utf8(page).unwrap() + &more.to_roff()
}

fn configuration() -> String {
    let mut page = Roff::new();
    page.control("TH", ["shunt.toml", "5", "", SOURCE]);
    page.control("SH", ["NAME"]).text([roman("shunt.toml - the configuration of shuntd")]);
    for (nth, block) in CONFIGURATION.trim_end().split("\n\n").enumerate() {
        let comment: Vec<&str> = block.lines().map_while(|line| line.strip_prefix("# ")).collect();
        let keys: Vec<&str> = block.lines().skip(comment.len()).collect();
        match (nth, &keys[..]) {
            (0, []) => page.control("SH", ["DESCRIPTION"]),
            (1.., [key]) => {
                if nth == 1 {
                    page.control("SH", ["KEYS"]);
                }
                let (key, value) = key.split_once(" = ").unwrap();
                page.control("TP", []).text([bold(key), roman(format!(" = {value}"))])
            }
            _ => panic!("not a comment with a key below it:\n{block}"),
        };
        page.text(words(&comment.join(" ")));
    }
    see_also(&mut page, "shuntd(8), shunt-up(1)");
    page.render()
}

fn see_also(page: &mut Roff, pages: &str) {
    page.control("SH", ["SEE ALSO"]).text(words(pages));
}

/// What stands between backticks is what people type.
fn words(text: &str) -> Vec<Inline> {
    let parts = text.split('`').enumerate();
    parts.map(|(nth, part)| if nth % 2 == 0 { roman(part) } else { bold(part) }).collect()
}

fn capital(sentence: &str) -> String {
    let (first, rest) = sentence.split_at(1);
    first.to_uppercase() + rest
}

#[test]
fn the_kept_page_of_reasons_is_what_the_daemon_says() {
    compare_with_kept("reasons.md", &reasons());
}

#[test]
fn the_kept_manual_pages_are_those_of_the_daemon_and_its_configuration() {
    compare_with_kept("man/shuntd.8", &daemon());
    compare_with_kept("man/shunt.toml.5", &configuration());
}

#[test]
fn the_unit_starts_the_daemon_by_options_that_there_are_and_ends_by_the_codes_that_it_means() {
    let said = |key: &str| UNIT.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    let command = said("ExecStart=").replace("%i", "lan").replace("$OPTIONS", "--port lan0 --port wan0");
    let arguments = Arguments::try_parse_from(command.split_whitespace()).unwrap();
    assert_eq!((arguments.instance.as_str(), arguments.ports.len()), ("lan", 2));
    let lasting =
        [FailureCode::Usage, FailureCode::BadConfig, FailureCode::AlreadyRunning, FailureCode::GroupMissing];
    let codes = lasting.map(|code| code.exit_code().to_string());
    assert_eq!(said("RestartPreventExitStatus="), codes.join(" "));
}
