//! An egress qdisc that shapes or classifies gets fast packets with the mark and the priority that Linux gave them.

use shunt_api::{Engine, Status};
use shunt_testkit::{
    Crossing, SELDOM_PROVED, Shuntd, Topology, is_sent_by, offer_xdp_frames, refusals, require_root, sent_by,
    silent_router,
};
use shunt_wire::Packet;

/// Sets marks by destination port, and the class of one port.
pub(crate) const MARKS: &str = r#"table inet marks {
    chain forward {
        type filter hook forward priority mangle
        ct state invalid drop
        udp dport 5001 meta mark set 0x7
        udp dport 5002 meta priority set 1:20
        udp dport 5003 ct mark set 0x7
    }
    chain post {
        type filter hook postrouting priority mangle
        ct mark 0x7 meta mark set ct mark
    }
}"#;

/// htb on r1: mark 7 and priority 1:20 have class 1:20, other UDP over IPv4 class 1:10. What the router itself sends,
/// like multicast listener reports, has class 1:30.
const SHAPE: &str = "tc qdisc add dev r1 root handle 1: htb default 30
    tc class add dev r1 parent 1: classid 1:10 htb rate 1gbit quantum 60000
    tc class add dev r1 parent 1: classid 1:20 htb rate 1gbit quantum 60000
    tc class add dev r1 parent 1: classid 1:30 htb rate 1gbit quantum 60000
    tc filter add dev r1 parent 1: prio 1 protocol all bpf bytecode '4,32 0 0 4294963220,21 0 1 7,6 0 0 65568,6 0 0 0'
    tc filter add dev r1 parent 1: prio 2 protocol ip bpf bytecode '4,48 0 0 23,21 0 1 17,6 0 0 65552,6 0 0 0'";

/// Number of packets that left through a class.
fn sent_through(lab: &Topology, class: &str) -> u64 {
    let output = lab.router().run("tc -s class show dev r1");
    let rest = output.split(&format!("class htb {class} ")).nth(1).unwrap();
    let mut words = rest.split_whitespace().skip_while(|word| *word != "bytes");
    words.nth(1).unwrap().parse().unwrap()
}

pub(crate) fn udp(lab: &Topology, port: u16) -> Packet {
    lab.lan().udp_to(4000, lab.wan().at(port)).payload(format!("to {port}"))
}

pub(crate) fn engine_of(shuntd: &Shuntd, name: &str) -> (Engine, String) {
    let port = shuntd.status().ports.into_iter().find(|port| port.name == name).unwrap();
    (port.engine, port.engine_reason)
}

#[test]
fn fast_packets_keep_their_class() {
    if !require_root() {
        return;
    }
    let lab = silent_router(MARKS);
    lab.router().run(SHAPE);
    let shuntd = Shuntd::on(lab.router()).config(SELDOM_PROVED).start();
    let there = Crossing::between(lab.lan(), lab.wan());
    for (port, class, mark, priority) in
        [(5000, "1:10", 0, 0), (5001, "1:20", 7, 0), (5002, "1:20", 0, 0x1_0020), (5003, "1:20", 7, 0)]
    {
        let packet = udp(&lab, port);
        there.teach(&shuntd, &packet);
        let before = (sent_through(&lab, class), sent_by(Engine::Tc, &shuntd.status()));
        for _ in 0..10 {
            there.pass(&packet);
        }
        let after = (sent_through(&lab, class), sent_by(Engine::Tc, &shuntd.status()));
        assert_eq!((after.0 - before.0, after.1 - before.1), (10, 10), "port {port}: {:#?}", shuntd.flows());
        let flow = shuntd.wait_for_flow("it", |c| c.orig.dport == port);
        assert_eq!((flow.directions[0].mark, flow.directions[0].priority), (mark, priority));
    }
}

