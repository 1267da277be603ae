//! Packets: their records, with names for stages.

use super::abi::*;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use shunt_bpf::abi::Plain;
use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

/// How a packet went through this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PacketPath {
    /// Forwarded by Linux.
    Slow,
    /// Forwarded by Shunt's tc engine.
    Tc,
    /// Redirected by an XDP program.
    Xdp,
    /// Forwarded without netfilter, by a bridge or by a program that is not Shunt's.
    Bridged,
    /// Sent by a program on this machine.
    Sent,
    /// Received by a program on this machine.
    Received,
    /// Sent by a program on this machine, and what came back.
    RoundTrip,
    /// Received by a program on this machine, and its answer.
    Answered,
}

impl fmt::Display for PacketPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Slow => "slow",
            Self::Tc => "tc",
            Self::Xdp => "xdp",
            Self::Bridged => "bridged",
            Self::Sent => "sent",
            Self::Received => "received",
            Self::RoundTrip => "round trip",
            Self::Answered => "answered",
        })
    }
}

/// How a packet ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// Transmitted or received.
    Done,
    /// Freed by Linux with a drop reason.
    Dropped,
    /// Consumed on its way, such as an aggregate that is cut into segments.
    Consumed,
    /// Lost from sight: merged by GRO, or freed without a tracepoint.
    Vanished,
    /// XDP gave it to Linux or dropped it.
    Passed,
}

/// The name of a stage: one of a fixed list.
pub type StageName = &'static str;

/// A step of a packet: a stage that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The stage, such as `qdisc`.
    #[serde(deserialize_with = "stage_by_name")]
    pub stage: StageName,
    /// How long it took.
    pub ns: u64,
    /// The thread that ran when it ended.
    pub thread: Thread,
    /// The CPU on which it ended.
    pub cpu: u16,
    /// The event with which it began, as the programs number it.
    #[serde(skip)]
    pub(super) began_at: u32,
    /// The number of the thread that ran when it ended; 0: none.
    #[serde(skip)]
    pub(super) id: u32,
    /// The number of a function of the kernel, while stages are bisected.
    #[serde(skip)]
    pub(super) probe: Option<u16>,
}

/// The name of a thread, as the kernel keeps it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Thread(pub(super) [u8; 16]);

/// Which part of netfilter dropped a packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Connection tracking.
    Conntrack,
    /// A rule: the table and the chain of nftables.
    Chain(String),
    /// A rule in this table of iptables.
    Table(String),
}

/// Addresses and ports of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ends {
    /// IP protocol number.
    pub protocol: u8,
    /// Where it comes from; the port is 0 if the protocol has none.
    pub from: SocketAddr,
    /// Where it goes.
    pub to: SocketAddr,
}

/// A packet that was traced.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Packet {
    /// When it was first seen, on CLOCK_MONOTONIC.
    pub began_ns: u64,
    /// How the packet crossed the machine: forwarded, sent or received, and by which path.
    pub way: PacketPath,
    /// The device by which it came; None if a program on this machine sent it.
    #[serde(skip)]
    pub(super) in_ifindex: Option<u32>,
    #[serde(skip)]
    pub(super) out_ifindex: Option<u32>,
    /// As it was first seen; None if the headers could not be read.
    pub ends: Option<Ends>,
    /// As it was given to a driver, if NAT changed it.
    pub translated: Option<Ends>,
    /// Length from the IP header on; an aggregate counts as one packet.
    pub bytes: u32,
    /// Whether the packet was transmitted or received, or what became of it instead.
    pub end: End,
    /// Why Linux dropped it: a number of `enum skb_drop_reason`.
    pub drop_reason: Option<u32>,
    /// Which part of netfilter dropped it; None if none did, or the kernel does not show it.
    #[serde(default)]
    pub verdict: Option<Verdict>,
    /// The kind of the root qdisc to which it was given; empty if it was given to none.
    #[serde(default)]
    pub qdisc: String,
    /// The thread that ran when it was first seen.
    pub thread: Thread,
    /// The stages in order; their times add up to `total_ns`.
    pub steps: Vec<Step>,
    /// From when it was first seen to its end.
    pub total_ns: u64,
    /// Events that had no room in the record.
    #[serde(skip)]
    pub(super) lost: u32,
    /// Whether it is the answer to a packet that was traced.
    #[serde(skip)]
    pub(super) is_answer: bool,
}

