//! Percentiles of stages, for each way of packets through the machine.

use super::packet::{End, OTHER, Packet, PacketPath, STAGES, StageName, Step, Thread, stage_by_name};
use serde::{Deserialize, Serialize};
use shunt_lab::statistics::nearest_rank;
use std::collections::{BTreeMap, BTreeSet};

/// Times of a stage, or of whole packets.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Number of packets.
    pub count: usize,
    /// Mean over these packets.
    pub mean_ns: f64,
    /// Median, in nanoseconds.
    pub p50_ns: u64,
    /// 90th percentile, in nanoseconds.
    pub p90_ns: u64,
    /// 99th percentile, in nanoseconds.
    pub p99_ns: u64,
    /// The longest time, in nanoseconds.
    pub max_ns: u64,
}

/// A stage of the packets of one path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageTimes {
    /// The name of the stage, as in the tables and in docs/guide/trace.md.
    #[serde(deserialize_with = "stage_by_name")]
    pub stage: StageName,
    /// Times of the packets that passed it.
    #[serde(flatten)]
    pub times: Times,
    /// Its part of the mean total: these add up to it.
    pub share_ns: f64,
    /// The thread that ran most often when it ended.
    pub thread: Thread,
}

/// Packets of one way between the same devices, in one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Path {
    /// How the packets crossed the machine: forwarded, sent or received, and by which path.
    pub way: PacketPath,
    /// The device by which they came; None if they were sent by a program on this machine.
    pub from: Option<String>,
    /// The device by which they left; None if a program on this machine received them.
    pub to: Option<String>,
    /// Packets that were traced to their end.
    pub packets: usize,
    /// Packets that were dropped on this way, and are not part of the times.
    pub dropped: usize,
    /// From the first event to the last one.
    pub total: Times,
    /// From the first event until the egress driver returned, or until TCP took the packet.
    pub crossing: Times,
    /// The stages, in order.
    pub stages: Vec<StageTimes>,
}

impl Times {
    pub(super) fn from_values(mut values: Vec<u64>) -> Self {
        values.sort_unstable();
        let count = values.len();
        let Some(max_ns) = values.last().copied() else { return Self::default() };
        let at = |percent| nearest_rank(&values, percent).unwrap_or_default();
        Self {
            count,
            mean_ns: values.iter().map(|value| *value as f64).sum::<f64>() / count as f64,
            p50_ns: at(50),
            p90_ns: at(90),
            p99_ns: at(99),
            max_ns,
        }
    }
}

/// Stages that follow when a packet has crossed the machine.
const AFTERWARDS: [&str; 5] = ["completion", "wake", "read", "copy", "away"];

/// What the packets of a path have in common: their way, and the ifindexes of the devices by which they came and left.
type PathKey = (PacketPath, Option<u32>, Option<u32>);

/// Groups packets by path; the path with most packets first, and its other direction next to it.
pub(super) fn paths(packets: &[Packet], name: impl Fn(u32) -> String) -> Vec<Path> {
    let mut groups: BTreeMap<PathKey, Vec<&Packet>> = BTreeMap::new();
    for packet in packets {
        groups.entry((packet.way, packet.in_ifindex, packet.out_ifindex)).or_default().push(packet);
    }
    let size = |key: &PathKey| groups.get(key).map_or(0, Vec::len);
    let mut keys: Vec<_> = groups.keys().copied().collect();
    // A direction and its other one have the same weight, so they stay together.
    keys.sort_by_key(|key| {
        let (way, from, to) = *key;
        let both = size(key) + if from == to { 0 } else { size(&(way, to, from)) };
        (std::cmp::Reverse(both), way, from.min(to), std::cmp::Reverse(size(key)))
    });
    let all = keys.into_iter().filter_map(|key| {
        let (way, from, to) = key;
        path(way, from.map(&name), to.map(&name), &groups[&key])
    });
    all.collect()
}

