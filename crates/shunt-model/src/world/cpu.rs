//! The CPU: interrupts first, then the network stack, then the program. A job is one packet and is not interrupted.

use super::{DELAYED_ACK, End, Frame, Frames, Kind, PORTS, Protocol, World, slot};
use crate::{
    case::{Interrupt, Path},
    time::{NEVER, Ps, from_ns, from_ps, from_us},
};
use std::collections::VecDeque;

/// Packets that wait between an interrupt and the stack.
const BACKLOG: usize = 1000;

#[derive(Debug, Clone, Copy, Default)]
enum Job {
    #[default]
    None,
    Wake,
    /// An interrupt that begins polling or reports an error.
    Interrupt,
    /// The driver in its interrupt.
    Driver(usize, Frame),
    /// Driver and stack, polled.
    Poll(usize, Frame),
    /// The stack.
    Stack(usize, Frame),
    /// The driver frees the descriptors of this number of sent frames.
    Complete(usize, u32),
    Program(Task),
}

/// What the program does.
#[derive(Debug, Clone, Copy)]
enum Task {
    Read(Frame),
    Write,
}

/// The CPU that runs driver and stack.
#[derive(Debug, Default)]
pub(super) struct Cpu {
    job: Job,
    idle_since: Ps,
    /// Frames between an interrupt and the stack, and the ports they came in by.
    backlog: VecDeque<(usize, Frame)>,
    next_port: usize,
    /// Packets in a row that the stack has processed while the program waits.
    in_a_row: u32,
    /// Time that the stack and the program have had since the stack lost its precedence.
    stack_time: Ps,
    program_time: Ps,
    /// Cost of acknowledgements that were sent in the last job.
    debt: Ps,
}

/// The program that reads or writes at the board's socket.
#[derive(Debug, Default)]
pub(super) struct Program {
    pub(super) socket: Frames,
    /// UDP: the time to send has come.
    pub(super) due: bool,
    task: Option<Task>,
    idle_since: Ps,
}