/// What the names of stages depend on.
#[derive(Debug, Clone, Default)]
pub(super) struct Context {
    /// Whether hooks of netfilter are seen.
    pub(super) hooks: bool,
    /// Devices on which Shunt's tc program runs.
    pub(super) fast_ports: Vec<u32>,
}

/// Numbers of hooks, twice.
mod hook {
    use super::TRACE_HOOK;
    pub(super) const PREROUTING: u32 = TRACE_HOOK;
    pub(super) const LOCAL_IN: u32 = TRACE_HOOK + 2;
    pub(super) const FORWARD: u32 = TRACE_HOOK + 4;
    pub(super) const LOCAL_OUT: u32 = TRACE_HOOK + 6;
    pub(super) const POSTROUTING: u32 = TRACE_HOOK + 8;
    pub(super) const LAST: u32 = TRACE_HOOK + 9;
}

impl Packet {
    /// Reads a record. None if it is damaged or has no event.
    pub(super) fn from_record(bytes: &[u8], context: &Context) -> Option<Self> {
        let at = std::mem::offset_of!(TraceRecord, event);
        let mut head = bytes.get(..at)?.to_vec();
        head.resize(size_of::<TraceRecord>(), 0);
        let record = TraceRecord::from_bytes(&head)?;
        let events: Vec<TraceEvent> = bytes
            .get(at..)?
            .chunks_exact(size_of::<TraceEvent>())
            .filter_map(TraceEvent::from_bytes)
            .collect();
        let first = events.first()?;
        let way = way(&record, &events, context);
        let mut steps = Vec::new();
        for pair in events.windows(2) {
            let [before, now] = pair else { continue };
            steps.push(Step {
                stage: stage_name(before.stage, now.stage, way, context),
                ns: u64::from(now.after_ns.saturating_sub(before.after_ns)),
                thread: Thread(now.comm),
                cpu: now.cpu,
                began_at: before.stage,
                id: now.thread,
                probe: (now.stage == TRACE_PROBE).then_some(now.probe),
            });
        }
        let ends = ends(&record.r#in);
        Some(Self {
            began_ns: record.began_ns + u64::from(first.after_ns),
            way,
            in_ifindex: Some(record.in_ifindex).filter(|index| *index != 0),
            out_ifindex: Some(record.out_ifindex).filter(|index| *index != 0),
            translated: self::ends(&record.out).filter(|out| Some(*out) != ends),
            ends,
            bytes: record.bytes,
            end: match record.end {
                TRACE_DROPPED => End::Dropped,
                TRACE_CONSUMED => End::Consumed,
                TRACE_VANISHED => End::Vanished,
                TRACE_PASSED => End::Passed,
                _ => End::Done,
            },
            qdisc: text(&record.qdisc),
            verdict: match record.verdict {
                TRACE_BY_CONNTRACK => Some(Verdict::Conntrack),
                TRACE_BY_CHAIN => {
                    Some(Verdict::Chain(format!("{} {}", text(&record.table), text(&record.chain))))
                }
                TRACE_BY_TABLE => Some(Verdict::Table(text(&record.table))),
                _ => None,
            },
            drop_reason: (record.end == TRACE_DROPPED && record.reason != 0).then_some(record.reason),
            thread: Thread(first.comm),
            total_ns: steps.iter().map(|step: &Step| step.ns).sum(),
            steps,
            lost: record.lost,
            is_answer: record.flags & TRACE_ANSWER != 0,
        })
    }

    /// Whether it was transmitted or received.
    pub(super) fn is_done(&self) -> bool {
        self.end == End::Done
    }

    /// Whether Linux dropped it.
    pub(super) fn is_dropped(&self) -> bool {
        self.end == End::Dropped
    }

    /// When each stage began and ended.
    pub(super) fn timed(&self) -> impl Iterator<Item = (&Step, u64, u64)> {
        self.steps.iter().scan(self.began_ns, |at, step| {
            let from = *at;
            *at += step.ns;
            Some((step, from, *at))
        })
    }

    /// Whether a program on this machine sent data with it. A segment of TCP without a known send call has data if it
    /// is longer than headers with all options.
    pub(super) fn has_data(&self) -> bool {
        let is_tcp = self.ends.is_some_and(|ends| ends.protocol == TCP);
        !is_tcp || self.bytes > HEADERS_MAX || self.steps.first().is_some_and(|step| step.stage == "tcp-out")
    }
}

const TCP: u8 = 6;
/// The headers of IPv6 and TCP, with all options of TCP.
const HEADERS_MAX: u32 = 100;

/// A name that ends with a zero, or fills its place.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn way(record: &TraceRecord, events: &[TraceEvent], context: &Context) -> PacketPath {
    let has = |wanted: &[u32]| events.iter().any(|event| wanted.contains(&event.stage));
    if record.flags & TRACE_LOCAL_OUT != 0 {
        return PacketPath::Sent;
    }
    if has(&[TRACE_XDP_ENTRY, TRACE_XDP_PREVIOUS]) {
        return PacketPath::Xdp;
    }
    if has(&[TRACE_TCP, TRACE_COPY, TRACE_READ, hook::LOCAL_IN]) {
        return PacketPath::Received;
    }
    let hooked = events.iter().any(|event| (hook::PREROUTING..=hook::LAST).contains(&event.stage));
    if hooked {
        return PacketPath::Slow;
    }
    if has(&[TRACE_QUEUE]) && context.fast_ports.contains(&record.in_ifindex) {
        // Without hooks, Linux's packets cannot be told from Shunt's.
        return if context.hooks { PacketPath::Tc } else { PacketPath::Slow };
    }
    if has(&[TRACE_QUEUE]) && context.hooks { PacketPath::Bridged } else { PacketPath::Slow }
}

