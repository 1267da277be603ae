//! Random packets, before and after forwarding.

use super::*;
use fastrand::Rng;
use shunt_wire::{Mac, Network};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The checksums of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sums {
    /// Correct.
    Good,
    /// UDP has no checksum; TCP as for `Good`.
    None,
    /// Random values at L4.
    Wrong,
    /// The checksums of the ingress packet are 0.
    ZeroBefore,
    /// The checksums of the egress packet are 0.
    ZeroAfter,
    /// The checksums of the ingress packet are 0, written as 0xffff.
    OtherZero,
}

/// A packet at ingress and at egress.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) before: Frame,
    pub(super) after: Frame,
}

impl Pair {
    pub(super) fn random(rng: &mut Rng, sums: Sums) -> Self {
        let v4 = rng.bool();
        let ends = [end(rng, v4), end(rng, v4), end(rng, v4), end(rng, v4)];
        // Each address and each port changes in half of the cases.
        let new = |rng: &mut Rng, old: SocketAddr, new: SocketAddr| {
            let ip = if rng.bool() { old.ip() } else { new.ip() };
            SocketAddr::new(ip, if rng.bool() { old.port() } else { new.port() })
        };
        let (source, destination) = (new(rng, ends[0], ends[2]), new(rng, ends[1], ends[3]));
        let mut before = if rng.bool() {
            Frame::udp_between(ends[0], ends[1])
        } else {
            Frame::tcp_between(ends[0], ends[1], Tcp::ACK | rng.u8(..) & (Tcp::PSH | Tcp::URG | 0xc0))
        };
        decorate(rng, &mut before);
        let mut after = before.clone().with_source(source).with_destination(destination);
        // A quarter of the packets is bridged.
        if rng.u8(..4) > 0 {
            after = after.with_hop_limit(before.hop_limit().unwrap_or(2) - 1).macs(mac(rng), mac(rng));
        }
        if rng.bool() {
            after = after.with_tags(&tags(rng));
        }
        let mut pair = Self { before, after };
        pair.sum(rng, sums);
        pair
    }

    /// The number of hops between the two: 1, or 0 if bridged.
    pub(super) fn hops(&self) -> u8 {
        self.before.hop_limit().unwrap_or(0) - self.after.hop_limit().unwrap_or(0)
    }

    fn sum(&mut self, rng: &mut Rng, sums: Sums) {
        let both = |pair: &mut Self, sum| {
            pair.before = pair.before.clone().with_l4_checksum(sum);
            pair.after = pair.after.clone().with_l4_checksum(sum);
        };
        match sums {
            Sums::Good => {}
            Sums::None if self.before.tcp().is_none() => both(self, Checksum::Zero),
            Sums::None => {}
            // The model of Linux gives the expected result.
            Sums::Wrong => both(self, Checksum::Value(edgy(rng))),
            Sums::ZeroBefore => self.zero(|pair| &pair.before),
            Sums::ZeroAfter => self.zero(|pair| &pair.after),
            Sums::OtherZero => {
                self.zero(|pair| &pair.before);
                self.before = self
                    .before
                    .clone()
                    .with_l4_checksum(Checksum::Value(0xffff))
                    .with_header_checksum(Checksum::Value(0xffff));
            }
        }
    }

    /// Chooses the IPv4 id and the end of the payload so that the checksums of one packet are zero.
    fn zero(&mut self, which: fn(&Self) -> &Frame) {
        let even = self.before.payload.len() & !1;
        let payload = self.before.payload[..even].to_vec();
        self.set(&payload, [0, 0], 0);
        let frame = which(self).to_bytes();
        let at = linux::l4_checksum_at(&frame);
        let header_at = 14 + 4 * which(self).ethernet.tags.len();
        let id = u16::from_be_bytes([frame[header_at + 10], frame[header_at + 11]]);
        self.set(&payload, [frame[at], frame[at + 1]], id);
    }

    fn set(&mut self, payload: &[u8], tail: [u8; 2], id: u16) {
        for frame in [&mut self.before, &mut self.after] {
            *frame = frame.clone().payload([payload, &tail].concat()).with_id(id);
        }
    }
}

/// A random word, with values that cause carries and zeros more often.
fn edgy(rng: &mut Rng) -> u16 {
    match rng.u8(..8) {
        0 => 0,
        1 => 0xffff,
        2 => 1,
        3 => 0xfffe,
        _ => rng.u16(..),
    }
}

fn end(rng: &mut Rng, v4: bool) -> SocketAddr {
    let mut words = [0u16; 8];
    words.fill_with(|| edgy(rng));
    let ip = if v4 {
        IpAddr::V4(Ipv4Addr::from(u32::from(words[0]) << 16 | u32::from(words[1])))
    } else {
        IpAddr::V6(Ipv6Addr::from(words))
    };
    SocketAddr::new(ip, edgy(rng))
}

fn mac(rng: &mut Rng) -> Mac {
    let [a, b, c, d, e, f, ..] = rng.u64(..).to_ne_bytes();
    Mac([a & !1, b, c, d, e, f])
}

fn tags(rng: &mut Rng) -> Vec<Tag> {
    let all = taggings();
    all[rng.usize(..all.len())].clone()
}

/// Fills the fields that forwarding does not change with random values.
fn decorate(rng: &mut Rng, frame: &mut Frame) {
    let random = |rng: &mut Rng, bytes: usize| (0..bytes).map(|_| rng.u8(..)).collect::<Vec<u8>>();
    let length = rng.usize(..64);
    frame.payload = random(rng, length);
    *frame = frame.clone().with_hop_limit(rng.u8(2..)).with_class(rng.u8(..)).macs(mac(rng), mac(rng));
    frame.ethernet.tags = tags(rng);
    match &mut frame.network {
        Network::V4(ip) => {
            ip.id = edgy(rng);
            ip.dont_fragment = rng.bool();
        }
        Network::V6(ip) => ip.flow_label = rng.u32(..0x10_0000),
        Network::Other(_) => {}
    }
    if let Transport::Tcp(tcp) = &mut frame.transport {
        let words = rng.usize(..=10);
        tcp.options = random(rng, 4 * words);
        tcp.sequence = rng.u32(..);
        tcp.acknowledgement = rng.u32(..);
        tcp.window = edgy(rng);
        tcp.urgent = edgy(rng);
    }
}
