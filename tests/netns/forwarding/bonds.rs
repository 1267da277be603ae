//! Bonds of two ports: packets leave through the member that the bond chooses at that time.

use shunt_testkit::{Crossing, SELDOM_PROVED, Shuntd, Topology, engines, require_bonds, silent, wait_until};
use shunt_wire::Packet;
use std::time::Duration;

const STATEFUL: &str = "table inet filter { chain forward { type filter hook forward priority filter; ct state established,related,new accept; }; }";

/// r1 is the active member, r2 the backup.
const BOND: &str = "for port in r1 r2; do ip addr flush dev $port; ip link set $port down; done
    ip link add bond0 type bond mode active-backup miimon 100
    for port in r1 r2; do ip link set $port master bond0; done
    ip link set bond0 up; ip link set bond0 type bond active_slave r1
    ip addr add 198.18.0.1/24 dev bond0
    ip neigh replace 198.18.0.9 lladdr 02:00:00:00:02:09 dev bond0 nud permanent";

#[test]
fn a_failover_of_a_bond_takes_effect_at_once() {
    if !require_bonds() {
        return;
    }
    for engine in engines() {
        let lab = silent(Topology::two_uplinks(), STATEFUL);
        lab.router().run(BOND);
        let shuntd = Shuntd::on(lab.router()).engine(&engine.to_string()).config(SELDOM_PROVED);
        let shuntd = shuntd.port("r0").port("r1").port("r2").start();
        let packet = |n: u32| -> Packet {
            let packet = lab.lan().udp_to(4000, "198.18.0.9:5000".parse().unwrap());
            packet.payload(format!("{n:08}"))
        };
        let ways = ["wan", "wan2"].map(|host| Crossing::between(lab.lan(), lab.host(host)));
        wait_until("the bond forwards", || {
            ways[0].from.send(&packet(0));
            ways[0].to.capture_packet(Duration::from_millis(50), |seen| seen.payload == b"00000000").is_some()
        });
        for (n, member) in [(1, "r2"), (0, "r1"), (1, "r2")] {
            ways[1 - n].teach(&shuntd, &packet(0));
            lab.router().run(&format!("ip link set bond0 type bond active_slave {member}"));
            for number in 1..20 {
                let seen = ways[n].pass(&packet(number)).packet().unwrap();
                assert_eq!(seen.payload, packet(number).payload);
            }
            let old = ways[1 - n].to.capture_packet(Duration::ZERO, |seen| seen.payload == packet(1).payload);
            assert_eq!(old, None, "{engine}, {member}: the packet leaves through the other member");
        }
        shuntd.stop();
    }
}
