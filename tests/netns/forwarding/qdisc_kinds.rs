//! Qdiscs that not every kernel has: fq_codel, cake, prio, and mq with a qdisc for a queue. `auto` takes tc for a port
//! that has one.

use crate::qdisc::{MARKS, engine_of, udp};
use shunt_api::Engine;
use shunt_testkit::{
    Crossing, SELDOM_PROVED, Shuntd, Topology, engines, offer_xdp_frames, punts, require_qdiscs,
    require_root, sent_by, silent_router,
};
use std::sync::LazyLock;

/// Arguments of `tc qdisc add`, and the kind that the engine's reason names.
const IN_THE_WAY: [(&str, &str); 6] = [
    ("fq_codel", "fq_codel"),
    ("cake", "cake"),
    ("cake bandwidth 100mbit", "cake"),
    ("prio", "prio"),
    ("handle 1: htb default 1", "htb"),
    ("fq", "fq"),
];

/// Number of packets that the root qdisc has sent.
fn sent_by_qdisc(lab: &Topology, device: &str) -> u64 {
    let output = lab.router().run(&format!("tc -s qdisc show dev {device} root"));
    let sent = output.split_whitespace().skip_while(|word| *word != "bytes").nth(1);
    sent.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{output}"))
}

/// The engine that `auto` takes on this kernel for a port without a qdisc.
fn otherwise() -> Engine {
    static LAST: LazyLock<Engine> = LazyLock::new(|| engines().pop().unwrap());
    *LAST
}

#[track_caller]
fn wait_for_engine(shuntd: &Shuntd, port: &str, engine: Engine, reason: &str) {
    let what = format!("{port} by {engine}: {reason}");
    shuntd.wait_until(&what, |status| {
        let mut ports = status.ports.iter();
        ports.any(|p| {
            p.name == port
                && p.engine == engine
                && (otherwise() == Engine::Tc || p.engine_reason.contains(reason))
        })
    });
}

#[test]
fn auto_takes_tc_for_each_qdisc_that_was_added() {
    if !require_qdiscs(&["fq_codel", "cake", "prio", "htb", "fq"]) {
        return;
    }
    let lab = silent_router(MARKS);
    let shuntd = Shuntd::on(lab.router()).config(SELDOM_PROVED).start();
    if otherwise() == Engine::Xdp {
        offer_xdp_frames(&lab, &shuntd, "r1");
    }
    let there = Crossing::between(lab.lan(), lab.wan());
    let packet = udp(&lab, 5000);
    for (arguments, kind) in IN_THE_WAY {
        lab.router().run(&format!("tc qdisc add dev r1 root {arguments}"));
        wait_for_engine(&shuntd, "r1", Engine::Tc, kind);
        there.teach(&shuntd, &packet);
        let before = (sent_by_qdisc(&lab, "r1"), sent_by(Engine::Tc, &shuntd.status()));
        (0..10).for_each(|_| drop(there.pass(&packet)));
        let after = (sent_by_qdisc(&lab, "r1"), sent_by(Engine::Tc, &shuntd.status()));
        assert_eq!((after.0 - before.0, after.1 - before.1), (10, 10), "{arguments}: {:#?}", shuntd.flows());

        lab.router().run("tc qdisc del dev r1 root");
        wait_for_engine(&shuntd, "r1", otherwise(), "no qdisc");
    }
}

#[test]
fn a_queue_of_mq_with_a_qdisc_of_its_own_is_not_bypassed() {
    if !require_root() || otherwise() == Engine::Tc {
        return;
    }
    let lab = silent_router(MARKS);
    lab.router().run(
        "ip link add r9 numtxqueues 4 numrxqueues 4 type veth peer name p9 numtxqueues 4 numrxqueues 4
        ip link set r9 up; ip link set p9 up; ethtool -K p9 gro on; ip address add 10.9.0.1/24 dev r9",
    );
    let shuntd = Shuntd::on(lab.router()).start();
    offer_xdp_frames(&lab, &shuntd, "r1");
    wait_for_engine(&shuntd, "r9", Engine::Xdp, "no qdisc");
    for _ in 0..2 {
        lab.router().run("tc qdisc add dev r9 root handle 1: mq");
        // Add a second qdisc: once the daemon knows it, it knows the first one, too.
        lab.router().run("tc qdisc add dev r1 root tbf rate 1gbit burst 1mb limit 1mb");
        wait_for_engine(&shuntd, "r1", Engine::Tc, "tbf");
        assert_eq!(engine_of(&shuntd, "r9").0, Engine::Xdp, "the queues have the kernel's default qdiscs");
        lab.router().run("tc qdisc del dev r1 root");

        lab.router().run("tc qdisc add dev r9 parent 1:2 tbf rate 1gbit burst 1mb limit 1mb");
        wait_for_engine(&shuntd, "r9", Engine::Tc, "tbf");
        lab.router().run("tc qdisc del dev r9 root");
        wait_for_engine(&shuntd, "r9", Engine::Xdp, "no qdisc");
    }
}

#[test]
fn ingress_traffic_shaped_by_an_ifb_stays_slow() {
    if !require_qdiscs(&["cake"]) {
        return;
    }
    // Kernels without TCX need the `ingress` qdisc.
    let all = [("clsact", "ingress"), ("ingress", "parent ffff:")];
    let some = if otherwise() == Engine::Tc { &all[..1] } else { &all };
    for (qdisc, parent) in some {
        let lab = silent_router(MARKS);
        lab.router().run(&format!(
            "ip link add ifb9 type ifb; ip link set ifb9 up; tc qdisc add dev ifb9 root cake bandwidth 50mbit
            tc qdisc add dev r1 {qdisc}
            tc filter add dev r1 {parent} matchall action mirred egress redirect dev ifb9"
        ));
        let shuntd = Shuntd::on(lab.router()).config(SELDOM_PROVED).start();
        let (there, back) =
            (Crossing::between(lab.lan(), lab.wan()), Crossing::between(lab.wan(), lab.lan()));
        let packet = udp(&lab, 5000);
        there.teach(&shuntd, &packet);
        let answer = lab.wan().answer_to(&there.pass(&packet).packet().unwrap());
        let before = (sent_by_qdisc(&lab, "ifb9"), shuntd.status());
        (0..20).for_each(|_| drop(back.pass(&answer)));
        let after = (sent_by_qdisc(&lab, "ifb9"), shuntd.status());
        assert_eq!(after.0 - before.0, 20, "{qdisc}");
        assert_eq!(after.1.packets.fast, before.1.packets.fast);
        let refused = punts(&after.1, "ingress-filter") - punts(&before.1, "ingress-filter");
        assert!(refused >= 10, "{qdisc}: {:#?}", after.1);
        shuntd.stop();
    }
}