/// The name of the stage that ends with `now`.
fn stage_name(before: u32, now: u32, way: PacketPath, context: &Context) -> &'static str {
    match now {
        TRACE_PROBE => "function",
        TRACE_DRIVER => "device",
        TRACE_RECEIVE => "gro",
        hook::PREROUTING => "ingress",
        _ if now == hook::PREROUTING + 1 => "prerouting",
        hook::LOCAL_IN | hook::FORWARD => "routing",
        _ if now == hook::LOCAL_IN + 1 => "local-in",
        _ if now == hook::FORWARD + 1 => "forward",
        hook::LOCAL_OUT => "tcp-out",
        _ if now == hook::LOCAL_OUT + 1 => "local-out",
        hook::POSTROUTING => "output",
        _ if now == hook::POSTROUTING + 1 => "postrouting",
        TRACE_QUEUE if way == PacketPath::Tc => "fast-path",
        TRACE_QUEUE if !context.hooks => "linux",
        TRACE_QUEUE if way == PacketPath::Bridged => "bridge",
        TRACE_QUEUE => "neighbour",
        TRACE_START => "qdisc",
        TRACE_XMIT => "transmit",
        TRACE_FREED if before == TRACE_XMIT => "completion",
        TRACE_FREED if before == TRACE_START => "transmit",
        TRACE_FREED => "freed",
        TRACE_TCP => "tcp-in",
        TRACE_READY => "wake",
        TRACE_COPY => "read",
        TRACE_READ if before == TRACE_COPY => "copy",
        TRACE_READ => "read",
        TRACE_XDP_DECIDED => "xdp-decision",
        TRACE_XDP_REDIRECT if before == TRACE_XDP_PREVIOUS => "xdp-frame",
        TRACE_XDP_REDIRECT => "xdp-redirect",
        TRACE_XDP_XMIT => "xdp-transmit",
        _ => "other",
    }
}

/// The name of all further stages.
pub(super) const OTHER: &str = "other";
/// All names of stages, in the order of a packet's way.
pub(super) const STAGES: [&str; 29] = [
    "xdp-frame",
    "xdp-decision",
    "xdp-redirect",
    "xdp-transmit",
    "tcp-out",
    "local-out",
    "device",
    "gro",
    "ingress",
    "prerouting",
    "routing",
    "local-in",
    "forward",
    "fast-path",
    "bridge",
    "linux",
    "output",
    "postrouting",
    "neighbour",
    "qdisc",
    "transmit",
    "completion",
    "away",
    "tcp-in",
    "wake",
    "read",
    "copy",
    "program",
    "freed",
];

