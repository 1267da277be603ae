//! Interfaces count fast packets like slow ones.

use crate::daemon;
use shunt_api::Engine;
use shunt_testkit::{ALL_ENGINES, Crossing, NetNs, Topology, require_root, rulesets, sent_by, silent_router};
use shunt_wire::Packet;

const PACKETS: usize = 50;
const ETHERNET_BYTES: u64 = 14;

/// Packets and bytes that a port has received and sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counters([u64; 4]);

impl Counters {
    #[track_caller]
    fn read(router: &NetNs, port: &str) -> Self {
        let output = router.run(&format!("ip -s link show dev {port}"));
        let lines: Vec<&str> = output.lines().collect();
        let after = |title: &str| {
            let at = lines.iter().position(|line| line.trim_start().starts_with(title)).unwrap();
            let mut numbers = lines[at + 1].split_whitespace().map(|word| word.parse().unwrap());
            let bytes = numbers.next().unwrap();
            (numbers.next().unwrap(), bytes)
        };
        let ((rx, rx_bytes), (tx, tx_bytes)) = (after("RX:"), after("TX:"));
        Self([rx, rx_bytes, tx, tx_bytes])
    }

    fn since(self, before: Self) -> Self {
        Self(std::array::from_fn(|n| self.0[n] - before.0[n]))
    }
}

/// The increase of both ports' counters by a stream in both directions.
#[track_caller]
fn added(lab: &Topology, ways: &[(Crossing, Packet)]) -> [Counters; 2] {
    let now = || ["r0", "r1"].map(|port| Counters::read(lab.router(), port));
    let before = now();
    for n in 0..PACKETS {
        for (way, packet) in ways {
            way.pass(&packet.clone().payload(vec![b'x'; 20 + 13 * n]).with_id(n as u16));
        }
    }
    let after = now();
    [0, 1].map(|port| after[port].since(before[port]))
}

#[test]
fn ports_count_fast_packets_and_bytes_like_slow_ones() {
    if !require_root() {
        return;
    }
    for engine in ALL_ENGINES {
        let lab = silent_router(rulesets::HOME_GATEWAY);
        // Block everything but the stream: the kernel sends IPv6 packets of its own accord.
        lab.router().sysctl("ipv6/conf/all/disable_ipv6", 1);
        lab.hosts().iter().for_each(|host| host.ns.sysctl("ipv6/conf/all/disable_ipv6", 1));
        let (there, back) =
            (Crossing::between(lab.lan(), lab.wan()), Crossing::between(lab.wan(), lab.lan()));
        // Learn with a packet larger than all of the stream, so that none exceeds the largest size seen.
        let packet = lab.lan().udp_to(4000, lab.wan().at(5000)).payload(vec![b'l'; 1000]);
        let answer = lab.wan().answer_to(&there.pass(&packet).packet().unwrap()).payload(vec![b'l'; 1001]);
        back.pass(&answer);
        let ways = [(there, packet), (back, answer)];
        let slow = added(&lab, &ways);

        let shuntd = daemon(&lab, engine);
        ways.iter().for_each(|(way, packet)| way.teach(&shuntd, packet));
        let before = sent_by(engine, &shuntd.status());
        let fast = added(&lab, &ways);
        assert_eq!(sent_by(engine, &shuntd.status()) - before, 2 * PACKETS as u64, "{:#?}", shuntd.status());
        // A veth counts packets that XDP took without their Ethernet header.
        let missing = if engine != Engine::Tc { ETHERNET_BYTES * PACKETS as u64 } else { 0 };
        let slow = slow
            .map(|Counters([rx, rx_bytes, tx, tx_bytes])| Counters([rx, rx_bytes - missing, tx, tx_bytes]));
        assert_eq!(fast, slow, "{engine}: packets and bytes received and sent, of r0 and r1");
        assert_eq!([fast[0].0[0], fast[0].0[2]], [PACKETS as u64; 2]);
        shuntd.stop();
    }
}
