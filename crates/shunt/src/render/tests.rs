use super::*;
use crate::{
    bench::{Measurement, Setting},
    cli::{Cli, Command, Measuring},
    render::examples::{comparison, connections, events, explanation, load, self_test, statics, status},
};
use clap::Parser;
use serde_json::Value;
use std::{env, fs, path::Path, sync::Arc};

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

fn usual_lines() -> Answer {
    lines_at("1G")
}

fn lines_at(speed: &str) -> Answer {
    match Cli::parse_from(["shunt", "line", "--speed", speed]).command {
        Command::Line(typed) => Answer::Line(Line::resolve(&typed).unwrap()),
        other => panic!("{other:?}"),
    }
}

fn of_files(form: ReportForm) -> Answer {
    Answer::Report(Box::new(examples::report()), form)
}

/// One that is found, one that loses at any load, one that is beyond the range.
fn simulated() -> Answer {
    let line = "shunt bench ndr --quick --simulate capacity_pps=7e5 --simulate loss_floor=0.003 --simulate capacity_pps=2e6";
    match Cli::parse_from(line.split_whitespace()).command {
        Command::Bench(Measuring::Once(typed)) => {
            let (stop, conditions) = (Arc::default(), shunt_lab::Conditions::default());
            let setting = Setting { stop: &stop, conditions, show: &mut |_| () };
            Measurement::resolve(&typed).unwrap().perform(setting).unwrap()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_texts_are_as_kept() {
    is_golden("up.txt", &show(&started(), VERBOSE));
    is_golden("status.txt", &show(&Answer::Status(status()), TEXT));
    is_golden("status-verbose.txt", &show(&Answer::Status(status()), VERBOSE));
    is_golden("flows.txt", &show(&Answer::Flows(connections()), TEXT));
    is_golden("flows-verbose.txt", &show(&Answer::Flows(connections()), VERBOSE));
    let watched = |format| events().into_iter().map(|e| show(&Answer::Event(e), format)).collect::<String>();
    is_golden("watch.txt", &watched(TEXT));
    is_golden("watch.jsonl", &watched(JSON));
    is_golden("why.txt", &show(&Answer::Why(explanation()), TEXT));
    is_golden("load.txt", &show(&Answer::Load(load()), TEXT));
    is_golden("load.jsonl", &show(&Answer::Load(load()), JSON));
    is_golden("load-self-test.txt", &show(&Answer::LoadSelfTest(self_test()), TEXT));
    is_golden("load-self-test.json", &show(&Answer::LoadSelfTest(self_test()), JSON));
    is_golden("gen.txt", &show(&examples::traffic(), TEXT));
    is_golden("gen.json", &show(&examples::traffic(), JSON));
    is_golden("line.txt", &show(&usual_lines(), TEXT));
    is_golden("line-slow.txt", &show(&lines_at("64k"), TEXT));
    is_golden("line.json", &show(&usual_lines(), JSON));
    is_golden("compare.txt", &show(&Answer::Compared(comparison()), TEXT));
    is_golden("compare.json", &show(&Answer::Compared(comparison()), JSON));
    is_golden("bench-ndr.txt", &show(&simulated(), TEXT));
    is_golden("bench-ndr.json", &show(&simulated(), JSON));
    is_golden("bench-ndr-concurrent.txt", &show(&examples::concurrent(), TEXT));
    is_golden("report.json", &show(&of_files(ReportForm::Json), TEXT));
    is_golden("report.csv", &show(&of_files(ReportForm::Csv), TEXT));
    is_golden("bench-size.txt", &show(&examples::sizes(), TEXT));
    is_golden("bench-size.json", &show(&examples::sizes(), JSON));
    is_golden("bench-sweep.txt", &show(&examples::sweep(), TEXT));
    is_golden("bench-sweep.json", &show(&examples::sweep(), JSON));
    is_golden("bench-run.txt", &show(&examples::campaign(), TEXT));
    is_golden("bench-run.jsonl", &show(&examples::campaign(), JSON));
    let matrix = Answer::Matrix(Box::new(examples::goodput::matrix()));
    is_golden("bench-matrix.txt", &show(&matrix, TEXT));
    is_golden("bench-matrix.json", &show(&matrix, JSON));
    is_golden("bench-rxtx.txt", &show(&Answer::Rxtx(Box::new(examples::goodput::rxtx())), TEXT));
    is_golden("flow-list.txt", &show(&Answer::Statics(statics()), TEXT));
}

#[test]
fn udp_is_told_with_the_rate_that_the_line_lets_through() {
    let mut report = examples::goodput::rxtx();
    report.speed = "50M".parse().ok();
    let text = show(&Answer::Rxtx(Box::new(report)), TEXT);
    assert!(text.contains("UDP at 47.6 Mbit/s of payload"), "{text}");
    assert!(text.ends_with("No more was offered than 50Mbit/s carry.\n"), "{text}");
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
    let words: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || ",()".contains(c))
        .map(|w| w.trim_end_matches(':'))
        .collect();
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
    // 4 is ipv4, a single rule is the one that is named, one of legacy iptables is named as such, and what could be read
    // has no reason why not.
    let scaled = [
        ".held",
        ".unread",
        ".legacy",
        ".rules",
        ".uptime_s",
        ".fast_share",
        ".up",
        ".xdp_attached",
        ".api",
        ".ifindex",
        ".attach",
        ".detail",
        ".captured",
    ];
    assert_eq!(text_lacks(&Answer::Status(status()), &scaled), []);
    let text = show(&Answer::Status(status()), VERBOSE);
    let captures: Vec<_> = text.lines().filter(|line| line.contains("captures")).collect();
    assert_eq!(captures, ["enp1s0f1: somebody captures on it, so its flows take the slow path"]);
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

/// What stands between the first of this and the next of that.
fn between<'t>(text: &'t str, from: &str, to: &str) -> &'t str {
    let rest = text.split_once(from).unwrap_or_else(|| panic!("no {from}")).1;
    rest.split_once(to).unwrap_or_else(|| panic!("no {to}")).0
}

#[test]
fn the_page_of_a_report_has_the_files_in_it_as_json() {
    let page = show(&of_files(ReportForm::Html), TEXT);
    let data: Value =
        serde_json::from_str(between(&page, "type=\"application/json\" id=\"data\">", "</script>")).unwrap();
    let printed: Value = serde_json::from_str(&show(&of_files(ReportForm::Json), TEXT)).unwrap();
    assert_eq!(data, printed);
    let first: Value = serde_json::from_str(&examples::result_file()).unwrap();
    assert_eq!(data["files"][0]["results"], first);
}

#[test]
fn what_a_file_says_is_text_in_the_page_and_never_markup() {
    let page = show(&of_files(ReportForm::Html), TEXT);
    // Names, conditions and units of the file of oddities, also within plots.
    assert!(page.contains("&#60;/script&#62;&#60;img src=x") && page.contains("&lt;i&gt;&amp;"));
    for markup in ["<img", "<i>", "<b> ", "onerror=\"", "http://", "https://"] {
        // Of SVG, the name of its XML namespace is no address to fetch from.
        let page = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        assert!(!page.contains(markup), "{markup}");
    }
}

#[test]
fn doubts_stand_above_the_values_that_they_are_about() {
    let page = show(&of_files(ReportForm::Html), TEXT);
    let article = between(&page, "<h3>ndr router</h3>", "</article>");
    let at = |what: &str| article.find(what).unwrap_or_else(|| panic!("{what}: {article}"));
    let doubts = ["A, B: CPU 1 ran at 97.2 %", "B: interrupted: not all of its runs are there"];
    // Median and share of the line, as text and as a plot.
    let values = ["805000\u{a0}pps", "54.1\u{a0}%", "1488095\u{a0}pps", "<svg"];
    for doubt in doubts {
        assert!(values.iter().all(|value| at(doubt) < at(value)), "{doubt}");
    }
    let above = between(&page, "<h3>many</h3>", "</article>");
    assert!(above.contains("C: more than the line can carry") && above.contains("101"), "{above}");
}
