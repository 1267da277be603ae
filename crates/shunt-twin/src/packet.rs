//! The shapes of packets, and their bytes.

use crate::{
    flow::{Flow, Speech},
    site::Site,
    worker::Frame,
};
use fastrand::Rng;
use shunt_wire::{
    Checksum, Extension, Network, Packet, Sum, Tag, Tcp, Transport, encap, ones_complement_sum,
};
use std::net::{IpAddr, SocketAddr};

/// How a packet differs from a plain one, which may be fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Shape {
    Plain,
    /// Larger than some MTUs; without DF if IPv4 permits fragmentation.
    Large,
    Ttl,
    Class,
    BadChecksum,
    NoChecksum,
    BadHeader,
    Options,
    Fragments,
    Flags,
    Syn,
    SynAck,
    Fin,
    /// The last FIN of this direction once more, with other data.
    FinAgain,
    Reset,
    /// A reset next to the sequence number that the receiver expects. It does not close the connection.
    NearReset,
    /// A wrong value in a field of the L3 or L4 header.
    Lie,
    Tagged,
    Padded,
    OtherMac,
    /// An ICMP error about a packet of the other direction.
    Error,
    /// Bytes that are not a packet.
    Junk,
}

impl Shape {
    /// Whether TCP packets of this shape often have RST. A lie rarely has.
    pub(crate) fn often_resets(self) -> bool {
        matches!(self, Self::Reset | Self::NearReset | Self::Flags)
    }
}

/// A packet to be sent. Replies are built when they are sent, since they depend on frames seen before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Intent {
    pub(crate) flow: u16,
    /// Whether the packet is in the reply direction.
    pub(crate) back: bool,
    pub(crate) shape: Shape,
    /// Bytes of payload.
    pub(crate) size: u16,
    /// Number of the packet, unique in the episode.
    pub(crate) number: u32,
}

/// The state of a flow's two directions from which packets are built: the last packets as Linux alone sent them, the
/// next TCP sequence numbers, and whether these may jump.
#[derive(Debug, Clone, Default)]
pub(crate) struct FlowState {
    pub(crate) seen: [Option<Frame>; 2],
    next: [u32; 2],
    jump: [Jump; 2],
    /// Bytes that the sequence numbers of each direction have jumped since the connection began.
    jumped: [u64; 2],
    /// Whether the connection has had packets that conntrack may judge differently if others went fast: resets, and
    /// those with false numbers or flags.
    doubtful: bool,
    /// Whether conntrack may know the connection, so that it ignores a SYN.
    open: bool,
    /// Whether the last SYN came while the connection was open. Its new numbers are a jump to conntrack.
    renumbered: bool,
    /// The directions that have sent a FIN since the connection began.
    ended: [bool; 2],
    /// The numbers of the last plain packet of each direction: sent, and seen to leave the router without Shunt.
    sent: [u32; 2],
    left: [u32; 2],
}

/// Whether conntrack would follow a jump of a direction's sequence number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Jump {
    /// It has not seen the connection begin, so that it does not know the scale of the windows.
    #[default]
    Never,
    /// It may not have seen the last jump.
    Jumped,
    /// It has seen the last jump.
    Seen,
    /// It has also seen the window that the other side opened then.
    Possible,
}

/// Bytes by which a sequence number jumps, as if the packets between had taken another way. The jumps of a long
/// connection add up to gigabytes, which conntrack bridges only with Shunt's help. Each is less than Shunt takes for
/// data in flight (64 MiB).
const JUMP: u32 = 60 << 20;
/// Offset of the IP header: frames get the tags of their wire later.
const L3: usize = encap::header_bytes(0);
/// Scale of the windows: 65,535 << 14 bytes are more than a jump.
const WINDOW_SCALE: u8 = 14;
/// Once a direction is 256 MiB ahead of conntrack, Shunt lets conntrack believe any RST against it, even one that is
/// invalid to Linux alone (docs/limitations.md).
const BELIEVES_RESETS: u64 = 256 << 20;

