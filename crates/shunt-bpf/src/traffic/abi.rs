//! The Rust twin of bpf/abi/traffic_abi.h.

use crate::abi::Plain;
use shunt_gen::{Capture, Field, Round, Schedule, Traffic};
use shunt_wire::{Checksum, Packet, Sum, Transport};
use std::net::{IpAddr, Ipv6Addr};

const HEADERS_MAX: usize = 88;
pub(super) const SIZES_MAX: usize = 64;
const SUB_BUCKETS: u32 = 64;
/// What is due before the end may still go so long after it, and a thousandth of the time: a sender that was held up at the end pays
/// its debt, and the rate is still that which was asked for to within 0.1 %.
const END_SLACK_NS: u64 = 100_000;
const END_SLACK_SHARE: u64 = 1000;
/// In a histogram of latencies.
pub(super) const LATENCY_BUCKETS: usize = 27 * SUB_BUCKETS as usize;

/// `struct traffic_field`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlanField {
    base: u32,
    every: u32,
    count: u32,
}

/// `struct traffic_plan`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    headers: [u8; HEADERS_MAX],
    src: PlanField,
    dst: PlanField,
    sport: PlanField,
    dport: PlanField,
    frame_bytes: [u16; SIZES_MAX],
    sizes: u32,
    pub(super) flows: u32,
    pub(super) out_ifindex: u32,
    ip_sum: u32,
    l4_sum: u32,
    l3_at: u8,
    l4_at: u8,
    header_bytes: u8,
    family: u8,
    l4_proto: u8,
    stamped: u8,
    shuffled: u8,
    _pad: u8,
}

/// `struct traffic_state`: when packets go, and how far it got.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct State {
    /// When it began.
    pub start_ns: u64,
    /// Nothing is sent from then on; 0: no end.
    pub end_ns: u64,
    /// Nothing is sent beyond so many packets.
    pub limit: u64,
    /// Between packets, in ns / 65536; 0: none.
    pub interval: u64,
    /// Of the next packet, since the start, in ns / 65536.
    pub due: u64,
    /// Packets.
    pub sent: u64,
    /// Of frames without FCS.
    pub bytes: u64,
    /// Of the order of flows.
    pub random: u64,
    /// How long after it was due a packet went.
    pub late_ns_max: u64,
    /// When the latest packet went.
    pub last_ns: u64,
    /// Packets that go without an interval between them.
    pub burst: u32,
    /// Of the current burst.
    pub in_burst: u32,
    /// The next one, where they come in turn; of a capture, the next frame.
    pub flow: u32,
    /// Which of the sizes is next; of a capture, the round.
    pub size: u32,
    /// Whose packets these are.
    pub label: u32,
    /// Zero.
    pub _pad: u32,
}

/// `struct replay_plan`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReplayPlan {
    round_ns: u64,
    pub(super) frames: u32,
    bytes_max: u32,
    out_ifindex: u32,
    _pad: u32,
}

/// `struct replay_frame`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReplayFrame {
    pub(super) due_ns: u64,
    pub(super) bytes: u32,
    pub(super) _pad: u32,
}

/// `struct receive_plan`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReceivePlan {
    pub(super) flows: u32,
    pub(super) by_kind: u32,
    pub(super) hand_on: u32,
    pub(super) shakes: u32,
}

/// `struct handed_on`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HandedOn {
    pub(super) at_ns: u64,
    pub(super) bytes: u32,
    _pad: u32,
}

/// `struct arrival`: what has come of one flow.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Arrival {
    seen: [u64; 4],
    /// All, duplicates included.
    pub packets: u64,
    /// One more than the highest number that came.
    pub next: u32,
    /// Those that had come already.
    pub duplicated: u32,
    /// With a lower number than one before (RFC 4737).
    pub reordered: u32,
    /// So late that they may also be duplicates.
    pub beyond: u32,
    /// How far behind the highest number one was.
    pub displaced_max: u32,
    pub(super) transit_ns: u32,
    pub(super) jitter: u32,
    pub(super) label: u32,
}

/// `struct times`: a histogram.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) ns_min: u64,
    pub(super) ns_max: u64,
    pub(super) counts: [u64; LATENCY_BUCKETS],
}

/// `struct received`: what has come to one CPU.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) others: u64,
    pub(super) last_ns: u64,
    pub(super) latency: Times,
    pub(super) jitter: Times,
}

const _: () = assert!(size_of::<Plan>() == 292);
const _: () = assert!(std::mem::offset_of!(Plan, sizes) == 264);
const _: () = assert!(std::mem::offset_of!(Plan, l3_at) == 284);
const _: () = assert!(size_of::<State>() == 104);
const _: () = assert!(size_of::<ReplayPlan>() == 24);
const _: () = assert!(size_of::<ReplayFrame>() == 16);
const _: () = assert!(size_of::<ReceivePlan>() == 16);
const _: () = assert!(size_of::<HandedOn>() == 16);
const _: () = assert!(size_of::<Arrival>() == 72);
const _: () = assert!(size_of::<Received>() == 64 + 16 * LATENCY_BUCKETS);

