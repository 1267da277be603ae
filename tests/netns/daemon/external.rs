//! The external engine: its process, what it forwards, and what happens when it ends, hangs or cannot serve a port.

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use shunt_api::{AfXdpMode, Engine, QosStatus, Status};
use shunt_testkit::{
    Crossing, Handshake, SELDOM_PROVED, Shuntd, Topology, port_engine, require_root, rulesets, sent_by,
    silent_router, wait_for,
};
use shunt_wire::{Mac, Packet, Tag};
use std::{
    fs,
    slice::from_ref,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(20);
/// Long enough for a frame to arrive.
const QUIET: Duration = Duration::from_millis(300);

/// A daemon whose ports the external engine serves.
#[track_caller]
fn served(lab: &Topology, config: &str) -> Shuntd {
    let shuntd = Shuntd::on(lab.router()).engine("external").config(config).start();
    shuntd.wait_until("the engine serves both ports", is_served);
    shuntd
}

fn is_served(status: &Status) -> bool {
    status.ports.len() == 2 && status.ports.iter().all(|port| port.engine == Engine::External)
}

/// The engine's process: the daemon's child.
fn engine_pid(shuntd: &Shuntd) -> Pid {
    let pid = shuntd.pid();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let is_engine = |child: &&str| {
        fs::read_to_string(format!("/proc/{child}/cmdline"))
            .is_ok_and(|line| line.contains("--external-engine"))
    };
    let child =
        children.split_whitespace().find(is_engine).unwrap_or_else(|| panic!("no engine: {children}"));
    Pid::from_raw(child.parse().unwrap())
}

/// Packets that differ, so that a lost or doubled one shows.
fn numbered(packet: &Packet, numbers: std::ops::Range<u32>) -> Vec<Packet> {
    numbers.map(|n| packet.clone().payload([&n.to_be_bytes()[..], &[n as u8; 40]].concat())).collect()
}

#[track_caller]
fn pass_all_the_same(way: &Crossing, packets: &[Packet], like: &Packet) {
    for packet in packets {
        let seen = way.pass(packet).packet().unwrap();
        assert_eq!(seen.payload, packet.payload, "{:?}", seen.source());
        assert_eq!((seen.source(), seen.destination()), (like.source(), like.destination()));
    }
}

#[test]
fn learned_flows_of_udp_and_tcp_leave_by_it_and_are_listed_counted_and_explained() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let shuntd = served(&lab, SELDOM_PROVED);
    let (lan, wan) = (lab.lan(), lab.wan());
    let (there, back) = (Crossing::between(lan, wan), Crossing::between(wan, lan));

    // As long as the others: a flow takes packets longer than any so far through Linux first.
    let udp = lan.udp_to(4000, wan.at(5000)).payload([0; 44]);
    there.teach(&shuntd, &udp);
    let seen = there.pass(&udp).packet().unwrap();
    let before = sent_by(Engine::External, &shuntd.status());
    pass_all_the_same(&there, &numbered(&udp, 0..40), &seen);
    let status = shuntd
        .wait_until("40 packets are counted", |status| sent_by(Engine::External, status) >= before + 40);
    assert_eq!(sent_by(Engine::External, &status), before + 40, "{status:#?}");

    let syn = lan.tcp_to(4001, wan.at(80), 0);
    let connection = Handshake::open(&there, &back, &syn, wan);
    let packet = connection.from_client(&syn, 0, []);
    there.teach(&shuntd, &packet);
    let seen = there.pass(&packet).packet().unwrap();
    pass_all_the_same(&there, &numbered(&packet, 0..40), &seen);

    let flows = shuntd.flows();
    assert_eq!(flows.len(), 2, "{flows:#?}");
    assert!(flows.iter().all(|flow| flow.engine == Engine::External && flow.packets >= 40), "{flows:#?}");
    let why = shuntd.shunt(&["why", "--dport", "5000"]);
    assert!(String::from_utf8_lossy(&why.stdout).contains("external"), "{why:?}");
    let shown = shuntd.shunt(&["status", "--verbose"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("external"), "{shown:?}");
    shuntd.stop();
}

#[test]
fn an_engine_that_ends_or_hangs_leaves_its_flows_to_tc_until_it_runs_again() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let shuntd = served(&lab, SELDOM_PROVED);
    let there = Crossing::between(lab.lan(), lab.wan());
    let packet = lab.lan().udp_to(4000, lab.wan().at(5000));
    for signal in [Signal::SIGKILL, Signal::SIGSTOP] {
        there.teach(&shuntd, &packet);
        let seen = there.pass(&packet).packet().unwrap();
        let first = engine_pid(&shuntd);
        kill(first, signal).unwrap();
        shuntd.wait_until("its ports use tc", |status| {
            status.ports.iter().all(|port| {
                // The XDP program stays: to attach one resets the link of some NICs.
                port.engine == Engine::Tc
                    && port.xdp_attached
                    && port.engine_reason.contains("the external engine has ended")
            })
        });
        pass_all_the_same(&there, &numbered(&packet, 0..10), &seen);
        let status = shuntd.wait_until("it serves them again", is_served);
        assert!(sent_by(Engine::Tc, &status) > 0, "{status:#?}");
        assert_ne!(engine_pid(&shuntd), first);
        let before = sent_by(Engine::External, &status);
        there.teach(&shuntd, &packet);
        pass_all_the_same(&there, &numbered(&packet, 0..10), &seen);
        shuntd.wait_until("it forwards again", |status| sent_by(Engine::External, status) > before);
    }
    shuntd.stop();
}