impl FlowState {
    /// Remembers a packet as it left the router without Shunt, for replies to it.
    pub(crate) fn learn(&mut self, identity: Identity, frame: Frame) {
        let [ours, theirs] = [usize::from(identity.back), usize::from(!identity.back)];
        if identity.ends {
            self.ended[ours] = true;
            if is_reset(&frame) {
                (self.open, self.ended) = (false, [true; 2]);
            }
            return;
        }
        // The last acknowledgement comes after the FINs of both.
        self.open = self.ended != [true; 2];
        if !identity.plain {
            self.jump = [if identity.back && self.seen[0].is_some() { Jump::Jumped } else { Jump::Never }; 2];
        } else {
            self.left[ours] = identity.number;
            for (direction, before, after) in
                [(ours, Jump::Jumped, Jump::Seen), (theirs, Jump::Seen, Jump::Possible)]
            {
                if self.jump[direction] == before {
                    self.jump[direction] = after;
                }
            }
        }
        self.seen[ours] = Some(frame);
    }

    /// Whether conntrack may believe a reset that does not continue the connection, where Linux alone would not.
    fn may_believe_any_reset(&self) -> bool {
        self.renumbered || self.jumped.iter().any(|bytes| *bytes >= BELIEVES_RESETS)
    }

    /// Whether the router dropped the last plain packet of this direction. The direction is slow then, while the other
    /// may be fast, and conntrack does not recognise its resets as genuine (docs/limits/tcp.md).
    fn is_blocked(&self, back: bool) -> bool {
        self.sent[usize::from(back)] != self.left[usize::from(back)]
    }

    /// Forgets the connection, which conntrack has forgotten. Returns whether it was doubtful.
    pub(crate) fn start_again(&mut self) -> bool {
        self.forbid_jumps();
        self.open = false;
        self.doubtful
    }

    /// Lets no sequence number jump until the next connection: conntrack may have forgotten this one.
    pub(crate) fn forbid_jumps(&mut self) {
        self.jump = [Jump::Never; 2];
        self.ended = [false; 2];
    }
}

pub(crate) const ICMP: u8 = 1;
pub(crate) const ICMP6: u8 = 58;
const MAGIC: &[u8; 4] = b"TWIN";

/// Identification of a packet, at the beginning of its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Identity {
    pub(crate) flow: u16,
    pub(crate) back: bool,
    /// Whether the packet may be fast, depending on its flow's state.
    pub(crate) plain: bool,
    /// Whether the packet shows the flow's translated addresses.
    pub(crate) shows: bool,
    /// Whether the packet is a FIN or a reset that ends its connection.
    pub(crate) ends: bool,
    pub(crate) number: u32,
}

impl Identity {
    fn bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(MAGIC);
        bytes[4..6].copy_from_slice(&self.flow.to_be_bytes());
        (bytes[6], bytes[7]) =
            (self.back.into(), u8::from(self.plain) | u8::from(self.shows) << 1 | u8::from(self.ends) << 2);
        bytes[8..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    /// Finds the first identity in a frame. An ICMP error has that of the packet it is about.
    pub(crate) fn find(frame: &[u8]) -> Option<Self> {
        let at = frame.windows(4).take(240).position(|four| four == MAGIC)?;
        let bytes = frame.get(at + 4..at + 12)?;
        Some(Self {
            flow: u16::from_be_bytes([bytes[0], bytes[1]]),
            back: bytes[2] != 0,
            plain: bytes[3] & 1 != 0,
            shows: bytes[3] & 2 != 0,
            ends: bytes[3] & 4 != 0,
            number: u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        })
    }
}

impl Intent {
    fn eligible(self, flow: &Flow) -> bool {
        use Shape::{BadChecksum, NoChecksum, Padded, Plain};
        matches!(self.shape, Plain | BadChecksum | NoChecksum | Padded) && flow.speech != Speech::Echo
    }

