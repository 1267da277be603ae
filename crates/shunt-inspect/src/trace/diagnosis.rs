//! What makes packets slow, or loses them: a function of recorded packets and of what threads did meanwhile.

mod blame;
mod culprit;
mod losses;

pub use culprit::{Cause, Culprit};
pub use losses::Loss;
pub(super) use losses::by_netfilter;

use super::{firewall::Firewall, packet::Packet, threads::Threads};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A cause must take at least this long for each packet, on average: Linux itself takes microseconds, and waking a
/// thread some tens of them.
const WORTH_NS: f64 = 200_000.0;
/// A cause must take at least this share of the time of the packets.
const MOST: f64 = 0.5;
/// From this share of lost packets on, the loss is named before any delay.
const LOSS: f64 = 0.1;

/// What is known about slow and lost packets.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// The likely cause; None if the packets do not show one.
    pub likely: Option<Cause>,
    /// The part that takes the longest, if it is not a cause.
    pub longest: Option<Cause>,
    /// Packets that were dropped, by culprit.
    pub losses: Vec<Loss>,
    /// Share of the time in which nobody saw what a thread did.
    pub unknown: f64,
}

/// The packets and threads that a trace recorded.
pub(super) struct Evidence<'a> {
    /// Packets that are not part of the following.
    pub(super) single: &'a [&'a Packet],
    /// Packets that a server received, joined with its answers.
    pub(super) answered: &'a [Packet],
    /// Packets that a client sent, joined with their answers.
    pub(super) round_trips: &'a [Packet],
    pub(super) threads: &'a Threads,
    /// Names of the kernel's reasons for a drop.
    pub(super) reasons: &'a BTreeMap<u32, String>,
    /// The only CPU whose queue of packets was full; None if none was, or several were.
    pub(super) full_queue: Option<u32>,
    /// The rules of netfilter; None if they could not be read, or changed nothing that was seen.
    pub(super) firewall: Option<&'a Firewall>,
}

/// Names the likely cause of delays or losses, if the packets show one.
pub(super) fn diagnose(evidence: &Evidence<'_>, name: &impl Fn(u32) -> String) -> Diagnosis {
    // A joined packet is two.
    let joined = 2 * evidence.answered.len();
    let losses = losses::losses(evidence, joined, name);
    let local = evidence.single.iter().copied().chain(evidence.answered);
    let mut delays = blame::delays(local, evidence.threads, name);
    // The end with the higher port is the client; what a server awaits is the next request.
    let asked = evidence
        .round_trips
        .iter()
        .filter(|packet| packet.ends.is_some_and(|ends| ends.from.port() > ends.to.port()));
    let away = blame::delays(asked, evidence.threads, name);
    let lost = losses.first().filter(|loss| loss.share >= LOSS).map(|loss| Cause {
        culprit: loss.culprit.clone(),
        path: loss.path.clone(),
        mean_ns: None,
        share: loss.share,
        packets: loss.packets,
    });
    // What happens elsewhere is the cause only if nothing here is.
    let likely = lost.or_else(|| longest(&delays, is_cause)).or_else(|| {
        longest(&away, is_cause).filter(|cause| matches!(cause.culprit, Culprit::Outside { .. }))
    });
    let unknown = delays.iter().map(|delay| delay.unknown).fold(0.0, f64::max);
    delays.retain(|delay| delay.cause.mean_ns.is_some());
    let longest = if likely.is_none() { longest(&delays, |_| true) } else { None };
    Diagnosis { likely, longest, losses, unknown }
}

/// Since when each thread is followed: since it first read or sent a packet, or received one in the kernel.
pub(super) fn followed(packets: &[Packet]) -> BTreeMap<u32, u64> {
    let mut since = BTreeMap::new();
    for (step, _, ended) in packets.iter().flat_map(Packet::timed) {
        let follows = match step.stage {
            "read" | "copy" | "tcp-out" => true,
            "gro" => blame::is_receiver(step.thread),
            _ => false,
        };
        if follows && step.id != 0 {
            let first = since.entry(step.id).or_insert(ended);
            *first = ended.min(*first);
        }
    }
    since
}

/// The cause with the greatest sum of times.
fn longest(delays: &[blame::Delay], wanted: impl Fn(&Cause) -> bool) -> Option<Cause> {
    let sum = |cause: &Cause| cause.mean_ns.unwrap_or_default() * cause.packets as f64;
    let all = delays.iter().map(|delay| &delay.cause).filter(|cause| wanted(cause));
    all.max_by(|a, b| sum(a).total_cmp(&sum(b))).cloned()
}

fn is_cause(cause: &Cause) -> bool {
    cause.share >= MOST && cause.mean_ns.is_some_and(|mean| mean >= WORTH_NS)
}

#[cfg(test)]
mod tests;