// SAFETY: repr(C) of integers without holes, as the assertions above and those of traffic_abi.h say.
unsafe impl Plain for Plan {}
// SAFETY: as above.
unsafe impl Plain for State {}
// SAFETY: as above.
unsafe impl Plain for ReplayPlan {}
// SAFETY: as above.
unsafe impl Plain for ReplayFrame {}
// SAFETY: as above.
unsafe impl Plain for ReceivePlan {}
// SAFETY: as above.
unsafe impl Plain for HandedOn {}
// SAFETY: as above.
unsafe impl Plain for Arrival {}
// SAFETY: as above.
unsafe impl Plain for Received {}

impl From<Field> for PlanField {
    fn from(Field { base, every, count }: Field) -> Self {
        Self { base, every, count }
    }
}

impl Plan {
    /// The plan of packets that leave by this device.
    pub(super) fn of(traffic: &Traffic, out_ifindex: u32) -> Self {
        let packet = &traffic.packet;
        let l3_at = 14 + 4 * packet.ethernet.tags.len();
        let v4 = packet.ipv4().is_some();
        let udp = matches!(packet.transport, Transport::Udp(_));
        let l4_at = l3_at + if v4 { 20 } else { 40 };
        let header_bytes = l4_at + if udp { 8 } else { 20 };
        let mut bare = without_what_varies(packet).to_bytes();
        bare.truncate(header_bytes);
        let (length_at, addresses) = match v4 {
            true => (l3_at + 2, l3_at + 12..l3_at + 20),
            false => (l3_at + 4, l3_at + 8..l3_at + 40),
        };
        bare[length_at..length_at + 2].fill(0);
        if udp {
            bare[l4_at + 4..l4_at + 6].fill(0);
        }
        let summed = packet.l4_checksum() != Some(Checksum::Zero);
        let l4_proto = if udp { 17 } else { 6 };
        let l4_sum = Sum::new().bytes(&bare[addresses]).word(l4_proto.into()).bytes(&bare[l4_at..]).folded();
        let mut headers = [0; HEADERS_MAX];
        headers[..header_bytes].copy_from_slice(&bare);
        let sizes = traffic.frame_bytes();
        let mut frame_bytes = [0; SIZES_MAX];
        frame_bytes[..sizes.len()].copy_from_slice(&sizes);
        Self {
            headers,
            src: traffic.source.into(),
            dst: traffic.destination.into(),
            sport: traffic.source_port.into(),
            dport: traffic.destination_port.into(),
            frame_bytes,
            sizes: sizes.len() as u32,
            flows: traffic.flows,
            out_ifindex,
            ip_sum: if v4 { Sum::new().bytes(&bare[l3_at..l4_at]).folded().into() } else { 0 },
            l4_sum: if summed { l4_sum.into() } else { 0 },
            l3_at: l3_at as u8,
            l4_at: l4_at as u8,
            header_bytes: header_bytes as u8,
            family: if v4 { 4 } else { 6 },
            l4_proto,
            stamped: traffic.stamped.into(),
            shuffled: traffic.shuffled.is_some().into(),
            _pad: 0,
        }
    }
}

impl ReplayPlan {
    /// Of frames that leave by this device.
    pub(super) fn of(capture: &Capture, round: &Round, out_ifindex: u32) -> Self {
        Self {
            round_ns: round.period.as_nanos() as u64,
            frames: capture.frames.len() as u32,
            bytes_max: capture.largest() as u32,
            out_ifindex,
            _pad: 0,
        }
    }
}

/// Its headers with zeros for what flows differ in, and for checksums.
fn without_what_varies(packet: &Packet) -> Packet {
    let cleared = |ip: IpAddr| match ip {
        IpAddr::V4(_) => IpAddr::from([0; 4]),
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 32 << 32).into(),
    };
    let bare = packet.clone().with_id(0);
    let bare = bare.with_l4_checksum(Checksum::Zero).with_header_checksum(Checksum::Zero);
    match packet.addresses() {
        Some((from, to)) => {
            bare.with_source((cleared(from), 0).into()).with_destination((cleared(to), 0).into())
        }
        None => bare,
    }
}

/// The state at the start of a schedule. Of what was before, only the order of flows goes on.
pub(super) fn start(schedule: &Schedule, start_ns: u64, label: u8, before: &State) -> State {
    // As fast as it can, nothing is ever due.
    let share = if schedule.pps.is_some() { END_SLACK_SHARE } else { u64::MAX };
    let time = schedule.duration.map(|time| time.as_nanos() as u64);
    let time = time.map(|time| time + END_SLACK_NS.max(time / share));
    State {
        start_ns,
        end_ns: time.map_or(0, |time| start_ns + time),
        limit: schedule.offered().unwrap_or(u64::MAX),
        interval: schedule.interval(),
        random: before.random,
        burst: schedule.burst,
        label: label.into(),
        ..State::default()
    }
}

/// The least and the greatest latency that a bucket counts, in ns.
pub(super) fn latency_bounds(bucket: usize) -> (u64, u64) {
    let sub = SUB_BUCKETS as usize;
    let (shift, rest) = if bucket < 2 * sub { (0, bucket) } else { (bucket / sub - 1, bucket % sub + sub) };
    let low = (rest as u64) << shift;
    (low, low + (1 << shift) - 1)
}
