//! Explores schedules: which CPU continues at each access to shared memory, which value each load returns, and which
//! stores are late. All schedules within bounds, one after the other.
//!
//! In program order, a CPU is interrupted only before accesses to words that another CPU accesses, too, if one of them
//! stores. Any other access gives the same result before and after what the other CPUs do meanwhile, so a schedule that
//! interrupts a CPU there is the same as one that interrupts it before its next access.

use crate::{
    cpu::{Choose, Cpu, Image},
    memory::Memory,
};
use anyhow::Context;
use std::{collections::BTreeMap, sync::Arc};

/// A step of a CPU.
#[derive(Debug, Clone)]
pub enum Step {
    /// Runs a function with these arguments.
    Run(Arc<Image>, &'static str, Vec<u64>),
    /// Advances the clock by this many ticks, while no CPU is in the middle of a program.
    Wait(u64),
}

/// A finished run of a program.
#[derive(Debug, Clone)]
pub struct Done {
    /// The number of the CPU.
    pub cpu: usize,
    /// The function.
    pub function: &'static str,
    /// The arguments, as the program left them.
    pub arguments: Vec<u64>,
    /// When the run began: starts and ends of all runs are numbered in order.
    pub from: usize,
    /// When the run ended.
    pub to: usize,
}

/// The programs to explore.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Steps of CPU 0 before, alone.
    pub before: Vec<Step>,
    /// Concurrent steps, by CPU.
    pub cpus: Vec<Vec<Step>>,
    /// Steps of CPU 0 afterwards, alone.
    pub after: Vec<Step>,
}

/// The bounds of an exploration.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// How often CPUs are interrupted in the middle of a program, in one schedule.
    pub preemptions: usize,
    /// The number of stale loads and late stores together, in one schedule.
    pub weak: usize,
    /// The largest number of schedules to run.
    pub schedules: u64,
}

/// The result of an exploration without violations.
#[derive(Debug, PartialEq, Eq)]
pub struct Explored {
    /// The number of schedules that were run.
    pub schedules: u64,
    /// Whether these are all schedules within the bounds.
    pub all: bool,
}

/// The choices of one schedule: a given prefix, and the first option of each choice after that.
#[derive(Debug, Default)]
struct Choices {
    /// The chosen option and the number of options.
    made: Vec<(usize, usize)>,
    next: usize,
    preemptions: usize,
    weak: usize,
}

impl Choices {
    fn within(bounds: Bounds) -> Self {
        Self { preemptions: bounds.preemptions, weak: bounds.weak, ..Self::default() }
    }

    fn choose(&mut self, count: usize) -> usize {
        if count < 2 {
            return 0;
        }
        if self.next == self.made.len() {
            self.made.push((0, count));
        }
        self.next += 1;
        self.made[self.next - 1].0
    }

    /// Moves to the next schedule. Returns false after the last one.
    fn advance(&mut self, bounds: Bounds) -> bool {
        while let Some((chosen, count)) = self.made.pop() {
            if chosen + 1 < count {
                self.made.push((chosen + 1, count));
                self.next = 0;
                self.preemptions = bounds.preemptions;
                self.weak = bounds.weak;
                return true;
            }
        }
        false
    }
}

impl Choose for Choices {
    fn version(&mut self, count: usize) -> usize {
        let chosen = self.choose(if self.weak == 0 { 1 } else { count });
        self.weak -= usize::from(chosen > 0);
        chosen
    }

    fn late(&mut self) -> bool {
        let late = self.choose(if self.weak == 0 { 1 } else { 2 }) == 1;
        self.weak -= usize::from(late);
        late
    }
}

/// Which CPUs access which words, in the schedules so far.
#[derive(Debug, Default)]
struct Accesses {
    /// By word: sets of CPUs that load and of those that store.
    words: BTreeMap<u64, (u64, u64)>,
    /// Whether a word became contested.
    grown: bool,
}

impl Accesses {
    fn add(&mut self, number: usize, cpu: &Cpu) -> anyhow::Result<()> {
        let (words, stores) = cpu.due()?;
        for word in words {
            let before = self.is_contested(word);
            let (loading, storing) = self.words.entry(word).or_default();
            *if stores { storing } else { loading } |= 1 << number;
            self.grown |= before != self.is_contested(word);
        }
        Ok(())
    }

    /// Whether the due access is to a word that several CPUs access, at least one of them with a store.
    fn contests(&self, cpu: &Cpu) -> anyhow::Result<bool> {
        Ok(cpu.due()?.0.into_iter().any(|word| self.is_contested(word)))
    }

    fn is_contested(&self, word: u64) -> bool {
        let (loading, storing) = self.words.get(&word).copied().unwrap_or_default();
        storing != 0 && (loading | storing).count_ones() > 1
    }
}

struct Strict;

impl Choose for Strict {
    fn version(&mut self, _: usize) -> usize {
        0
    }

    fn late(&mut self) -> bool {
        false
    }
}

#[derive(Clone)]
struct Machine {
    memory: Memory,
    ticks: u64,
    events: usize,
    done: Vec<Done>,
}

/// The work of one CPU: remaining steps, and the running program.
struct Worker<'a> {
    steps: std::slice::Iter<'a, Step>,
    running: Option<(Cpu, usize, &'a Step)>,
}

