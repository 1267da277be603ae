//! One way through a router, packet by packet.

use crate::{Frame, Host, Shuntd, Tap};
use shunt_wire::{Packet, Tcp, Transport};
use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

/// How long a packet may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a packet is repeated until its flow is fast. Refused tuples are left in peace for a second.
const LESSON: Duration = Duration::from_secs(8);
const ICMP: u8 = 1;

static MARKERS: AtomicU32 = AtomicU32::new(1);

/// Packets go in at one host, one at a time, and are seen as they leave, at another or at the same one.
#[derive(Debug)]
pub struct Crossing {
    /// Where they go in; here comes what the router answers.
    pub from: Tap,
    /// Where they leave.
    pub to: Tap,
    marker: Packet,
}

impl Crossing {
    /// From one host to another.
    ///
    /// # Panics
    /// When their interfaces cannot be listened on.
    #[track_caller]
    pub fn between(from: &Host, to: &Host) -> Self {
        let marker = Packet::between(from.v4.into(), to.v4.into(), Transport::Other(ICMP));
        Self {
            from: from.tap(),
            to: to.tap(),
            marker: marker.macs(from.mac, from.gateway_mac).with_tags(from.tags),
        }
    }

    /// Sends a packet; the frame that leaves.
    ///
    /// # Panics
    /// When none leaves.
    #[track_caller]
    pub fn pass(&self, packet: &Packet) -> Frame {
        self.from.send(packet);
        self.seen(packet)
    }

    /// The frame that a packet leaves as which was sent.
    ///
    /// # Panics
    /// When none leaves.
    #[track_caller]
    pub fn seen(&self, packet: &Packet) -> Frame {
        let seen =
            self.to.capture(PATIENCE, |frame| frame.packet().is_some_and(|seen| is_same(packet, &seen)));
        seen.unwrap_or_else(|| panic!("it does not leave: {packet:?}"))
    }

    /// Sends packets one after the other; the frames that leave.
    ///
    /// # Panics
    /// When one does not.
    #[track_caller]
    pub fn pass_all(&self, packets: &[Packet]) -> Vec<Frame> {
        packets.iter().map(|packet| self.pass(packet)).collect()
    }

    /// Sends a packet, and an ICMP echo request after it, which the router must let through; everything with the packet's
    /// payload that leaves before that.
    ///
    /// # Panics
    /// When the echo request does not leave.
    #[track_caller]
    pub fn all_that_leave(&self, packet: &Packet) -> Vec<Frame> {
        self.all_that_leave_for(&packet.to_bytes(), |seen| is_same(packet, seen))
    }

    /// The same for a frame that need not be well-formed; `wanted` tells its descendants from other packets.
    ///
    /// # Panics
    /// When the echo request does not leave.
    #[track_caller]
    pub fn all_that_leave_for(&self, frame: &[u8], wanted: impl Fn(&Packet) -> bool) -> Vec<Frame> {
        self.from.send_bytes(frame);
        let mark = self.mark();
        let mut left = Vec::new();
        let end = self.to.capture(PATIENCE, |frame| {
            let Some(packet) = frame.packet() else { return false };
            if wanted(&packet) {
                left.push(frame.clone());
            }
            packet.payload == mark
        });
        assert!(end.is_some(), "the echo request that marks the end does not leave");
        left
    }

    /// Sends a packet again and again until one of its kind is fast. The last one was.
    ///
    /// # Panics
    /// When none is.
    #[track_caller]
    pub fn teach(&self, shuntd: &Shuntd, packet: &Packet) {
        let before = shuntd.status().packets.fast;
        let since = Instant::now();
        while since.elapsed() < LESSON {
            self.pass(packet);
            if shuntd.status().packets.fast > before {
                return;
            }
        }
        panic!("it is never fast: {packet:?}: {:#?}", shuntd.status());
    }

    /// An echo request that no other is like.
    #[track_caller]
    fn mark(&self) -> Vec<u8> {
        let number = MARKERS.fetch_add(1, Ordering::Relaxed);
        let mut echo = [&[8, 0, 0, 0][..], &number.to_be_bytes(), b"marker"].concat();
        let sum = !shunt_wire::ones_complement_sum(&echo);
        echo[2..4].copy_from_slice(&sum.to_be_bytes());
        self.from.send(&self.marker.clone().payload(echo.clone()));
        echo
    }
}

/// A TCP connection between two hosts that are silent, spoken by hand.
#[derive(Debug)]
pub struct Handshake {
    /// As the server sees the client's packets: the last of the handshake.
    pub at_server: Packet,
    /// The sequence number of the client's first byte of data.
    pub client_sequence: u32,
    /// The sequence number of the server's first byte of data.
    pub server_sequence: u32,
}

impl Handshake {
    /// Opens a connection from the client's port: SYN, SYN with ACK, ACK.
    ///
    /// # Panics
    /// When the router does not let it through.
    #[track_caller]
    pub fn open(there: &Crossing, back: &Crossing, syn: &Packet, server: &Host) -> Self {
        let (client_sequence, server_sequence) = (1000, 5000);
        let at = |packet: &Packet, flags, sequence, acknowledgement| {
            let mut packet = packet.clone();
            if let Transport::Tcp(tcp) = &mut packet.transport {
                (tcp.flags, tcp.sequence, tcp.acknowledgement) = (flags, sequence, acknowledgement);
            }
            packet
        };
        let seen = parsed(&there.pass(&at(syn, Tcp::SYN, client_sequence, 0)));
        back.pass(&at(&server.answer_to(&seen), Tcp::SYN | Tcp::ACK, server_sequence, client_sequence + 1));
        let last = there.pass(&at(syn, Tcp::ACK, client_sequence + 1, server_sequence + 1));
        Self {
            at_server: parsed(&last),
            client_sequence: client_sequence + 1,
            server_sequence: server_sequence + 1,
        }
    }

    /// A packet of the client with data, so many bytes into its stream.
    #[must_use]
    pub fn from_client(&self, like: &Packet, offset: u32, data: impl Into<Vec<u8>>) -> Packet {
        self.data(like, self.client_sequence + offset, self.server_sequence, data)
    }

    /// A packet of the server with data, so many bytes into its stream.
    #[must_use]
    pub fn from_server(&self, server: &Host, offset: u32, data: impl Into<Vec<u8>>) -> Packet {
        let like = server.answer_to(&self.at_server);
        self.data(&like, self.server_sequence + offset, self.client_sequence, data)
    }

    fn data(&self, like: &Packet, sequence: u32, acknowledgement: u32, data: impl Into<Vec<u8>>) -> Packet {
        let mut packet = like.clone().payload(data);
        if let Transport::Tcp(tcp) = &mut packet.transport {
            (tcp.flags, tcp.sequence, tcp.acknowledgement) = (Tcp::ACK, sequence, acknowledgement);
        }
        packet
    }
}

#[track_caller]
fn parsed(frame: &Frame) -> Packet {
    frame.packet().unwrap_or_else(|| panic!("not a packet: {:02x?}", frame.bytes))
}

/// Whether a packet that was seen is one that was sent, whatever a router may have done to its headers.
fn is_same(sent: &Packet, seen: &Packet) -> bool {
    let detail = |packet: &Packet| packet.tcp().map(|tcp| (tcp.flags, tcp.sequence));
    seen.protocol() == sent.protocol() && seen.payload == sent.payload && detail(seen) == detail(sent)
}