impl fmt::Display for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&text(&self.0))
    }
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for Thread {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Thread {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut name = [0; 16];
        // A name that was not UTF-8 may have become longer.
        name.iter_mut().zip(text.bytes()).for_each(|(place, byte)| *place = byte);
        Ok(Self(name))
    }
}

/// Reads the name of a stage.
pub(super) fn stage_by_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<StageName, D::Error> {
    let text = String::deserialize(deserializer)?;
    let known = STAGES.into_iter().chain([OTHER]).find(|stage| *stage == text);
    known.ok_or_else(|| D::Error::custom(format!("{text} is not a stage")))
}

fn ends(tuple: &TraceTuple) -> Option<Ends> {
    let address = |bytes: [u8; 16]| match tuple.family {
        4 => Some(IpAddr::from([bytes[0], bytes[1], bytes[2], bytes[3]])),
        6 => Some(IpAddr::from(bytes)),
        _ => None,
    };
    Some(Ends {
        protocol: tuple.l4_proto,
        from: (address(tuple.src_be)?, u16::from_be_bytes(tuple.sport_be)).into(),
        to: (address(tuple.dst_be)?, u16::from_be_bytes(tuple.dport_be)).into(),
    })
}

impl Ends {
    /// The name of the protocol, or its number.
    pub(super) fn protocol_name(self) -> String {
        match self.protocol {
            TCP => "tcp".to_owned(),
            17 => "udp".to_owned(),
            other => format!("protocol {other}"),
        }
    }

    /// The other direction.
    pub(super) fn reversed(self) -> Self {
        Self { from: self.to, to: self.from, ..self }
    }
}

