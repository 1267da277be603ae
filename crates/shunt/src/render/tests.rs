use super::*;
use crate::{
    commands::{arguments::parse_args, bench::tests::simulated, down::Stopped, line},
    golden::{BRIEF, JSON, TEXT, VERBOSE, show},
    render::examples::{
        comparison, connections, dry_run, events, explanation, load, probe_report, self_test, statics, status,
    },
};
use serde_json::Value;
use shunt_api::{Connection, DryRun, FailureCode, ProbeReport, StaticTable, Status};

fn assert_golden(name: &str, text: &str) {
    crate::golden::assert_golden(&format!("render/golden/{name}"), text);
}

fn started() -> StartedDaemon {
    StartedDaemon { status: status(), log: "/run/shunt/default.log".into() }
}

fn line_1g() -> Line {
    line_at("1G")
}

fn line_at(speed: &str) -> Line {
    line::resolve(&parse_args(&format!("--speed {speed}")).unwrap()).unwrap()
}

fn report_as(form: ReportForm) -> Document {
    Document { report: examples::report(), form }
}

#[test]
fn every_text_matches_its_golden_file() {
    assert_golden("up.txt", &show(&started(), VERBOSE));
    assert_golden("status.txt", &show(&status(), TEXT));
    assert_golden("status-verbose.txt", &show(&status(), VERBOSE));
    assert_golden("flows.txt", &show(&connections(), TEXT));
    assert_golden("status-brief.txt", &show(&status(), BRIEF));
    assert_golden("flows-brief.txt", &show(&connections(), BRIEF));
    assert_golden("why-brief.txt", &show(&explanation(), BRIEF));
    assert_golden("flows-verbose.txt", &show(&connections(), VERBOSE));
    assert_golden("flows-by-host.txt", &show(&examples::hosts(), TEXT));
    assert_golden("flows-by-host.json", &show(&examples::hosts(), JSON));
    let watched = |format| events().into_iter().map(|e| show(&e, format)).collect::<String>();
    assert_golden("watch.txt", &watched(TEXT));
    assert_golden("watch.jsonl", &watched(JSON));
    let top = || examples::top();
    assert_golden("top-once.txt", &show(&top(), TEXT));
    assert_golden("top-once.json", &show(&top(), JSON));
    assert_golden("why.txt", &show(&explanation(), TEXT));
    assert_golden("load.txt", &show(&load(), TEXT));
    assert_golden("load.jsonl", &show(&load(), JSON));
    assert_golden("load-self-test.txt", &show(&self_test(), TEXT));
    assert_golden("load-self-test.json", &show(&self_test(), JSON));
    assert_golden("gen.txt", &show(&examples::traffic(), TEXT));
    assert_golden("gen.json", &show(&examples::traffic(), JSON));
    assert_golden("line.txt", &show(&line_1g(), TEXT));
    assert_golden("line-slow.txt", &show(&line_at("64k"), TEXT));
    assert_golden("line.json", &show(&line_1g(), JSON));
    assert_golden("compare.txt", &show(&comparison(), TEXT));
    assert_golden("compare.json", &show(&comparison(), JSON));
    assert_golden("bench-ndr.txt", &show(&simulated(), TEXT));
    assert_golden("bench-ndr.json", &show(&simulated(), JSON));
    assert_golden("bench-ndr-concurrent.txt", &show(&examples::concurrent(), TEXT));
    assert_golden("report.json", &show(&report_as(ReportForm::Json), TEXT));
    assert_golden("report.csv", &show(&report_as(ReportForm::Csv), TEXT));
    assert_golden("bench-size.txt", &show(&examples::sizes(), TEXT));
    assert_golden("bench-size.json", &show(&examples::sizes(), JSON));
    assert_golden("bench-sweep.txt", &show(&examples::sweep(), TEXT));
    assert_golden("bench-sweep.json", &show(&examples::sweep(), JSON));
    assert_golden("bench-run.txt", &show(&examples::campaign(), TEXT));
    assert_golden("bench-run.jsonl", &show(&examples::campaign(), JSON));
    let matrix = Matrix(examples::goodput::matrix());
    assert_golden("bench-matrix.txt", &show(&matrix, TEXT));
    assert_golden("bench-matrix.json", &show(&matrix, JSON));
    assert_golden("bench-rxtx.txt", &show(&Rxtx(examples::goodput::rxtx()), TEXT));
    let latency = examples::latency();
    assert_golden("bench-latency.txt", &show(&latency, TEXT));
    assert_golden("bench-latency-verbose.txt", &show(&latency, VERBOSE));
    assert_golden("reg-decode.txt", &show(&examples::register(), TEXT));
    assert_golden("reg-decode.json", &show(&examples::register(), JSON));
    assert_golden("doctor.txt", &show(&examples::diagnoses(), VERBOSE));
    assert_golden("doctor.json", &show(&examples::diagnoses(), JSON));
    assert_golden("link.txt", &show(&examples::link(), TEXT));
    assert_golden("check.txt", &show(&examples::checks(), TEXT));
    assert_golden("trace.txt", &show(&examples::traced(), TEXT));
    assert_golden("up-dry-run.txt", &show(&dry_run(), TEXT));
    assert_golden("up-dry-run-verbose.txt", &show(&dry_run(), VERBOSE));
    assert_golden("probe.txt", &show(&probe_report(), TEXT));
    let failing = ProbeReport {
        obstacles: vec![Failure::new(FailureCode::ForwardingOff, "forwarding is off: set a sysctl")],
        ..probe_report()
    };
    assert_golden("probe-failing.txt", &show(&failing, VERBOSE));
    assert_golden("next-running.txt", &show(&Next::Running(Box::new(status())), TEXT));
    let stopped = |instance: &str, ports: &[&str]| {
        let ports = ports.iter().map(|name| (*name).to_owned()).collect();
        Next::Stopped { instance: instance.to_owned(), ports }
    };
    assert_golden("next-stopped.txt", &show(&stopped("default", &["lan0", "wan0"]), TEXT));
    assert_golden("next-stopped-lab.txt", &show(&stopped("lab", &[]), TEXT));
    assert_golden("flow-list.txt", &show(&statics(), TEXT));
}

