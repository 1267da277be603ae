//! Searches a stage for the function that takes the time: more and more of the stage is put between two probes, as with
//! two marks that are moved through a program by hand.
//!
//! First, all functions of the kernel that take a packet are probed for a moment, to learn which ones the stage calls,
//! and in which order. Then a probe halves the stretch again and again, and the half that takes longer is searched on.
//! Only three probes are in place at a time, so that they hardly change what they measure.

use super::{
    Packet, Path, Rhythm, TraceError, abi, collect, functions,
    packet::{End, PacketPath, Step},
    programs::Programs,
    summary::Times,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::atomic::AtomicBool, time::Duration};

/// Packets that a round needs, and the longest time that it waits for them.
const PACKETS: usize = 200;
const PACKETS_MIN: usize = 5;
const ROUND: Duration = Duration::from_secs(2);
/// One packet in N is enough, and needs no longer than a second at a hundred packets/s.
const SAMPLE: u32 = 8;
/// Stages beyond this machine's kernel, or which wait for something else.
const NOT_SEARCHED: [&str; 4] = ["away", "completion", "wake", "read"];

/// The search of a stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bisection {
    /// The way of the packets.
    pub way: PacketPath,
    /// The stage that took most of their time.
    pub stage: String,
    /// Functions that the stage calls with the packet, in order.
    pub functions: Vec<String>,
    /// The rounds of the search.
    pub rounds: Vec<Round>,
    /// The function in which the time passes, before it calls another one of `functions`; None if it passes before the
    /// first call.
    pub culprit: Option<String>,
    /// The function that is called next; None if the stage ends before one is called.
    pub next: Option<String>,
    /// Mean time between the two.
    pub culprit_ns: f64,
    /// Mean time of the stage in the last round.
    pub stage_ns: f64,
}

/// A round of the search: a stretch of the stage, cut in two by a probe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// The function whose entry begins the stretch; None for the beginning of the stage.
    pub from: Option<String>,
    /// The function whose entry cuts the stretch.
    pub at: String,
    /// The function whose entry ends the stretch; None for the end of the stage.
    pub to: Option<String>,
    /// Mean time from the beginning of the stretch to `at`.
    pub before_ns: f64,
    /// Mean time from `at` to the end of the stretch.
    pub after_ns: f64,
    /// Packets that were measured.
    pub packets: usize,
}

/// The stretch between two functions, by their place in the list; None for the ends of the stage.
type Stretch = (Option<usize>, Option<usize>);

/// Traces packets with probes at functions, which are given by name and number of arguments.
type Measure<'a> = dyn FnMut(&[(String, u16)]) -> Result<Vec<Packet>, TraceError> + 'a;

/// The stage to search: packets of one path.
struct Target {
    way: PacketPath,
    stage: &'static str,
    /// The event with which the stage begins.
    window: u32,
}

/// Searches the worst stage of the path with most packets.
pub(super) fn run(
    plan: abi::TracePlan,
    ports: &[u32],
    paths: &[Path],
    packets: &[Packet],
    name: impl Fn(u32) -> String,
    stop: &AtomicBool,
) -> Result<Bisection, TraceError> {
    let wrong = |why: &str| TraceError::Bisect(why.to_owned());
    let path = paths
        .iter()
        .find(|path| !matches!(path.way, PacketPath::Xdp | PacketPath::RoundTrip) && path.packets > 0);
    let path = path.ok_or_else(|| wrong("no packet with an skb was traced"))?;
    let worst = path.stages.iter().filter(|one| !NOT_SEARCHED.contains(&one.stage));
    let worst =
        worst.max_by(|a, b| a.share_ns.total_cmp(&b.share_ns)).ok_or_else(|| wrong("no stage was seen"))?;
    let of_path =
        packets.iter().filter(|packet| packet.way == path.way && packet.in_ifindex.map(&name) == path.from);
    let step = of_path.flat_map(|packet| &packet.steps).find(|step| step.stage == worst.stage);
    let window = step.map(|step| step.began_at).ok_or_else(|| wrong("the worst stage has no beginning"))?;
    let target = Target { way: path.way, stage: worst.stage, window };
    let rhythm = Rhythm::from_sample(1);
    let plan = abi::TracePlan { sample: plan.sample.min(SAMPLE), ..plan };
    let all = functions::with_packet().map_err(TraceError::Bisect)?;
    let mut measure = |functions: &[(String, u16)]| {
        let mut programs = Programs::load(plan, ports)?;
        programs.probe(functions, target.window).map_err(|error| TraceError::Bisect(error.to_string()))?;
        let mut packets = Vec::new();
        collect(
            &mut programs,
            ports,
            &rhythm,
            ROUND,
            stop,
            || (),
            |packet| {
                if packet.way == target.way && packet.end == End::Done {
                    packets.push(packet);
                }
                packets.len() < PACKETS
            },
        )?;
        if packets.len() < PACKETS_MIN {
            return Err(wrong("too few packets while functions were probed"));
        }
        Ok(packets)
    };
    let functions = called(&measure(&all)?, &all);
    Search { functions, stretch: (None, None), rounds: Vec::new(), stage_ns: worst.times.mean_ns }
        .search(&target, &mut measure)
}

