//! What is at the other end of a port's line: a sender, a receiver, a switch between.

use super::{End, Frame, Frames, Kind, Protocol, World, slot};
use crate::time::{NEVER, Ps};
use std::collections::VecDeque;

/// Frames that a directly connected sender puts into its own ring before it waits.
const DIRECT_FRAMES: usize = 4;

/// The other end of a port's line.
#[derive(Debug, Default)]
pub(super) struct Peer {
    /// Frames on their way to the line.
    queue: Frames,
    queue_bytes: u32,
    /// The frame on the line, when its first bit was sent, and whether the MAC discards it.
    line: Option<(Frame, Ps, bool)>,
    line_free: Ps,
    /// The pause that the board asked for.
    pause_from: Ps,
    pause_until: Ps,
    /// Acknowledgements that the peer will send or take, in order of time.
    later: VecDeque<(Ps, Frame)>,
}

impl Peer {
    pub(super) fn pause(&mut self, from: Ps) {
        (self.pause_from, self.pause_until) = (from, NEVER);
    }
}

impl World<'_> {
    /// The board's pause of a peer ends.
    pub(super) fn unpause(&mut self, port: usize, at: Ps) {
        let peer = &mut self.peers[port];
        peer.pause_until = at;
        if peer.line.is_none() {
            self.schedule(slot::LINE_IN + port, at);
        }
    }

    fn has_room(&self, port: usize, bytes: u32) -> bool {
        let peer = &self.peers[port];
        match self.case.switch.buffer {
            0 => peer.queue.len() < DIRECT_FRAMES,
            buffer => peer.queue_bytes + bytes <= buffer,
        }
    }

    /// Puts a frame into the queue to the line.
    fn enqueue(&mut self, port: usize, frame: Frame) {
        let peer = &mut self.peers[port];
        peer.queue_bytes += frame.bytes;
        peer.queue.push_back(frame);
        self.start_line(port);
    }

    /// A sender's time has come.
    pub(super) fn send(&mut self, flow: usize) {
        match (self.flows[flow].from, self.case.traffic.protocol) {
            (End::Board, Protocol::Udp) => {
                self.program.due = true;
                self.kick_program();
            }
            (End::Board, Protocol::Tcp) => self.kick_program(),
            (End::Peer(port), Protocol::Udp) => self.send_udp(flow, port),
            (End::Peer(port), Protocol::Tcp) => self.send_segments(flow, port),
        }
    }

    fn send_udp(&mut self, flow: usize, port: usize) {
        let frame = self.data_frame(flow);
        let room = self.has_room(port, frame.bytes);
        if !room && (self.case.switch.buffer == 0 || self.case.switch.pause) {
            self.flows[flow].blocked = true;
            self.busy.sender_waits = true;
            return;
        }
        let now = self.now;
        let of = &mut self.flows[flow];
        of.sent += 1;
        let next = of.source.next(now);
        self.schedule(slot::SEND + flow, next);
        if room {
            self.enqueue(port, frame);
        } else {
            self.drops.switch += 1;
            self.lose(frame);
        }
    }

    /// TCP: sends what the windows allow.
    pub(super) fn send_segments(&mut self, flow: usize, port: usize) {
        while self.window_allows(flow) {
            let frame = self.data_frame(flow);
            if !self.has_room(port, frame.bytes) {
                return;
            }
            self.sent_segment(flow);
            self.enqueue(port, frame);
        }
    }

    fn start_line(&mut self, port: usize) {
        let peer = &mut self.peers[port];
        if peer.line.is_some() || peer.queue.is_empty() {
            return;
        }
        if self.now >= peer.pause_from && self.now < peer.pause_until {
            return;
        }
        let Some(frame) = peer.queue.pop_front() else { return };
        peer.queue_bytes -= frame.bytes;
        let start = self.now.max(peer.line_free);
        let took = (f64::from(frame.bytes) * self.costs.byte_line) as Ps;
        peer.line_free = start + took + self.costs.gap;
        self.busy.lines[port] += took + self.costs.gap;
        let discarded = self.refuses(port);
        self.peers[port].line = Some((frame, start, discarded));
        self.schedule(slot::LINE_IN + port, start + took);
    }

    /// A frame has arrived, or the line may be used again.
    pub(super) fn line_in(&mut self, port: usize) {
        if let Some((frame, start, discarded)) = self.peers[port].line.take() {
            self.arrive(port, frame, start, discarded);
        }
        self.start_line(port);
        self.wake_senders(port);
    }

    fn wake_senders(&mut self, port: usize) {
        for flow in 0..self.flows.len() {
            if self.flows[flow].from != End::Peer(port) {
                continue;
            }
            if self.case.traffic.protocol == Protocol::Tcp {
                self.send_segments(flow, port);
            } else if self.flows[flow].blocked {
                self.flows[flow].blocked = false;
                self.send_udp(flow, port);
            }
        }
    }

    /// A frame has reached the peer of a port.
    pub(super) fn reach_peer(&mut self, port: usize, frame: Frame) {
        let flow = usize::from(frame.flow);
        match frame.kind {
            Kind::Udp => self.receive(frame),
            Kind::Data => {
                self.receive(frame);
                let to = &mut self.flows[flow];
                to.last = frame.index;
                if to.unacked == 0 {
                    to.unacked_since = self.now;
                }
                to.unacked += 1;
                let t = &self.case.traffic;
                let due = to.unacked_since + (t.ack_gap_us * 1e6) as Ps;
                // A receiver waits at most 40 ms for another segment.
                let at = if to.unacked >= t.ack_every { due } else { to.unacked_since + 40_000_000_000 };
                self.schedule(slot::ACK + flow, at);
            }
            Kind::Ack => self.delay(port, frame),
        }
    }

    /// The peer takes its time.
    fn delay(&mut self, port: usize, frame: Frame) {
        let at = self.now + (self.case.traffic.peer_us * 1e6) as Ps;
        let later = &mut self.peers[port].later;
        later.push_back((at, frame));
        if later.len() == 1 {
            self.schedule(slot::PEER + port, at);
        }
    }

    /// The receiver at a peer acknowledges.
    pub(super) fn acknowledge(&mut self, flow: usize) {
        let End::Peer(port) = self.flows[flow].to else { return };
        self.flows[flow].unacked = 0;
        let frame = self.ack_frame(flow);
        self.delay(port, frame);
    }

    /// An acknowledgement leaves the peer, or reaches its sender.
    pub(super) fn peer_handles(&mut self, port: usize) {
        if let Some((_, frame)) = self.peers[port].later.pop_front() {
            let flow = usize::from(frame.flow);
            if self.flows[flow].from == End::Peer(port) {
                self.acknowledged(flow, frame.index);
                self.send_segments(flow, port);
            } else {
                self.enqueue(port, frame);
            }
        }
        if let Some((at, _)) = self.peers[port].later.front() {
            let at = *at;
            self.schedule(slot::PEER + port, at);
        }
    }
}