#[test]
fn the_rate_of_udp_is_limited_to_what_the_line_carries() {
    let mut report = examples::goodput::rxtx();
    report.speed = "50M".parse().ok();
    let text = show(&Rxtx(report), TEXT);
    assert!(text.contains("UDP at 47.6 Mbit/s of payload"), "{text}");
    assert!(text.ends_with("At most what a line of 50Mbit/s carries was offered.\n"), "{text}");
}

#[test]
fn json_reads_back_as_the_same_value() {
    let back = |answer: &dyn Answer| serde_json::from_str::<Value>(&show(answer, JSON)).unwrap();
    let status_back: Status = serde_json::from_value(back(&status())).unwrap();
    assert_eq!(status_back, status());
    let flows_back: Vec<Connection> = serde_json::from_value(back(&connections())).unwrap();
    assert_eq!(flows_back, connections());
    let statics_back: StaticTable = serde_json::from_value(back(&statics())).unwrap();
    assert_eq!(statics_back, statics());
    let dry_run_back: DryRun = serde_json::from_value(back(&dry_run())).unwrap();
    assert_eq!(dry_run_back, dry_run());
    let probe_back: ProbeReport = serde_json::from_value(back(&probe_report())).unwrap();
    assert_eq!(probe_back, probe_report());
    assert_eq!(back(&started()), back(&status()));
    assert_eq!(
        back(&Counted::new(Count { count: 9 }, "flow", |flows| flows)),
        serde_json::json!({"count": 9})
    );
    let stopped = Stopped { was_running: true, killed: false, pid: Some(7) };
    assert_eq!(back(&stopped), serde_json::json!({"was_running": true, "killed": false, "pid": 7}));
}

/// Every number and text of a JSON value, with its path.
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

