//! What the sweep retires and removes.

use crate::rig::{EPOCH, pairs, with_rig};
use shunt_bpf::{
    abi::{EPOCH_RETIRED, FLOW_STATIC, Sweep},
    now_ticks, ticks,
};
use std::time::Duration;

const IDLE: Duration = Duration::from_secs(60);

#[test]
fn flows_that_are_idle_are_retired_and_others_are_not() {
    with_rig(|rig| {
        for (seen_ago, epoch) in [(0, EPOCH), (ticks(IDLE) / 2, EPOCH), (2 * ticks(IDLE), EPOCH_RETIRED)] {
            for pair in pairs() {
                let key = rig.learn_as(&pair, |entry| entry.flow.seen_ticks = now_ticks() - seen_ago);
                rig.plane.sweep(IDLE, false).unwrap();
                assert_eq!(rig.flow(&key).epoch, epoch, "seen {seen_ago} ticks ago");
                rig.plane.remove_flow(&key).unwrap();
            }
        }
    });
}

#[test]
fn a_flow_whose_packets_come_during_the_sweep_is_not_idle() {
    with_rig(|rig| {
        for pair in pairs() {
            let key = rig.learn_as(&pair, |entry| entry.flow.seen_ticks = now_ticks() + 500);
            rig.plane.sweep(IDLE, false).unwrap();
            assert_eq!(rig.flow(&key).epoch, EPOCH);
        }
    });
}

#[test]
fn what_is_retired_during_the_sweep_keeps_its_quiet_time() {
    with_rig(|rig| {
        for pair in pairs() {
            let key = rig.learn_as(&pair, |entry| {
                (entry.flow.epoch, entry.flow.retired_ticks) = (EPOCH_RETIRED, now_ticks() + 500);
            });
            let swept = rig.plane.sweep(IDLE, false).unwrap();
            assert_eq!(swept.deleted, 0);
            assert!(rig.plane.flow(&key).unwrap().is_some());
            rig.plane.remove_flow(&key).unwrap();
        }
    });
}

#[test]
fn what_was_retired_long_ago_is_removed_and_static_flows_stay() {
    with_rig(|rig| {
        let [gone, stays, fresh, active] = pairs();
        let gone = rig.learn_as(&gone, |entry| {
            (entry.flow.epoch, entry.flow.retired_ticks) = (EPOCH_RETIRED, now_ticks() - 5000);
        });
        let stays = rig.learn_as(&stays, |entry| {
            entry.flow.flags |= FLOW_STATIC;
            entry.flow.seen_ticks = now_ticks() - 2 * ticks(IDLE);
        });
        rig.learn_as(&fresh, |entry| {
            (entry.flow.epoch, entry.flow.retired_ticks) = (EPOCH_RETIRED, now_ticks());
        });
        rig.learn(&active);
        let swept = rig.plane.sweep(IDLE, false).unwrap();
        assert_eq!((swept.deleted, swept.statics, swept.retired, swept.active), (1, 1, 1, 1));
        assert!(rig.plane.flow(&gone).unwrap().is_none());
        assert!(rig.plane.flow(&stays).unwrap().is_some());
        let all = rig.plane.sweep(IDLE, true).unwrap();
        assert_eq!((all.retired, all.statics, all.active), (2, 1, 0));
        assert_ne!(all, Sweep::default());
    });
}