/// The functions that at least half of the packets called within the stage, in the order in which they were called.
fn called(packets: &[Packet], all: &[(String, u16)]) -> Vec<(String, u16)> {
    let mut seen: BTreeMap<u16, (usize, f64)> = BTreeMap::new();
    for packet in packets {
        let mut first: BTreeMap<u16, f64> = BTreeMap::new();
        for (place, probe) in probes_of(packet).iter().enumerate() {
            first.entry(probe.0).or_insert(place as f64);
        }
        for (probe, place) in first {
            let entry = seen.entry(probe).or_default();
            *entry = (entry.0 + 1, entry.1 + place);
        }
    }
    let mut order: Vec<(f64, u16)> = seen
        .into_iter()
        .filter(|(_, (count, _))| count * 2 >= packets.len())
        .map(|(probe, (count, places))| (places / count as f64, probe))
        .collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0));
    order.into_iter().filter_map(|(_, probe)| all.get(usize::from(probe)).cloned()).collect()
}

/// The probes that a packet passed, with the time from the beginning of the stage to each.
fn probes_of(packet: &Packet) -> Vec<(u16, u64)> {
    let mut at_ns = 0;
    let mut found = Vec::new();
    for step in &packet.steps {
        let Step { probe: Some(number), .. } = step else {
            at_ns = 0;
            continue;
        };
        at_ns += step.ns;
        found.push((*number, at_ns));
    }
    found
}

/// The time from the beginning of the stage to its end; None if the packet did not pass it.
fn stage_ns(packet: &Packet, target: &Target) -> Option<u64> {
    let mut sum = 0;
    for step in &packet.steps {
        sum += step.ns;
        if step.probe.is_some() {
            continue;
        }
        if step.stage == target.stage {
            return Some(sum);
        }
        sum = 0;
    }
    None
}

struct Search {
    functions: Vec<(String, u16)>,
    stretch: Stretch,
    rounds: Vec<Round>,
    stage_ns: f64,
}

impl Search {
    fn name(&self, place: Option<usize>) -> Option<String> {
        Some(self.functions[place?].0.clone())
    }

    /// The function in the middle of the stretch; None if there is none left.
    fn middle(&self) -> Option<usize> {
        let (from, to) = self.stretch;
        let (first, end) = (from.map_or(0, |from| from + 1), to.unwrap_or(self.functions.len()));
        (first < end).then(|| first + (end - first) / 2)
    }

    /// Searches until no function is left within the stretch.
    fn search(mut self, target: &Target, measure: &mut Measure) -> Result<Bisection, TraceError> {
        let mut culprit_ns = self.stage_ns;
        while let Some(middle) = self.middle() {
            let (from, to) = self.stretch;
            let places: Vec<usize> = [from, Some(middle), to].into_iter().flatten().collect();
            let probed: Vec<_> = places.iter().map(|place| self.functions[*place].clone()).collect();
            let packets = measure(&probed)?;
            let number = |place: usize| places.iter().position(|one| *one == place).map(|n| n as u16);
            let cuts: Vec<_> = packets
                .iter()
                .filter_map(|packet| {
                    cut(packet, target, from.and_then(number), number(middle)?, to.and_then(number))
                })
                .collect();
            let Some((before_ns, after_ns)) = mean(&cuts) else {
                // These packets do not call the function: it is not what takes the time.
                self.functions.remove(middle);
                self.stretch.1 = to.map(|to| to - 1);
                continue;
            };
            let stages: Vec<u64> = packets.iter().filter_map(|packet| stage_ns(packet, target)).collect();
            self.stage_ns = Times::from_values(stages).mean_ns;
            self.rounds.push(Round {
                from: self.name(from),
                at: self.functions[middle].0.clone(),
                to: self.name(to),
                before_ns,
                after_ns,
                packets: cuts.len(),
            });
            culprit_ns = before_ns.max(after_ns);
            self.stretch = if before_ns > after_ns { (from, Some(middle)) } else { (Some(middle), to) };
        }
        Ok(Bisection {
            way: target.way,
            stage: target.stage.to_owned(),
            functions: self.functions.iter().map(|(name, _)| name.clone()).collect(),
            rounds: self.rounds.clone(),
            culprit: self.name(self.stretch.0),
            next: self.name(self.stretch.1),
            culprit_ns,
            stage_ns: self.stage_ns,
        })
    }
}

