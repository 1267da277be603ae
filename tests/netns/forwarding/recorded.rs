//! Packets as Linux alone forwards them, to be compared with those of a router with Shunt.

use crate::variations;
use shunt_api::{Engine, Status};
use shunt_testkit::{Crossing, Frame, Handshake, Host, Shuntd, kernel_is_at_least};
use shunt_wire::{Network, Packet};
use std::net::SocketAddr;

/// Source and destination networks with and without translation.
pub(crate) const RULES: &str = r#"
    table ip nat {
        chain pre { type nat hook prerouting priority dstnat;
            ip daddr 203.0.113.9 udp dport 80 dnat to 198.18.0.2:8080;
            ip daddr 198.18.0.1 udp dport 8081 dnat to 192.168.1.2:80; };
        chain post { type nat hook postrouting priority srcnat;
            ip saddr 192.168.1.0/24 ip daddr 198.18.0.0/24 masquerade; }; };
    table inet filter { chain forward { type filter hook forward priority filter; ct state invalid drop; }; }"#;

/// A direction of traffic, and the frames that Linux alone sends.
pub(crate) struct Recorded<'a> {
    from: &'a Host,
    to: &'a Host,
    pub(crate) packets: Vec<Packet>,
    pub(crate) left: Vec<Frame>,
}

impl<'a> Recorded<'a> {
    pub(crate) fn new(from: &'a Host, to: &'a Host, packets: Vec<Packet>) -> Self {
        let left = Crossing::between(from, to).pass_all(&packets);
        assert_eq!(left[0].packet().unwrap().ethernet.tags, to.tags, "tags of Linux's frames");
        Self { from, to, packets, left }
    }

    /// UDP and TCP over both families, with and without translation, in both directions, through a router with
    /// [`RULES`].
    pub(crate) fn all(lan: &'a Host, wan: &'a Host) -> Vec<Self> {
        let both = [
            Self::udp(lan, wan, 4000, wan.at(5000)),
            Self::udp(lan, wan, 4000, wan.at6(5000)),
            Self::udp(lan, wan, 4002, ([203, 0, 113, 9], 80).into()),
            Self::udp(wan, lan, 4003, (wan.gateway_v4, 8081).into()),
            Self::tcp(lan, wan, 4001, wan.at(80)),
            Self::tcp(lan, wan, 4001, wan.at6(80)),
        ];
        both.into_iter().flatten().collect()
    }

    /// UDP, and the answers to it.
    pub(crate) fn udp(from: &'a Host, to: &'a Host, port: u16, destination: SocketAddr) -> [Self; 2] {
        let there = Self::new(from, to, variations(&from.udp_to(port, destination)));
        let answer = to.answer_to(&there.left[0].packet().unwrap());
        [there, Self::new(to, from, variations(&answer))]
    }

    /// A connection that was opened before Shunt was started.
    pub(crate) fn tcp(from: &'a Host, to: &'a Host, port: u16, destination: SocketAddr) -> [Self; 2] {
        let (there, back) = (Crossing::between(from, to), Crossing::between(to, from));
        let syn = from.tcp_to(port, destination, 0);
        let connection = Handshake::open(&there, &back, &syn, to);
        let data = variations(&connection.from_client(&syn, 0, []));
        let answers = variations(&connection.from_server(to, 0, []));
        [Self::new(from, to, data), Self::new(to, from, answers)]
    }

    /// With Shunt, all packets except those that teach are fast and leave the same.
    #[track_caller]
    pub(crate) fn assert_same_with_shunt(&self, shuntd: &Shuntd) {
        let way = Crossing::between(self.from, self.to);
        let learned = !is_replaced(&self.packets[0], self.to, &shuntd.status());
        if learned {
            way.teach(shuntd, &self.packets[0]);
        }
        let before = shuntd.status().packets.fast;
        for (packet, left) in self.packets.iter().zip(&self.left) {
            assert_eq!(way.pass(packet).bytes, left.bytes, "{packet:?}");
        }
        let status = shuntd.status();
        assert_eq!(
            status.packets.fast - before,
            if learned { self.packets.len() as u64 } else { 0 },
            "{status:#?} {:#?}",
            shuntd.flows()
        );
    }
}

/// Whether Linux gives an IPv6 packet a new `sk_buff` on its way, so that it teaches nothing. A raw socket leaves 2
/// bytes before a frame, where NICs leave 64 or more, and native XDP 256. Since Linux 7, a packet that goes to a VLAN
/// device needs more, and tc programs can make room only where a frame has no second tag.
fn is_replaced(packet: &Packet, to: &Host, status: &Status) -> bool {
    let is_tc = status.ports.iter().all(|port| port.engine == Engine::Tc);
    let is_v6 = matches!(packet.network, Network::V6(_));
    is_tc && is_v6 && packet.ethernet.tags.len() > 1 && !to.tags.is_empty() && kernel_is_at_least(7, 0)
}
