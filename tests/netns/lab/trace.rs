//! `shunt trace` on routers and hosts in namespaces: every packet is followed, stages add up, and nothing is left
//! behind.

use super::gen_command::{NICS, bench, json};
use nix::sys::signal::Signal;
use serde_json::Value;
use shunt_api::Engine;
use shunt_testkit::{
    Crossing, KernelObjects, NetNs, Running, SELDOM_PROVED, Shunt, TcpEcho, daemon_with, require_root,
    rulesets, sent_by, silent_router, tcp_exchange, wait_for, wait_until,
};
use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

/// Starts a trace, and waits until packets are traced.
#[track_caller]
fn start(shunt: &Shunt, words: &str) -> Running {
    let mut running = shunt.start(&format!("trace --seconds 600 --json {words}"));
    let attached = wait_for(Duration::from_secs(60), || {
        assert_eq!(running.ended(), None, "{}", running.err());
        running.err().contains("tracing").then_some(())
    });
    assert!(attached.is_some(), "no program is attached after a minute: {}", running.err());
    running
}

/// Ends a trace by a signal, and returns its report.
#[track_caller]
fn end(mut running: Running, signal: Signal) -> Value {
    let held = KernelObjects::held_by(running.pid());
    assert!(!held.links().is_empty());
    running.signal(signal);
    wait_until("the trace ends", || running.ended().is_some());
    assert_eq!(held.not_freed(), None);
    assert_eq!(running.ended(), Some(Some(128 + signal as i32)));
    serde_json::from_str(&running.out())
        .unwrap_or_else(|e| panic!("{e}: {} {}", running.err(), running.out()))
}

/// The paths of a way.
fn paths<'r>(report: &'r Value, way: &str) -> Vec<&'r Value> {
    report["paths"].as_array().unwrap().iter().filter(|path| path["way"] == way).collect()
}

fn stages(path: &Value) -> Vec<&str> {
    path["stages"].as_array().unwrap().iter().map(|stage| stage["stage"].as_str().unwrap()).collect()
}

/// Whether the kernel has BPF programs of netfilter, which tell a packet's path through Linux.
fn shows_hooks(report: &Value) -> bool {
    report["missing"]["prerouting"].is_null()
}

/// Every row's stages add up to its total, and every path's shares to its mean.
#[track_caller]
fn assert_sums(report: &Value) {
    for row in report["rows"].as_array().unwrap().iter().flat_map(|rows| rows.as_array().unwrap()) {
        let steps = row["steps"].as_array().unwrap();
        let sum: u64 = steps.iter().map(|step| step["ns"].as_u64().unwrap()).sum();
        assert_eq!(Some(sum), row["total_ns"].as_u64(), "{row:#}");
    }
    for path in report["paths"].as_array().unwrap() {
        let shares: f64 =
            path["stages"].as_array().unwrap().iter().map(|stage| stage["share_ns"].as_f64().unwrap()).sum();
        assert!((shares - path["total"]["mean_ns"].as_f64().unwrap()).abs() < 1.0, "{path:#}");
    }
}

#[test]
fn every_forwarded_packet_is_followed_and_takes_no_longer_than_its_latency() {
    if !require_root() {
        return;
    }
    let bench = bench();
    let router = Shunt::on(&bench.router);
    // The router learns its neighbours before.
    bench.shunt.done(&format!("gen {NICS} --rate 1kpps --time 100ms"));
    let trace = start(&router, "--sample 1 -p udp");
    let sent = json(&bench.shunt.run(&format!("gen {NICS} --rate 2kpps --time 1s --warm-up 0s")));
    let report = end(trace, Signal::SIGINT);

    let [path] = paths(&report, "slow")[..] else { panic!("{report:#}") };
    assert_eq!((&path["from"], &path["to"], &path["dropped"]), (&"p0".into(), &"p1".into(), &0.into()));
    let received = sent["directions"][0]["received"].as_u64();
    assert_eq!(path["packets"].as_u64(), received, "{report:#}");
    assert!(received > Some(0));
    let linux = ["ingress", "prerouting", "routing", "forward", "output", "postrouting", "neighbour"];
    let linux = if shows_hooks(&report) { &linux[..] } else { &["linux"] };
    let expected = [&["gro"], linux, &["qdisc", "transmit", "completion"]].concat();
    assert_eq!(stages(path), expected);
    assert_sums(&report);
    // Each packet crosses the router within its latency, so every order statistic does. The generator's clock counts in
    // buckets of 1/64.
    let latency = |name: &str| sent["latency_us"][name].as_f64().unwrap() * 1000.0 * (1.0 + 1.0 / 32.0);
    for (name, key) in [("p50", "p50_ns"), ("p99", "p99_ns"), ("max", "max_ns")] {
        let crossing = path["crossing"][key].as_f64().unwrap();
        assert!(crossing <= latency(name), "{name}: {crossing} {}", latency(name));
    }
    assert!(path["total"]["p50_ns"].as_u64() > Some(0));
    for lost in ["slots_busy", "ring_full", "events", "not_kept"] {
        assert_eq!(report["lost"][lost], 0, "{report:#}");
    }
    assert!(report["cost"]["probe_ns"].is_number(), "{report:#}");
}

