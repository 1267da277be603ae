//! Devices that vanish before they are ports, and frames that their drivers drop.

use crate::rig::with_rig;
use shunt_bpf::abi;

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

/// The kernel has the tracepoints, and its verifier accepts the programs.
#[test]
fn redirected_frames_that_a_driver_drops_can_be_counted() {
    with_rig(|rig| {
        rig.plane.count_tx_drops().unwrap();
        assert!(rig.plane.counts_tx_drops());
    });
}
