//! What `shunt verify` reports: figures of both paths, what differs, and a verdict. Pure.

use super::{
    compare::{self, SeenTreatment, Treatment},
    fault::{Fault, Way},
    follow::{Finding, Follower, Tally},
    request::Flow,
};
use serde::{Deserialize, Serialize};
use shunt_api::{Engine, Verdict};
use shunt_lab::statistics::{difference_of_samples, median, share_interval};
use std::{cmp::Reverse, collections::BTreeMap, ops::Range};

/// With fewer fast packets, a run says too little.
const PACKETS_WANTED: u64 = 100;
/// From this share of fast packets on, what Linux drops can hide what the fast path loses.
const DROPPED: f64 = 0.01;
/// How many times the slow path's loss that of the fast one must be to count as its own, both with their intervals.
const MORE_LOSS: f64 = 2.0;
/// Differences that a report shows; further ones are counted.
const SHOWN: usize = 4;
/// Bytes that a difference shows around the first differing one.
const AROUND: usize = 24;

/// The figures of both paths, the first differences, and the verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The answer.
    pub verdict: Verdict,
    /// Why there is no answer; empty if there is one.
    pub unknown: Vec<String>,
    /// Duration in seconds.
    pub seconds: f64,
    /// Periods with the fast path off for these connections; there is one more with it on.
    pub periods: usize,
    /// The directions of connections that were observed.
    pub flows: Vec<FlowReport>,
    /// Figures by path.
    pub paths: BTreeMap<Way, PathReport>,
    /// With 95 % confidence, at most this share of fast packets has a fault, from 0 to 1; absent if none were compared.
    pub faults_at_most: Option<f64>,
    /// By how much the median round trip is longer on the fast path, in microseconds.
    pub round_trip_difference_us: Option<Interval>,
    /// The first packets with faults.
    pub differences: Vec<Difference>,
    /// Slow packets that fast packets overtook, or the reverse.
    pub overtaken: u64,
    /// Packets that were not followed to their end, since the observer missed records or frames were too long.
    pub unseen: u64,
    /// Records for which the observer had no room, or that the kernel skipped.
    pub records_lost: u64,
}

/// A direction of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowReport {
    /// Protocol, addresses and ports as its packets arrive.
    pub flow: String,
    /// The engine that forwards its packets.
    pub engine: Engine,
    /// Packets that were compared, by path.
    pub packets: BTreeMap<Way, u64>,
}

/// Figures of a path, over all flows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PathReport {
    /// Packets that entered and left; each segment of an aggregate counts.
    pub packets: u64,
    /// Their bytes from the L3 header on.
    pub bytes: u64,
    /// Packets with faults.
    pub faults: BTreeMap<Fault, u64>,
    /// Packets that Linux dropped for a reason of its own, such as a full queue, by reason.
    pub dropped_by_linux: BTreeMap<String, u64>,
    /// TCP segments with payload.
    pub data: u64,
    /// Those that a host sent again.
    pub repeated: u64,
    /// Median time from entering to leaving.
    pub in_router_us: Option<f64>,
    /// Median time from a segment of TCP to its acknowledgement.
    pub round_trip_us: Option<f64>,
}

/// A value with its 95 % interval, or with the range of all periods if they are too few for one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The middle.
    pub value: f64,
    /// The lower bound.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
}

/// A packet with a fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Protocol, addresses and ports as its packets arrive.
    pub flow: String,
    /// The path it took.
    pub way: Way,
    /// What is wrong.
    pub fault: Fault,
    /// Packets of this flow with the same fault on the same path.
    pub packets: u64,
    /// What differs, in words.
    pub what: Vec<String>,
    /// Offset of the bytes below from the L3 header.
    pub at: usize,
    /// The packet as it entered, in hexadecimal; zeros stand for what a router rewrites.
    pub entered: String,
    /// The packet as it left; empty if it was lost, or left with the same bytes.
    pub left: String,
    /// Places among these bytes that differ.
    pub differing: Vec<usize>,
}

/// Medians of one period, in nanoseconds.
pub(super) type PeriodMedians = (Way, f64);