#[test]
fn a_filter_and_a_port_leave_out_the_rest_and_a_dropped_packet_is_told() {
    if !require_root() {
        return;
    }
    let bench = bench();
    let router = Shunt::on(&bench.router);
    bench
        .router
        .nft("table inet f { chain c { type filter hook forward priority 0; udp dport 5001 drop; }; }");
    let trace = start(&router, "p0 --sample 1 --dport 5001");
    let other = start(&router, "p1 --sample 1 -p udp");
    let third = start(&router, "--sample 1 --dport 9");
    let sent = json(&bench.shunt.run(&format!("gen {NICS} --rate 1kpps --time 300ms --warm-up 0s")));
    let report = end(trace, Signal::SIGTERM);
    let [path] = paths(&report, "slow")[..] else { panic!("{report:#}") };
    assert_eq!((&path["packets"], &path["dropped"]), (&0.into(), &sent["sent"]));
    for report in [end(other, Signal::SIGTERM), end(third, Signal::SIGTERM)] {
        assert_eq!(report["paths"].as_array().unwrap().len(), 0, "{report:#}");
    }
    assert_eq!(router.run("trace nosuchport --seconds 1").code, Some(13));
}

#[test]
fn a_host_is_traced_at_all_its_addresses() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
    lab.router().sysctl("netfilter/nf_conntrack_acct", 1);
    for (family, wan) in [("-4", IpAddr::from(lab.wan().v4)), ("-6", lab.wan().v6.into())] {
        lab.router().run(&format!("ip {family} route add default via {wan} dev {}", lab.wan().gateway));
    }
    let shunt = Shunt::on(lab.router());
    shunt.done("up --engine tc");
    let there = Crossing::between(lab.lan(), lab.wan());
    let both = [lab.lan().udp_to(4000, lab.wan().at(5000)), lab.lan().udp_to(4000, lab.wan().at6(5000))];
    let mac = lab.lan().mac;
    // The daemon learns the addresses of the host from its packets.
    let known = wait_for(Duration::from_secs(60), || {
        both.iter().for_each(|packet| drop(there.pass(packet)));
        let usage: Value = serde_json::from_str(&shunt.done("usage --json --for 1h")).unwrap();
        let hosts = usage["hosts"].as_array().unwrap();
        let host = hosts.iter().find(|host| host["mac"] == mac.to_string().as_str())?;
        (host["addresses"].as_array()?.len() == 2).then_some(())
    });
    assert!(known.is_some(), "{}", shunt.done("usage --json --for 1h"));
    let trace = start(&shunt, &format!("--sample 1 --host {mac} --dport 5000"));
    for _ in 0..20 {
        both.iter().for_each(|packet| drop(there.pass(packet)));
    }
    let report = end(trace, Signal::SIGINT);
    let rows = report["rows"].as_array().unwrap().iter().flat_map(|rows| rows.as_array().unwrap());
    let text = rows.map(Value::to_string).collect::<String>();
    let [v4, v6] = [lab.lan().v4.to_string(), lab.lan().v6.to_string()];
    assert!(text.contains(&v4) && text.contains(&v6), "{report:#}");
    shunt.done("down");
}

/// Traces twenty packets of each of `flows` UDP flows, the first of which is fast. Returns the report, and how many
/// packets the engine sent meanwhile.
fn traced(engine: Engine, flows: u16) -> (Value, u64) {
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let (there, back) = (Crossing::between(lab.lan(), lab.wan()), Crossing::between(lab.wan(), lab.lan()));
    let packet = |flow: u16| lab.lan().udp_to(4000 + flow, lab.wan().at(5000 + flow));
    let shuntd = daemon_with(&lab, engine, SELDOM_PROVED);
    back.pass(&lab.wan().answer_to(&there.pass(&packet(0)).packet().unwrap()));
    there.teach(&shuntd, &packet(0));
    let before = sent_by(engine, &shuntd.status());
    let shunt = Shunt::on(lab.router());
    let trace = start(&shunt, "--sample 1 -p udp");
    for _ in 0..20 {
        (0..flows).for_each(|flow| drop(there.pass(&packet(flow))));
    }
    let report = end(trace, Signal::SIGINT);
    let sent = sent_by(engine, &shuntd.status()) - before;
    shuntd.stop();
    (report, sent)
}

#[test]
fn packets_of_the_tc_engine_are_fast_beside_slow_ones() {
    if !require_root() {
        return;
    }
    let (report, sent) = traced(Engine::Tc, 2);
    let fast: u64 = paths(&report, "tc").iter().map(|path| path["packets"].as_u64().unwrap()).sum();
    let slow: u64 = paths(&report, "slow").iter().map(|path| path["packets"].as_u64().unwrap()).sum();
    assert_eq!(fast + slow, 40, "{report:#}");
    if shows_hooks(&report) {
        // The second flow is learned on the way.
        assert_eq!(fast, sent, "{report:#}");
        assert!(slow > 0 && stages(paths(&report, "tc")[0]).contains(&"fast-path"), "{report:#}");
    }
    assert_sums(&report);
}