/// None if no packet of the path reached its end.
fn path(way: PacketPath, from: Option<String>, to: Option<String>, packets: &[&Packet]) -> Option<Path> {
    let dropped = packets.iter().filter(|packet| packet.end == End::Dropped).count();
    let complete: Vec<&&Packet> = packets.iter().filter(|packet| packet.end == End::Done).collect();
    if complete.is_empty() && dropped == 0 {
        return None;
    }
    let afterwards = if way == PacketPath::Answered { &AFTERWARDS[..1] } else { &AFTERWARDS[..] };
    let crossing = |packet: &Packet| {
        packet.steps.iter().filter(|step| !afterwards.contains(&step.stage)).map(|step| step.ns).sum()
    };
    let mut by_stage: BTreeMap<usize, (Vec<u64>, BTreeMap<Thread, usize>)> = BTreeMap::new();
    for packet in &complete {
        // A stage that a packet passes twice, such as the drivers of two devices, counts once.
        let mut own: BTreeMap<usize, u64> = BTreeMap::new();
        for step in &packet.steps {
            let place = place(step, way);
            *own.entry(place).or_default() += step.ns;
            *by_stage.entry(place).or_default().1.entry(step.thread).or_default() += 1;
        }
        for (place, ns) in own {
            by_stage.entry(place).or_default().0.push(ns);
        }
    }
    let stages = by_stage.into_iter().filter_map(|(place, (values, threads))| {
        Some(StageTimes {
            stage: STAGES.get(place % SENT_AFTER).copied().unwrap_or(OTHER),
            share_ns: values.iter().map(|value| *value as f64).sum::<f64>() / complete.len() as f64,
            times: Times::from_values(values),
            thread: threads.into_iter().max_by_key(|(_, count)| *count)?.0,
        })
    });
    Some(Path {
        way,
        from,
        to,
        packets: complete.len(),
        dropped,
        stages: stages.collect(),
        total: Times::from_values(complete.iter().map(|packet| packet.total_ns).collect()),
        crossing: Times::from_values(complete.iter().map(|packet| crossing(packet)).collect()),
    })
}

/// Stages of what a program sends.
const SENT: [&str; 8] =
    ["tcp-out", "local-out", "output", "postrouting", "neighbour", "qdisc", "transmit", "completion"];
/// More than there are stages: a program sends its answer after the stages of what it received.
const SENT_AFTER: usize = 100;

/// The place of a stage in the order of a packet's way.
fn place(step: &Step, way: PacketPath) -> usize {
    let place = STAGES.iter().position(|name| *name == step.stage).unwrap_or(STAGES.len());
    let is_answer = way == PacketPath::Answered && SENT.contains(&step.stage);
    if is_answer { place + SENT_AFTER } else { place }
}

/// Joins what local programs sent with the first packet that came back: the way out, the time away, and the way in.
/// With `every`, all packets are traced, so the next one that came back is the answer.
pub(super) fn round_trips(packets: &[Packet], every: bool) -> Vec<Packet> {
    let mut sent: BTreeMap<String, &Packet> = BTreeMap::new();
    let mut joined = Vec::new();
    for packet in packets {
        let Some(ends) = packet.ends else { continue };
        match packet.way {
            PacketPath::Sent if packet.end == End::Done => {
                sent.insert(packet.translated.unwrap_or(ends).reversed().to_string(), packet);
            }
            PacketPath::Received if packet.end == End::Done && (every || packet.is_answer) => {
                let Some(out) = sent.remove(&ends.to_string()) else { continue };
                joined.extend(join(out, packet));
            }
            _ => {}
        }
    }
    joined
}

/// None if the answer was seen before the packet had left.
fn join(out: &Packet, back: &Packet) -> Option<Packet> {
    // The memory of what was sent may be freed long after the answer has come.
    let left: Vec<&Step> = out.steps.iter().filter(|step| step.stage != "completion").collect();
    let left_ns: u64 = left.iter().map(|step| step.ns).sum();
    let away = Step {
        stage: "away",
        ns: back.began_ns.checked_sub(out.began_ns + left_ns)?,
        thread: back.thread,
        cpu: back.steps.first()?.cpu,
        began_at: 0,
        id: 0,
        probe: None,
    };
    let mut steps: Vec<Step> = left.into_iter().copied().collect();
    steps.push(away);
    steps.extend(&back.steps);
    Some(Packet {
        way: PacketPath::RoundTrip,
        in_ifindex: out.out_ifindex,
        total_ns: steps.iter().map(|step| step.ns).sum(),
        steps,
        out_ifindex: back.in_ifindex,
        ..out.clone()
    })
}

/// Joins what a server received with its answer: the way in, the time of the program between reading and writing, and
/// the way out. Returns the joined packets, and those that are part of none. A server is the end with the lower port.
pub(super) fn answers(packets: &[Packet]) -> (Vec<Packet>, Vec<&Packet>) {
    let mut read: BTreeMap<String, usize> = BTreeMap::new();
    let (mut joined, mut used) = (Vec::new(), BTreeSet::new());
    for (at, packet) in packets.iter().enumerate().filter(|(_, packet)| packet.end == End::Done) {
        let Some(ends) = packet.ends else { continue };
        let is_read = || packet.steps.last().is_some_and(|step| ["read", "copy"].contains(&step.stage));
        match packet.way {
            PacketPath::Received if ends.to.port() < ends.from.port() && is_read() => {
                read.insert(ends.reversed().to_string(), at);
            }
            PacketPath::Sent if packet.has_data() => {
                let Some(came) = read.get(&ends.to_string()).copied() else { continue };
                let Some(both) = answer(&packets[came], packet) else { continue };
                read.remove(&ends.to_string());
                joined.push(both);
                used.extend([came, at]);
            }
            _ => {}
        }
    }
    let others = packets.iter().enumerate().filter(|(at, _)| !used.contains(at)).map(|(_, packet)| packet);
    (joined, others.collect())
}

