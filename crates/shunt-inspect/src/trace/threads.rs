//! What threads did while packets waited for them, from switches of CPUs between threads.

use super::{
    abi::*,
    calls,
    packet::Thread,
    softirqs::{SoftirqWork, Softirqs, during, most},
};
use std::collections::BTreeMap;

/// What a thread did for a part of a time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Doing {
    /// The thread ran on a CPU.
    Running,
    /// Softirqs had the CPU on which it ran, or for which it waited.
    Softirq {
        cpu: u32,
        /// None if they were too short to be recorded.
        work: Option<SoftirqWork>,
    },
    /// It waited for a CPU that another thread had; None if the CPU was idle, or whose it was is unknown.
    Waiting { holder: Option<Thread> },
    /// It waited because its cgroup had used up its CPU time.
    Throttled { cgroup: String },
    /// It slept in this system call, until somebody woke it.
    Sleeping { call: i32, waker: Option<Waker> },
    /// It was not followed yet.
    Unknown,
}

/// Who woke a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Waker {
    pub(super) id: u32,
    pub(super) name: Thread,
    /// Whether both are threads of one process.
    pub(super) same_process: bool,
    /// The system call in which the waker was; negative: an interrupt woke the thread.
    pub(super) call: i32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Running,
    Waiting { throttled: Option<String> },
    Sleeping { call: i32 },
}

#[derive(Debug)]
struct Interval {
    from_ns: u64,
    to_ns: u64,
    state: State,
    /// The CPU on which the thread ran, or for which it waited; None if it did not get one before the end.
    cpu: Option<u32>,
    waker: Option<Waker>,
}

/// Who left a CPU, and when.
#[derive(Debug)]
struct Turn {
    at_ns: u64,
    id: u32,
    name: Thread,
}

/// Threads that were followed.
#[derive(Debug, Default)]
pub(super) struct Threads {
    of_thread: BTreeMap<u32, Vec<Interval>>,
    on_cpu: BTreeMap<u32, Vec<Turn>>,
    softirqs: Softirqs,
}

/// Since when a thread is in its present state, and that state with its CPU; None if no event told it yet.
type OpenState = (u64, Option<(State, Option<u32>)>);

impl Threads {
    /// Reads events in any order. `since_ns` has when each thread began to be followed.
    pub(super) fn new(mut events: Vec<TraceSwitch>, since_ns: &BTreeMap<u32, u64>) -> Self {
        events.sort_by_key(|event| event.at_ns);
        let mut all = Self::default();
        for id in since_ns.keys() {
            all.of_thread.insert(*id, Vec::new());
        }
        let mut open = since_ns.iter().map(|(id, since)| (*id, (*since, None))).collect();
        for event in &events {
            all.take(event, &mut open);
        }
        for (id, (from_ns, state)) in open {
            let state = state.unwrap_or((State::Running, None));
            all.add(id, from_ns, u64::MAX, state.0, state.1, None);
        }
        all
    }

    fn take(&mut self, event: &TraceSwitch, open: &mut BTreeMap<u32, OpenState>) {
        let now = event.at_ns;
        let cpu = Some(event.cpu);
        match event.kind {
            TRACE_SWITCH => {
                let turn = Turn { at_ns: now, id: event.from, name: Thread(event.from_comm) };
                self.on_cpu.entry(event.cpu).or_default().push(turn);
                if let Some((since, state)) = open.get_mut(&event.from) {
                    let (from_ns, _) = (*since, state.take());
                    *since = now.max(from_ns);
                    *state = Some((left_as(event), None));
                    self.add(event.from, from_ns, now, State::Running, cpu, None);
                }
                if let Some((since, state)) = open.get_mut(&event.to) {
                    let from_ns = *since;
                    let before = match state.take() {
                        Some((state, _)) => state,
                        None => State::Waiting { throttled: None },
                    };
                    *since = now.max(from_ns);
                    *state = Some((State::Running, cpu));
                    self.add(event.to, from_ns, now, before, cpu, None);
                }
            }
            TRACE_WAKE => {
                let Some((since, state)) = open.get_mut(&event.to) else { return };
                let call = match state {
                    Some((State::Sleeping { call }, _)) => *call,
                    Some(_) => return,
                    None => calls::UNKNOWN,
                };
                let from_ns = *since;
                *since = now.max(from_ns);
                *state = Some((State::Waiting { throttled: None }, None));
                let waker = Waker {
                    id: event.from,
                    name: Thread(event.from_comm),
                    same_process: event.from_process == event.to_process,
                    call: event.call,
                };
                self.add(event.to, from_ns, now, State::Sleeping { call }, None, Some(waker));
            }
            TRACE_SOFTIRQ => self.softirqs.add(event),
            _ => {}
        }
    }

    fn add(
        &mut self,
        id: u32,
        from_ns: u64,
        to_ns: u64,
        state: State,
        cpu: Option<u32>,
        waker: Option<Waker>,
    ) {
        if from_ns < to_ns {
            let interval = Interval { from_ns, to_ns, state, cpu, waker };
            self.of_thread.entry(id).or_default().push(interval);
        }
    }

