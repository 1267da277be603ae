//! Flows that the sweep retires and removes.

use crate::rig::{EPOCH, Pair, pairs, with_rig};
use shunt_bpf::abi::{EPOCH_RETIRED, FLOW_STATIC};
use shunt_testkit::wait_until;
use std::{net::SocketAddr, thread, time::Duration};

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_flow_is_retired_when_it_was_idle_for_too_long_and_not_before() {
    with_rig(|rig| {
        let keys = pairs().map(|pair| rig.learn(&pair));
        rig.plane.sweep(LONG, false).unwrap();
        assert!(keys.iter().all(|key| rig.flow(key).epoch == EPOCH));
        wait_until("a tick has passed without a packet", || {
            rig.plane.sweep(Duration::ZERO, false).unwrap();
            keys.iter().all(|key| rig.flow(key).epoch == EPOCH_RETIRED)
        });
    });
}

#[test]
fn flows_unused_for_longest_make_room_while_the_table_is_nearly_full() {
    with_rig(|rig| {
        let [pair, ..] = pairs();
        let learn = |ports: std::ops::Range<u16>| {
            for port in ports {
                let source = SocketAddr::new("192.168.1.2".parse().unwrap(), port);
                rig.learn(&Pair { before: pair.before.clone().with_source(source), ..pair.clone() });
            }
        };
        // A quarter of the 1,024 entries is free.
        learn(2000..2768);
        // The limit in a full table passes.
        thread::sleep(Duration::from_millis(5500));
        assert_eq!(rig.plane.sweep(LONG, false).unwrap().flushed, 0);
        // Full: the limit is 5 seconds instead of 60.
        learn(3000..3256);
        let swept = rig.plane.sweep(LONG, false).unwrap();
        assert_eq!((swept.flushed, swept.active), (768, 256), "all but the new flows");
        // A limit that is shorter anyway stays.
        assert_eq!(rig.plane.sweep(Duration::from_secs(3), false).unwrap().flushed, 0);
    });
}

#[test]
fn a_flow_retired_during_the_sweep_keeps_its_quiet_time() {
    with_rig(|rig| {
        for pair in pairs() {
            let key = rig.learn_as(&pair, |entry| {
                entry.flow.retire(rig.ahead(LONG));
            });
            assert_eq!(rig.plane.sweep(LONG, false).unwrap().deleted, 0);
            assert!(rig.plane.flow(&key).unwrap().is_some());
            rig.plane.remove_flow(&key).unwrap();
        }
    });
}

#[test]
fn flows_retired_long_ago_are_removed_and_static_flows_stay() {
    with_rig(|rig| {
        let [gone, stays, fresh, active] = pairs();
        let gone = rig.learn_as(&gone, |entry| {
            entry.flow.retire(rig.ago(LONG));
        });
        let stays = rig.learn_as(&stays, |entry| entry.flow.flags |= FLOW_STATIC);
        rig.learn_as(&fresh, |entry| {
            entry.flow.retire(rig.ahead(LONG));
        });
        rig.learn(&active);
        let swept = rig.plane.sweep(LONG, false).unwrap();
        // A removed flow counts until its entry is freed.
        assert_eq!((swept.deleted, swept.statics, swept.retired, swept.active), (1, 1, 2, 1));
        assert!(rig.plane.flow(&gone).unwrap().is_none());
        assert!(rig.plane.flow(&stays).unwrap().is_some());
        let all = rig.plane.sweep(LONG, true).unwrap();
        assert_eq!((all.retired, all.statics, all.active), (3, 1, 0));
    });
}

#[test]
fn partial_sweeps_together_find_what_one_sweep_finds() {
    with_rig(|rig| {
        let keys = pairs().map(|pair| rig.learn(&pair));
        let whole = rig.plane.sweep(LONG, false).unwrap();
        assert_eq!(whole.active, 4);
        let (entries, mut found) = (rig.plane.entries(), 0);
        let mut parts_with_flows = 0;
        for entry in 0..entries {
            let part = rig.plane.sweep_part(LONG, false, entry, 1).unwrap();
            found += part.active;
            parts_with_flows += u32::from(part.active > 0);
        }
        assert_eq!(found, 4);
        assert!(parts_with_flows > 1, "one part has all flows");
        // Each half of the flows has one address family.
        let half = |from| rig.plane.sweep_part(LONG, false, from, entries / 2).unwrap().active;
        assert_eq!((half(0), half(entries / 2)), (2, 2));
        let across = rig.plane.sweep_part(LONG, false, 1, entries - 2).unwrap().active;
        let ends = [0, entries - 1].map(|at| rig.plane.sweep_part(LONG, false, at, 1).unwrap().active);
        assert_eq!(across + ends[0] + ends[1], 4);
        assert_eq!(
            rig.plane.sweep_part(LONG, true, entries, u32::MAX).unwrap().flushed,
            0,
            "beyond the end of the table"
        );
        assert_eq!(rig.plane.sweep_part(LONG, true, 0, 0).unwrap().flushed, 0, "an empty part");
        assert!(keys.iter().all(|key| rig.flow(key).epoch == EPOCH));
        let flushed = rig.plane.sweep_part(LONG, true, 0, entries / 2).unwrap().flushed;
        let retired = keys.iter().filter(|key| rig.flow(key).epoch == EPOCH_RETIRED).count();
        assert_eq!((flushed, retired), (2, 2));
    });
}