fn text_lacks(answer: &dyn Answer, scaled: &[&str]) -> Vec<(String, String)> {
    let value: Value = serde_json::from_str(&show(answer, JSON)).unwrap();
    let text = show(answer, VERBOSE);
    let words: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || ",()".contains(c))
        .map(|w| w.trim_end_matches(':'))
        .collect();
    let has = |leaf: &str| words.contains(&leaf) || (leaf.contains([' ', ':']) && text.contains(leaf));
    let has_bytes = |at: &str, leaf: &str| {
        let is_bytes = at.ends_with(".bytes") || at.contains(".bytes.");
        is_bytes && leaf.parse().is_ok_and(|bytes| text.contains(&units::bytes(bytes)))
    };
    let mut found = Vec::new();
    leaves("", &value, &mut found);
    assert!(found.len() > 20);
    found.retain(|(at, leaf)| {
        !has(leaf) && !has_bytes(at, leaf) && !scaled.iter().any(|end| at.ends_with(end))
    });
    found
}

#[test]
fn the_text_of_status_shows_every_value_of_the_json() {
    // These values appear in other units or words, as all bytes do: 93784 as 1d 2h 3m 4s, 0.999 as 99.9 %, true as up, 4 as ipv4. A count of one
    // rule is not shown, a rule of legacy iptables is named by its command, and `unread` is null. The longest step is shown in milliseconds.
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
        ".longest_step.name",
        ".longest_step.seconds",
        ".longest_step.cpu_seconds",
    ];
    assert_eq!(text_lacks(&status(), &scaled), []);
    let text = show(&status(), VERBOSE);
    let captures: Vec<_> = text.lines().filter(|line| line.contains("captures")).collect();
    assert_eq!(captures, ["enp1s0f1: a program captures on this port, so its flows take the slow path"]);
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
        // Shown together with their addresses, and the translated tuple only where it differs.
        ".sport",
        ".dport",
        ".src",
        ".dst",
    ];
    assert_eq!(text_lacks(&connections(), &scaled), []);
    let text = show(&connections(), TEXT);
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
fn without_connections_the_text_is_empty_and_json_is_an_empty_list() {
    assert_eq!(show(&Vec::<Connection>::new(), TEXT), "");
    assert_eq!(show(&Vec::<Connection>::new(), JSON), "[]\n");
}

/// The text between the first `from` and the next `to`.
fn between<'t>(text: &'t str, from: &str, to: &str) -> &'t str {
    let rest = text.split_once(from).unwrap_or_else(|| panic!("no {from}")).1;
    rest.split_once(to).unwrap_or_else(|| panic!("no {to}")).0
}

#[test]
fn the_page_of_a_report_contains_the_files_as_json() {
    let page = show(&report_as(ReportForm::Html), TEXT);
    let data: Value =
        serde_json::from_str(between(&page, "type=\"application/json\" id=\"data\">", "</script>")).unwrap();
    let printed: Value = serde_json::from_str(&show(&report_as(ReportForm::Json), TEXT)).unwrap();
    assert_eq!(data, printed);
    let first: Value = serde_json::from_str(&examples::result_file()).unwrap();
    assert_eq!(data["files"][0]["results"], first);
}

#[test]
fn texts_of_a_file_are_escaped_in_the_page() {
    let page = show(&report_as(ReportForm::Html), TEXT);
    // Names, conditions and units of the odd file, in plots, too.
    assert!(page.contains("&#60;/script&#62;&#60;img src=x") && page.contains("&lt;i&gt;&amp;"));
    for markup in ["<img", "<i>", "<b> ", "onerror=\"", "http://", "https://"] {
        // The XML namespace of SVG looks like an address, but nothing is fetched from it.
        let page = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        assert!(!page.contains(markup), "{markup}");
    }
}

#[test]
fn doubts_stand_above_the_values_that_they_concern() {
    let page = show(&report_as(ReportForm::Html), TEXT);
    let article = between(&page, "<h3>ndr router</h3>", "</article>");
    let at = |what: &str| article.find(what).unwrap_or_else(|| panic!("{what}: {article}"));
    let doubts = ["A, B: CPU 1 ran at 97.2 %", "B: interrupted: some of its runs are missing"];
    // The median and the share of the line, as text and as a plot.
    let values = ["805\u{a0}kpps", "54.1\u{a0}%", "1.49\u{a0}Mpps", "<svg"];
    for doubt in doubts {
        assert!(values.iter().all(|value| at(doubt) < at(value)), "{doubt}");
    }
    let above = between(&page, "<h3>many</h3>", "</article>");
    assert!(above.contains("C: above what the line can carry") && above.contains("101"), "{above}");
}
