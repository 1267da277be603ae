use super::*;
use crate::render::examples::{connections, statics, status};
use serde_json::Value;
use std::{env, fs, path::Path};

const TEXT: Format = Format { json: false, verbose: false };
const VERBOSE: Format = Format { json: false, verbose: true };
const JSON: Format = Format { json: true, verbose: false };

fn show(answer: &Answer, format: Format) -> String {
    let mut out = Vec::new();
    answer.render(&mut out, format).unwrap();
    String::from_utf8(out).unwrap()
}

/// Compares with a kept file, or with SHUNT_BLESS=1 keeps what is.
fn is_golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/render/golden").join(name);
    if env::var_os("SHUNT_BLESS").is_some_and(|v| v == "1") {
        fs::write(&path, text).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == text, "{} differs; SHUNT_BLESS=1 accepts this:\n{text}", path.display());
    assert!(text.lines().all(|line| line.trim_end() == line), "blanks at the end of a line of {name}");
}

fn started() -> Answer {
    Answer::Started { status: status(), log: "/run/shunt/default.log".into() }
}

#[test]
fn the_texts_are_as_kept() {
    is_golden("up.txt", &show(&started(), VERBOSE));
    is_golden("status.txt", &show(&Answer::Status(status()), TEXT));
    is_golden("status-verbose.txt", &show(&Answer::Status(status()), VERBOSE));
    is_golden("flows.txt", &show(&Answer::Flows(connections()), TEXT));
    is_golden("flows-verbose.txt", &show(&Answer::Flows(connections()), VERBOSE));
    is_golden("flow-list.txt", &show(&Answer::Statics(statics()), TEXT));
}

#[test]
fn json_is_the_value_itself() {
    let back = |answer: &Answer| serde_json::from_str::<Value>(&show(answer, JSON)).unwrap();
    let status_back: Status = serde_json::from_value(back(&Answer::Status(status()))).unwrap();
    assert_eq!(status_back, status());
    let flows_back: Vec<Connection> = serde_json::from_value(back(&Answer::Flows(connections()))).unwrap();
    assert_eq!(flows_back, connections());
    let statics_back: StaticTable = serde_json::from_value(back(&Answer::Statics(statics()))).unwrap();
    assert_eq!(statics_back, statics());
    assert_eq!(back(&started()), back(&Answer::Status(status())));
    assert_eq!(back(&Answer::Flushed(Count { count: 9 })), serde_json::json!({"count": 9}));
    let stopped = Stopped { was_running: true, killed: false, pid: Some(7) };
    assert_eq!(
        back(&Answer::Stopped(stopped)),
        serde_json::json!({"was_running": true, "killed": false, "pid": 7})
    );
}

/// Every number and text of a JSON value, with where it is.
fn leaves(at: &str, value: &Value, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, field)| {
            leaves(&format!("{at}.{name}"), field, found);
        }),
        Value::Array(items) => items.iter().for_each(|item| leaves(at, item, found)),
        Value::String(text) => found.push((at.to_owned(), text.clone())),
        other => found.push((at.to_owned(), other.to_string())),
    }
}

fn text_lacks(answer: &Answer, scaled: &[&str]) -> Vec<(String, String)> {
    let value: Value = serde_json::from_str(&show(answer, JSON)).unwrap();
    let text = show(answer, VERBOSE);
    let words: Vec<&str> = text.split(|c: char| c.is_whitespace() || ",()".contains(c)).collect();
    let has = |leaf: &str| words.contains(&leaf) || (leaf.contains([' ', ':']) && text.contains(leaf));
    let mut found = Vec::new();
    leaves("", &value, &mut found);
    assert!(found.len() > 20);
    found.retain(|(at, leaf)| !has(leaf) && !scaled.iter().any(|end| at.ends_with(end)));
    found
}

#[test]
fn the_text_of_status_shows_every_value_of_the_json() {
    // In other units, or as other words: 93784 is 1d 2h 3m 4s, 0.999 is 99.9 %, true is up.
    let scaled =
        [".uptime_s", ".fast_share", ".up", ".xdp_attached", ".api", ".ifindex", ".attach", ".detail"];
    assert_eq!(text_lacks(&Answer::Status(status()), &scaled), []);
}

#[test]
fn the_text_of_flows_shows_every_value_of_the_json() {
    let scaled = [
        ".rate_bps",
        ".rate_pps",
        ".age_s",
        ".idle_s",
        ".mark",
        ".priority",
        ".in_vlans",
        ".out_vlans",
        ".family",
        // Together with their addresses, and where they are translated only.
        ".sport",
        ".dport",
        ".src",
        ".dst",
    ];
    assert_eq!(text_lacks(&Answer::Flows(connections()), &scaled), []);
    let text = show(&Answer::Flows(connections()), TEXT);
    for connection in connections() {
        for tuple in [connection.orig, connection.reply] {
            assert!(text.contains(&format!("{} > {}", tuple.source(), tuple.destination())), "{text}");
        }
    }
    for shown in
        ["snat 203.0.113.1:40001", "dnat 192.168.1.2:40000", "9.50 Mbit/s", "81.2 kpps", "age 1h 2m 5s"]
    {
        assert!(text.contains(shown), "{shown}");
    }
}

#[test]
fn no_connections_are_no_text_and_an_empty_list() {
    assert_eq!(show(&Answer::Flows(Vec::new()), TEXT), "");
    assert_eq!(show(&Answer::Flows(Vec::new()), JSON), "[]\n");
}