    /// What a thread did in this time; the parts add up to it.
    pub(super) fn between(&self, id: u32, from_ns: u64, to_ns: u64) -> Vec<(Doing, u64)> {
        let mut parts: BTreeMap<Doing, u64> = BTreeMap::new();
        let mut known = 0;
        for one in self.intervals(id, from_ns, to_ns) {
            let (from, to) = (one.from_ns.max(from_ns), one.to_ns.min(to_ns));
            known += to - from;
            match &one.state {
                State::Running => self.split(Doing::Running, one.cpu, from, to, &mut parts),
                State::Sleeping { call } => {
                    *parts.entry(Doing::Sleeping { call: *call, waker: one.waker }).or_default() += to - from;
                }
                State::Waiting { throttled: Some(cgroup) } => {
                    *parts.entry(Doing::Throttled { cgroup: cgroup.clone() }).or_default() += to - from;
                }
                State::Waiting { throttled: None } => self.holders(one, from, to, &mut parts),
            }
        }
        let unknown = to_ns.saturating_sub(from_ns).saturating_sub(known);
        if unknown > 0 {
            parts.insert(Doing::Unknown, unknown);
        }
        parts.into_iter().collect()
    }

    /// While the thread slept in this time: when it was woken, and by whom.
    pub(super) fn sleeps(&self, id: u32, from_ns: u64, to_ns: u64) -> Vec<(u64, u64, Option<Waker>)> {
        let all = self.intervals(id, from_ns, to_ns).iter();
        let sleeping = all.filter(|one| matches!(one.state, State::Sleeping { .. }));
        sleeping.map(|one| (one.from_ns.max(from_ns), one.to_ns.min(to_ns), one.waker)).collect()
    }

    /// What a thread did, as far as it belongs to this time. A packet takes a small part of a long trace.
    fn intervals(&self, id: u32, from_ns: u64, to_ns: u64) -> &[Interval] {
        let all = self.of_thread.get(&id).map_or(&[][..], Vec::as_slice);
        during(all, |one| (one.from_ns, one.to_ns), from_ns, to_ns)
    }

    /// Who had the CPU for which a thread waited.
    fn holders(&self, wait: &Interval, from_ns: u64, to_ns: u64, parts: &mut BTreeMap<Doing, u64>) {
        let Some(turns) = wait.cpu.and_then(|cpu| self.on_cpu.get(&cpu)) else {
            *parts.entry(Doing::Waiting { holder: None }).or_default() += to_ns - from_ns;
            return;
        };
        let mut at_ns = from_ns;
        let first = turns.partition_point(|turn| turn.at_ns <= from_ns);
        for turn in &turns[first..] {
            let until = turn.at_ns.min(to_ns);
            let doing = match (turn.id, wait.cpu) {
                (_, Some(cpu)) if turn.name.to_string().starts_with("ksoftirqd/") => {
                    Doing::Softirq { cpu, work: None }
                }
                (0, _) => Doing::Waiting { holder: None },
                _ => Doing::Waiting { holder: Some(turn.name) },
            };
            self.split(doing, wait.cpu, at_ns, until, parts);
            at_ns = until;
            if at_ns >= to_ns {
                return;
            }
        }
        *parts.entry(Doing::Waiting { holder: None }).or_default() += to_ns - at_ns;
    }

    /// Adds a time on a CPU, without that of softirqs, which is theirs.
    fn split(
        &self,
        doing: Doing,
        cpu: Option<u32>,
        from_ns: u64,
        to_ns: u64,
        parts: &mut BTreeMap<Doing, u64>,
    ) {
        let mut left = to_ns - from_ns;
        if let Some(cpu) = cpu {
            for (work, ns) in self.softirqs.between(cpu, from_ns, to_ns) {
                let ns = ns.min(left);
                left -= ns;
                *parts.entry(Doing::Softirq { cpu, work: Some(work.clone()) }).or_default() += ns;
            }
        }
        if left > 0 {
            *parts.entry(doing).or_default() += left;
        }
    }

    /// What softirqs of a CPU did while a packet waited for them; the parts add up to this time.
    pub(super) fn of_softirqs(&self, cpu: u32, from_ns: u64, to_ns: u64) -> Vec<(Doing, u64)> {
        let mut parts = BTreeMap::new();
        self.split(Doing::Softirq { cpu, work: None }, Some(cpu), from_ns, to_ns, &mut parts);
        parts.into_iter().collect()
    }

    /// What took at least half of the time of a CPU's long softirqs.
    pub(super) fn busiest(&self, cpu: u32) -> Option<SoftirqWork> {
        let all = self.softirqs.between(cpu, 0, u64::MAX);
        most(all.into_iter().map(|(work, ns)| (Some(work.clone()), ns)))
    }
}

/// The state of a thread that has left its CPU.
fn left_as(event: &TraceSwitch) -> State {
    if event.flags & TRACE_RUNNABLE == 0 {
        return State::Sleeping { call: event.call };
    }
    let end = event.cgroup.iter().position(|byte| *byte == 0).unwrap_or(event.cgroup.len());
    let cgroup = || String::from_utf8_lossy(&event.cgroup[..end]).into_owned();
    State::Waiting { throttled: (event.flags & TRACE_THROTTLED != 0).then(cgroup) }
}

#[cfg(test)]
pub(super) mod tests;
