//! The commands up, down, status, flows, flush and flow as people run them, in text and JSON.

use serde_json::Value;
use shunt_testkit::{Shunt, Stage, Topology, require_root, rulesets, silent_router, wait_for, wait_until};
use shunt_wire::Packet;
use std::time::Duration;

fn start(options: &str) -> (Topology, Shunt, Stage, Packet) {
    start_by("", options)
}

/// Runs the commands by another program; see [`Shunt::by`].
pub(crate) fn start_by(by: &str, options: &str) -> (Topology, Shunt, Stage, Packet) {
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let shunt = Shunt::on(lab.router()).by(by);
    shunt.done(&format!("up {options}"));
    let (stage, packet) = Stage::from_lan(&lab);
    (lab, shunt, stage, packet)
}

#[track_caller]
fn json(shunt: &Shunt, words: &str) -> Value {
    serde_json::from_str(&shunt.done(&format!("{words} --json"))).unwrap()
}

/// Sends packets until this number has been fast.
#[track_caller]
pub(crate) fn send_fast(shunt: &Shunt, stage: &Stage, packet: &Packet, count: u64) {
    wait_until("packets are fast", || {
        stage.pass(packet);
        json(shunt, "status")["packets"]["fast"].as_u64().unwrap() >= count
    });
}

/// The status as JSON and as text, with equal counters. The hosts and the router also send packets of their own accord
/// (neighbour discovery), so the commands are repeated until no counter changes between them.
fn status_and_text(shunt: &Shunt) -> (Value, String) {
    let same = wait_for(Duration::from_secs(30), || {
        let before = json(shunt, "status");
        let text = shunt.done("status");
        let after = json(shunt, "status");
        let counters = ["packets", "bytes", "reasons", "ports"];
        counters.iter().all(|name| before[name] == after[name]).then_some((after, text))
    });
    same.expect("counters that do not change during three commands")
}