    /// Builds the frames; none if the packet is a reply to a packet that was never seen. `rng` belongs to this packet.
    pub(crate) fn frames(
        self,
        flow: &Flow,
        state: &mut FlowState,
        lan_at: Site,
        rng: &mut Rng,
    ) -> Vec<Frame> {
        match self.shape {
            // Conntrack sees the FIN before the router drops it. The other direction stays fast until its next proof,
            // and conntrack misses the acknowledgement.
            Shape::Fin | Shape::FinAgain | Shape::Reset if state.is_blocked(self.back) => {
                Self { shape: Shape::Plain, ..self }.made(flow, state, lan_at, rng)
            }
            Shape::Reset if state.renumbered => {
                Self { shape: Shape::Fin, ..self }.made(flow, state, lan_at, rng)
            }
            // Conntrack recognises a reset that follows data of its direction, whether its acknowledgement went fast
            // or was sent at all (docs/limits/tcp.md).
            Shape::Reset => {
                let mut frames = Self { shape: Shape::Plain, ..self }.made(flow, state, lan_at, rng);
                frames.extend(self.made(flow, state, lan_at, rng));
                frames
            }
            _ => self.made(flow, state, lan_at, rng),
        }
    }

    fn made(self, flow: &Flow, state: &mut FlowState, lan_at: Site, rng: &mut Rng) -> Vec<Frame> {
        let seen = state.seen[usize::from(!self.back)].as_ref();
        let answered = seen.and_then(|frame| Some((frame.site, Packet::parse(&frame.bytes).ok()?)));
        let (site, packet) = if self.shape == Shape::Error {
            let Some((site, about)) = answered else { return Vec::new() };
            (site, error(&about, rng))
        } else {
            let Some((site, bare)) = self.bare(flow, answered) else { return Vec::new() };
            (site, self.dressed(bare, flow, state, rng))
        };
        let site = Site::from_mac(packet.ethernet.source, lan_at).unwrap_or(site);
        let bytes = match self.shape {
            Shape::Fragments => return fragments(&packet, site, rng),
            Shape::Lie => lie(packet.to_bytes(), state.may_believe_any_reset(), rng),
            Shape::Junk => junk(packet.to_bytes(), rng),
            _ => packet.to_bytes(),
        };
        vec![Frame { site, bytes }]
    }

    /// The packet with its addresses and its transport only.
    fn bare(self, flow: &Flow, answered: Option<(Site, Packet)>) -> Option<(Site, Packet)> {
        let between = |source: SocketAddr, destination: SocketAddr| match flow.speech {
            Speech::Udp | Speech::OneWay => Packet::udp_between(source, destination),
            Speech::Tcp => Packet::tcp_between(source, destination, Tcp::ACK),
            Speech::Echo => {
                let protocol = if source.is_ipv4() { ICMP } else { ICMP6 };
                Packet::between(source.ip(), destination.ip(), Transport::Other(protocol))
            }
        };
        if !self.back {
            let packet = between(flow.source, flow.destination);
            return Some((flow.from, packet.macs(flow.from.mac(), flow.next_hop())));
        }
        let (site, seen) = answered?;
        let (source, destination) = seen.addresses()?;
        let (source_port, destination_port) = seen.ports().unwrap_or((0, 0));
        let packet = between((destination, destination_port).into(), (source, source_port).into());
        Some((site, packet.macs(seen.ethernet.destination, seen.ethernet.source)))
    }