/// What a run knows besides its flows.
#[derive(Debug, Default)]
pub(super) struct Course {
    pub(super) seconds: f64,
    pub(super) periods: usize,
    pub(super) round_trips: Vec<PeriodMedians>,
    pub(super) records_lost: u64,
    /// Packets that XDP lost or the observer missed.
    pub(super) undecided: u64,
    /// What could not be observed.
    pub(super) doubts: Vec<String>,
    pub(super) drop_reasons: BTreeMap<u32, String>,
}

impl PathReport {
    /// Packets that Linux dropped, for all reasons.
    pub fn dropped(&self) -> u64 {
        self.dropped_by_linux.values().sum()
    }
}

/// Flows, each with what became of its packets.
type Followed<'f> = [(&'f Flow, &'f Follower)];

/// Makes the report of these flows.
pub(super) fn report(flows: &Followed<'_>, course: Course) -> Report {
    let mut report = Report {
        verdict: Verdict::Equal,
        unknown: course.doubts,
        seconds: course.seconds,
        periods: course.periods,
        flows: Vec::new(),
        paths: BTreeMap::new(),
        faults_at_most: None,
        round_trip_difference_us: difference(&course.round_trips),
        differences: Vec::new(),
        overtaken: flows.iter().map(|(.., follower)| follower.overtaken).sum(),
        unseen: flows.iter().map(|(.., follower)| follower.unseen).sum(),
        records_lost: course.records_lost,
    };
    for way in Way::ALL {
        report.paths.insert(way, path(flows, way, &course.drop_reasons));
    }
    for (flow, follower) in flows {
        let name = name(flow);
        let packets = follower.tallies.iter().map(|(way, tally)| (*way, tally.packets)).collect();
        report.flows.push(FlowReport { flow: name.clone(), engine: flow.engine, packets });
        compare_headers(&name, follower, &mut report);
        let shown = follower.findings.iter().map(|finding| shown(&name, finding, follower));
        report.differences.extend(shown);
    }
    report.differences.sort_by_key(|one| (one.way, one.fault));
    report.differences.truncate(SHOWN);
    judge(&mut report, flows, course.undecided, &course.drop_reasons);
    report
}

/// `udp 192.168.1.2:4000 > 198.51.100.7:53`.
fn name(flow: &Flow) -> String {
    format!("{} {} > {}", flow.proto, flow.enters.source(), flow.enters.destination())
}

fn path(flows: &Followed<'_>, way: Way, reasons: &BTreeMap<u32, String>) -> PathReport {
    let mut path = PathReport::default();
    let tallies: Vec<&Tally> = flows.iter().filter_map(|(.., one)| one.tallies.get(&way)).collect();
    for tally in &tallies {
        path.packets += tally.packets;
        path.bytes += tally.bytes;
        path.data += tally.data;
        path.repeated += tally.repeated;
        for (fault, count) in &tally.faults {
            *path.faults.entry(*fault).or_default() += count;
        }
    }
    for ((by, reason), count) in flows.iter().flat_map(|(.., one)| &one.by_linux) {
        let reason = drop_reason(*reason, reasons);
        // A packet that is dropped shows no path, but the stack has slow ones only.
        if way == if is_of_stack(&reason) { Way::Slow } else { *by } {
            *path.dropped_by_linux.entry(reason).or_default() += count;
        }
    }
    let middle = |times: fn(&Tally) -> &Vec<f64>| {
        let all: Vec<f64> = tallies.iter().flat_map(|tally| times(tally)).copied().collect();
        median(&all).map(|ns| ns / 1000.0)
    };
    path.in_router_us = middle(|tally| &tally.in_router_ns);
    path.round_trip_us = middle(|tally| &tally.round_trip_ns);
    path
}

/// The kernel's name for a reason to drop.
fn drop_reason(reason: u32, names: &BTreeMap<u32, String>) -> String {
    names.get(&reason).cloned().unwrap_or_else(|| format!("reason {reason}"))
}

