//! A grid of flows that stay distinct under masquerade, and the answers to them.

use crate::{Field, Sizes, Traffic, Wrong};
use shunt_wire::{Checksum, Mac, Packet};
use std::net::{IpAddr, SocketAddr};

/// UDP flows, one packet of each in turn, without stamps.
///
/// There are `lows` flows for each of `highs` near addresses: flow (high, low) is between address `near + high`, port
/// `near + low` and address `far`, port `far + high`. So no two flows of different near addresses ask a masquerade for
/// the same port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grid {
    /// The first near address and port.
    pub near: SocketAddr,
    /// The far address and the first far port.
    pub far: SocketAddr,
    /// Number of near ports.
    pub lows: u16,
    /// Number of near addresses, and of far ports.
    pub highs: u16,
    /// Whether all flows have the first near address, as answers to a masquerade have.
    pub near_fixed: bool,
    /// Whether the far side sends.
    pub reply: bool,
    /// The sender's MAC address.
    pub source_mac: Mac,
    /// The next hop's MAC address.
    pub destination_mac: Mac,
    /// Size of a frame with FCS, in bytes.
    pub frame_bytes: u32,
    /// Whether UDP has a checksum.
    pub udp_checksum: bool,
}

impl Grid {
    /// One flow of frames of 64 bytes from `near` to `far`, by these MAC addresses of the sender and the next hop.
    pub fn of_one_flow(near: SocketAddr, far: SocketAddr, [source_mac, destination_mac]: [Mac; 2]) -> Self {
        Self {
            near,
            far,
            lows: 1,
            highs: 1,
            near_fixed: false,
            reply: false,
            source_mac,
            destination_mac,
            frame_bytes: 64,
            udp_checksum: true,
        }
    }

    /// Number of flows.
    pub fn count(&self) -> u64 {
        u64::from(self.lows) * u64::from(self.highs)
    }

    /// The packets of the grid.
    ///
    /// # Errors
    /// Fails if there are no flows, more flows than addresses or ports, or if the frame size is not an Ethernet
    /// frame's.
    pub fn traffic(&self) -> Result<Traffic, Wrong> {
        let (lows, highs) = (u32::from(self.lows), u32::from(self.highs));
        let fits = |base: u16, count: u16| u32::from(base) + u32::from(count) <= 1 << 16;
        if lows == 0 || highs == 0 || !fits(self.near.port(), self.lows) || !fits(self.far.port(), self.highs)
        {
            return Err(Wrong::because(format!(
                "{lows} x {highs} flows: there are not that many ports after the first"
            )));
        }
        let wide = |base, count| Field { base, every: lows, count };
        let near_address = wide(low(self.near.ip()), if self.near_fixed { 1 } else { highs });
        let far_address = Field::fixed(low(self.far.ip()));
        let near_port = Field { base: self.near.port().into(), every: 1, count: lows };
        let far_port = wide(self.far.port().into(), highs);
        let (source, destination) = if self.reply { (self.far, self.near) } else { (self.near, self.far) };
        let checksum = if self.udp_checksum { Checksum::Good } else { Checksum::Zero };
        let near_first = Traffic {
            packet: Packet::udp_between(source, destination)
                .macs(self.source_mac, self.destination_mac)
                .with_l4_checksum(checksum),
            source: near_address,
            destination: far_address,
            source_port: near_port,
            destination_port: far_port,
            flows: lows * highs,
            shuffled: None,
            sizes: Sizes::fixed(self.frame_bytes)?,
            stamped: false,
            listed: false,
        };
        if !self.reply {
            return Ok(near_first);
        }
        Ok(Traffic {
            source: far_address,
            destination: near_address,
            source_port: far_port,
            destination_port: near_port,
            ..near_first
        })
    }
}

fn low(ip: IpAddr) -> u32 {
    crate::Addresses::one(ip).low()
}
