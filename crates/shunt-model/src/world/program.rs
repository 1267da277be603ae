//! The program that reads or writes at the board's socket: on a core of its own, or on the first core of the stack.

use super::{End, Frame, Frames, Kind, Protocol, World, slot};
use crate::time::{Ps, from_ns};

/// What the program does.
#[derive(Debug, Clone, Copy)]
pub(super) enum Task {
    Read(Frame),
    Write,
}

/// The program.
#[derive(Debug, Default)]
pub(super) struct Program {
    pub(super) socket: Frames,
    /// UDP: the time to send has come.
    pub(super) due: bool,
    /// What it does on a core of its own, and since when it has done nothing there.
    pub(super) task: Option<Task>,
    pub(super) idle_since: Ps,
}

impl World<'_> {
    /// What the program could do now.
    pub(super) fn peek_task(&mut self) -> Option<Task> {
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

    pub(super) fn take_task(&mut self) -> Option<(Task, Ps)> {
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

    pub(super) fn finish(&mut self, task: Task) {
        match task {
            Task::Read(frame) => {
                self.receive(frame);
                self.in_the_box.record(self.now - frame.since);
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
            return self.kick_core(0);
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
}