    fn dressed(self, bare: Packet, flow: &Flow, state: &mut FlowState, rng: &mut Rng) -> Packet {
        let plain = self.eligible(flow);
        let shows = matches!(self.shape, Shape::Plain | Shape::Syn | Shape::SynAck);
        let ends = matches!(self.shape, Shape::Fin | Shape::Reset);
        let identity =
            Identity { flow: flow.number, back: self.back, plain, shows, ends, number: self.number };
        let mut payload = identity.bytes().to_vec();
        payload.resize_with(usize::from(self.size).max(12), || rng.u8(..));
        let mut packet = bare.with_id(self.number as u16);
        match &mut packet.network {
            Network::V6(ip) => ip.flow_label = u32::from(flow.number) + 1,
            Network::V4(ip) => {
                ip.dont_fragment = self.shape != Shape::Fragments && !self.number.is_multiple_of(3)
            }
            Network::Other(_) => {}
        }
        if let Transport::Tcp(tcp) = &mut packet.transport {
            let [ours, theirs] = [usize::from(self.back), usize::from(!self.back)];
            if self.shape == Shape::Plain {
                state.sent[ours] = self.number;
            }
            tcp.flags = tcp_flags(self.shape, rng);
            state.doubtful |= matches!(
                self.shape,
                Shape::Reset | Shape::NearReset | Shape::Flags | Shape::Lie | Shape::Junk
            );
            if state.may_believe_any_reset() && matches!(self.shape, Shape::NearReset | Shape::Flags) {
                tcp.flags &= !Tcp::RST;
            }
            if self.shape == Shape::Syn && !self.back {
                state.next = [rng.u32(..), rng.u32(..)];
                state.jumped = [0; 2];
                state.renumbered = state.open;
                state.doubtful &= state.open;
                state.ended = [false; 2];
                state.forbid_jumps();
            }
            if self.shape == Shape::Plain && state.jump[ours] == Jump::Possible {
                state.next[ours] = state.next[ours].wrapping_add(JUMP);
                state.jumped[ours] += u64::from(JUMP);
                state.jump[ours] = Jump::Jumped;
            }
            (tcp.sequence, tcp.acknowledgement) = (state.next[ours], state.next[theirs]);
            // A reset among random flags does not continue the connection, and so does not close it.
            if self.shape == Shape::NearReset || self.shape == Shape::Flags && tcp.flags & Tcp::RST != 0 {
                tcp.sequence = tcp.sequence.wrapping_add(1);
            }
            if self.shape == Shape::FinAgain {
                tcp.sequence = tcp.sequence.wrapping_sub(payload.len() as u32 + 1);
            }
            if tcp.flags & Tcp::SYN != 0 {
                tcp.options = vec![2, 4, 5, 180, 1, 3, 3, WINDOW_SCALE];
            } else if flow.number.is_multiple_of(2) {
                tcp.options = [&[1, 1, 8, 10][..], &self.number.to_be_bytes(), &[0; 4]].concat();
            }
            if tcp.flags & (Tcp::SYN | Tcp::RST) != 0 {
                payload.truncate(12);
            }
            // The receiver acknowledges no other shapes: conntrack may not have seen them, and ignores acknowledgements
            // of what it has not seen.
            if matches!(self.shape, Shape::Plain | Shape::Syn | Shape::SynAck | Shape::Fin) {
                let taken = payload.len() as u32 + u32::from(tcp.flags & (Tcp::SYN | Tcp::FIN) != 0);
                state.next[ours] = state.next[ours].wrapping_add(taken);
            }
        }
        if flow.speech == Speech::Echo {
            payload = echo(&packet, flow.port(), self, &payload);
        }
        self.shaped(packet.payload(payload), rng)
    }