impl Machine {
    fn alone(&mut self, steps: &[Step]) -> anyhow::Result<()> {
        let mut worker = Worker { steps: steps.iter(), running: None };
        while self.advance(0, &mut worker, &mut Strict)? {}
        Ok(())
    }

    /// Advances a CPU by one access to shared memory. Returns false if it has nothing left to do.
    fn advance(
        &mut self,
        number: usize,
        worker: &mut Worker,
        choose: &mut dyn Choose,
    ) -> anyhow::Result<bool> {
        if let Some((cpu, ..)) = &mut worker.running {
            cpu.perform(&mut self.memory, choose)?;
        } else {
            match worker.steps.next() {
                None => return Ok(false),
                Some(Step::Wait(ticks)) => self.ticks += ticks,
                Some(step @ Step::Run(image, function, arguments)) => {
                    self.memory.barrier(number);
                    self.events += 1;
                    worker.running = Some((
                        Cpu::start(number, image, function, arguments, self.ticks)?,
                        self.events,
                        step,
                    ));
                }
            }
        }
        self.run_to_access(number, worker)?;
        Ok(worker.running.is_some() || worker.steps.len() > 0)
    }

    /// Runs a CPU up to its next access to shared memory, or to the end of its program.
    fn run_to_access(&mut self, number: usize, worker: &mut Worker) -> anyhow::Result<()> {
        let Some((cpu, from, Step::Run(_, function, arguments))) = &mut worker.running else { return Ok(()) };
        if cpu.advance().with_context(|| format!("{function} on CPU {number}"))? {
            return Ok(());
        }
        self.memory.barrier(number);
        self.events += 1;
        let words = 0..arguments.len() as u64;
        let arguments = words.map(|n| cpu.argument(n)).collect();
        self.done.push(Done { cpu: number, function, arguments, from: *from, to: self.events });
        worker.running = None;
        Ok(())
    }
}

fn run(
    scenario: &Scenario,
    mut machine: Machine,
    bounds: Bounds,
    choices: &mut Choices,
    accesses: &mut Accesses,
) -> anyhow::Result<Vec<Done>> {
    let mut workers: Vec<Worker> =
        scenario.cpus.iter().map(|steps| Worker { steps: steps.iter(), running: None }).collect();
    let mut current = 0;
    loop {
        let busy = workers.iter().filter(|worker| worker.running.is_some()).count();
        let able = |worker: &Worker| {
            let waits = matches!(worker.steps.as_slice().first(), Some(Step::Wait(_)));
            worker.running.is_some() || (worker.steps.len() > 0 && !(waits && busy > 0))
        };
        let mut open: Vec<usize> = (0..workers.len()).filter(|n| able(&workers[*n])).collect();
        if open.is_empty() {
            break;
        }
        // The current CPU is the first option; another one is an interruption.
        open.sort_by_key(|n| *n != current);
        let running = workers[current].running.as_ref();
        let free = running.is_none();
        let may_switch = match running {
            None => true,
            Some(_) if choices.preemptions == 0 => false,
            // A late store becomes visible at a barrier, whatever word that is about.
            Some((cpu, ..)) => bounds.weak > 0 || accesses.contests(cpu)?,
        };
        let chosen = if may_switch { choices.choose(open.len()) } else { 0 };
        choices.preemptions -= usize::from(!free && chosen > 0);
        current = open[chosen];
        if let Some((cpu, ..)) = &workers[current].running {
            accesses.add(current, cpu)?;
        }
        machine.advance(current, &mut workers[current], choices)?;
    }
    machine.alone(&scenario.after)?;
    Ok(machine.done)
}

/// Runs a scenario in every schedule within bounds, and passes the runs of each to `judge`.
///
/// # Errors
/// The first violation that `judge` reports, with the runs of its schedule.
pub fn explore(
    scenario: &Scenario,
    bounds: Bounds,
    judge: &dyn Fn(&[Done]) -> anyhow::Result<()>,
) -> anyhow::Result<Explored> {
    let mut choices = Choices::within(bounds);
    let mut machine =
        Machine { memory: Memory::new(scenario.cpus.len()), ticks: 1000, events: 0, done: Vec::new() };
    machine.alone(&scenario.before)?;
    machine.memory.forget_history();
    let mut accesses = Accesses::default();
    for schedules in 1..=bounds.schedules {
        let done = run(scenario, machine.clone(), bounds, &mut choices, &mut accesses)?;
        judge(&done).with_context(|| format!("schedule {schedules}: {}", describe(&done)))?;
        if std::mem::take(&mut accesses.grown) && bounds.weak == 0 {
            // There are more places to interrupt a CPU than the schedules so far allowed for.
            choices = Choices::within(bounds);
        } else if !choices.advance(bounds) {
            return Ok(Explored { schedules, all: true });
        }
    }
    Ok(Explored { schedules: bounds.schedules, all: false })
}

fn describe(done: &[Done]) -> String {
    let lines = done.iter().map(|run| {
        let words: Vec<String> = run.arguments.iter().map(|word| format!("{word:x}")).collect();
        format!("\n  CPU {} {} {}..{}: {}", run.cpu, run.function, run.from, run.to, words.join(" "))
    });
    lines.collect()
}
