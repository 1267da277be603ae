//! Packets of a topology's hosts.

use super::Host;
use shunt_gen::Grid;
use shunt_wire::{Packet, Transport};
use std::net::SocketAddr;

/// The first port that Linux assigns to clients.
const EPHEMERAL: u16 = 32768;

impl Host {
    /// Makes the host answer nothing and drop all packets that arrive, except a tunnel's own. For tests that send in
    /// its place through a tap; pin its neighbours.
    ///
    /// # Panics
    /// Panics if a command fails.
    #[track_caller]
    pub fn be_silent(&self) {
        let Self { nic, port, .. } = self;
        self.ns.nft(&format!(
            "table inet silent {{ chain input {{ type filter hook input priority 0; policy drop; \
             iifname {{ {nic}-below, {port}-below }} accept; }}; }}"
        ));
    }

    /// A UDP packet for `destination`, addressed to the host's gateway.
    pub fn udp_to(&self, port: u16, destination: SocketAddr) -> Packet {
        let own = if destination.is_ipv4() { self.at(port) } else { self.at6(port) };
        Packet::udp_between(own, destination).macs(self.mac, self.gateway_mac).with_tags(self.tags)
    }

    /// A TCP packet for `destination`, addressed to the host's gateway.
    pub fn tcp_to(&self, port: u16, destination: SocketAddr, flags: u8) -> Packet {
        let own = if destination.is_ipv4() { self.at(port) } else { self.at6(port) };
        Packet::tcp_between(own, destination, flags).macs(self.mac, self.gateway_mac).with_tags(self.tags)
    }

    /// Flows of 64-byte frames to a host behind the gateway, from this host's address and the addresses after it.
    pub fn flows_to(&self, far: SocketAddr, lows: u16, highs: u16) -> Grid {
        let near = if far.is_ipv4() { self.at(EPHEMERAL) } else { self.at6(EPHEMERAL) };
        Grid { lows, highs, ..Grid::of_one_flow(near, far, [self.mac, self.gateway_mac]) }
    }

    /// The host's answer to a UDP or TCP packet that has reached it.
    ///
    /// # Panics
    /// Panics if the packet is neither UDP nor TCP.
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
