//! Devices that vanish before they are ports, and frames that their drivers drop.

use crate::rig::{pairs, with_rig};
use shunt_bpf::abi;
use shunt_traffic::testrun::{TC_NEXT, TC_REDIRECT, XDP_PASS};

#[test]
fn removed_devices_take_no_room_in_the_port_map() {
    with_rig(|rig| {
        for gone in (1000..).take(2 * abi::PORTS_MAX as usize) {
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

/// The kernel has the tracepoints, and its verifier accepts the programs.
#[test]
fn redirected_frames_that_a_driver_drops_can_be_counted() {
    with_rig(|rig| {
        rig.plane.count_tx_drops().unwrap();
        assert!(rig.plane.counts_tx_drops());
    });
}
