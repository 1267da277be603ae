//! What threads did while packets waited for them, from switches of CPUs between threads.

use super::{abi::*, calls, packet::Thread};
use std::collections::BTreeMap;

/// What a thread did for a part of a time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Doing {
    /// The thread ran on a CPU.
    Running,
    /// Softirqs had the CPU on which it ran, or for which it waited.
    Softirq { cpu: u32 },
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
    softirqs: BTreeMap<u32, Vec<(u64, u64)>>,
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
            TRACE_SOFTIRQ => {
                self.softirqs.entry(event.cpu).or_default().push((now.saturating_sub(event.took_ns), now));
            }
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
                (_, Some(cpu)) if turn.name.to_string().starts_with("ksoftirqd/") => Doing::Softirq { cpu },
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
        let softirqs = cpu.and_then(|cpu| self.softirqs.get(&cpu)).map_or(&[][..], Vec::as_slice);
        let stolen: u64 = during(softirqs, |one| *one, from_ns, to_ns)
            .iter()
            .map(|(began, ended)| (*ended.min(&to_ns)).saturating_sub(*began.max(&from_ns)))
            .sum::<u64>()
            .min(to_ns - from_ns);
        if let (Some(cpu), true) = (cpu, stolen > 0) {
            *parts.entry(Doing::Softirq { cpu }).or_default() += stolen;
        }
        if to_ns - from_ns > stolen {
            *parts.entry(doing).or_default() += to_ns - from_ns - stolen;
        }
    }
}

/// Those of these times that overlap this one. They are in order, and do not overlap each other.
fn during<T>(all: &[T], ends: impl Fn(&T) -> (u64, u64), from_ns: u64, to_ns: u64) -> &[T] {
    let first = all.partition_point(|one| ends(one).1 <= from_ns);
    let later = &all[first..];
    &later[..later.partition_point(|one| ends(one).0 < to_ns)]
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
pub(super) mod tests {
    use super::*;

    pub(crate) const SERVER: u32 = 10;

    pub(crate) fn name(text: &str) -> Thread {
        let mut name = [0; 16];
        name[..text.len()].copy_from_slice(text.as_bytes());
        Thread(name)
    }

    fn event(at_ns: u64, kind: u32, from: (u32, &str), to: (u32, &str)) -> TraceSwitch {
        TraceSwitch {
            at_ns,
            kind,
            from: from.0,
            to: to.0,
            from_process: from.0 / 10,
            to_process: to.0 / 10,
            call: -1,
            cpu: 1,
            from_comm: name(from.1).0,
            to_comm: name(to.1).0,
            ..TraceSwitch::default()
        }
    }

    pub(crate) fn switch(at_ns: u64, from: (u32, &str), to: (u32, &str)) -> TraceSwitch {
        TraceSwitch { flags: TRACE_RUNNABLE, ..event(at_ns, TRACE_SWITCH, from, to) }
    }

    pub(crate) fn sleep(at_ns: u64, from: (u32, &str), call: i64) -> TraceSwitch {
        TraceSwitch { call: call as i32, ..event(at_ns, TRACE_SWITCH, from, (0, "swapper/1")) }
    }

    pub(crate) fn wake(at_ns: u64, from: (u32, &str), call: i64, to: (u32, &str)) -> TraceSwitch {
        TraceSwitch { call: call as i32, ..event(at_ns, TRACE_WAKE, from, to) }
    }

    pub(crate) fn softirq(at_ns: u64, took_ns: u64) -> TraceSwitch {
        TraceSwitch { took_ns, ..event(at_ns, TRACE_SOFTIRQ, (0, "swapper/1"), (0, "swapper/1")) }
    }

    fn threads(events: Vec<TraceSwitch>) -> Threads {
        Threads::new(events, &BTreeMap::from([(SERVER, 0)]))
    }

    #[test]
    fn only_what_overlaps_a_time_belongs_to_it() {
        let all: Vec<(u64, u64)> = (0..100).map(|n| (n * 10, n * 10 + 5)).collect();
        let of = |from, to| during(&all, |one| *one, from, to).to_vec();
        assert_eq!(of(20, 25), [(20, 25)]);
        assert_eq!(of(24, 31), [(20, 25), (30, 35)]);
        assert_eq!(of(25, 30), []);
        assert_eq!((of(0, u64::MAX).len(), of(5000, 6000).len()), (100, 0));
    }

    #[test]
    fn the_time_of_a_wait_belongs_to_those_who_had_the_cpu() {
        let server = (SERVER, "server");
        let all = threads(vec![
            sleep(100, server, 0),
            wake(1000, (3, "swapper/0"), -1, server),
            switch(1400, (20, "hog"), (30, "cron")),
            switch(1500, (30, "cron"), (20, "hog")),
            switch(2000, (20, "hog"), server),
        ]);
        let waited = all.between(SERVER, 1000, 2500);
        let expected = [
            (Doing::Running, 500),
            (Doing::Waiting { holder: Some(name("cron")) }, 100),
            (Doing::Waiting { holder: Some(name("hog")) }, 900),
        ];
        assert_eq!(waited, expected);
        let slept = all.between(SERVER, 0, 1000);
        assert_eq!(slept[0], (Doing::Running, 100));
        assert!(matches!(slept[1], (Doing::Sleeping { call: 0, waker: Some(Waker { id: 3, .. }) }, 900)));
    }

    #[test]
    fn softirqs_take_their_time_from_who_had_the_cpu() {
        let server = (SERVER, "server");
        let all = threads(vec![switch(100, (5, "ksoftirqd/1"), server), softirq(700, 300)]);
        let expected = [(Doing::Running, 600), (Doing::Softirq { cpu: 1 }, 400)];
        assert_eq!(all.between(SERVER, 0, 1000), expected);
    }

    #[test]
    fn a_throttled_thread_waits_for_its_cgroup_and_not_for_the_cpu() {
        let server = (SERVER, "server");
        let mut throttled = switch(100, server, (20, "hog"));
        throttled.flags |= TRACE_THROTTLED;
        throttled.cgroup[..4].copy_from_slice(b"slow");
        let all = threads(vec![throttled, switch(900, (20, "hog"), server)]);
        let expected = [(Doing::Running, 200), (Doing::Throttled { cgroup: "slow".to_owned() }, 800)];
        assert_eq!(all.between(SERVER, 0, 1000), expected);
    }

    #[test]
    fn the_time_before_a_thread_was_followed_is_unknown() {
        let all = Threads::new(Vec::new(), &BTreeMap::from([(SERVER, 400)]));
        assert_eq!(all.between(SERVER, 0, 1000), [(Doing::Running, 600), (Doing::Unknown, 400)]);
        assert_eq!(all.between(99, 0, 1000), [(Doing::Unknown, 1000)]);
    }
}