#[test]
fn a_port_that_it_cannot_serve_uses_tc_and_says_why() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
    lab.router().run("ip link set r1 mtu 3000");
    let shuntd = Shuntd::on(lab.router()).engine("external").start();
    let status = shuntd.wait_until("it serves r0", |status| port_engine(status, "r0") == Engine::External);
    let r1 = status.ports.iter().find(|port| port.name == "r1").unwrap();
    assert!(r1.engine == Engine::Tc && r1.engine_reason.contains("MTU of 3000"), "{}", r1.engine_reason);
    let there = Crossing::between(lab.lan(), lab.wan());
    let packet = lab.lan().udp_to(4000, lab.wan().at(5000));
    there.teach(&shuntd, &packet);
    there.pass(&packet);
    assert!(sent_by(Engine::Tc, &shuntd.status()) > 0);

    lab.router().run("ip link set r1 mtu 1500");
    shuntd.wait_until("it serves both", is_served);
    shuntd.stop();
}

#[test]
fn it_keeps_no_privileges_and_copies_packets_of_veths() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let shuntd = served(&lab, "");
    let state = fs::read_to_string(format!("/proc/{}/status", engine_pid(&shuntd))).unwrap();
    let field = |name: &str| {
        let line = state.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_whitespace().nth(1).map(str::to_owned).unwrap_or_default()
    };
    for capabilities in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(field(capabilities).trim_start_matches('0'), "", "{state}");
    }
    assert_eq!((field("NoNewPrivs:").as_str(), field("Seccomp:").as_str()), ("1", "2"), "{state}");

    let modes: Vec<_> = shuntd.status().ports.iter().map(|port| port.af_xdp_mode).collect();
    assert_eq!(modes, [Some(AfXdpMode::Copy); 2]);
    assert!(shuntd.log().contains("no zero copy in the drivers of r0, r1"), "{}", shuntd.log());
    let shown = shuntd.shunt(&["status", "--verbose"]);
    assert!(
        String::from_utf8_lossy(&shown.stdout).contains("r0, r1: external (AF_XDP mode: copy)"),
        "{shown:?}"
    );
    shuntd.stop();
}

#[test]
fn frames_of_the_vlan_to_copy_leave_unchanged_and_no_others() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let shuntd = served(&lab, "external_copy_vlan = 255\n");
    assert!(
        shuntd.log().contains("frames of VLAN 255 pass between its two ports without Linux"),
        "{}",
        shuntd.log()
    );
    let (lan, wan) = (lab.lan(), lab.wan());
    // Nothing that Linux would forward: no such sender, the last hop.
    let strange = Packet::udp_between("192.0.2.1:7".parse().unwrap(), "192.0.2.2:9".parse().unwrap());
    let strange =
        strange.macs(Mac([2, 0, 0, 0, 7, 1]), Mac([2, 0, 0, 0, 7, 2])).with_hop_limit(1).payload([5; 44]);
    let tagged = |vlan| strange.clone().with_tags(&[Tag::vlan(vlan)]);
    let status_before = sent_by(Engine::External, &shuntd.status());
    for (from, to) in [(lan.tap(), wan.tap()), (wan.tap(), lan.tap())] {
        from.send(&tagged(255));
        let frame = to.capture(PATIENCE, |frame| frame.bytes == tagged(255).to_bytes());
        assert!(frame.is_some(), "a frame of VLAN 255 did not leave as it came");
        let others = [strange.clone(), tagged(254), tagged(256 + 255)];
        others.iter().for_each(|packet| from.send(packet));
        let seen =
            to.capture(QUIET, |frame| frame.packet().is_some_and(|packet| packet.payload == strange.payload));
        assert!(seen.is_none(), "{seen:?}");
    }
    let status =
        shuntd.wait_until("both are counted", |status| sent_by(Engine::External, status) > status_before + 1);
    assert_eq!(sent_by(Engine::External, &status), status_before + 2);

    let (from, to) = (lan.tap(), wan.tap());
    kill(engine_pid(&shuntd), Signal::SIGKILL).unwrap();
    from.send(&tagged(255));
    assert!(
        to.capture(QUIET, |frame| frame.bytes == tagged(255).to_bytes()).is_none(),
        "copied without an engine"
    );
    shuntd.stop();
}