impl fmt::Display for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.protocol_name())?;
        match self.from.port() == 0 && self.to.port() == 0 {
            true => write!(f, "{} > {}", self.from.ip(), self.to.ip()),
            false => write!(f, "{} > {}", self.from, self.to),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) const PREROUTING: u32 = hook::PREROUTING;
    pub(crate) const FORWARD: u32 = hook::FORWARD;
    pub(crate) const LOCAL_IN: u32 = hook::LOCAL_IN;
    pub(crate) const LOCAL_OUT: u32 = hook::LOCAL_OUT;
    pub(crate) const POSTROUTING: u32 = hook::POSTROUTING;

    /// A record as the programs write it.
    pub(crate) fn record(set: impl FnOnce(&mut TraceRecord), events: &[(u32, u32)]) -> Vec<u8> {
        let mut record = TraceRecord { began_ns: 1000, end: 1, ..TraceRecord::default() };
        record.r#in = TraceTuple { family: 4, l4_proto: 17, ..TraceTuple::default() };
        record.r#in.src_be[..4].copy_from_slice(&[192, 0, 2, 2]);
        record.r#in.dst_be[..4].copy_from_slice(&[198, 51, 100, 2]);
        (record.r#in.sport_be, record.r#in.dport_be) = (1024u16.to_be_bytes(), 53u16.to_be_bytes());
        record.in_ifindex = 2;
        record.out_ifindex = 3;
        set(&mut record);
        let mut bytes = record.bytes()[..std::mem::offset_of!(TraceRecord, event)].to_vec();
        for (stage, after_ns) in events {
            let mut event = TraceEvent { stage: *stage, after_ns: *after_ns, ..TraceEvent::default() };
            event.comm[..4].copy_from_slice(b"ksof");
            bytes.extend_from_slice(event.bytes());
        }
        bytes
    }

    pub(crate) fn hooked() -> Context {
        Context { hooks: true, fast_ports: Vec::new() }
    }

    fn stages(packet: &Packet) -> Vec<(&str, u64)> {
        packet.steps.iter().map(|step| (step.stage, step.ns)).collect()
    }

    pub(crate) const SLOW: [(u32, u32); 12] = [
        (TRACE_DRIVER, 0),
        (TRACE_RECEIVE, 100),
        (PREROUTING, 150),
        (PREROUTING + 1, 350),
        (FORWARD, 500),
        (FORWARD + 1, 600),
        (POSTROUTING, 640),
        (POSTROUTING + 1, 700),
        (TRACE_QUEUE, 750),
        (TRACE_START, 900),
        (TRACE_XMIT, 1000),
        (TRACE_FREED, 2000),
    ];

    #[test]
    fn stages_of_a_forwarded_packet_have_names_and_add_up() {
        let packet = Packet::from_record(&record(|_| (), &SLOW), &hooked()).unwrap();
        let expected = [
            ("gro", 100),
            ("ingress", 50),
            ("prerouting", 200),
            ("routing", 150),
            ("forward", 100),
            ("output", 40),
            ("postrouting", 60),
            ("neighbour", 50),
            ("qdisc", 150),
            ("transmit", 100),
            ("completion", 1000),
        ];
        assert_eq!((stages(&packet), packet.total_ns), (expected.to_vec(), 2000));
        assert_eq!(
            (packet.way, packet.end, packet.thread.to_string().as_str()),
            (PacketPath::Slow, End::Done, "ksof")
        );
        assert_eq!(packet.ends.unwrap().to_string(), "udp 192.0.2.2:1024 > 198.51.100.2:53");
        assert!(packet.steps.iter().all(|step| STAGES.contains(&step.stage)));
    }

    #[test]
    fn a_packet_without_netfilter_is_fast_where_shunt_runs_and_bridged_elsewhere() {
        let events = [(TRACE_DRIVER, 0), (TRACE_RECEIVE, 100), (TRACE_QUEUE, 300), (TRACE_START, 350)];
        let read = |context: &Context| Packet::from_record(&record(|_| (), &events), context).unwrap();
        let fast = read(&Context { hooks: true, fast_ports: vec![2] });
        assert_eq!((fast.way, stages(&fast)[1]), (PacketPath::Tc, ("fast-path", 200)));
        let bridged = read(&hooked());
        assert_eq!((bridged.way, stages(&bridged)[1]), (PacketPath::Bridged, ("bridge", 200)));
        let unknown = read(&Context { hooks: false, fast_ports: vec![2] });
        assert_eq!((unknown.way, stages(&unknown)[1]), (PacketPath::Slow, ("linux", 200)));
    }

    #[test]
    fn redirected_frames_and_local_packets_have_ways_of_their_own() {
        let read = |set: fn(&mut TraceRecord), events: &[(u32, u32)]| {
            Packet::from_record(&record(set, events), &hooked()).unwrap()
        };
        let frame = read(
            |_| (),
            &[
                (TRACE_XDP_ENTRY, 0),
                (TRACE_XDP_DECIDED, 90),
                (TRACE_XDP_REDIRECT, 130),
                (TRACE_XDP_XMIT, 900),
            ],
        );
        let expected = vec![("xdp-decision", 90), ("xdp-redirect", 40), ("xdp-transmit", 770)];
        assert_eq!((frame.way, stages(&frame)), (PacketPath::Xdp, expected));
        let sent = read(
            |record| record.flags = TRACE_LOCAL_OUT,
            &[(1, 0), (hook::LOCAL_OUT, 800), (hook::LOCAL_OUT + 1, 900)],
        );
        assert_eq!((sent.way, stages(&sent)), (PacketPath::Sent, vec![("tcp-out", 800), ("local-out", 100)]));
        let received = read(
            |record| (record.out_ifindex, record.flags) = (0, TRACE_ANSWER),
            &[
                (TRACE_DRIVER, 0),
                (PREROUTING + 1, 50),
                (hook::LOCAL_IN, 90),
                (TRACE_TCP, 200),
                (TRACE_READ, 900),
            ],
        );
        assert_eq!(
            (received.way, received.out_ifindex, received.is_answer),
            (PacketPath::Received, None, true)
        );
    }

    #[test]
    fn damaged_records_are_refused() {
        assert_eq!(Packet::from_record(&[], &hooked()), None);
        assert_eq!(Packet::from_record(&record(|_| (), &[]), &hooked()), None);
        // A part of an event at the end is left out.
        let mut cut = record(|_| (), &SLOW);
        cut.truncate(cut.len() - 1);
        assert_eq!(Packet::from_record(&cut, &hooked()).unwrap().steps.len(), SLOW.len() - 2);
    }
}