    fn shaped(self, packet: Packet, rng: &mut Rng) -> Packet {
        match self.shape {
            Shape::Ttl => packet.with_hop_limit(rng.u8(0..4)),
            Shape::Class => packet.with_class(rng.u8(..)),
            Shape::BadChecksum => packet.with_l4_checksum(Checksum::Value(rng.u16(1..))),
            Shape::NoChecksum => packet.with_l4_checksum(Checksum::Zero),
            Shape::BadHeader => packet.with_header_checksum(Checksum::Value(rng.u16(..))),
            Shape::Options => with_options(packet, rng),
            Shape::Tagged => packet.tagged(Tag { priority: rng.u8(..8), ..Tag::vlan(rng.u16(..3)) }),
            Shape::Padded => packet.padded_to(usize::from(rng.u16(60..200))),
            Shape::OtherMac => {
                let mut packet = packet;
                packet.ethernet.destination.0[rng.usize(..6)] ^= 1 << rng.u8(..8);
                packet
            }
            _ => packet,
        }
    }
}

/// Whether a frame is a TCP packet with RST, of any shape.
pub(crate) fn is_reset(frame: &Frame) -> bool {
    has_flags(frame, Tcp::RST)
}

/// Whether a frame is a TCP packet that opens or ends a connection.
pub(crate) fn changes_state(frame: &Frame) -> bool {
    has_flags(frame, Tcp::SYN | Tcp::FIN | Tcp::RST)
}

fn has_flags(frame: &Frame, flags: u8) -> bool {
    let packet = Packet::parse(&frame.bytes);
    packet.is_ok_and(|packet| matches!(packet.transport, Transport::Tcp(tcp) if tcp.flags & flags != 0))
}

fn tcp_flags(shape: Shape, rng: &mut Rng) -> u8 {
    match shape {
        Shape::Syn => Tcp::SYN,
        Shape::SynAck => Tcp::SYN | Tcp::ACK,
        Shape::Fin | Shape::FinAgain => Tcp::FIN | Tcp::ACK,
        Shape::Reset | Shape::NearReset => Tcp::RST | Tcp::ACK,
        Shape::Flags => rng.u8(..),
        _ if rng.u8(..4) == 0 => Tcp::ACK | Tcp::PSH,
        _ => Tcp::ACK,
    }
}

fn with_options(mut packet: Packet, rng: &mut Rng) -> Packet {
    let kinds: [&[u8]; 5] = [
        &[1, 1, 1, 1],
        &[7, 7, 4, 0, 0, 0, 0, 0],
        &[148, 4, 0, 0],
        // A full option, in which routers only increment the overflow count.
        &[68, 8, 9, 0, 0, 0, 0, 0],
        &[131, 7, 4, 192, 168, 9, 9, 0],
    ];
    match &mut packet.network {
        Network::V4(ip) => ip.options = kinds[rng.usize(..kinds.len())].to_vec(),
        Network::V6(ip) => {
            let kind = [0, 60, 43, 44][rng.usize(..4)];
            // Padding options; a routing header with no segments left; a fragment that is the whole packet.
            let body = if kind == 44 { vec![0, 0, 0, 1, 2, 3, 4] } else { vec![0, 1, 4, 0, 0, 0, 0] };
            let body = if kind == 43 { vec![0, 4, 0, 0, 0, 0, 0] } else { body };
            ip.extensions = vec![Extension { kind, body }];
        }
        Network::Other(_) => {}
    }
    packet
}

fn icmp(source: IpAddr, destination: IpAddr, mut message: Vec<u8>) -> Vec<u8> {
    let sum = match (source, destination) {
        (IpAddr::V6(source), IpAddr::V6(destination)) => Sum::new()
            .bytes(&source.octets())
            .bytes(&destination.octets())
            .word(ICMP6.into())
            .word(message.len() as u16)
            .bytes(&message)
            .finished(),
        _ => !ones_complement_sum(&message),
    };
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

fn echo(packet: &Packet, id: u16, intent: Intent, data: &[u8]) -> Vec<u8> {
    let Some((source, destination)) = packet.addresses() else { return data.to_vec() };
    let kind = match (source.is_ipv4(), intent.back) {
        (true, false) => 8,
        (true, true) => 0,
        (false, false) => 128,
        (false, true) => 129,
    };
    let (id, number) = (id.to_be_bytes(), (intent.number as u16).to_be_bytes());
    icmp(source, destination, [&[kind, 0, 0, 0], &id[..], &number[..], data].concat())
}

/// An ICMP error that a host, or a router in front of it, would send about a packet.
fn error(about: &Packet, rng: &mut Rng) -> Packet {
    let v4 = about.ipv4().is_some();
    let kinds: &[(u8, u8, u32)] = if v4 {
        &[(3, 1, 0), (3, 3, 0), (3, 4, 1400), (3, 13, 0), (11, 0, 0), (12, 0, 0)]
    } else {
        &[(1, 0, 0), (1, 4, 0), (2, 0, 1300), (3, 0, 0), (4, 0, 0)]
    };
    let (kind, code, rest) = kinds[rng.usize(..kinds.len())];
    let l3 = &about.to_bytes()[about.ethernet.bytes()..];
    let keep = rng.usize(if v4 { 28..200 } else { 48..400 }).min(l3.len());
    let message = [&[kind, code, 0, 0], &rest.to_be_bytes()[..], &l3[..keep]].concat();
    let Some((source, destination)) = about.addresses() else { return about.clone() };
    let protocol = if v4 { ICMP } else { ICMP6 };
    let message = icmp(destination, source, message);
    Packet::between(destination, source, Transport::Other(protocol))
        .macs(about.ethernet.destination, about.ethernet.source)
        .with_hop_limit(33)
        .with_id(0x7777)
        .payload(message)
}

/// Splits a packet into two or three fragments; sometimes reordered, sometimes one is missing.
fn fragments(packet: &Packet, site: Site, rng: &mut Rng) -> Vec<Frame> {
    let bytes = packet.to_bytes();
    let v4 = packet.ipv4().is_some();
    let l4 = &bytes[packet.ethernet.bytes() + if v4 { 20 } else { 40 }..];
    let piece = ((l4.len() / (2 + rng.usize(..2))).max(8) + 7) & !7;
    let last = (l4.len() - 1) / piece;
    let protocol = packet.protocol().unwrap_or(0);
    let mut frames: Vec<Frame> = l4
        .chunks(piece)
        .enumerate()
        .map(|(n, part)| {
            let mut cut = packet.clone().payload(part);
            let (offset, more) = ((n * piece / 8) as u16, n < last);
            cut.transport = Transport::Other(protocol);
            match &mut cut.network {
                Network::V4(ip) => (ip.fragment_offset, ip.more_fragments) = (offset, more),
                Network::V6(ip) => {
                    let [high, low] = (offset << 3 | u16::from(more)).to_be_bytes();
                    let id = Identity::find(&bytes).map_or(0, |identity| identity.number).to_be_bytes();
                    let body = [&[0, high, low][..], &id].concat();
                    ip.extensions = vec![Extension { kind: 44, body }];
                }
                Network::Other(_) => {}
            }
            Frame { site, bytes: cut.to_bytes() }
        })
        .collect();
    match rng.u8(..8) {
        0 => drop(frames.pop()),
        1..=3 => frames.reverse(),
        _ => {}
    }
    frames
}

/// Flips a bit in a field that is neither an address nor a port. `believes_resets` keeps packets from becoming resets.
fn lie(mut bytes: Vec<u8>, believes_resets: bool, rng: &mut Rng) -> Vec<u8> {
    let v4 = encap::outer_type(&bytes) == encap::IPV4;
    let (l4, tcp) = if v4 { (L3 + 20, bytes[L3 + 9] == 6) } else { (L3 + 40, bytes[L3 + 6] == 6) };
    // Version and length, total length, identification, checksum; version, payload length.
    let l3_fields: &[usize] = if v4 { &[0, 2, 3, 4, 5, 10, 11] } else { &[0, 1, 4, 5] };
    // Sequence, acknowledgement, offset, flags, window, checksum, urgent; length, checksum.
    let l4_fields: &[usize] =
        if tcp { &[4, 7, 8, 11, 12, 13, 14, 15, 16, 17, 18, 19] } else { &[4, 5, 6, 7] };
    let at = if rng.bool() {
        L3 + l3_fields[rng.usize(..l3_fields.len())]
    } else {
        l4 + l4_fields[rng.usize(..l4_fields.len())]
    };
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1 << rng.u8(..8);
    }
    // If the flags became a reset, the reset must not continue the connection either.
    if tcp && at == l4 + 13 && bytes[at] & Tcp::RST != 0 {
        if believes_resets {
            bytes[at] &= !Tcp::RST;
        } else {
            bytes[l4 + 4] ^= 0x80;
        }
    }
    // Half of these frames get a right header checksum.
    if v4 && rng.bool() && at < l4 && bytes[L3] == 0x45 {
        bytes[L3 + 10..L3 + 12].fill(0);
        let sum = !ones_complement_sum(&bytes[L3..l4]);
        bytes[L3 + 10..L3 + 12].copy_from_slice(&sum.to_be_bytes());
    }
    bytes
}

/// A truncated frame, one of another EtherType, or one with a random payload.
fn junk(mut bytes: Vec<u8>, rng: &mut Rng) -> Vec<u8> {
    match rng.u8(..3) {
        0 => bytes.truncate(rng.usize(15..bytes.len())),
        1 => encap::set_outer_type(&mut bytes, rng.u16(0x0900..0x8000)),
        // Begin after the addresses of both families.
        _ => bytes.iter_mut().skip(L3 + 40).for_each(|byte| *byte = rng.u8(..)),
    }
    bytes
}