/// By how much the fast periods' medians exceed those of the slow ones.
fn difference(medians: &[PeriodMedians]) -> Option<Interval> {
    let of = |way: Way| -> Vec<f64> {
        medians.iter().filter(|(one, _)| *one == way).map(|(_, ns)| ns / 1000.0).collect()
    };
    let (value, spread) = difference_of_samples(&of(Way::Fast), &of(Way::Slow), 1)?;
    Some(Interval { value, low: spread.low, high: spread.high })
}

/// What the fast path does to headers must be something that Linux does to packets of the same flow.
fn compare_headers(flow: &str, follower: &Follower, report: &mut Report) {
    let Some(by_linux) = follower.treatments.by_linux() else { return };
    for (treatment, seen, packets) in follower.treatments.only_fast() {
        let fast = report.paths.entry(Way::Fast).or_default();
        *fast.faults.entry(Fault::Headers).or_default() += packets;
        report.differences.push(header_difference(flow, by_linux, treatment, seen, packets));
    }
}

fn header_difference(
    flow: &str,
    by_linux: &Treatment,
    treatment: &Treatment,
    seen: &SeenTreatment,
    packets: u64,
) -> Difference {
    let what = treatment.differences(by_linux).into_iter();
    let left = &seen.left;
    Difference {
        flow: flow.to_owned(),
        way: Way::Fast,
        fault: Fault::Headers,
        packets,
        what: what.map(|(name, fast, linux)| format!("{name}: {fast}, with Linux {linux}")).collect(),
        at: 0,
        entered: String::new(),
        left: compare::hex(&left.treated.l2, " "),
        differing: compare::differing(&by_linux.l2, &left.treated.l2),
    }
}

fn shown(flow: &str, finding: &Finding, follower: &Follower) -> Difference {
    let Finding { fault, way, entered, left } = finding;
    let left_bytes = left.as_ref().map(|left| left.kept.as_slice()).unwrap_or_default();
    let differing = compare::differing(&entered.kept, left_bytes);
    let first = differing.first().copied().unwrap_or(0);
    let window = around(first, entered.kept.len());
    let hex = |bytes: &[u8]| compare::hex(bytes.get(window.clone()).unwrap_or_default(), " ");
    let counted = follower.tallies.get(way).and_then(|tally| tally.faults.get(fault));
    let mut what = Vec::new();
    if let Some(left) = left {
        if *fault == Fault::Order {
            what.push("it left behind a packet that had entered after it".to_owned());
        }
        if *fault == Fault::Checksum {
            what.push("the checksum was right when the packet entered, and wrong when it left".to_owned());
        }
        if !differing.is_empty() {
            what.push(format!(
                "differing bytes: {}, the first at byte {first} of the IP packet",
                differing.len()
            ));
        } else if entered.exact != left.exact {
            let (id, flags) = entered.exact;
            let (now_id, now_flags) = left.exact;
            what.push(format!("ID {id}, TCP flags {flags:#x}; left with {now_id}, {now_flags:#x}"));
        } else if *fault == Fault::Bytes {
            what.push(format!("ECN {}; left with {}", entered.treated.ecn, left.treated.ecn));
        }
    }
    if let Some(stream) = entered.stream {
        what.push(format!("TCP sequence number {}, {} bytes of data", stream.sequence, stream.payload));
    }
    Difference {
        flow: flow.to_owned(),
        way: *way,
        fault: *fault,
        packets: counted.copied().unwrap_or(1),
        what,
        at: window.start,
        entered: hex(&entered.kept),
        left: if differing.is_empty() { String::new() } else { hex(left_bytes) },
        differing: differing.iter().filter(|at| window.contains(at)).map(|at| at - window.start).collect(),
    }
}

/// The bytes of a packet of this length around one of them.
fn around(at: usize, bytes: usize) -> Range<usize> {
    let from = at.saturating_sub(AROUND) / 4 * 4;
    from..bytes.min(from + 2 * AROUND)
}

