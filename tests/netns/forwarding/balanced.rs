//! Connections that IPVS balances stay slow: IPVS must see each packet, and does not announce that it chose another
//! server.

use crate::daemon;
use shunt_testkit::{Crossing, engines, refusals, require_root, silent_router, skip_missing_feature};
use shunt_wire::Packet;
use std::time::Duration;

/// Ten times as many packets as it takes to learn a flow.
const MANY: u32 = 20;

/// A virtual service whose connections conntrack tracks.
const BALANCE: &str = "ip addr add 203.0.113.80/32 dev lo && ipvsadm -A -u 203.0.113.80:80 -s rr \
     && ipvsadm -a -u 203.0.113.80:80 -r 198.18.0.2:5000 -m && echo 1 > /proc/sys/net/ipv4/vs/conntrack";

const STATEFUL: &str = "table inet filter { chain forward { type filter hook forward priority filter; ct state invalid drop; }; }";

#[track_caller]
fn arrives(way: &Crossing, packet: &Packet) {
    way.from.send(packet);
    let seen = way.to.capture_packet(Duration::from_secs(5), |seen| seen.payload == packet.payload);
    assert!(seen.is_some(), "the packet does not arrive: {packet:?}");
}

#[test]
fn a_connection_that_ipvs_balances_stays_slow() {
    if !require_root() {
        return;
    }
    for engine in engines() {
        let lab = silent_router(STATEFUL);
        let (lan, wan) = (lab.lan(), lab.wan());
        if let Err(why) = lab.router().try_run(BALANCE) {
            // A guest has ipvsadm only if this machine has it.
            return skip_missing_feature("IPVS", "--test forwarding -- balanced", &why.to_string());
        }
        let shuntd = daemon(&lab, engine);
        let (there, back) = (Crossing::between(lan, wan), Crossing::between(wan, lan));
        for n in 0..MANY {
            arrives(
                &there,
                &lan.udp_to(4000, "203.0.113.80:80".parse().unwrap()).payload(format!("to {n:05}")),
            );
            arrives(&back, &wan.udp_to(5000, lan.at(4000)).payload(format!("from {n:03}")));
        }
        let status = shuntd.status();
        assert_eq!(status.packets.fast, 0, "{:#?}", shuntd.flows());
        assert!(refusals(&status, "ipvs") > 0, "{status:#?}");
        shuntd.stop();
    }
}
