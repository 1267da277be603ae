//! Single packets through a router, in one direction, and TCP connections made of them.

use crate::{Frame, Host, Shuntd, Tap, Topology};
use shunt_wire::{Packet, Tcp, Transport};
use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

/// How long a packet may take through the router.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a packet is repeated until its flow is fast. After a refusal, the daemon leaves a flow alone for a second.
const LESSON: Duration = Duration::from_secs(30);
const ICMP: u8 = 1;

static MARKERS: AtomicU32 = AtomicU32::new(1);

/// One direction through a router: packets are sent by one host, one at a time, and captured at another or the same
/// host.
#[derive(Debug)]
pub struct Crossing {
    /// Interface of the sender, which also captures the answers of the router.
    pub from: Tap,
    /// Interface where packets leave.
    pub to: Tap,
    marker: Packet,
}

impl Crossing {
    /// A crossing from one host to another.
    ///
    /// # Panics
    /// If an interface cannot be opened.
    #[track_caller]
    pub fn between(from: &Host, to: &Host) -> Self {
        let marker = Packet::between(from.v4.into(), to.v4.into(), Transport::Other(ICMP));
        Self {
            from: from.tap(),
            to: to.tap(),
            marker: marker.macs(from.mac, from.gateway_mac).with_tags(from.tags),
        }
    }

    /// Sends a packet and returns the frame that leaves.
    ///
    /// # Panics
    /// If no frame leaves within five seconds.
    #[track_caller]
    pub fn pass(&self, packet: &Packet) -> Frame {
        self.from.send(packet);
        self.seen(packet)
    }

    /// Waits for the frame of a packet that was sent before, and returns it.
    ///
    /// # Panics
    /// If no frame leaves within five seconds.
    #[track_caller]
    pub fn seen(&self, packet: &Packet) -> Frame {
        let seen =
            self.to.capture(PATIENCE, |frame| frame.packet().is_some_and(|seen| is_same(packet, &seen)));
        seen.unwrap_or_else(|| panic!("the packet does not leave: {packet:?}"))
    }

    /// Sends packets one after the other and returns the frames that leave.
    ///
    /// # Panics
    /// If one does not leave within five seconds.
    #[track_caller]
    pub fn pass_all(&self, packets: &[Packet]) -> Vec<Frame> {
        packets.iter().map(|packet| self.pass(packet)).collect()
    }

    /// Sends a packet and then an ICMP echo request, which the router must forward. Returns all frames with the
    /// packet's payload that leave before the echo request.
    ///
    /// # Panics
    /// If the echo request does not leave.
    #[track_caller]
    pub fn all_that_leave(&self, packet: &Packet) -> Vec<Frame> {
        self.all_that_leave_for(&packet.to_bytes(), |seen| is_same(packet, seen))
    }

    /// Like [`Crossing::all_that_leave`] for a frame that may be malformed. `is_copy` recognises the packets that the
    /// router makes of it.
    ///
    /// # Panics
    /// If the echo request does not leave.
    #[track_caller]
    pub fn all_that_leave_for(&self, frame: &[u8], is_copy: impl Fn(&Packet) -> bool) -> Vec<Frame> {
        self.from.send_bytes(frame);
        let mark = self.mark();
        let mut left = Vec::new();
        let end = self.to.capture(PATIENCE, |frame| {
            let Some(packet) = frame.packet() else { return false };
            if is_copy(&packet) {
                left.push(frame.clone());
            }
            packet.payload == mark
        });
        assert!(end.is_some(), "the echo request that marks the end does not leave");
        left
    }

    /// Sends a packet again and again until one is fast.
    ///
    /// # Panics
    /// If none is fast within thirty seconds.
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
        panic!("the flow never becomes fast: {packet:?}: {:#?}", shuntd.status());
    }

    /// Sends an echo request that differs from all others, and returns its payload.
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

/// A TCP connection between two silent hosts, made of single packets.
#[derive(Debug)]
pub struct Handshake {
    /// The last packet of the handshake as the server received it.
    pub at_server: Packet,
    /// The sequence number of the client's first byte of data.
    pub client_sequence: u32,
    /// The sequence number of the server's first byte of data.
    pub server_sequence: u32,
}

impl Handshake {
    /// Opens a connection from the client's port: SYN, SYN-ACK, ACK.
    ///
    /// # Panics
    /// If the router does not forward one of the three.
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

    /// Opens a connection from the LAN to port 80 of the WAN. Returns both ways, a packet of the client without flags,
    /// and the connection.
    ///
    /// # Panics
    /// If the router does not let it through.
    #[must_use]
    #[track_caller]
    pub fn through(lab: &Topology) -> (Crossing, Crossing, Packet, Self) {
        let there = Crossing::between(lab.lan(), lab.wan());
        let back = Crossing::between(lab.wan(), lab.lan());
        let syn = lab.lan().tcp_to(4000, lab.wan().at(80), 0);
        let connection = Self::open(&there, &back, &syn, lab.wan());
        (there, back, syn, connection)
    }

    /// A packet of the client with data at this offset in its stream.
    #[must_use]
    pub fn from_client(&self, like: &Packet, offset: u32, data: impl Into<Vec<u8>>) -> Packet {
        self.data(like, self.client_sequence + offset, self.server_sequence, data)
    }

    /// A packet of the server with data at this offset in its stream.
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

/// Whether a captured packet is the one that was sent, with headers that the router may have changed.
fn is_same(sent: &Packet, seen: &Packet) -> bool {
    let detail = |packet: &Packet| packet.tcp().map(|tcp| (tcp.flags, tcp.sequence));
    seen.protocol() == sent.protocol() && seen.payload == sent.payload && detail(seen) == detail(sent)
}
