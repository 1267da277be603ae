//! What the lab's programs share with their loader: the Rust twin of `bpf/lab/traffic_abi.h`, which the build makes,
//! and how its values come about.

mod twin {
    #![allow(
        dead_code,
        missing_docs,
        reason = "the C header has more than Rust needs, and leaves out what a name says"
    )]
    #![allow(clippy::all, unused_parens, reason = "expressions come from C as they are")]
    include!(concat!(env!("OUT_DIR"), "/traffic_abi.rs"));
}

use shunt_gen::{Capture, Field, Round, Schedule, Timetable, Traffic};
use shunt_wire::{Checksum, Packet, Sum, Transport};
use std::net::{IpAddr, Ipv6Addr};
pub use twin::*;

/// Packets that are due before the end may still be sent for this long after the end, or for a thousandth of the run if
/// that is longer: the rate is still within 0.1 % of the target.
const END_SLACK_NS: u64 = 100_000;
const END_SLACK_SHARE: u64 = 1000;
/// Most packets that leave at once after a delay: half of a NIC's ring.
const BUNCH_MAX: u32 = 256;
/// A sender that is idle for less than this share of the time can send no more.
const IDLE_LEAST: f64 = 0.05;
/// A sender that left out more than this share of the packets without a long delay did so because it was too slow.
const SLOW_LEAST: f64 = 0.001;

impl From<Field> for TrafficField {
    fn from(Field { base, every, count }: Field) -> Self {
        Self { base, every, count }
    }
}

impl TrafficEnds {
    /// The ends of an answer.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self { src: self.dst, dst: self.src, sport: self.dport, dport: self.sport }
    }
}

impl TrafficPlan {
    /// The plan of a sender's only packets.
    pub(crate) fn for_traffic(traffic: &Traffic) -> Self {
        let plan = Self::varying(traffic);
        let is_fixed = plan.flows == 1 && plan.sizes == 1 && plan.stamped != 0 && plan.listed == 0;
        if is_fixed { plan.fixed() } else { plan }
    }

    /// The plan of one of several streams of a sender; its flows have numbers from `first_flow` on.
    pub(crate) fn for_stream(traffic: &Traffic, first_flow: u32) -> Self {
        Self { first_flow, stepped: 1, ..Self::varying(traffic) }
    }

    /// The plan of packets whose sizes and ends the sender writes.
    pub(crate) fn varying(traffic: &Traffic) -> Self {
        let packet = &traffic.packet;
        let l3_at = packet.ethernet.bytes();
        let v4 = packet.ipv4().is_some();
        let udp = matches!(packet.transport, Transport::Udp(_));
        let l4_at = l3_at + if v4 { 20 } else { 40 };
        let header_bytes = l4_at + if udp { 8 } else { 20 };
        let mut bare = template(packet).to_bytes();
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
        let mut headers = [0; TRAFFIC_HEADERS_MAX as usize];
        headers[..header_bytes].copy_from_slice(&bare);
        let sizes = traffic.frame_bytes();
        let mut frame_bytes = [0; TRAFFIC_SIZES_MAX as usize];
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
            ip_sum: if v4 { Sum::new().bytes(&bare[l3_at..l4_at]).folded().into() } else { 0 },
            l4_sum: if summed { l4_sum.into() } else { 0 },
            l3_at: l3_at as u8,
            l4_at: l4_at as u8,
            header_bytes: header_bytes as u8,
            family: if v4 { 4 } else { 6 },
            l4_proto,
            stamped: traffic.stamped.into(),
            shuffled: traffic.shuffled.is_some().into(),
            listed: traffic.listed.into(),
            first_flow: 0,
            stepped: 0,
            mixed: 0,
            turn: 0,
            fixed: 0,
        }
    }

    /// The plan with the size and the ends of its only flow in the headers.
    fn fixed(mut self) -> Self {
        let (l3, l4) = (usize::from(self.l3_at), usize::from(self.l4_at));
        let (v4, udp) = (self.family == 4, self.l4_proto == 17);
        let l4_bytes = self.frame_bytes[0] - u16::from(self.l4_at);
        let (length, source, destination) =
            if v4 { (l3 + 2, l3 + 12, l3 + 16) } else { (l3 + 4, l3 + 20, l3 + 36) };
        let mut put = |at: usize, bytes: &[u8]| self.headers[at..at + bytes.len()].copy_from_slice(bytes);
        put(length, &(if v4 { l4_bytes + 20 } else { l4_bytes }).to_be_bytes());
        put(source, &self.src.base.to_be_bytes());
        put(destination, &self.dst.base.to_be_bytes());
        put(l4, &(self.sport.base as u16).to_be_bytes());
        put(l4 + 2, &(self.dport.base as u16).to_be_bytes());
        if udp {
            put(l4 + 4, &l4_bytes.to_be_bytes());
        }
        let addresses = if v4 { l3 + 12..l4 } else { l3 + 8..l4 };
        let pseudo = Sum::new().bytes(&self.headers[addresses]).word(self.l4_proto.into()).word(l4_bytes);
        let l4_sum = pseudo.bytes(&self.headers[l4..self.header_bytes.into()]).folded();
        self.ip_sum = if v4 { Sum::new().bytes(&self.headers[l3..l4]).folded().into() } else { 0 };
        self.l4_sum = if self.l4_sum > 0 { l4_sum.into() } else { 0 };
        Self { fixed: 1, ..self }
    }
}