/// None if the answer was sent before the packet had been read.
fn answer(came: &Packet, sent: &Packet) -> Option<Packet> {
    let (reader, first) = (came.steps.last()?, sent.steps.first()?);
    // A segment that an interrupt sent does not tell whose it is.
    let sender = if first.stage == "tcp-out" { first } else { reader };
    let program = Step {
        stage: "program",
        ns: sent.began_ns.checked_sub(came.began_ns + came.total_ns)?,
        thread: sender.thread,
        cpu: sender.cpu,
        began_at: 0,
        id: sender.id,
        probe: None,
    };
    let steps: Vec<Step> = came.steps.iter().chain([&program]).chain(&sent.steps).copied().collect();
    Some(Packet {
        way: PacketPath::Answered,
        total_ns: steps.iter().map(|step| step.ns).sum(),
        steps,
        out_ifindex: sent.out_ifindex,
        qdisc: sent.qdisc.clone(),
        ..came.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            abi::*,
            packet::tests::{SLOW, hooked, record},
        },
        *,
    };

    fn slow(in_ifindex: u32, out_ifindex: u32, slower: u32) -> Packet {
        let events = SLOW.map(|(stage, after)| (stage, after * slower));
        let bytes =
            record(|record| (record.in_ifindex, record.out_ifindex) = (in_ifindex, out_ifindex), &events);
        Packet::from_record(&bytes, &hooked()).unwrap()
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let times = Times::from_values((1..=100).rev().collect());
        assert_eq!(
            (times.count, times.p50_ns, times.p90_ns, times.p99_ns, times.max_ns),
            (100, 50, 90, 99, 100)
        );
        assert_eq!(
            (Times::from_values(vec![7]).p99_ns, Times::from_values(Vec::new())),
            (7, Times::default())
        );
    }

    #[test]
    fn both_directions_stand_side_by_side_and_stages_add_up() {
        let mut packets: Vec<Packet> = (1..=10).map(|slower| slow(2, 3, slower)).collect();
        packets.extend([slow(3, 2, 1), slow(4, 2, 1), slow(4, 2, 1)]);
        let mut dropped = slow(2, 3, 1);
        dropped.end = End::Dropped;
        packets.push(dropped);
        let paths = paths(&packets, |index| format!("r{index}"));
        let seen: Vec<_> =
            paths.iter().map(|path| (path.from.as_deref(), path.to.as_deref(), path.packets)).collect();
        assert_eq!(
            seen,
            [(Some("r2"), Some("r3"), 10), (Some("r3"), Some("r2"), 1), (Some("r4"), Some("r2"), 2)]
        );
        let path = &paths[0];
        assert_eq!((path.dropped, path.total.p50_ns, path.total.max_ns), (1, 10_000, 20_000));
        // The driver returns at half of the total.
        assert_eq!(path.crossing.p50_ns, 5000);
        let sum: f64 = path.stages.iter().map(|stage| stage.share_ns).sum();
        assert!((sum - path.total.mean_ns).abs() < 1e-6, "{sum} {}", path.total.mean_ns);
    }

    #[test]
    fn an_answer_is_joined_with_what_was_sent() {
        let sent = record(
            |record| (record.flags, record.in_ifindex) = (TRACE_LOCAL_OUT, 0),
            &[(1, 0), (22, 800), (TRACE_START, 900), (TRACE_XMIT, 1000), (TRACE_FREED, 90_000)],
        );
        let back = record(
            |record| {
                (record.began_ns, record.out_ifindex, record.in_ifindex) = (51_000, 0, 3);
                (record.r#in.src_be, record.r#in.dst_be) = (record.r#in.dst_be, record.r#in.src_be);
                (record.r#in.sport_be, record.r#in.dport_be) = (record.r#in.dport_be, record.r#in.sport_be);
            },
            &[(TRACE_DRIVER, 0), (TRACE_TCP, 300)],
        );
        let packets = [sent, back].map(|bytes| Packet::from_record(&bytes, &hooked()).unwrap());
        assert_eq!(round_trips(&packets, false), []);
        let joined = round_trips(&packets, true);
        // 1000 ns to the wire, back at 51,000 ns on the same clock as the start at 1000 ns.
        assert_eq!((joined.len(), joined[0].total_ns), (1, 50_300));
        let away = joined[0].steps.iter().find(|step| step.stage == "away").unwrap();
        assert_eq!(away.ns, 49_000);
        assert_eq!(paths(&joined, |index| format!("r{index}"))[0].total.p50_ns, 50_300);
    }
}
