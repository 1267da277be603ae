//! Rates and delays behind htb with fq_codel, cake and prio, which not every kernel has: fast packets get those that
//! slow packets get.

use crate::rates::{
    HTB, Pace, ROUNDS_MAX, ROUNDS_MIN, RULES, Rates, compare, offer, pace, rates, rates_with_shunt, shaped,
};
use shunt_testkit::{Shuntd, Topology, require_qdiscs};
use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

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

/// The first band is chosen by priority, the last by mark.
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
    // The last band gets the small and varying rest.
    let by_band = |mut rates: Rates| {
        let last: f64 = [5001, 5003].iter().filter_map(|port| rates.remove(port)).sum();
        assert!(
            last < rates[&5000] && rates[&5000] < rates[&5002],
            "rate of the last band {last}: {rates:?}"
        );
        rates
    };
    compare("tbf", 2, || by_band(rates_with_shunt(&lab, "tbf")), || by_band(rates(&lab)));
}

/// Measures the median delay of a sparse flow while other flows send more than their rate.
fn delay(lab: &Topology) -> Duration {
    const BEGIN: &[u8] = b"probe";
    static RUN: AtomicU32 = AtomicU32::new(1);
    let run = RUN.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let (stop, exit, probe) =
        (AtomicBool::new(false), lab.wan().tap(), lab.lan().udp_to(4000, lab.wan().at(5009)));
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

/// The shortest of several delays counts, since other load can only make them longer.
#[test]
fn a_sparse_flow_waits_no_longer_behind_fq_codel() {
    if !require_qdiscs(&["htb", "fq_codel"]) {
        return;
    }
    /// Permitted difference.
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
    panic!("delays with Shunt and without differ: {best:?}");
}
