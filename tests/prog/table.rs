//! The flow tables: each program finds an entry until it is removed.

use crate::rig::{Pair, Rig, pairs, with_rig};
use shunt_bpf::{Error, Key, abi::FLOW_STATIC};
use shunt_testkit::wait_until;
use shunt_traffic::testrun::{TC_NEXT, TC_REDIRECT, XDP_PASS, XDP_REDIRECT};
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

/// Entries of the rig's tables, per family.
const FLOWS: u16 = 1024;
const LONG: Duration = Duration::from_secs(60);

/// A pair for each number, with different keys.
fn numbered(pair: &Pair, n: u16) -> Pair {
    let source = |packet: &shunt_wire::Packet| -> SocketAddr {
        let mut source = packet.source().unwrap();
        source.set_port(1000 + n);
        source
    };
    let (here, there) = (source(&pair.before), source(&pair.after));
    Pair { before: pair.before.clone().with_source(here), after: pair.after.clone().with_source(there) }
}

#[test]
fn the_tables_begin_on_a_cache_line() {
    with_rig(|rig| assert!(rig.plane.tables_are_aligned().unwrap()));
}

#[test]
fn an_entry_is_found_until_it_is_removed() {
    with_rig(|rig| {
        let [udp, _, udp6, _] = pairs();
        for pair in [udp, udp6] {
            let mut all: Vec<(Pair, Key)> = Vec::new();
            for pair in (0..FLOWS).map(|n| numbered(&pair, n)) {
                let (key, mut entry) = rig.learned(&pair);
                entry.flow.flags |= FLOW_STATIC;
                match rig.plane.put_flow(&key, &entry) {
                    Ok(()) => all.push((pair, key)),
                    // All eight slots of a key may be taken before the table is full.
                    Err(Error::Full) => assert!(rig.plane.flow(&key).unwrap().is_none()),
                    Err(e) => panic!("{e}"),
                }
            }
            assert!(all.len() > usize::from(FLOWS) * 98 / 100, "only {} flows fit", all.len());
            for gone in 0..4 {
                for (n, (pair, key)) in all.iter().enumerate() {
                    assert_eq!(found(rig, pair), n % 4 >= gone, "flow {n} when {gone} quarters are gone");
                    assert_eq!(rig.plane.flow(key).unwrap().is_some(), n % 4 >= gone);
                }
                for (_, key) in all.iter().skip(gone).step_by(4) {
                    rig.plane.remove_flow(key).unwrap();
                }
                // A sweep frees entries; half of the rounds go without a sweep.
                if gone % 2 == 0 {
                    rig.plane.sweep(LONG, false).unwrap();
                }
            }
            let mut left = 0;
            rig.plane.for_each_flow(|_, _| left += 1).unwrap();
            assert_eq!(left, 0);
        }
    });
}

#[test]
fn an_entry_is_reused_after_its_quiet_time_and_not_before() {
    with_rig(|rig| {
        for pair in [pairs()[0].clone(), pairs()[2].clone()] {
            let mut numbers = 0..u16::MAX;
            let mut put = || {
                let (key, mut entry) = rig.learned(&numbered(&pair, numbers.next().unwrap()));
                entry.flow.flags |= FLOW_STATIC;
                rig.plane.put_flow(&key, &entry).map(|()| key)
            };
            let mut kept = Vec::new();
            while kept.len() < usize::from(FLOWS) {
                // All eight slots of a key may be taken.
                kept.extend(put().ok());
            }
            assert!(matches!(put(), Err(Error::Full)));
            let began = Instant::now();
            rig.plane.remove_flow(&kept[0]).unwrap();
            assert!(
                matches!(put(), Err(Error::Full)),
                "the entry is reused although a packet may be using it"
            );
            wait_until("an entry is free", || {
                rig.plane.sweep(LONG, false).unwrap();
                put().is_ok()
            });
            assert!(began.elapsed() > Duration::from_millis(90), "after {:?}", began.elapsed());
            assert!((0..50).all(|_| matches!(put(), Err(Error::Full))), "only one entry was freed");
        }
    });
}

/// Whether both programs find the flow of a pair.
fn found(rig: &Rig<'_>, pair: &Pair) -> bool {
    let frame = pair.before.to_bytes();
    let xdp = rig.xdp(&frame);
    match (xdp.verdict, rig.tc(&frame).verdict) {
        (XDP_REDIRECT, TC_REDIRECT) => {
            assert_eq!(xdp.frame, pair.after.to_bytes());
            true
        }
        (XDP_PASS, TC_NEXT) => false,
        verdicts => panic!("XDP and tc disagree: {verdicts:?}"),
    }
}
