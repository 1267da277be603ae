//! Metrics are right, well-formed and bounded.

use crate::{OPEN, Stage, silent};
use shunt_api::FailureCode;
use shunt_testkit::{Shuntd, Topology, require_root, skip};
use std::{
    collections::BTreeMap,
    io::Write,
    net::TcpListener,
    process::{Command, Stdio},
};

/// The values of a page, by name and labels.
fn values(page: &str) -> BTreeMap<&str, f64> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name, value.parse().unwrap()))
        .collect()
}

fn page(shuntd: &Shuntd) -> String {
    let (status, page) = shuntd.request("GET", "/metrics", "").unwrap();
    assert_eq!(status, 200, "{page}");
    page
}

#[test]
fn metrics_say_what_status_says() {
    if !require_root() {
        return;
    }
    let lab = silent(Topology::two_hosts_and_a_router(), OPEN);
    let shuntd = Shuntd::on(lab.router()).engine("tc").start();
    let stage = Stage::new(lab.lan(), &[lab.wan()]);
    let packet = lab.lan().udp_to(4000, lab.wan().at(5000)).payload("counted in both");
    stage.teach(&shuntd, &packet);
    let (page, status) = (page(&shuntd), shuntd.status());
    let values = values(&page);
    for port in &status.ports {
        let value = |name: &str, labels: &str| {
            let key = format!("{name}{{{labels}}}");
            *values.get(key.as_str()).unwrap_or_else(|| panic!("{key} is not in\n{page}"))
        };
        let name = &port.name;
        let packets = |path: &str, engine: &str| {
            value("shunt_packets_total", &format!(r#"engine="{engine}",path="{path}",port="{name}""#))
        };
        assert_eq!(packets("fast", "tc"), port.packets.tc as f64);
        assert_eq!(packets("slow", ""), port.packets.slow as f64);
        let slow = format!(r#"engine="",path="slow",port="{name}""#);
        assert_eq!(value("shunt_bytes_total", &slow), port.bytes.slow as f64);
        for (reason, count) in &port.reasons {
            let labels = format!(r#"port="{name}",reason="{reason}""#);
            assert_eq!(value("shunt_punts_total", &labels), *count as f64);
        }
    }
    assert!(status.packets.fast > 0 && values[r#"shunt_flows{state="active"}"#] == 1.0, "{page}");
    assert_eq!(values["shunt_flows_max"], status.flows.max as f64);
}

#[test]
fn promtool_finds_nothing_to_say() {
    if !require_root() {
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/promtool.sh");
    let found = Command::new(script).output().unwrap();
    if !found.status.success() {
        return skip(&format!("there is no promtool: {}", String::from_utf8_lossy(&found.stderr)));
    }
    let promtool = String::from_utf8(found.stdout).unwrap();
    let check = |page: &str| {
        let mut command = Command::new(promtool.trim());
        command
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.success(), [output.stdout, output.stderr].concat())
    };
    let lab = silent(Topology::two_hosts_and_a_router(), OPEN);
    let shuntd = Shuntd::on(lab.router()).start();
    let stage = Stage::new(lab.lan(), &[lab.wan()]);
    stage.teach(&shuntd, &lab.lan().udp_to(4000, lab.wan().at(5000)).payload("to be counted"));
    let page = page(&shuntd);
    let (good, said) = check(&page);
    assert!(good && said.is_empty(), "{}\n{page}", String::from_utf8_lossy(&said));
    let (good, said) = check(&page.replace("shunt_packets_total", "shunt_packets"));
    assert!(!good && !said.is_empty(), "promtool is easily pleased");
}

#[test]
fn the_tcp_listener_serves_metrics_and_nothing_else() {
    if !require_root() {
        return;
    }
    let lab = Topology::two_hosts_and_a_router();
    lab.router().run("ip link set lo up");
    let shuntd = Shuntd::on(lab.router()).config("metrics = 9469").start();
    let curl = |words: &str| {
        let line = format!("curl --silent --max-time 10 -w '\\n%{{http_code}}' {words}");
        let said = lab.router().run(&line);
        let (body, status) = said.rsplit_once('\n').unwrap();
        (status.to_owned(), body.to_owned())
    };
    let (status, page) = curl("http://127.0.0.1:9469/metrics");
    assert!(status == "200" && page.contains("shunt_info{"), "{status} {page}");
    for (words, expected) in [
        ("http://127.0.0.1:9469/v1/status", "404"),
        ("-X POST http://127.0.0.1:9469/v1/stop", "403"),
        ("-X POST http://127.0.0.1:9469/metrics", "403"),
        ("-X DELETE http://127.0.0.1:9469/v1/static", "403"),
    ] {
        let (status, body) = curl(words);
        assert_eq!(status, expected, "{words}: {body}");
    }
    let other = format!("http://{}:9469/metrics", lab.wan().gateway_v4);
    assert!(
        lab.router().try_run(&format!("curl --silent --max-time 5 {other}")).is_err(),
        "only on loopback"
    );
    drop(shuntd);
    assert!(lab.router().try_run("curl --silent --max-time 5 http://127.0.0.1:9469/metrics").is_err());
}

#[test]
fn an_address_that_is_taken_is_one_line_and_leaves_nothing() {
    if !require_root() {
        return;
    }
    let lab = Topology::two_hosts_and_a_router();
    lab.router().run("ip link set lo up");
    let _taken = lab.router().within(|| TcpListener::bind("127.0.0.1:9469").unwrap());
    let refused = Shuntd::on(lab.router()).config("metrics = \"127.0.0.1:9469\"").try_start();
    let (status, said) = refused.map(|_| ()).unwrap_err();
    assert_eq!(status.code(), Some(FailureCode::AddressInUse.exit_code().into()), "{said}");
    assert!(said.contains("127.0.0.1:9469") && said.trim_end().lines().count() == 1, "{said}");
}

/// What a flow counted is kept for `shunt conntrack` while conntrack knows the connection, for four times `max_flows` at most.
#[test]
fn counts_that_found_no_place_are_told_of() {
    if !require_root() {
        return;
    }
    let lab = silent(Topology::two_hosts_and_a_router(), OPEN);
    for timeout in ["udp_timeout", "udp_timeout_stream"] {
        lab.router().sysctl(&format!("netfilter/nf_conntrack_{timeout}"), 600);
    }
    let shuntd = Shuntd::on(lab.router()).engine("tc").config("max_flows = 64").start();
    let stage = Stage::new(lab.lan(), &[lab.wan()]);
    let mut next = 10_000;
    // All of the table goes five times; four times fit.
    for _ in 0..5 {
        for port in next..next + 60 {
            let packet = lab.lan().udp_to(port, lab.wan().at(5000)).payload("one of many");
            for _ in 0..4 {
                stage.pass(&packet);
            }
        }
        next += 60;
        assert_eq!(shuntd.status().counts_lost, 0, "{:#?}", shuntd.status());
        shuntd.flush();
        shuntd.wait_until("the table is empty", |s| s.flows.retired + s.flows.active + s.flows.pending == 0);
    }
    let status = shuntd.wait_until("counts are lost", |s| s.counts_lost > 0);
    let lost = status.counts_lost;
    assert!(lost <= status.learned - 4 * 64, "{status:#?}");
    assert_eq!(values(&page(&shuntd))["shunt_counts_lost_total"], lost as f64);
    let said = String::from_utf8(shuntd.shunt(&["status"]).stdout).unwrap();
    assert!(said.contains(&format!("counts of {lost} flows that are gone are lost")), "{said}");
    shuntd.stop();
}