#[test]
fn auto_takes_tc_where_a_qdisc_is_in_use_and_xdp_again_when_it_is_gone() {
    if !require_root() {
        return;
    }
    let lab = silent_router(MARKS);
    let shuntd = Shuntd::on(lab.router()).config(SELDOM_PROVED).start();
    let there = Crossing::between(lab.lan(), lab.wan());
    let packet = udp(&lab, 5000);
    offer_xdp_frames(&lab, &shuntd, "r1");
    let is_fast_by = |engine: Engine| {
        // An action that either engine left pending is used once by tc.
        there.teach(&shuntd, &packet);
        let before = sent_by(engine, &shuntd.status());
        there.pass(&packet);
        assert_eq!(sent_by(engine, &shuntd.status()), before + 1, "{:#?}", shuntd.flows());
        assert_eq!(shuntd.flows()[0].directions[0].engine, engine);
    };
    assert_eq!(engine_of(&shuntd, "r1").0, Engine::Xdp);
    is_fast_by(Engine::Xdp);

    lab.router().run(SHAPE);
    shuntd.wait_until("r1 uses tc", |s| is_sent_by(s, "r1", Engine::Tc));
    let (_, why) = engine_of(&shuntd, "r1");
    assert!(why.contains("htb"), "{why}");
    assert_eq!(engine_of(&shuntd, "r0").0, Engine::Xdp, "the other port has no such qdisc");
    is_fast_by(Engine::Tc);
    let shaped = sent_through(&lab, "1:10");
    there.pass(&packet);
    assert_eq!(sent_through(&lab, "1:10"), shaped + 1);

    lab.router().run("tc qdisc del dev r1 root");
    shuntd.wait_until("r1 uses XDP", |s| is_sent_by(s, "r1", Engine::Xdp));
    is_fast_by(Engine::Xdp);
}

/// On kernels without TCX, Shunt's own programs are egress filters, too.
#[test]
fn auto_ignores_its_own_filters() {
    if !require_root() {
        return;
    }
    let lab = silent_router(MARKS);
    lab.router().run("tc qdisc add dev r0 clsact; tc qdisc add dev r1 clsact");
    let shuntd =
        Shuntd::on(lab.router()).variable("SHUNT_PRETEND_MISSING", "tcx").config(SELDOM_PROVED).start();
    let is_xdp = |status: &Status| status.ports.iter().all(|p| p.engine == Engine::Xdp);
    offer_xdp_frames(&lab, &shuntd, "r1");
    shuntd.wait_until("both ports use XDP", is_xdp);
    let there = Crossing::between(lab.lan(), lab.wan());
    let packet = udp(&lab, 5000);
    there.teach(&shuntd, &packet);
    shuntd.wait_until("XDP forwards the flow", |status| {
        there.pass(&packet);
        sent_by(Engine::Xdp, status) > 0
    });

    lab.router().run("tc filter add dev r1 egress protocol all prio 7 bpf bytecode '1,6 0 0 0'");
    shuntd.wait_until("r1 uses tc", |s| is_sent_by(s, "r1", Engine::Tc));
    lab.router().run("tc filter del dev r1 egress prio 7");
    shuntd.wait_until("r1 uses XDP", is_xdp);
}

/// Packets do not leave faster than the shaper permits.
#[test]
fn a_shaper_shapes_fast_packets() {
    if !require_root() {
        return;
    }
    let lab = silent_router(MARKS);
    lab.router().run("tc qdisc add dev r1 root tbf rate 1mbit burst 2000 limit 20000");
    let shuntd = Shuntd::on(lab.router()).config(SELDOM_PROVED).start();
    let there = Crossing::between(lab.lan(), lab.wan());
    let packet = udp(&lab, 5000).payload([3; 1000]);
    there.teach(&shuntd, &packet);
    // Send 100 kB at once into a queue of 20 kB.
    let before = shuntd.status().packets.fast;
    (0..100).for_each(|_| there.from.send(&packet));
    shuntd.wait_until("all packets were fast", |status| status.packets.fast == before + 100);
    let output = lab.router().run("tc -s qdisc show dev r1");
    let dropped = output.split("dropped ").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
    assert!(dropped.parse::<u32>().unwrap() >= 50, "{output}");
    assert_eq!(refusals(&shuntd.status(), "left-twice"), 0);
}
