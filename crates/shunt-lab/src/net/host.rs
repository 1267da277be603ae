//! What a host of a topology would say.

use super::Host;
use shunt_gen::Grid;
use shunt_wire::{Packet, Transport};
use std::net::SocketAddr;

/// The first port that Linux gives to a client.
const EPHEMERAL: u16 = 32768;

impl Host {
    /// Makes it answer nothing and forget what arrives. For tests that speak for it through a tap; pin its neighbours.
    ///
    /// # Panics
    /// When it cannot be made so.
    #[track_caller]
    pub fn be_silent(&self) {
        self.ns.nft("table inet silent { chain input { type filter hook input priority 0; policy drop; }; }");
    }

    /// A UDP packet to its gateway, for somebody else.
    pub fn udp_to(&self, port: u16, destination: SocketAddr) -> Packet {
        let own = if destination.is_ipv4() { self.at(port) } else { self.at6(port) };
        Packet::udp_between(own, destination).macs(self.mac, self.gateway_mac).with_tags(self.tags)
    }

    /// A TCP packet to its gateway, for somebody else.
    pub fn tcp_to(&self, port: u16, destination: SocketAddr, flags: u8) -> Packet {
        let own = if destination.is_ipv4() { self.at(port) } else { self.at6(port) };
        Packet::tcp_between(own, destination, flags).macs(self.mac, self.gateway_mac).with_tags(self.tags)
    }

    /// So many flows of 64-byte frames to somebody behind its gateway, from its own address and those after it.
    pub fn flows_to(&self, far: SocketAddr, lows: u16, highs: u16) -> Grid {
        Grid {
            near: if far.is_ipv4() { self.at(EPHEMERAL) } else { self.at6(EPHEMERAL) },
            far,
            lows,
            highs,
            near_fixed: false,
            reply: false,
            source_mac: self.mac,
            destination_mac: self.gateway_mac,
            frame_bytes: 64,
            udp_checksum: true,
        }
    }

    /// What it would answer to a UDP or TCP packet that has reached it.
    ///
    /// # Panics
    /// When the packet is neither.
    #[track_caller]
    pub fn answer_to(&self, seen: &Packet) -> Packet {
        let (Some(source), Some(destination)) = (seen.source(), seen.destination()) else {
            panic!("neither UDP nor TCP: {seen:?}")
        };
        let answer = match &seen.transport {
            Transport::Tcp(tcp) => Packet::tcp_between(destination, source, tcp.flags),
            _ => Packet::udp_between(destination, source),
        };
        answer.macs(self.mac, self.gateway_mac).with_tags(self.tags)
    }
}
