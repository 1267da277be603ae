//! The cores of driver and stack: interrupts first, then the network stack, then the program. A job is one packet and
//! is not interrupted. Core n serves the receive queues n, n + cores, and so on, of all ports.

use super::{DELAYED_ACK, End, Frame, Kind, PORTS, World, program::Task, slot};
use crate::{
    case::Interrupt,
    time::{NEVER, Ps, from_ns, from_ps, from_us},
};
use std::collections::VecDeque;

/// Packets that wait between an interrupt and the stack.
const BACKLOG: usize = 1000;

#[derive(Debug, Clone, Copy, Default)]
enum Job {
    #[default]
    None,
    /// What the last job has led to is under way.
    Finishing,
    Wake,
    /// An interrupt that begins polling or reports an error.
    Interrupt,
    /// The driver in its interrupt.
    Driver(usize, Frame),
    /// Driver and stack, polled.
    Poll(usize, Frame),
    /// The stack.
    Stack(usize, Frame),
    /// The driver frees the descriptors of this number of frames that a port has sent for a queue.
    Complete(usize, usize, u32),
    Program(Task),
}

/// A core that runs driver and stack.
#[derive(Debug, Default)]
pub(super) struct Core {
    job: Job,
    idle_since: Ps,
    /// Frames between an interrupt and the stack, and the ports they came in by.
    backlog: VecDeque<(usize, Frame)>,
    /// The port and queue whose turn it is, as a number.
    turn: usize,
    /// Packets in a row that the stack has processed while the program waits.
    in_a_row: u32,
    /// Time that the stack and the program have had since the stack lost its precedence.
    stack_time: Ps,
    program_time: Ps,
    /// Cost of acknowledgements that were sent in the last job.
    debt: Ps,
}