fn judge(report: &mut Report, flows: &Followed<'_>, undecided: u64, reasons: &BTreeMap<u32, String>) {
    let has_reference = |follower: &Follower| follower.treatments.by_linux().is_some();
    let compared: u64 = flows.iter().filter(|(.., one)| has_reference(one)).map(|(.., one)| fast(one)).sum();
    let lost = |way: Way| report.paths.get(&way).and_then(|path| path.faults.get(&Fault::Lost)).copied();
    // Packets that Linux sends in another form (fragments) or drops without a reason miss on both paths, in about the
    // same share: losses come in bursts, so the intervals alone say too little.
    let share_lost = |way: Way| {
        let (lost, left) = (lost(way)?, report.paths.get(&way)?.packets);
        share_interval(lost, left + lost).filter(|_| lost > 0)
    };
    let lost_by_both = share_lost(Way::Fast)
        .zip(share_lost(Way::Slow))
        .is_some_and(|(fast, slow)| fast.low <= MORE_LOSS * slow.high);
    let dropped = |way: Way| report.paths.get(&way).map_or(0, PathReport::dropped);
    // Where Linux drops, some drops are seen without their reasons: those of the segments of an aggregate, for one.
    let is_dropping = dropped(Way::Fast) >= lost(Way::Fast).unwrap_or(0).max(1);
    let faults = |way: Way| {
        let all = report.paths.get(&way).map_or(0, |path| path.faults.values().sum::<u64>());
        let is_unclear = lost_by_both || is_dropping || way == Way::Slow;
        all - lost(way).filter(|_| is_unclear).unwrap_or(0)
    };
    let drops_alone = dropped_by_fast_alone(report);
    let of_fast = faults(Way::Fast) + drops_alone.as_ref().map_or(0, |(packets, _)| *packets);
    let trials = compared.max(of_fast);
    report.faults_at_most = share_interval(of_fast, trials).map(|spread| spread.high);
    let is_different = of_fast + faults(Way::Slow) > 0;
    if let Some((packets, reason)) = drops_alone {
        let port = dropping_port(flows, reasons, &reason);
        report.unknown.push(format!(
            "Linux dropped {packets} packets of the fast path and hardly any of the slow one ({reason}): a tc filter of \
             another program, for instance; `tc filter show dev {port} egress` lists them"
        ));
    }
    if is_different {
        report.verdict = Verdict::Differs;
        return;
    }
    let dropped_fast = dropped(Way::Fast);
    let share = share_interval(dropped_fast, fast_packets(report) + dropped_fast);
    let has_lost = lost(Way::Fast).is_some_and(|packets| packets > 0);
    let is_loss_hidden = dropped_fast > 0 && (has_lost || share.is_none_or(|share| share.high >= DROPPED));
    if is_loss_hidden {
        let rest = if compared < PACKETS_WANTED { "" } else { "; bytes and order were equal" };
        report.unknown.push(hidden_loss(report, flows, reasons, rest));
    } else if lost_by_both {
        let why = "packets were lost on both paths: the router sends them in another form, such as fragments, or drops \
                   them without a reason; `ip -s link` and `tc -s qdisc` count drops";
        report.unknown.push(why.to_owned());
    }
    if flows.is_empty() {
        if report.unknown.is_empty() {
            report.unknown.push(
                "no connection is on the fast path; `shunt status` names lasting causes, `shunt why HOST` those of a host"
                    .to_owned(),
            );
        }
    } else if compared < PACKETS_WANTED {
        let why =
            "too little traffic: {} fast packets were compared with what Linux does, where {} are needed";
        let why = why.replacen("{}", &compared.to_string(), 1);
        report.unknown.push(why.replacen("{}", &PACKETS_WANTED.to_string(), 1));
    }
    if report.unseen > compared {
        report.unknown.push("the observer missed more packets than it followed".to_owned());
    }
    if undecided > 0 {
        let why = format!(
            "{undecided} packets were seen before XDP and not again: XDP lost them, or the observer missed them; a longer run tells"
        );
        report.unknown.push(why);
    }
    let is_loss_known = !lost_by_both && !is_loss_hidden && undecided == 0;
    let is_known = compared >= PACKETS_WANTED && report.unseen <= compared && is_loss_known;
    report.verdict = if is_known { Verdict::Equal } else { Verdict::CannotTell };
}