impl World<'_> {
    pub(super) fn kick_cpu(&mut self) {
        if !matches!(self.cpu.job, Job::None) {
            return;
        }
        let idle = &self.case.cpu;
        // A cluster sleeps deeply only while all of its cores do.
        let slept = self.program.task.is_none()
            && self.now - self.cpu.idle_since.max(self.program.idle_since) >= from_us(idle.idle_after_us);
        if idle.idle_exit_us > 0.0 && slept {
            self.start(Job::Wake, from_us(idle.idle_exit_us), false);
        } else {
            self.next_job();
        }
    }

    fn start(&mut self, job: Job, took: Ps, busy: bool) {
        let took = took + std::mem::take(&mut self.cpu.debt);
        let took = if busy { self.memory.stretched(took, self.now) } else { took };
        // Other work takes its part of the core.
        self.cpu.job = job;
        if busy {
            self.busy.cpu += took;
        }
        let took = from_ps(took as f64 / (1.0 - self.case.cpu.base_load));
        self.schedule(slot::CPU, self.now + took);
    }

    fn next_job(&mut self) {
        self.cpu.job = Job::None;
        let cpu = &self.case.cpu;
        if let Some(port) = (0..PORTS).find(|port| self.macs[*port].pending) {
            let mac = &mut self.macs[port];
            mac.pending = false;
            mac.polled = self.case.driver.interrupt == Interrupt::Napi;
            return self.start(Job::Interrupt, from_ns(self.case.irq_ns()), true);
        }
        if self.case.driver.interrupt == Interrupt::PerPacket {
            if let Some((port, frame)) = self.take_ready(false) {
                let cost = self.case.irq_ns() + self.case.driver_rx_ns(port, frame.bytes);
                return self.start(Job::Driver(port, frame), from_ns(cost), true);
            }
            if let Some(port) = (0..PORTS).find(|port| self.transmits[*port].done > 0) {
                let cost = self.case.irq_ns() + self.case.complete_ns();
                return self.start(Job::Complete(port, 1), from_ns(cost), true);
            }
        }
        let program = if cpu.own_core { None } else { self.peek_task() };
        if program.is_some() && !self.stack_goes_first() {
            return self.start_task_here();
        }
        if let Some((port, frame)) = self.cpu.backlog.pop_front() {
            let cost = from_ns(self.stack_ns(frame));
            self.account_stack(cost);
            return self.start(Job::Stack(port, frame), cost, true);
        }
        if let Some(port) = (0..PORTS).find(|port| self.macs[*port].polled && self.transmits[*port].done > 0)
        {
            let done = self.transmits[port].done;
            let cost = from_ns(self.case.complete_ns() * f64::from(done));
            return self.start(Job::Complete(port, done), cost, true);
        }
        if let Some((port, frame)) = self.take_ready(true) {
            let cost = from_ns(self.case.driver_rx_ns(port, frame.bytes) + self.stack_ns(frame));
            self.account_stack(cost);
            return self.start(Job::Poll(port, frame), cost, true);
        }
        self.cpu.in_a_row = 0;
        (self.cpu.stack_time, self.cpu.program_time) = (0, 0);
        for mac in &mut self.macs {
            mac.polled = false;
        }
        if program.is_some() {
            return self.start_task_here();
        }
        self.cpu.idle_since = self.now;
    }

    /// The stack has precedence until it has done a budget of packets; then it shares the CPU fairly with the program.
    fn stack_goes_first(&self) -> bool {
        self.cpu.in_a_row < self.case.driver.budget || self.cpu.stack_time <= self.cpu.program_time
    }

    fn account_stack(&mut self, cost: Ps) {
        self.cpu.in_a_row += 1;
        if self.cpu.in_a_row > self.case.driver.budget {
            self.cpu.stack_time += cost;
        }
    }

    fn start_task_here(&mut self) {
        if let Some((task, cost)) = self.take_task() {
            if self.cpu.in_a_row >= self.case.driver.budget {
                self.cpu.program_time += cost;
            }
            self.start(Job::Program(task), cost, true);
        }
    }

    /// Takes the next frame that is ready on any port, the ports in turn.
    fn take_ready(&mut self, polled: bool) -> Option<(usize, Frame)> {
        for turn in 0..PORTS {
            let port = (self.cpu.next_port + turn) % PORTS;
            let mac = &mut self.macs[port];
            if polled && !mac.polled {
                continue;
            }
            if let Some(frame) = mac.ready.pop_front() {
                self.cpu.next_port = (port + 1) % PORTS;
                return Some((port, frame));
            }
        }
        None
    }

    fn is_for_board(&self, frame: Frame) -> bool {
        let flow = &self.flows[usize::from(frame.flow)];
        let end = if frame.kind == Kind::Ack { flow.from } else { flow.to };
        end == End::Board
    }

    fn stack_ns(&self, frame: Frame) -> f64 {
        if !frame.good {
            0.0
        } else if !self.is_for_board(frame) {
            self.case.forward_ns()
        } else if frame.kind == Kind::Ack {
            self.case.ack_ns()
        } else {
            self.case.stack_rx_ns()
        }
    }

    pub(super) fn cpu_done(&mut self) {
        match std::mem::take(&mut self.cpu.job) {
            Job::None | Job::Wake | Job::Interrupt => {}
            Job::Driver(port, frame) => {
                self.refill(port, frame);
                if frame.good && self.cpu.backlog.len() < BACKLOG {
                    self.cpu.backlog.push_back((port, frame));
                } else if frame.good {
                    self.drops.backlog += 1;
                    self.lose(frame);
                }
            }
            Job::Poll(port, frame) => {
                self.refill(port, frame);
                self.deliver(port, frame);
            }
            Job::Stack(port, frame) => self.deliver(port, frame),
            Job::Complete(port, frames) => self.complete(port, frames),
            Job::Program(task) => self.finish(task),
        }
        if matches!(self.cpu.job, Job::None) {
            self.next_job();
        }
    }

    /// The stack is done with a frame.
    fn deliver(&mut self, port: usize, frame: Frame) {
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
        self.cpu.debt += from_ns(self.case.ack_ns());
        let ack = self.ack_frame(flow);
        self.transmit(port, ack);
    }

    /// What the program could do now.
    fn peek_task(&mut self) -> Option<Task> {
        if let Some(frame) = self.program.socket.front() {
            return Some(Task::Read(*frame));
        }
        let sends = self.flows.first().is_some_and(|flow| flow.from == End::Board);
        if !sends || !self.ring_has_room(0) {
            return None;
        }
        let allowed = match self.case.traffic.protocol {
            Protocol::Udp => self.program.due,
            Protocol::Tcp => self.window_allows(0),
        };
        allowed.then_some(Task::Write)
    }

    fn take_task(&mut self) -> Option<(Task, Ps)> {
        let task = self.peek_task()?;
        let cost = match task {
            Task::Read(frame) => {
                self.program.socket.pop_front();
                self.case.receive_ns(frame.payload)
            }
            Task::Write => self.case.send_ns(self.case.traffic.payload),
        };
        Some((task, from_ns(cost)))
    }

    fn finish(&mut self, task: Task) {
        match task {
            Task::Read(frame) => {
                self.receive(frame);
                if let (Kind::Data, End::Peer(port)) = (frame.kind, self.flows[0].from) {
                    self.send_segments(0, port);
                }
            }
            Task::Write => {
                let frame = self.data_frame(0);
                if self.case.traffic.protocol == Protocol::Udp {
                    self.program.due = false;
                    self.flows[0].sent += 1;
                    let now = self.now;
                    let next = self.flows[0].source.next(now);
                    self.schedule(slot::SEND, next);
                } else {
                    self.sent_segment(0);
                }
                self.transmit(0, frame);
            }
        }
    }

    /// The program may have something to do.
    pub(super) fn kick_program(&mut self) {
        if !self.case.cpu.own_core {
            return self.kick_cpu();
        }
        if self.program.task.is_some() {
            return;
        }
        if let Some((task, cost)) = self.take_task() {
            self.program.task = Some(task);
            self.busy.program += cost;
            self.schedule(slot::PROGRAM, self.now + cost);
        }
    }

    pub(super) fn program_done(&mut self) {
        if let Some(task) = self.program.task.take() {
            self.program.idle_since = self.now;
            self.finish(task);
        }
        self.kick_program();
    }

    /// The external engine takes the next frame of any port.
    pub(super) fn kick_engine(&mut self) {
        if self.engine.is_some() || self.agenda[slot::ENGINE] != NEVER {
            return;
        }
        debug_assert_eq!(self.case.forward.path, Path::External, "only this path has an engine");
        self.engine = self.take_ready(false);
        if self.engine.is_some() {
            let cost = from_ns(self.case.forward_ns());
            self.busy.engine += cost;
            self.schedule(slot::ENGINE, self.now + cost);
        }
    }

    pub(super) fn engine_done(&mut self) {
        if let Some((port, frame)) = self.engine.take() {
            self.refill(port, frame);
            self.deliver(port, frame);
        }
        self.kick_engine();
    }
}