impl World<'_> {
    pub(super) fn kick_core(&mut self, core: usize) {
        if !matches!(self.cores[core].job, Job::None) {
            return;
        }
        let idle = &self.case.cpu;
        if idle.idle_exit_us > 0.0 && self.sleeps() {
            self.start(core, Job::Wake, from_us(idle.idle_exit_us), false);
        } else {
            self.next_job(core);
        }
    }

    /// Whether the cores sleep deeply: a cluster does so only while all of its cores do.
    fn sleeps(&self) -> bool {
        let works = self.cores.iter().any(|core| !matches!(core.job, Job::None));
        let idle_since = self.cores.iter().map(|core| core.idle_since).max().unwrap_or(0);
        let idle = self.now - idle_since.max(self.program.idle_since);
        !works && self.program.task.is_none() && idle >= from_us(self.case.cpu.idle_after_us)
    }

    fn start(&mut self, core: usize, job: Job, took: Ps, busy: bool) {
        let took = took + std::mem::take(&mut self.cores[core].debt);
        let took = if busy { self.memory.stretched(took, self.now) } else { took };
        self.cores[core].job = job;
        if busy {
            self.busy.cores[core] += took;
        }
        // Other work takes its part of the first core.
        let other = if core == 0 { self.case.cpu.base_load } else { 0.0 };
        let took = from_ps(took as f64 / (1.0 - other));
        self.schedule(slot::CORES + core, self.now + took);
    }

    /// The core that serves a queue.
    pub(super) fn core_of(&self, queue: usize) -> usize {
        queue % self.cores.len()
    }

    /// A port and a queue of a core for which something holds.
    fn find(&self, core: usize, holds: impl Fn(usize, usize) -> bool) -> Option<(usize, usize)> {
        let queues = (core..self.case.ring.queues as usize).step_by(self.cores.len());
        queues
            .flat_map(|queue| (0..PORTS).map(move |port| (port, queue)))
            .find(|(port, queue)| holds(*port, *queue))
    }

    fn next_job(&mut self, core: usize) {
        self.cores[core].job = Job::None;
        let per_packet = self.case.driver.interrupt == Interrupt::PerPacket;
        if let Some((port, queue)) = self.find(core, |port, queue| self.macs[port].queues[queue].pending) {
            let queue = &mut self.macs[port].queues[queue];
            queue.pending = false;
            queue.polled = !per_packet;
            return self.start(core, Job::Interrupt, from_ns(self.case.irq_ns()), true);
        }
        let sent = |world: &Self, polled: bool| {
            world.find(core, |port, queue| {
                world.transmits[port].done[queue] > 0 && (!polled || world.macs[port].queues[queue].polled)
            })
        };
        if per_packet {
            if let Some((port, frame)) = self.take_ready(core, false) {
                let cost = self.case.irq_ns() + self.driver_rx_ns(port, frame);
                return self.start(core, Job::Driver(port, frame), from_ns(cost), true);
            }
            if let Some((port, queue)) = sent(self, false) {
                let cost = self.case.irq_ns() + self.case.complete_ns();
                return self.start(core, Job::Complete(port, queue, 1), from_ns(cost), true);
            }
        }
        let program = if self.case.cpu.own_core || core > 0 { None } else { self.peek_task() };
        if program.is_some() && !self.stack_goes_first() {
            return self.start_task_here();
        }
        if let Some((port, frame)) = self.cores[core].backlog.pop_front() {
            let cost = from_ns(self.stack_ns(frame));
            self.account_stack(core, cost);
            return self.start(core, Job::Stack(port, frame), cost, true);
        }
        if let Some((port, queue)) = sent(self, true) {
            let done = self.transmits[port].done[queue];
            let cost = from_ns(self.case.complete_ns() * f64::from(done));
            return self.start(core, Job::Complete(port, queue, done), cost, true);
        }
        if let Some((port, frame)) = self.take_ready(core, true) {
            let cost = from_ns(self.driver_rx_ns(port, frame) + self.stack_ns(frame));
            self.account_stack(core, cost);
            return self.start(core, Job::Poll(port, frame), cost, true);
        }
        self.stop_polling(core);
        if program.is_some() {
            return self.start_task_here();
        }
        self.cores[core].idle_since = self.now;
    }

    fn stop_polling(&mut self, core: usize) {
        let (step, of) = (self.cores.len(), &mut self.cores[core]);
        of.in_a_row = 0;
        (of.stack_time, of.program_time) = (0, 0);
        for mac in &mut self.macs {
            mac.queues.iter_mut().skip(core).step_by(step).for_each(|queue| queue.polled = false);
        }
    }

    /// The stack has precedence until it has done a budget of packets; then it shares the core fairly with the program.
    fn stack_goes_first(&self) -> bool {
        let core = &self.cores[0];
        core.in_a_row < self.case.driver.budget || core.stack_time <= core.program_time
    }

    fn account_stack(&mut self, core: usize, cost: Ps) {
        let core = &mut self.cores[core];
        core.in_a_row += 1;
        if core.in_a_row > self.case.driver.budget {
            core.stack_time += cost;
        }
    }

    /// The program runs on the first core.
    fn start_task_here(&mut self) {
        if let Some((task, cost)) = self.take_task() {
            if self.cores[0].in_a_row >= self.case.driver.budget {
                self.cores[0].program_time += cost;
            }
            self.start(0, Job::Program(task), cost, true);
        }
    }

    /// Takes the next frame that is ready for a core, its ports and queues in turn.
    fn take_ready(&mut self, core: usize, polled: bool) -> Option<(usize, Frame)> {
        let step = self.cores.len();
        let queues = (self.case.ring.queues as usize).saturating_sub(core).div_ceil(step);
        let all = PORTS * queues;
        for turn in 0..all {
            let at = (self.cores[core].turn + turn) % all;
            let port = at % PORTS;
            let queue = &mut self.macs[port].queues[core + at / PORTS * step];
            if polled && !queue.polled {
                continue;
            }
            if let Some(frame) = queue.ready.pop_front() {
                self.cores[core].turn = at + 1;
                return Some((port, frame));
            }
        }
        None
    }

    fn is_for_board(&self, frame: Frame) -> bool {
        let flow = &self.flows[usize::from(frame.flow)];
        match frame.kind {
            Kind::Ack => flow.from == End::Board,
            Kind::Udp | Kind::Data => flow.to == End::Board,
            Kind::Ping => self.case.ends_here(),
            Kind::Pong => false,
        }
    }

    fn driver_rx_ns(&self, port: usize, frame: Frame) -> f64 {
        self.case.driver_rx_ns(port, frame.bytes, !self.is_for_board(frame))
    }

    fn stack_ns(&self, frame: Frame) -> f64 {
        if !frame.good {
            0.0
        } else if !self.is_for_board(frame) {
            self.case.forward_ns(frame.bytes)
        } else if frame.kind == Kind::Ping {
            self.case.echo_ns(frame.bytes)
        } else if frame.kind == Kind::Ack {
            self.case.ack_ns()
        } else {
            self.case.stack_rx_ns()
        }
    }

    pub(super) fn core_done(&mut self, core: usize) {
        match std::mem::replace(&mut self.cores[core].job, Job::Finishing) {
            Job::None | Job::Finishing | Job::Wake | Job::Interrupt => {}
            Job::Driver(port, frame) => {
                self.refill(port, frame);
                if frame.good && self.cores[core].backlog.len() < BACKLOG {
                    self.cores[core].backlog.push_back((port, frame));
                } else if frame.good {
                    self.drops.backlog += 1;
                    self.lose(frame);
                }
            }
            Job::Poll(port, frame) => {
                self.refill(port, frame);
                self.deliver(core, port, frame);
            }
            Job::Stack(port, frame) => self.deliver(core, port, frame),
            Job::Complete(port, queue, frames) => self.complete(port, queue, frames),
            Job::Program(task) => self.finish(task),
        }
        self.next_job(core);
    }

    /// The stack is done with a frame.
    fn deliver(&mut self, core: usize, port: usize, frame: Frame) {
        if !frame.good {
            return;
        }
        if !self.is_for_board(frame) {
            return self.transmit(PORTS - 1 - port, frame);
        }
        let flow = usize::from(frame.flow);
        match frame.kind {
            Kind::Ack => {
                self.acknowledged(flow, frame.index);
                self.kick_program();
            }
            Kind::Ping => self.transmit(port, Frame { kind: Kind::Pong, ..frame }),
            Kind::Pong => {}
            Kind::Udp if self.program.socket.len() >= self.case.cpu.socket_packets as usize => {
                self.drops.socket += 1;
                self.lose(frame);
            }
            Kind::Udp => {
                self.program.socket.push_back(frame);
                self.kick_program();
            }
            Kind::Data => {
                self.program.socket.push_back(frame);
                let to = &mut self.flows[flow];
                to.last = frame.index;
                to.core = core;
                to.unacked += 1;
                if to.unacked >= self.case.traffic.ack_every {
                    self.acknowledge_from_board(flow, port);
                } else if to.unacked == 1 {
                    self.schedule(slot::ACK + flow, self.now + DELAYED_ACK);
                }
                self.kick_program();
            }
        }
    }

    /// The board's stack acknowledges what has come.
    pub(super) fn acknowledge_from_board(&mut self, flow: usize, port: usize) {
        self.agenda[slot::ACK + flow] = NEVER;
        self.flows[flow].unacked = 0;
        let core = self.flows[flow].core;
        self.cores[core].debt += from_ns(self.case.ack_ns());
        let ack = self.ack_frame(flow);
        self.transmit(port, ack);
    }

    /// The external engine takes the next frame of any port.
    pub(super) fn kick_engine(&mut self) {
        if self.engine.is_some() || self.agenda[slot::ENGINE] != NEVER {
            return;
        }
        debug_assert!(self.case.uses_engine(), "only this path has an engine");
        // The engine looks at each queue, as the only core would.
        self.engine = self.take_ready(0, false);
        if let Some((_, frame)) = self.engine {
            let cost = from_ns(self.case.forward_ns(frame.bytes));
            self.busy.engine += cost;
            self.schedule(slot::ENGINE, self.now + cost);
        }
    }

    pub(super) fn engine_done(&mut self) {
        if let Some((port, frame)) = self.engine.take() {
            self.refill(port, frame);
            self.deliver(0, port, frame);
        }
        self.kick_engine();
    }
}
