//! Devices that vanish before they are ports, and frames that their drivers drop.

use crate::rig::{Rig, pairs, with_rig};
use shunt_bpf::abi;
use shunt_traffic::testrun::{TC_NEXT, TC_REDIRECT, XDP_PASS, XDP_REDIRECT};

/// The slots that ports may use in these tests: to use up all of them takes long.
const SLOTS: u32 = 16;

fn keep_most_slots(rig: &mut Rig<'_>) {
    for slot in SLOTS..abi::PORTS_MAX {
        rig.plane.keep_slot(slot as u16);
    }
}

#[test]
fn removed_devices_take_no_room_in_the_port_map() {
    with_rig(|rig| {
        keep_most_slots(rig);
        for gone in (1000..).take(2 * SLOTS as usize) {
            let refused = rig.plane.attach(gone, 0, true);
            assert!(refused.is_err(), "{gone} does not exist but is a port");
        }
        rig.ns.run("ip link add late0 type veth peer name late1");
        let late = rig.ns.ifindex("late0");
        rig.plane.attach(late, 0, true).unwrap();
    });
}

/// The next port gets the slot of the last one. A packet of a flow to the former port must not leave through the next
/// one.
#[test]
fn flows_to_a_removed_port_are_not_used_when_another_port_takes_its_place() {
    with_rig(|rig| {
        let pair = &pairs()[0];
        rig.learn(pair);
        assert_eq!(rig.tc(&pair.before.to_bytes()).verdict, TC_REDIRECT);
        let slot = rig.plane.slot(rig.out);
        rig.plane.detach(rig.out).unwrap();
        rig.ns.run("ip link add next0 type veth peer name next1");
        let next = rig.ns.ifindex("next0");
        rig.plane.attach(next, abi::PORT_XDP_OUT, true).unwrap();
        assert_eq!(rig.plane.slot(next), slot);
        let frame = pair.before.to_bytes();
        assert_eq!((rig.tc(&frame).verdict, rig.xdp(&frame).verdict), (TC_NEXT, XDP_PASS));
    });
}

/// A device, and a port that only tc has used, whose flow is not for XDP.
fn with_tc_port(test: impl FnOnce(&mut Rig<'_>, &[u8]) + Send) {
    with_rig(|rig| {
        let pair = &pairs()[0];
        rig.plane.set_flags(rig.out, 0).unwrap();
        rig.learn_as(pair, |entry| entry.flow.flags &= !abi::FLOW_XDP);
        let frame = pair.before.to_bytes();
        assert_eq!(rig.tc(&frame).verdict, TC_REDIRECT);
        test(rig, &frame);
    });
}

#[test]
fn a_port_of_tc_takes_its_own_flows_with_it_and_nobody_gets_its_slot_in_this_epoch() {
    with_tc_port(|rig, frame| {
        let (slot, epoch) = (rig.plane.slot(rig.out), rig.plane.control().epoch());
        rig.plane.detach(rig.out).unwrap();
        assert_eq!((rig.plane.control().epoch(), rig.tc(frame).verdict), (epoch, TC_NEXT));
        rig.ns.run("ip link add next0 type veth peer name next1");
        let next = rig.ns.ifindex("next0");
        rig.plane.attach(next, 0, true).unwrap();
        assert_ne!(rig.plane.slot(next), slot);
        assert_eq!((rig.plane.control().epoch(), rig.tc(frame).verdict), (epoch, TC_NEXT));
        // The same device again, in another slot: the old flow is of an old epoch.
        rig.plane.attach(rig.out, 0, true).unwrap();
        assert!(rig.plane.control().epoch() != epoch);
        assert_eq!(rig.tc(frame).verdict, TC_NEXT);
    });
}

#[test]
fn a_port_of_tc_that_leaves_leaves_the_flows_of_others() {
    with_tc_port(|rig, frame| {
        keep_most_slots(rig);
        let epoch = rig.plane.control().epoch();
        for number in 0..2 * SLOTS {
            let name = format!("spare{number}");
            rig.ns.run(&format!("ip link add {name} type veth peer name {name}p"));
            let spare = rig.ns.ifindex(&name);
            rig.plane.attach(spare, 0, true).unwrap();
            rig.plane.detach(spare).unwrap();
            let moved = rig.plane.control().epoch() != epoch;
            assert_eq!(rig.tc(frame).verdict, if moved { TC_NEXT } else { TC_REDIRECT }, "{number}");
            // Once all slots have been used, the first of them is only free with another epoch.
            assert_eq!(moved, number >= SLOTS - 2, "{number}");
        }
    });
}

/// Slots of more than eight bits are counted and found as others are.
#[test]
fn ports_in_the_last_slots_forward_by_all_engines_but_the_external_one() {
    with_rig(|rig| {
        for port in [rig.port, rig.out] {
            rig.plane.detach(port).unwrap();
        }
        for slot in 0..abi::PORTS_MAX - 2 {
            rig.plane.keep_slot(slot as u16);
        }
        rig.plane.attach(rig.port, 0, true).unwrap();
        rig.plane.attach(rig.out, abi::PORT_XDP_OUT, true).unwrap();
        rig.plane.control().set_epoch(crate::rig::EPOCH);
        assert_eq!(rig.plane.slot(rig.out), Some(abi::PORTS_MAX as u16 - 1));
        let pair = &pairs()[0];
        rig.learn(pair);
        let frame = pair.before.to_bytes();
        let (tc, xdp) = (rig.tc(&frame), rig.xdp(&frame));
        assert_eq!((tc.verdict, xdp.verdict), (TC_REDIRECT, XDP_REDIRECT));
        assert_eq!(xdp.frame, pair.after.to_bytes());
        let counted = rig.plane.counters(rig.port).unwrap();
        assert_eq!((counted.tc_pkts, counted.xdp_pkts), (1, 1));
    });
}

/// The kernel has the tracepoints, and its verifier accepts the programs.
#[test]
fn redirected_frames_that_a_driver_drops_can_be_counted() {
    with_rig(|rig| {
        rig.plane.count_tx_drops().unwrap();
        assert!(rig.plane.counts_tx_drops());
    });
}