/// The times before and behind a probe within a stretch, of one packet.
fn cut(packet: &Packet, target: &Target, from: Option<u16>, at: u16, to: Option<u16>) -> Option<(u64, u64)> {
    let probes = probes_of(packet);
    let first = |number: u16| probes.iter().find(|(probe, _)| *probe == number).map(|(_, ns)| *ns);
    let begin = from.map_or(Some(0), first)?;
    let middle = first(at)?;
    let end = to.map_or_else(|| stage_ns(packet, target), first)?;
    Some((middle.checked_sub(begin)?, end.checked_sub(middle)?))
}

fn mean(cuts: &[(u64, u64)]) -> Option<(f64, f64)> {
    if cuts.is_empty() {
        return None;
    }
    let count = cuts.len() as f64;
    let sum = cuts.iter().fold((0, 0), |sum, cut| (sum.0 + cut.0, sum.1 + cut.1));
    Some((sum.0 as f64 / count, sum.1 as f64 / count))
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            abi::*,
            packet::tests::{hooked, record},
        },
        *,
    };
    use shunt_bpf::abi::Plain;

    /// A stage that calls functions at these times, and ends at the last one.
    const CALLS: [(&str, u32); 6] = [("a", 10), ("b", 30), ("c", 40), ("d", 940), ("e", 960), ("", 1000)];
    const TARGET: Target = Target { way: PacketPath::Slow, stage: "qdisc", window: TRACE_QUEUE };

    /// A packet that is seen at these functions.
    fn packet(probed: &[(String, u16)]) -> Packet {
        let mut bytes = record(
            |_| (),
            &[(TRACE_DRIVER, 0), (super::super::packet::tests::FORWARD, 5), (TRACE_QUEUE, 100)],
        );
        for (name, at) in CALLS {
            let number = probed.iter().position(|(probed, _)| probed == name);
            let event = TraceEvent { after_ns: 100 + at, ..TraceEvent::default() };
            match number {
                Some(number) => {
                    let event = TraceEvent { stage: TRACE_PROBE, probe: number as u16, ..event };
                    bytes.extend_from_slice(event.bytes());
                }
                None if name.is_empty() => {
                    bytes.extend_from_slice(TraceEvent { stage: TRACE_START, ..event }.bytes());
                }
                None => {}
            }
        }
        assert!(bytes.len() < size_of::<TraceRecord>());
        Packet::from_record(&bytes, &hooked()).unwrap()
    }

    #[test]
    fn the_search_ends_at_the_function_that_takes_the_time() {
        let all: Vec<(String, u16)> =
            ["e", "x", "c", "a", "d", "b"].map(|name| (name.to_owned(), 0)).to_vec();
        let functions = called(&[packet(&all), packet(&all)], &all);
        let names: Vec<&str> = functions.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c", "d", "e"]);
        let search = Search { functions, stretch: (None, None), rounds: Vec::new(), stage_ns: 0.0 };
        let mut most = 0;
        let found = search.search(&TARGET, &mut |probed| {
            most = most.max(probed.len());
            Ok(vec![packet(probed); 3])
        });
        let found = found.unwrap();
        assert_eq!((found.culprit.as_deref(), found.next.as_deref()), (Some("c"), Some("d")));
        assert_eq!((found.culprit_ns, found.stage_ns, most), (900.0, 1000.0, 3));
        assert!(found.rounds.iter().all(|round| round.packets == 3), "{found:?}");
    }

    #[test]
    fn a_stage_without_calls_is_its_own_culprit() {
        let search =
            Search { functions: Vec::new(), stretch: (None, None), rounds: Vec::new(), stage_ns: 7.0 };
        let found = search.search(&TARGET, &mut |_| unreachable!()).unwrap();
        assert_eq!((found.culprit, found.next, found.culprit_ns), (None, None, 7.0));
    }
}