/// Two classes behind a shaper: 200 kbit/s, so that 20 packets of 1,000 bytes take 0.8 s.
const QUEUES: &str = r#"
[qos.r1]
rate = "200k"
burst = "1600"
[[qos.r1.class]]
name = "voice"
dscp = ["ef"]
[[qos.r1.class]]
name = "bulk"
priority = 1
target = "0s"
"#;
const QUEUED: usize = 20;

/// Sends packets at once; returns those that arrive within a time, and when the last one did.
fn send_all(way: &Crossing, packets: &[Packet], within: Duration) -> (Vec<Packet>, Duration) {
    way.to.drain();
    let begun = Instant::now();
    packets.iter().for_each(|packet| way.from.send(packet));
    let (mut seen, mut last) = (Vec::new(), Duration::ZERO);
    way.to.capture(within, |frame| {
        if let Some(packet) = frame.packet()
            && packets.iter().any(|sent| sent.payload == packet.payload)
        {
            last = begun.elapsed();
            seen.push(packet);
        }
        seen.len() == packets.len()
    });
    (seen, last)
}

fn queues(shuntd: &Shuntd) -> QosStatus {
    let (code, body) = shuntd.request("GET", "/v1/qos", "").unwrap();
    assert_eq!(code, 200, "{body}");
    serde_json::from_str::<Vec<QosStatus>>(&body).unwrap().remove(0)
}

#[test]
fn packets_leave_at_the_rate_and_in_the_order_of_their_classes_and_changes_hold_at_once() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let shuntd = served(&lab, &format!("{SELDOM_PROVED}{QUEUES}"));
    let there = Crossing::between(lab.lan(), lab.wan());
    let bulk = lab.lan().udp_to(4000, lab.wan().at(5000)).payload([1; 958]);
    let voice = lab.lan().udp_to(4001, lab.wan().at(5001)).with_class(46 << 2).payload([2; 100]);
    there.teach(&shuntd, &bulk);
    there.teach(&shuntd, &voice);
    let bulks: Vec<Packet> =
        (0..QUEUED as u8).map(|n| bulk.clone().payload([[n; 4].to_vec(), vec![1; 954]].concat())).collect();

    // All arrive, no faster than the rate, and the voice packet, sent last, before most of the others.
    let (seen, took) = send_all(&there, &[&bulks[..], from_ref(&voice)].concat(), PATIENCE);
    assert_eq!(seen.len(), QUEUED + 1);
    assert!(took > Duration::from_millis(650), "{took:?}");
    let at = seen.iter().position(|packet| packet.payload == voice.payload).unwrap();
    assert!(at < QUEUED / 2, "the voice packet arrived as number {at}");
    let order: Vec<&[u8]> = seen
        .iter()
        .filter(|packet| packet.payload != voice.payload)
        .map(|packet| &packet.payload[..])
        .collect();
    assert!(order.windows(2).all(|two| two[0] < two[1]), "packets of a class have overtaken one another");
    let counted = |shuntd: &Shuntd, what: &dyn Fn(&QosStatus) -> bool| {
        wait_for(PATIENCE, || Some(queues(shuntd)).filter(|status| what(status)))
            .unwrap_or_else(|| panic!("{:#?}", queues(shuntd)))
    };
    let status = counted(&shuntd, &|status| status.classes[1].sent_packets >= QUEUED as u64);
    assert_eq!((status.unused, status.classes[0].name.as_str()), (None, "voice"));
    assert!(status.classes[1].delay_max_us > 600_000, "{:#?}", status.classes);

    // The rest of a queue leaves at a new rate.
    there.to.drain();
    bulks.iter().for_each(|packet| there.from.send(packet));
    let set = shuntd.shunt(&["qos", "set", "r1", "--rate", "500M"]);
    assert!(set.status.success(), "{set:?}");
    counted(&shuntd, &|status| status.classes[1].sent_packets >= 2 * QUEUED as u64);
    let shown = shuntd.shunt(&["qos"]);
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.starts_with("r1: shaped to 500 Mbit/s") && shown.contains("bulk"), "{shown}");

    // The policer of the other port lets its burst in, and little more.
    let set = shuntd.shunt(&["qos", "set", "r0", "--police", "8k", "--police-burst", "5k"]);
    assert!(set.status.success(), "{set:?}");
    wait_for(PATIENCE, || {
        let (seen, _) = send_all(&there, &bulks, Duration::from_millis(300));
        (seen.len() < QUEUED / 2).then_some(())
    })
    .expect("the policer drops nothing");
    let status = counted(&shuntd, &|status| status.policer_dropped > 0);
    assert_eq!(status.port, "r0");
    let unknown = shuntd.shunt(&["qos", "set", "eth9", "--rate", "1M"]);
    let unknown = String::from_utf8_lossy(&unknown.stderr);
    assert!(unknown.contains("`eth9` is not a port of this instance; its ports: r0, r1"), "{unknown}");
    let removed = shuntd.shunt(&["qos", "del", "r0", "r1"]);
    assert!(removed.status.success(), "{removed:?}");
    wait_for(PATIENCE, || (send_all(&there, &bulks, Duration::from_secs(1)).0.len() == QUEUED).then_some(()))
        .expect("packets are still dropped");
    shuntd.stop();
}

