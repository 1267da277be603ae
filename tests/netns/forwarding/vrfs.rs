//! Ports that belong to a VRF: Linux receives their packets by the VRF's device.

use crate::daemon;
use shunt_testkit::{Crossing, engines, require_root, silent_router, skip_missing_feature};

const STATEFUL: &str = "table inet filter { chain forward { type filter hook forward priority filter; ct state established,related accept; }; }";

#[test]
fn flows_between_ports_of_a_vrf_are_fast() {
    if !require_root() {
        return;
    }
    for engine in engines() {
        let lab = silent_router(STATEFUL);
        if let Err(why) = lab.router().try_run("ip link add vrf0 type vrf table 10 && ip link set vrf0 up") {
            return skip_missing_feature("VRFs", "--test forwarding -- vrfs", &why.to_string());
        }
        lab.router().run("ip link set r0 master vrf0 && ip link set r1 master vrf0");
        // A device that joins a VRF goes down and up, and loses its neighbours.
        lab.pin_neighbours();
        let shuntd = daemon(&lab, engine);
        Crossing::between(lab.lan(), lab.wan())
            .teach(&shuntd, &lab.lan().udp_to(4000, lab.wan().at(5000)).payload("in a VRF"));
        Crossing::between(lab.wan(), lab.lan())
            .teach(&shuntd, &lab.wan().udp_to(5000, lab.lan().at(4000)).payload("answer"));
        shuntd.stop();
    }
}