impl ReplayPlan {
    /// The plan of frames that leave through the interface `out_ifindex`.
    pub(crate) fn for_capture(capture: &Capture, round: &Round, out_ifindex: u32) -> Self {
        Self {
            round_ns: round.period.as_nanos() as u64,
            frames: capture.frames.len() as u32,
            bytes_max: capture.largest() as u32,
            out_ifindex,
            _pad: 0,
        }
    }
}

/// The packet with zeros for checksums, the IPv4 id, and addresses and ports, which differ between flows.
fn template(packet: &Packet) -> Packet {
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

/// How the packets of a stream are sent, besides the times of its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pacing {
    /// Number of packets without an interval between them; at least 1.
    pub burst: u32,
    /// Number of packets that count; None for no limit.
    pub packets: Option<u64>,
}

/// The state at the start of a schedule. Only the pseudo-random order of flows continues from `before`.
pub(crate) fn start(schedule: &Schedule, start_ns: u64, label: u8, before: &TrafficState) -> TrafficState {
    // Without pacing, no packet is ever late.
    let share = if schedule.pps.is_some() { END_SLACK_SHARE } else { u64::MAX };
    let time = schedule.duration.map(|time| time.as_nanos() as u64);
    let time = time.map(|time| time + END_SLACK_NS.max(time / share));
    let due = Schedule { packets: None, ..*schedule }.offered();
    TrafficState {
        start_ns,
        end_ns: time.map_or(0, |time| start_ns + time),
        limit: schedule.packets.unwrap_or(u64::MAX),
        slots: due.unwrap_or(u64::MAX),
        interval: schedule.interval(),
        random: before.random,
        burst: schedule.burst,
        bunch: bunch(schedule.pps, schedule.burst),
        label: label.into(),
        ..TrafficState::default()
    }
}

/// The state at the start of a schedule in steps. The steps, and not a time, end it.
pub(crate) fn start_steps(
    table: &Timetable,
    pacing: Pacing,
    start_ns: u64,
    label: u8,
    before: &TrafficState,
) -> TrafficState {
    let first = table.steps.first();
    TrafficState {
        start_ns,
        limit: pacing.packets.unwrap_or(u64::MAX),
        slots: u64::MAX,
        interval: first.map_or(0, |step| step.interval),
        due: first.map_or(0, |step| step.from),
        random: before.random,
        burst: pacing.burst,
        bunch: bunch(table.most_pps(), pacing.burst),
        label: label.into(),
        warm_until: table.warm_until,
        ..TrafficState::default()
    }
}

/// The number of overdue packets that may leave at once: one burst, or all that are due in the time within which a
/// sender catches up.
fn bunch(pps: Option<f64>, burst: u32) -> u32 {
    let due = pps.map_or(0.0, |pps| pps * f64::from(TRAFFIC_CATCH_UP_NS) / 1e9);
    let bursts = (due as u32).min(BUNCH_MAX) / burst.max(1);
    bursts.max(1) * burst
}

impl TrafficState {
    /// Whether all packets of the schedule were sent or left out.
    pub fn is_over(&self, now_ns: u64) -> bool {
        let ended = self.end_ns > 0 && now_ns >= self.end_ns;
        ended || self.sent - self.warm_sent >= self.limit || self.sent + self.unsent >= self.slots
    }

    /// The state when the sender stops at this time: packets that were due before the end and not sent are left out.
    #[must_use]
    pub fn stopped(mut self, now_ns: u64) -> Self {
        let left = self.slots.saturating_sub(self.sent + self.unsent);
        if self.end_ns > 0
            && now_ns >= self.end_ns
            && self.slots < u64::MAX
            && self.sent < self.limit
            && left > 0
        {
            let late_ns = now_ns - self.start_ns - (self.due >> 16);
            self.late_ns_max = self.late_ns_max.max(late_ns);
            self.held_unsent += if late_ns > u64::from(TRAFFIC_HELD_NS) { left } else { 0 };
            self.unsent += left;
        }
        self
    }

    /// The packets that count: without those of a warm-up.
    #[must_use]
    pub fn counted(mut self) -> Self {
        self.sent -= self.warm_sent;
        self.unsent -= self.warm_unsent;
        self.start_ns += self.warm_until >> 16;
        self
    }

    /// Whether the sender, with the router if that runs on its CPU, could send no more, in contrast to one that was
    /// held up now and then by something else.
    pub fn is_too_slow(&self) -> bool {
        let elapsed_ns = self.last_ns.saturating_sub(self.start_ns) as f64;
        let slow = self.unsent.saturating_sub(self.held_unsent) as f64;
        (self.idle_ns as f64) < elapsed_ns * IDLE_LEAST
            && slow > (self.sent + self.unsent) as f64 * SLOW_LEAST
    }
}

/// The smallest and the largest latency that a bucket counts, in ns.
pub(crate) fn latency_bounds(bucket: usize) -> (u64, u64) {
    let sub = LATENCY_SUB_BUCKETS as usize;
    let (shift, rest) = if bucket < 2 * sub { (0, bucket) } else { (bucket / sub - 1, bucket % sub + sub) };
    let low = (rest as u64) << shift;
    (low, low + (1 << shift) - 1)
}
