//! What becomes of devices that were to be ports.

use crate::rig::with_rig;
use shunt_bpf::abi;

#[test]
fn devices_that_went_before_they_were_ports_take_no_room() {
    with_rig(|rig| {
        for gone in (1000..).take(2 * abi::PORTS_MAX as usize) {
            let refused = rig.plane.attach(gone, 0, true);
            assert!(refused.is_err(), "{gone} is a port");
        }
        rig.ns.run("ip link add late0 type veth peer name late1");
        let late = rig.ns.ifindex("late0");
        rig.plane.attach(late, 0, true).unwrap();
    });
}