#[test]
fn frames_of_the_xdp_engine_are_followed_where_the_kernel_shows_their_entry() {
    if !require_root() {
        return;
    }
    let (report, sent) = traced(Engine::Xdp, 1);
    assert!(sent > 0, "{report:#}");
    if report["missing"]["xdp-decision"].is_string() {
        assert!(report["missing"]["xdp-decision"].as_str().unwrap().contains("fentry"), "{report:#}");
        assert!(paths(&report, "xdp").is_empty(), "{report:#}");
        return;
    }
    let [path] = paths(&report, "xdp")[..] else { panic!("{report:#}") };
    assert_eq!(path["packets"].as_u64(), Some(sent), "{report:#}");
    assert_eq!(stages(path), ["xdp-decision", "xdp-redirect", "xdp-transmit"]);
    assert_sums(&report);
}

#[test]
fn local_tcp_is_followed_from_the_send_call_to_the_wire_and_back() {
    if !require_root() {
        return;
    }
    let (near, far) = (NetNs::new("near"), NetNs::new("far"));
    near.run(&format!("ip link add n0 type veth peer name f0 netns {}", far.name()));
    near.run("ip address add 192.0.2.1/24 dev n0 && ip link set n0 up");
    far.run("ip address add 192.0.2.2/24 dev f0 && ip link set f0 up");
    let server: SocketAddr = "192.0.2.2:7".parse().unwrap();
    let _echo = TcpEcho::start(&far, server);
    let shunt = Shunt::on(&near);
    let trace = start(&shunt, "--sample 1 -p tcp --dport 7 --rows 100");
    for _ in 0..5 {
        let answer = tcp_exchange(&near, server, b"where does the time go?", Duration::from_secs(5));
        assert_eq!(answer.unwrap(), b"where does the time go?");
    }
    let report = end(trace, Signal::SIGINT);
    assert_sums(&report);
    if !shows_hooks(&report) {
        assert!(paths(&report, "received").iter().any(|path| stages(path).contains(&"tcp-in")), "{report:#}");
        return;
    }
    let [trip] = paths(&report, "round-trip")[..] else { panic!("{report:#}") };
    assert_eq!((&trip["from"], &trip["to"]), (&"n0".into(), &"n0".into()));
    let seen = stages(trip);
    for stage in ["local-out", "qdisc", "transmit", "away", "gro", "routing"] {
        assert!(seen.contains(&stage), "{stage}: {trip:#}");
    }
    // A socket that a thread holds takes its packets later, after the round trip.
    let received = paths(&report, "received");
    let taken = |stage: &str| received.iter().any(|path| stages(path).contains(&stage));
    assert!(seen.contains(&"tcp-in") || taken("tcp-in"), "{report:#}");
    // A kernel that shows send calls shows which thread made one.
    if report["missing"]["send"].is_null() {
        let sent = paths(&report, "sent")[0];
        let out =
            sent["stages"].as_array().unwrap().iter().find(|stage| stage["stage"] == "tcp-out").unwrap();
        // Sockets are told apart by a hash, so the call of one may be lost to another.
        assert!(out["count"].as_u64() >= Some(1) && !out["thread"].as_str().unwrap().is_empty(), "{sent:#}");
    }
    assert!(taken("read"), "{report:#}");
}

#[test]
fn bisecting_names_the_function_or_says_what_the_kernel_lacks() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let (router, lan) = (Shunt::on(lab.router()), lab.lan());
    let delayed = lab.router().try_run("tc qdisc add dev r1 root netem delay 20ms").is_ok();
    let socket = lan.ns.within(|| UdpSocket::bind(lan.at(4000))).unwrap();
    let ended = AtomicBool::new(false);
    let output = thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                socket.send_to(&[0; 64], lab.wan().at(5000)).unwrap();
                thread::sleep(Duration::from_millis(2));
            }
        });
        let output = router.run("trace --seconds 1 --sample 1 --bisect --json");
        ended.store(true, Ordering::Relaxed);
        output
    });
    let report: Value = serde_json::from_str(&output.out).unwrap();
    assert!(!paths(&report, "slow").is_empty(), "{report:#}");
    if output.code == Some(2) {
        let why = report["bisection_failed"].as_str().unwrap();
        let said = why.split(" (os error").next().unwrap();
        assert!(why.contains("kprobe") && output.err.contains(said), "{}", output.err);
        return;
    }
    let found = &report["bisection"];
    assert!(!found["rounds"].as_array().unwrap().is_empty() && found["culprit_ns"].is_number(), "{found:#}");
    if delayed {
        // The packet waits between the functions that put it into the qdisc and take it out.
        assert!(found["stage"] == "qdisc" && found["next"].is_string(), "{found:#}");
        assert!(found["culprit_ns"].as_f64() > Some(19e6), "{found:#}");
    }
}