#[test]
fn status_is_the_same_in_text_and_json() {
    if !require_root() {
        return;
    }
    for engine in ["tc", "xdp"] {
        let (_lab, shunt, stage, packet) = start(&format!("--engine {engine}"));
        send_fast(&shunt, &stage, &packet, 5);
        let (status, text) = status_and_text(&shunt);
        let ports = status["ports"].as_array().unwrap();
        let names: Vec<_> = ports.iter().map(|port| port["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["r0", "r1"]);
        assert!(ports.iter().all(|port| port["engine"] == engine), "{status:#}");
        assert!(text.contains(&format!("r0, r1: {engine}, ")), "{text}");
        let packets = &status["packets"];
        let (fast, slow) = (&packets["fast"], &packets["slow"]);
        assert!(fast.is_u64() && slow.is_u64() && slow.as_u64() > Some(0), "{status:#}");
        assert!(text.contains(&format!("packets  fast {fast} (")), "{text}");
        assert!(text.contains(&format!(", slow {slow}, dropped 0")), "{text}");
        let reasons = status["reasons"].as_object().unwrap();
        assert!(reasons["miss"].as_u64() > Some(0), "{status:#}");
        for (name, count) in reasons {
            let line = |line: &str| line.split_whitespace().eq([name.as_str(), count.to_string().as_str()]);
            assert!(text.lines().any(line), "{name} {count} is not in\n{text}");
        }
        assert_eq!(
            slow.as_u64(),
            Some(reasons.values().map(|n| n.as_u64().unwrap()).sum()),
            "all are counted"
        );
        assert_eq!(shunt.done("down"), "stopped, nothing left in the kernel\n");
    }
}

#[test]
fn flows_are_shown_as_conntrack_prints_them() {
    if !require_root() {
        return;
    }
    let (lab, shunt, stage, packet) = start("--engine xdp");
    send_fast(&shunt, &stage, &packet, 5);
    let flows = json(&shunt, "flows");
    let [flow] = &flows.as_array().unwrap()[..] else { panic!("{flows:#}") };
    let listed = lab.router().run("conntrack -L -p udp 2>/dev/null");
    let tuple = |name: &str| {
        let t = &flow[name];
        format!(
            "src={} dst={} sport={} dport={}",
            t["src"].as_str().unwrap(),
            t["dst"].as_str().unwrap(),
            t["sport"],
            t["dport"]
        )
    };
    assert!(listed.contains(&tuple("orig")) && listed.contains(&tuple("reply")), "{flow:#}\n{listed}");
    assert_eq!((&flow["state"], &flow["engine"]), (&Value::from("active"), &Value::from("xdp")));
    let (packets, bytes) = (flow["packets"].as_u64().unwrap(), flow["bytes"].as_u64().unwrap());
    assert!(packets >= 5 && bytes == packets * 40, "{flow:#}");
    let text = shunt.done("flows");
    assert!(text.starts_with("udp active xdp  "), "{text}");
    assert!(text.contains(&format!("  {packets} packets, {bytes} B  age ")), "{text}");
    assert!(text.contains("r0 192.168.1.2:4000 > 198.18.0.2:5000 -> r1 snat 198.18.0.1:4000"), "{text}");
    assert!(text.contains("198.18.0.2:5000 > 198.18.0.1:4000, by Linux"), "{text}");

    let count = |words: &str| json(&shunt, &format!("flows {words}")).as_array().unwrap().len();
    assert_eq!(count("--dst 198.18.0.2 --sort rate"), 1);
    assert_eq!(count("--dst 198.18.0.0/24 --proto udp --state active --engine xdp --port r1"), 1);
    for other in ["--dst 192.0.2.1", "--proto tcp", "--dport 5001", "--state retired", "--engine tc"] {
        assert_eq!(count(other), 0, "{other}");
    }
}

#[test]
fn a_flush_sends_flows_back_to_linux() {
    if !require_root() {
        return;
    }
    let (_lab, shunt, stage, packet) = start("");
    send_fast(&shunt, &stage, &packet, 5);
    assert_eq!(json(&shunt, "flush")["count"], 1);
    assert_eq!(json(&shunt, "status")["epoch_moves"]["flush"], 1);
    let fast = json(&shunt, "status")["packets"]["fast"].as_u64().unwrap();
    stage.pass(&packet);
    assert_eq!(json(&shunt, "status")["packets"]["fast"], fast);
    send_fast(&shunt, &stage, &packet, fast + 1);
    assert_eq!(shunt.done("flush"), "1 flow sent back to the slow path\n");
}

/// Static flows need no connection tracking and no ruleset; the file has the next hop.
#[test]
fn flows_of_a_file_are_forwarded_without_conntrack() {
    if !require_root() {
        return;
    }
    let lab = silent_router("table inet none { }");
    let shunt = Shunt::on(lab.router());
    let config = shunt.file("shunt.toml", "learn = false\nengine = \"xdp\"\n");
    shunt.done(&format!("up --config {}", config.display()));
    let flow = |sport: u16| {
        format!(
            "[[flow]]\nin_port = \"r0\"\nproto = \"udp\"\nsrc = \"192.168.1.2\"\nsport = {sport}\n\
             dst = \"203.0.113.9\"\ndport = 5000\nsnat = \"198.18.0.1:{sport}\"\nroute = \"up\"\n"
        )
    };
    let flows: String = (1000..3000).map(flow).collect();
    let route = "[[route]]\nname = \"up\"\nout_port = \"r1\"\ndmac = \"02:00:00:00:02:77\"\n";
    let file = shunt.file("flows.toml", &format!("{route}{flows}"));
    let load = format!("flow load {}", file.display());
    assert_eq!(json(&shunt, &load)["count"], 2001);
    let stage = Stage::new(lab.lan(), &[lab.wan()]);
    for port in [1000, 1999, 2999] {
        let packet = lab.lan().udp_to(port, "203.0.113.9:5000".parse().unwrap()).payload("by hand");
        let seen = stage.pass(&packet);
        assert_eq!(seen.ethernet.destination.to_string(), "02:00:00:00:02:77");
        assert_eq!(seen.source(), Some(format!("198.18.0.1:{port}").parse().unwrap()));
    }
    assert_eq!(json(&shunt, "status")["packets"]["fast"], 3);
    assert_eq!(json(&shunt, "status")["flows"]["static"], 2000);
    assert_eq!(json(&shunt, "flow list")["flow"].as_array().unwrap().len(), 2000);

    // A changed route applies to all its flows.
    let changed = shunt.file("route.toml", &route.replace(":77", ":88"));
    assert_eq!(json(&shunt, &format!("flow load {}", changed.display()))["count"], 1);
    let packet = lab.lan().udp_to(1500, "203.0.113.9:5000".parse().unwrap()).payload("by hand");
    assert_eq!(stage.pass(&packet).ethernet.destination.to_string(), "02:00:00:00:02:88");

    // A file with a mistake changes nothing, and a route in use cannot be removed.
    let wrong = flow(3500).replace("\"up\"", "\"nowhere\"");
    let wrong = shunt.file("wrong.toml", &format!("{}{}{wrong}", route.replace(":77", ":99"), flow(3400)));
    let output = shunt.run(&format!("flow load {}", wrong.display()));
    assert!(output.code == Some(23) && output.err.contains("no route `nowhere`"), "{output:?}");
    assert!(output.err.contains("wrong.toml: "), "{output:?}");
    assert_eq!(stage.pass(&packet).ethernet.destination.to_string(), "02:00:00:00:02:88");
    let output = shunt.run("flow del --route up");
    assert!(output.code == Some(23) && output.err.contains("route `up`"), "{output:?}");
    assert_eq!(json(&shunt, "status")["flows"]["static"], 2000);
    assert_eq!(json(&shunt, &format!("flow del --file {}", file.display()))["count"], 2001);
    assert_eq!(json(&shunt, "status")["flows"]["static"], 0);
    assert!(!stage.passes(&packet));
}
