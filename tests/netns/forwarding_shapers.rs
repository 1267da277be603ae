//! Qdiscs that routers have and not every kernel: fq_codel, cake, prio, and mq with a qdisc for each queue. `auto` goes by
//! them, and fast packets get the rate and the delay there that slow ones get.

use crate::{
    SELDOM_PROVED,
    forwarding_qdisc::{MARKS, engine_of, udp},
    forwarding_rates::{
        HTB, Pace, ROUNDS_MAX, ROUNDS_MIN, RULES, Rates, compare, offer, pace, rates, rates_with_shunt,
        shaped,
    },
    reason, sent_by, silent_lab,
};
use shunt_api::Engine;
use shunt_testkit::{Crossing, Shuntd, Topology, engines, require_qdiscs, require_root};
use std::{
    sync::{
        LazyLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// As it is asked for, and what is then in XDP's way.
const IN_THE_WAY: [(&str, &str); 6] = [
    ("fq_codel", "fq_codel"),
    ("cake", "cake"),
    ("cake bandwidth 100mbit", "cake"),
    ("prio", "prio"),
    ("handle 1: htb default 1", "htb"),
    ("fq", "fq"),
];

/// Packets that a qdisc at the root has sent.
fn sent_by_qdisc(lab: &Topology, device: &str) -> u64 {
    let said = lab.router().run(&format!("tc -s qdisc show dev {device} root"));
    let sent = said.split_whitespace().skip_while(|word| *word != "bytes").nth(1);
    sent.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{said}"))
}

/// What `auto` takes where nothing is in the way, on this kernel.
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
fn auto_goes_by_each_qdisc_that_somebody_asked_for() {
    if !require_qdiscs(&["fq_codel", "cake", "prio", "htb", "fq"]) {
        return;
    }
    let lab = silent_lab(MARKS);
    let shuntd = Shuntd::on(lab.router()).config(SELDOM_PROVED).start();
    let there = Crossing::between(lab.lan(), lab.wan());
    let packet = udp(&lab, 5000);
    for (asked, kind) in IN_THE_WAY {
        lab.router().run(&format!("tc qdisc add dev r1 root {asked}"));
        wait_for_engine(&shuntd, "r1", Engine::Tc, kind);
        there.teach(&shuntd, &packet);
        let before = (sent_by_qdisc(&lab, "r1"), sent_by(Engine::Tc, &shuntd.status()));
        (0..10).for_each(|_| drop(there.pass(&packet)));
        let after = (sent_by_qdisc(&lab, "r1"), sent_by(Engine::Tc, &shuntd.status()));
        assert_eq!((after.0 - before.0, after.1 - before.1), (10, 10), "{asked}: {:#?}", shuntd.flows());

        lab.router().run("tc qdisc del dev r1 root");
        wait_for_engine(&shuntd, "r1", otherwise(), "no qdisc");
    }
}

#[test]
fn a_queue_of_mq_that_has_a_qdisc_of_its_own_is_not_bypassed() {
    if !require_root() || otherwise() == Engine::Tc {
        return;
    }
    let lab = silent_lab(MARKS);
    lab.router().run(
        "ip link add r9 numtxqueues 4 numrxqueues 4 type veth peer name p9 numtxqueues 4 numrxqueues 4
        ip link set r9 up; ip link set p9 up; ethtool -K p9 gro on; ip address add 10.9.0.1/24 dev r9",
    );
    let shuntd = Shuntd::on(lab.router()).start();
    wait_for_engine(&shuntd, "r9", Engine::Xdp, "no qdisc");
    for _ in 0..2 {
        lab.router().run("tc qdisc add dev r9 root handle 1: mq");
        // Told after it, and so known after it.
        lab.router().run("tc qdisc add dev r1 root tbf rate 1gbit burst 1mb limit 1mb");
        wait_for_engine(&shuntd, "r1", Engine::Tc, "tbf");
        assert_eq!(engine_of(&shuntd, "r9").0, Engine::Xdp, "its queues have what the kernel gave them");
        lab.router().run("tc qdisc del dev r1 root");

        lab.router().run("tc qdisc add dev r9 parent 1:2 tbf rate 1gbit burst 1mb limit 1mb");
        wait_for_engine(&shuntd, "r9", Engine::Tc, "tbf");
        lab.router().run("tc qdisc del dev r9 root");
        wait_for_engine(&shuntd, "r9", Engine::Xdp, "no qdisc");
    }
}

#[test]
fn classes_of_htb_with_fq_codel_get_their_rates() {
    if !require_qdiscs(&["htb", "fq_codel"]) {
        return;
    }
    let lab = shaped(RULES, &HTB.replace("pfifo limit 30", "fq_codel"));
    compare("htb", 4, || rates_with_shunt(&lab, "htb"), || rates(&lab));
}

#[test]
fn flows_get_their_share_of_cake() {
    if !require_qdiscs(&["cake"]) {
        return;
    }
    let lab = shaped(RULES, "tc qdisc add dev r1 root cake bandwidth 8mbit besteffort");
    compare("cake", 4, || rates_with_shunt(&lab, "cake"), || rates(&lab));
}

/// The first band by priority, the last by mark.
#[test]
fn bands_of_prio_go_before_one_another() {
    if !require_qdiscs(&["prio"]) {
        return;
    }
    let lab = shaped(
        &RULES.replace("1:30", "2:1"),
        "tc qdisc add dev r1 root handle 1: tbf rate 10mbit burst 5000 limit 60000
        tc qdisc add dev r1 parent 1:1 handle 2: prio
        for n in 1 2 3; do tc qdisc add dev r1 parent 2:$n pfifo limit 30; done
        tc filter add dev r1 parent 2: protocol ip prio 1 handle 7 fw classid 2:3
        tc filter add dev r1 parent 2: protocol ip prio 2 u32 match ip dsfield 0x20 0xfc flowid 2:3",
    );
    // The last band gets what is left, which is little and comes by chance.
    let by_band = |mut rates: Rates| {
        let last: f64 = [5001, 5003].iter().filter_map(|port| rates.remove(port)).sum();
        assert!(last < rates[&5000] && rates[&5000] < rates[&5002], "{last} of the last band: {rates:?}");
        rates
    };
    compare("tbf", 2, || by_band(rates_with_shunt(&lab, "tbf")), || by_band(rates(&lab)));
}

/// What a packet of a flow that hardly sends waits, while others send more than they get.
fn delay(lab: &Topology) -> Duration {
    const BEGIN: &[u8] = b"probe";
    static RUN: AtomicU32 = AtomicU32::new(1);
    let run = RUN.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let (stop, exit, probe) = (AtomicBool::new(false), lab.wan().tap(), udp(lab, 5009));
    let Pace { settle, watch, .. } = *pace();
    exit.stamp();
    let mut delays = thread::scope(|scope| {
        scope.spawn(|| offer(lab, u32::MAX, &stop));
        scope.spawn(|| {
            let tap = lab.lan().tap();
            while !stop.load(Ordering::Relaxed) {
                let sent = (now().as_nanos() as u64).to_be_bytes();
                tap.send(&probe.clone().payload([BEGIN, &run[..], &sent[..]].concat()));
                thread::sleep(Duration::from_millis(20));
            }
        });
        let since = now();
        let mut delays = Vec::new();
        while let Some((frame, arrived)) =
            exit.next_stamped(watch).filter(|(_, at)| *at < since + settle + watch)
        {
            let Some(packet) = frame.packet() else { continue };
            let sent = packet.payload.strip_prefix(BEGIN).and_then(|rest| rest.strip_prefix(&run[..]));
            let Some(sent) = sent.filter(|_| arrived > since + settle) else { continue };
            let sent = Duration::from_nanos(u64::from_be_bytes(sent[..8].try_into().unwrap()));
            delays.push(arrived.saturating_sub(sent));
        }
        stop.store(true, Ordering::Relaxed);
        delays
    });
    assert!(delays.len() > 20, "{delays:?}");
    delays.sort();
    delays[delays.len() / 2]
}

/// The shorter of some delays each: a busy machine can only make them longer.
#[test]
fn a_flow_that_hardly_sends_waits_no_longer_behind_fq_codel() {
    if !require_qdiscs(&["htb", "fq_codel"]) {
        return;
    }
    /// What may differ.
    const MARGIN: Duration = Duration::from_millis(3);
    let lab = shaped(
        RULES,
        "tc qdisc add dev r1 root handle 1: htb default 10
        tc class add dev r1 parent 1: classid 1:10 htb rate 8mbit ceil 8mbit
        tc qdisc add dev r1 parent 1:10 fq_codel",
    );
    let mut best = [Duration::MAX; 2];
    for round in 1..=ROUNDS_MAX {
        let shuntd = Shuntd::on(lab.router()).start();
        best[0] = best[0].min(delay(&lab));
        let packets = shuntd.status().packets;
        assert!(packets.fast > 4 * packets.slow, "{packets:?}");
        shuntd.stop();
        best[1] = best[1].min(delay(&lab));
        eprintln!("round {round}: {best:?} with Shunt and without");
        if round >= ROUNDS_MIN && best[0] < best[1] + MARGIN {
            return;
        }
    }
    panic!("with and without Shunt: {best:?}");
}

#[test]
fn what_an_ifb_shapes_on_the_way_in_stays_slow() {
    if !require_qdiscs(&["cake"]) {
        return;
    }
    // Kernels without TCX need the latter.
    let all = [("clsact", "ingress"), ("ingress", "parent ffff:")];
    let some = if otherwise() == Engine::Tc { &all[..1] } else { &all };
    for (qdisc, parent) in some {
        let lab = silent_lab(MARKS);
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
        let refused = reason(&after.1, "ingress-filter") - reason(&before.1, "ingress-filter");
        assert!(refused >= 10, "{qdisc}: {:#?}", after.1);
        shuntd.stop();
    }
}
