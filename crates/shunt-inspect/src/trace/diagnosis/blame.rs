//! Whose the time of packets is.

use super::culprit::{Cause, Culprit};
use crate::trace::{
    calls,
    packet::{Packet, PacketPath, Step, Thread},
    softirqs::{SoftirqWork, most},
    threads::{Doing, Threads},
};
use std::collections::BTreeMap;

/// What takes the longest for the packets of a path, and the share of their time about which nothing is known.
pub(super) struct Delay {
    pub(super) cause: Cause,
    pub(super) unknown: f64,
}

/// Times by culprit; None for time about which nothing is known.
type Blame = BTreeMap<Option<Culprit>, u64>;

/// A way through the machine, with the devices of both ends.
type PathKey = (PacketPath, Option<u32>, Option<u32>);

/// The longest part of each path.
pub(super) fn delays<'p>(
    packets: impl Iterator<Item = &'p Packet>,
    threads: &Threads,
    name: &impl Fn(u32) -> String,
) -> Vec<Delay> {
    let mut paths: BTreeMap<PathKey, (usize, Blame)> = BTreeMap::new();
    for packet in packets.filter(|packet| packet.is_done()) {
        let key = (packet.way, packet.in_ifindex, packet.out_ifindex);
        let (count, blame) = paths.entry(key).or_default();
        *count += 1;
        of_packet(packet, threads, name, blame);
    }
    let all = paths.into_iter().filter_map(|((way, from, to), (packets, blame))| {
        let sum: u64 = blame.values().sum();
        let share = |ns: u64| ns as f64 / sum.max(1) as f64;
        let unknown = share(blame.get(&None).copied().unwrap_or_default());
        let known = blame.into_iter().filter_map(|(culprit, ns)| Some((culprit?, ns)));
        let (culprit, ns) = merged(known).into_iter().max_by_key(|(_, ns)| *ns)?;
        let place = |index: Option<u32>| index.map_or_else(|| "here".to_owned(), name);
        let cause = Cause {
            culprit,
            path: format!("{way} {} > {}", place(from), place(to)),
            mean_ns: Some(ns as f64 / packets as f64),
            share: share(ns),
            packets,
        };
        Some(Delay { cause, unknown })
    });
    all.collect()
}

/// Waits of one thread for a CPU are one, whoever had it; its name is that of the thread that had it longest. Softirqs
/// of one CPU are one, whatever they did.
fn merged(all: impl Iterator<Item = (Culprit, u64)>) -> Vec<(Culprit, u64)> {
    let mut waits: BTreeMap<String, Vec<(Option<String>, u64)>> = BTreeMap::new();
    let mut softirqs: BTreeMap<Option<u32>, Vec<(Option<SoftirqWork>, u64)>> = BTreeMap::new();
    let mut merged = Vec::new();
    for (culprit, ns) in all {
        match culprit {
            Culprit::Cpu { thread, holder } => waits.entry(thread).or_default().push((holder, ns)),
            Culprit::Softirq { cpu, work } => softirqs.entry(cpu).or_default().push((work, ns)),
            other => merged.push((other, ns)),
        }
    }
    merged.extend(waits.into_iter().map(|(thread, holders)| {
        let sum = holders.iter().map(|(_, ns)| ns).sum();
        let holder = holders.into_iter().max_by_key(|(_, ns)| *ns).and_then(|(holder, _)| holder);
        (Culprit::Cpu { thread, holder }, sum)
    }));
    merged.extend(softirqs.into_iter().map(|(cpu, times)| {
        let sum = times.iter().map(|(_, ns)| ns).sum();
        (Culprit::Softirq { cpu, work: most(times) }, sum)
    }));
    merged
}