#[test]
fn queues_apply_to_the_port_that_has_the_name_now() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let shuntd = served(&lab, SELDOM_PROVED);
    let there = Crossing::between(lab.lan(), lab.wan());
    let packet = lab.lan().udp_to(4000, lab.wan().at(5000)).payload([1; 958]);
    there.teach(&shuntd, &packet);
    lab.router().run("ip link set r0 name lan0");
    wait_for(PATIENCE, || shuntd.status().ports.iter().any(|port| port.name == "lan0").then_some(()))
        .expect("the new name");
    let set = shuntd.shunt(&["qos", "set", "lan0", "--police", "8k", "--police-burst", "5k"]);
    assert!(set.status.success(), "{set:?}");
    let packets = vec![packet; QUEUED];
    wait_for(PATIENCE, || {
        let (seen, _) = send_all(&there, &packets, Duration::from_millis(300));
        (seen.len() < QUEUED / 2).then_some(())
    })
    .expect("the policer drops nothing");
    shuntd.stop();
}

#[test]
fn queues_of_a_port_that_the_engine_does_not_serve_are_reported_as_not_in_use() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let shuntd = Shuntd::on(lab.router()).engine("tc").config(QUEUES).start();
    let unused = queues(&shuntd).unused.unwrap_or_default();
    assert!(unused.starts_with("the port uses tc, not the external engine"), "{unused}");
    assert!(shuntd.log().contains("qos.r1: not in use: the port uses tc"), "{}", shuntd.log());
    shuntd.stop();
}

#[test]
fn a_reload_sets_queues_and_lets_another_process_take_over_while_flows_go_on() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let shuntd = served(&lab, SELDOM_PROVED);
    let there = Crossing::between(lab.lan(), lab.wan());
    let packet = lab.lan().udp_to(4000, lab.wan().at(5000)).payload("from the lan");
    there.teach(&shuntd, &packet);
    let reload = |lines: &str| {
        let text = format!("max_flows = 16384\n{SELDOM_PROVED}\n{lines}\n");
        fs::write(shuntd.directory().join("shunt.toml"), text).unwrap();
        let (code, answer) = shuntd.request("POST", "/v1/reload", "").unwrap();
        assert!(code == 200 && answer.contains("\"applied\":true"), "{code}: {answer}");
        answer
    };
    let (before, process) = (shuntd.status(), engine_pid(&shuntd));
    let answer = reload("[qos.r1]\nrate = \"500M\"");
    assert!(
        answer.contains("\"key\":\"qos.r1.rate\",\"from\":\"none\"") && answer.contains("in-place"),
        "{answer}"
    );
    assert_eq!((queues(&shuntd).qos.rate.0, engine_pid(&shuntd)), (500_000_000, process));
    reload("external_wait = \"interrupt\"\n[qos.r1]\nrate = \"500M\"");
    shuntd.wait_until("the other process serves both ports", is_served);
    assert_ne!(engine_pid(&shuntd), process);
    for packet in numbered(&packet, 0..20) {
        there.pass(&packet);
    }
    let after = shuntd.status();
    assert_eq!((after.epoch, after.reasons.get("miss")), (before.epoch, before.reasons.get("miss")));
    assert_eq!(after.reasons.get("stale"), before.reasons.get("stale"));
    shuntd.stop();
}

#[test]
fn the_engine_ends_with_its_daemon() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let mut shuntd = served(&lab, "");
    let engine = engine_pid(&shuntd);
    shuntd.kill();
    let gone = || (!fs::exists(format!("/proc/{engine}")).unwrap_or(true)).then_some(());
    assert!(wait_for(PATIENCE, gone).is_some(), "the engine still runs");
}
