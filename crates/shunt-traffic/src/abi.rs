//! The Rust side of `bpf/lab/traffic_abi.h`. A unit test compares every size, offset and constant with the C
//! compiler's.

use shunt_bpf::plain;
use shunt_gen::{Capture, Field, Round, Schedule, Traffic};
use shunt_wire::{Checksum, Packet, Sum, Transport};
use std::net::{IpAddr, Ipv6Addr};

const HEADERS_MAX: usize = 88;
pub(crate) const SIZES_MAX: usize = 64;
const SUB_BUCKETS: u32 = 64;
/// Packets that are due before the end may still be sent for this long after the end, or for a thousandth of the run if
/// that is longer. A sender that was delayed at the end catches up, and the rate is still within 0.1 % of the target.
const END_SLACK_NS: u64 = 100_000;
const END_SLACK_SHARE: u64 = 1000;
/// Buckets of a latency histogram.
pub(crate) const LATENCY_BUCKETS: usize = 27 * SUB_BUCKETS as usize;

plain! {
    /// `struct traffic_field`: a value that differs between flows.
    pub(crate) struct PlanField = "traffic_field", 12; {
        base: u32,
        every: u32,
        count: u32,
    }
}

plain! {
    /// `struct traffic_plan`: the contents of packets.
    pub(crate) struct Plan = "traffic_plan", 292; {
        headers: [u8; HEADERS_MAX],
        src: PlanField,
        dst: PlanField,
        sport: PlanField,
        dport: PlanField,
        frame_bytes: [u16; SIZES_MAX],
        sizes: u32,
        pub(crate) flows: u32,
        pub(crate) out_ifindex: u32,
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
}

plain! {
    /// `struct traffic_state`: the schedule and the progress of a generator. Times are CLOCK_MONOTONIC.
    pub struct State = "traffic_state", 104; {
        /// The start of the schedule.
        pub start_ns: u64,
        /// Nothing is sent from this time on; 0: no end.
        pub end_ns: u64,
        /// The most packets to send.
        pub limit: u64,
        /// Time between packets in ns / 65536; 0: no pacing.
        pub interval: u64,
        /// When the next packet is due, since the start, in ns / 65536.
        pub due: u64,
        /// Packets sent.
        pub sent: u64,
        /// Bytes sent, without FCS.
        pub bytes: u64,
        /// State of the pseudo-random order of flows.
        pub random: u64,
        /// The longest delay of a packet after it was due.
        pub late_ns_max: u64,
        /// When the last packet was sent.
        pub last_ns: u64,
        /// Packets per burst. Packets of a burst are sent without an interval.
        pub burst: u32,
        /// Packets of the current burst that were sent.
        pub in_burst: u32,
        /// The next flow, if flows come in turn; in a replay, the next frame.
        pub flow: u32,
        /// Index of the next frame size; in a replay, the round.
        pub size: u32,
        /// The label in the stamps, which tells the packets of one run from others. 8 bits.
        pub label: u32,
        /// Zero.
        pub _pad: u32,
    }
}

plain! {
    /// `struct replay_plan`.
    pub(crate) struct ReplayPlan = "replay_plan", 24; {
        round_ns: u64,
        pub(crate) frames: u32,
        bytes_max: u32,
        out_ifindex: u32,
        _pad: u32,
    }
}

plain! {
    /// `struct replay_frame`: precedes the bytes of a frame.
    pub(crate) struct ReplayFrame = "replay_frame", 16; {
        pub(crate) due_ns: u64,
        pub(crate) bytes: u32,
        pub(crate) _pad: u32,
    }
}

plain! {
    /// `struct receive_plan`.
    pub(crate) struct ReceivePlan = "receive_plan", 16; {
        pub(crate) flows: u32,
        pub(crate) by_kind: u32,
        pub(crate) capture: u32,
        pub(crate) handshakes: u32,
    }
}

plain! {
    /// `struct captured_frame`: precedes the bytes of a frame.
    pub(crate) struct CapturedFrame = "captured_frame", 16; {
        pub(crate) at_ns: u64,
        pub(crate) bytes: u32,
        _pad: u32,
    }
}

plain! {
    /// `struct arrival`: the packets of one flow that arrived.
    pub struct Arrival = "arrival", 72; {
        seen: [u64; 4],
        /// Packets, including duplicates.
        pub packets: u64,
        /// The highest number that arrived, plus one.
        pub next: u32,
        /// Packets that had arrived before.
        pub duplicated: u32,
        /// Packets with a lower number than an earlier one (RFC 4737).
        pub reordered: u32,
        /// Packets reordered by more than the window, which may also be duplicates.
        pub beyond: u32,
        /// The largest distance of a packet behind the highest number.
        pub displaced_max: u32,
        pub(crate) transit_ns: u32,
        pub(crate) jitter: u32,
        pub(crate) label: u32,
    }
}

plain! {
    /// `struct times`: a histogram.
    pub(crate) struct Times = "times", 16 + 8 * LATENCY_BUCKETS; {
        pub(crate) ns_min: u64,
        pub(crate) ns_max: u64,
        pub(crate) counts: [u64; LATENCY_BUCKETS],
    }
}

plain! {
    /// `struct received`: the packets that one CPU received.
    pub(crate) struct Received = "received", 64 + 16 * LATENCY_BUCKETS; {
        pub(crate) packets: u64,
        pub(crate) bytes: u64,
        pub(crate) others: u64,
        pub(crate) last_ns: u64,
        pub(crate) latency: Times,
        pub(crate) jitter: Times,
    }
}

impl From<Field> for PlanField {
    fn from(Field { base, every, count }: Field) -> Self {
        Self { base, every, count }
    }
}

impl Plan {
    /// The plan of packets that leave through the interface `out_ifindex`.
    pub(crate) fn for_traffic(traffic: &Traffic, out_ifindex: u32) -> Self {
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

/// The state at the start of a schedule. Only the pseudo-random order of flows continues from `before`.
pub(crate) fn start(schedule: &Schedule, start_ns: u64, label: u8, before: &State) -> State {
    // Without pacing, no packet is ever late.
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

/// The smallest and the largest latency that a bucket counts, in ns.
pub(crate) fn latency_bounds(bucket: usize) -> (u64, u64) {
    let sub = SUB_BUCKETS as usize;
    let (shift, rest) = if bucket < 2 * sub { (0, bucket) } else { (bucket / sub - 1, bucket % sub + sub) };
    let low = (rest as u64) << shift;
    (low, low + (1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_bpf::abi::layout::{CValue, Values, add, assert_equal, c_values};

    // SAFETY: build.rs makes the table.
    unsafe extern "C" {
        static traffic_abi_values: CValue;
    }

    #[test]
    fn sizes_offsets_and_constants_are_those_of_the_c_header() {
        let mut rust = Values::new();
        add::<PlanField>(&mut rust);
        add::<Plan>(&mut rust);
        add::<State>(&mut rust);
        add::<ReplayPlan>(&mut rust);
        add::<ReplayFrame>(&mut rust);
        add::<ReceivePlan>(&mut rust);
        add::<CapturedFrame>(&mut rust);
        add::<Arrival>(&mut rust);
        add::<Times>(&mut rust);
        add::<Received>(&mut rust);
        rust.insert("TRAFFIC_HEADERS_MAX".to_owned(), HEADERS_MAX as u64);
        rust.insert("TRAFFIC_SIZES_MAX".to_owned(), SIZES_MAX as u64);
        rust.insert("LATENCY_SUB_BUCKETS".to_owned(), SUB_BUCKETS.into());
        rust.insert("LATENCY_BUCKETS".to_owned(), LATENCY_BUCKETS as u64);
        // SAFETY: the build script ends the table with an entry without a name.
        let c = unsafe { c_values(&raw const traffic_abi_values) };
        assert_equal(&rust, &c, &["traffic_stamp", "TRAFFIC_STAMP_BYTES", "ARRIVAL_WINDOW"]);
    }
}