fn of_packet(packet: &Packet, threads: &Threads, name: &impl Fn(u32) -> String, blame: &mut Blame) {
    let mut reader: Option<&Step> = None;
    for (step, from, to) in packet.timed() {
        let mut add = |culprit| *blame.entry(Some(culprit)).or_default() += step.ns;
        let device = || packet.out_ifindex.map(name).unwrap_or_default();
        match step.stage {
            // The packet has left, and nobody waits for its memory.
            "completion" => {}
            "away" => add(Culprit::Outside { device: packet.in_ifindex.map(name).unwrap_or_default() }),
            "qdisc" => add(Culprit::Qdisc { qdisc: packet.qdisc.clone(), device: device() }),
            "gro" if !is_receiver(step.thread) => {
                for (doing, ns) in threads.of_softirqs(step.cpu.into(), from, to) {
                    let culprit = culprit(doing, step.thread.to_string(), Running::Softirq(step.cpu));
                    *blame.entry(culprit).or_default() += ns;
                }
            }
            "gro" => of_thread(threads, step, (from, to), Running::Softirq(step.cpu), blame),
            "read" => of_thread(threads, step, (from, to), Running::Program, blame),
            "copy" => of_thread(threads, step, (from, to), Running::Copy, blame),
            "program" => of_program(threads, reader.unwrap_or(step), step, (from, to), blame),
            stage => add(Culprit::Stage { stage: stage.to_owned() }),
        }
        if ["read", "copy"].contains(&step.stage) {
            reader = Some(step);
        }
    }
}

/// Whether a thread of the kernel receives packets: then they wait until it gets a CPU.
pub(super) fn is_receiver(thread: Thread) -> bool {
    let name = thread.to_string();
    name.starts_with("napi/") || name.starts_with("ksoftirqd/")
}

/// What a thread does that runs.
#[derive(Clone, Copy, PartialEq)]
enum Running {
    Program,
    Copy,
    /// A thread of the kernel handles packets, on this CPU.
    Softirq(u16),
}

/// Between reading and writing. A thread that sends what another one has read worked from when it was woken.
fn of_program(threads: &Threads, reader: &Step, sender: &Step, (from, to): (u64, u64), blame: &mut Blame) {
    let woken = threads.sleeps(sender.id, from, to).into_iter();
    let handed = (reader.id != sender.id)
        .then(|| woken.rev().find(|(.., waker)| waker.is_some_and(|waker| waker.id == reader.id)))
        .flatten()
        .map_or(from, |(_, woken, _)| woken);
    of_thread(threads, reader, (from, handed), Running::Program, blame);
    of_thread(threads, sender, (handed, to), Running::Program, blame);
}

fn of_thread(threads: &Threads, step: &Step, (from, to): (u64, u64), runs: Running, blame: &mut Blame) {
    for (doing, ns) in threads.between(step.id, from, to) {
        *blame.entry(culprit(doing, step.thread.to_string(), runs)).or_default() += ns;
    }
}

fn culprit(doing: Doing, thread: String, runs: Running) -> Option<Culprit> {
    let has_cpu = matches!(doing, Doing::Running | Doing::Sleeping { .. } | Doing::Unknown);
    if let (Running::Softirq(cpu), true) = (runs, has_cpu) {
        return Some(Culprit::Softirq { cpu: Some(cpu.into()), work: None });
    }
    Some(match doing {
        Doing::Unknown => return None,
        Doing::Running | Doing::Sleeping { .. } if runs == Running::Copy => Culprit::Copy { thread },
        Doing::Running => Culprit::Program { thread },
        Doing::Softirq { cpu, work } => Culprit::Softirq { cpu: Some(cpu), work },
        Doing::Waiting { holder } => Culprit::Cpu { thread, holder: holder.map(|holder| holder.to_string()) },
        Doing::Throttled { cgroup } => Culprit::Throttled { thread, cgroup },
        Doing::Sleeping { call, waker } => {
            let call = calls::name(call);
            let by_lock = waker.filter(|waker| waker.same_process && calls::name(waker.call) == calls::FUTEX);
            let timed_out = waker.is_some_and(|waker| waker.call < 0);
            match by_lock {
                _ if calls::sleeps(&call) => Culprit::Sleep { thread, call },
                Some(waker) if call == calls::FUTEX => {
                    Culprit::Lock { thread, holder: waker.name.to_string() }
                }
                _ if call == calls::FUTEX && timed_out => Culprit::Sleep { thread, call },
                _ => {
                    let waker = waker.filter(|waker| waker.call >= 0).map(|waker| waker.name.to_string());
                    Culprit::Blocked { thread, call, waker }
                }
            }
        }
    })
}