/// Where Linux drops, what can be told of the rest, and when the run would carry an answer.
fn hidden_loss(report: &Report, flows: &Followed<'_>, reasons: &BTreeMap<u32, String>, rest: &str) -> String {
    let [fast, slow] = Way::ALL.map(|way| report.paths.get(&way));
    let [of_fast, of_slow] = [fast, slow].map(|path| path.map_or(0, PathReport::dropped));
    let packets = match of_slow {
        0 => format!("{of_fast} packets of the fast path and none of the slow one"),
        slow => format!("{} packets on both paths", of_fast + slow),
    };
    let mut causes: Vec<(&String, &u64)> = fast.iter().flat_map(|path| &path.dropped_by_linux).collect();
    causes.sort_by_key(|(_, packets)| Reverse(**packets));
    let reason = causes.first().map(|(reason, _)| reason.as_str()).unwrap_or_default();
    if is_of_queue(reason) {
        let port = dropping_port(flows, reasons, reason);
        return format!(
            "the queue of {port} was full: it dropped {packets} ({reason}), so loss by Shunt cannot be told{rest}; \
             ask again when it drops none: `tc -s qdisc show dev {port}` counts its drops"
        );
    }
    format!(
        "Linux dropped {packets} ({reason}), so loss by Shunt cannot be told{rest}; ask again when Linux drops none"
    )
}

/// Whether a packet was dropped where no packet of the fast path comes: behind the ingress of a port, and before its
/// egress.
fn is_of_stack(reason: &str) -> bool {
    let parts = [
        "IP_",
        "IPV6",
        "ICMP",
        "NETFILTER",
        "NEIGH_",
        "XFRM",
        "OTHERHOST",
        "UNICAST_IN_L2",
        "TCP_",
        "UDP_",
        "SOCKET_",
        "NO_SOCKET",
    ];
    parts.iter().any(|part| reason.starts_with(part))
}

/// Whether a packet was dropped since the queue of a port had no room for it: by any qdisc, or by those with reasons of
/// their own.
fn is_of_queue(reason: &str) -> bool {
    ["QDISC", "FQ_", "CAKE"].iter().any(|part| reason.starts_with(part))
}

/// The port behind which most packets were dropped for this reason.
fn dropping_port<'f>(flows: &Followed<'f>, names: &BTreeMap<u32, String>, reason: &str) -> &'f str {
    let mut drops: BTreeMap<&str, u64> = BTreeMap::new();
    for (flow, follower) in flows {
        let for_it = follower.by_linux.iter().filter(|((_, one), _)| drop_reason(*one, names) == reason);
        *drops.entry(&flow.out_port).or_default() += for_it.map(|(_, packets)| packets).sum::<u64>();
    }
    drops.into_iter().max_by_key(|(_, packets)| *packets).map_or("PORT", |(port, _)| port)
}

/// Packets that Linux drops behind the fast path alone, and the reason. What a queue drops depends on how much comes,
/// which differs between the periods.
fn dropped_by_fast_alone(report: &Report) -> Option<(u64, String)> {
    let [fast, slow] = [report.paths.get(&Way::Fast)?, report.paths.get(&Way::Slow)?];
    // A number without a name tells nothing.
    let unclear = ["BACKLOG", "RING", "FULL", "reason "];
    let is_clear = |reason: &str| !is_of_queue(reason) && !unclear.iter().any(|part| reason.contains(part));
    fast.dropped_by_linux.iter().filter(|(reason, _)| is_clear(reason)).find_map(|(reason, packets)| {
        let share = |path: &PathReport, dropped: u64| share_interval(dropped, path.packets + dropped);
        let of_slow = slow.dropped_by_linux.get(reason).copied().unwrap_or(0);
        let (fast, slow) = (share(fast, *packets)?, share(slow, of_slow)?);
        (fast.low > MORE_LOSS * slow.high).then(|| (*packets, reason.clone()))
    })
}

fn fast_packets(report: &Report) -> u64 {
    report.paths.get(&Way::Fast).map_or(0, |path| path.packets)
}

fn fast(follower: &Follower) -> u64 {
    follower.tallies.get(&Way::Fast).map_or(0, |tally| tally.packets)
}

#[cfg(test)]
mod tests;
