//! What is at the other end of a port's line: a sender, a receiver, a switch between.

use super::{DELAYED_ACK, End, Frame, Frames, Kind, Protocol, World, slot, switch::Pause};
use crate::time::{Ps, from_ns, from_us};
use std::collections::VecDeque;

/// A frame of `ping` with 56 bytes of data.
const PING_BYTES: u32 = 102;
/// Frames that a directly connected sender puts into its own ring before it waits.
const DIRECT_FRAMES: usize = 4;

/// The other end of a port's line.
#[derive(Debug, Default)]
pub(super) struct Peer {
    /// Frames on their way to the line.
    queue: Frames,
    queue_bytes: u64,
    /// The frame on the line, when its first bit was sent, and whether the MAC discards it.
    line: Option<(Frame, Ps, bool)>,
    line_free: Ps,
    /// The pause that the board asked for.
    pub(super) paused: Pause,
    /// Acknowledgements and pings that the peer will send or take, in order of time.
    later: VecDeque<(Ps, Frame)>,
    /// The peer's last interrupt, or the one that is to come.
    interrupt: Ps,
}

impl World<'_> {
    /// The board's pause of a peer ends.
    pub(super) fn unpause(&mut self, port: usize, at: Ps) {
        let peer = &mut self.peers[port];
        peer.paused.end(at);
        if peer.line.is_none() {
            self.schedule(slot::LINE_IN + port, at);
        }
    }

    fn has_room(&self, port: usize, bytes: u32) -> bool {
        let peer = &self.peers[port];
        match self.case.switch.buffer {
            0 => peer.queue.len() < DIRECT_FRAMES,
            buffer => peer.queue_bytes + u64::from(bytes) <= u64::from(buffer),
        }
    }

    /// Puts a frame into the queue to the line.
    fn enqueue(&mut self, port: usize, frame: Frame) {
        let peer = &mut self.peers[port];
        peer.queue_bytes += u64::from(frame.bytes);
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
        let switch = &self.case.switch;
        if !room && (switch.buffer == 0 || switch.pause && self.case.traffic.obeys_pause) {
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

    /// TCP: sends what the windows allow, as soon as the sender can.
    pub(super) fn send_segments(&mut self, flow: usize, port: usize) {
        let least = from_ns(self.case.traffic.sender_ns);
        while self.window_allows(flow) {
            let frame = self.data_frame(flow);
            if !self.has_room(port, frame.bytes) {
                return;
            }
            let ready = self.flows[flow].ready;
            if self.now < ready {
                return self.schedule(slot::SEND + flow, ready);
            }
            self.flows[flow].ready = self.now + least;
            self.sent_segment(flow);
            self.enqueue(port, frame);
        }
    }

    fn start_line(&mut self, port: usize) {
        let peer = &mut self.peers[port];
        if peer.line.is_some() || peer.queue.is_empty() {
            return;
        }
        if peer.paused.holds(self.now) {
            if let Some(at) = peer.paused.ends(self.now) {
                self.schedule(slot::LINE_IN + port, at);
            }
            return;
        }
        let Some(frame) = peer.queue.pop_front() else { return };
        peer.queue_bytes -= u64::from(frame.bytes);
        let start = self.now.max(peer.line_free);
        let took = self.costs.on_line(frame.bytes);
        peer.line_free = start + took + self.costs.gap;
        self.busy.lines[port] += took + self.costs.gap;
        let discarded = self.refuses(port);
        self.peers[port].line = Some((frame, start, discarded));
        self.schedule(slot::LINE_IN + port, start + took);
    }

    /// A frame has arrived, or the line may be used again.
    pub(super) fn line_in(&mut self, port: usize) {
        if let Some((frame, start, discarded)) = self.peers[port].line.take() {
            if self.is_damaged() {
                self.lose_on_line(frame);
            } else {
                self.arrive(port, frame, start, discarded);
            }
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
                let back = port == 0 && t.ack_gap_back_us > 0.0;
                let gap = if back { t.ack_gap_back_us } else { t.ack_gap_us };
                let wait = if to.unacked >= t.ack_every { from_us(gap) } else { DELAYED_ACK };
                let at = to.unacked_since + wait;
                self.schedule(slot::ACK + flow, at);
            }
            Kind::Ack | Kind::Ping | Kind::Pong => self.delay(port, frame),
        }
    }

    /// The peer takes its time. Time on the cable is accounted for here, for both ways: the clock of a peer is ahead of
    /// the board's by one propagation, so that what it sends needs none.
    fn delay(&mut self, port: usize, frame: Frame) {
        let t = &self.case.traffic;
        let peer = &mut self.peers[port];
        if t.peer_interrupt_us > 0.0 && peer.interrupt < self.now {
            peer.interrupt = self.now.max(peer.interrupt + from_us(t.peer_interrupt_us));
        }
        let at = self.now.max(peer.interrupt) + from_us(t.peer_us) + 2 * self.costs.propagation;
        peer.later.push_back((at, frame));
        if peer.later.len() == 1 {
            self.schedule(slot::PEER + port, at);
        }
    }

    /// A receiver acknowledges.
    pub(super) fn acknowledge(&mut self, flow: usize) {
        let port = match self.flows[flow].to {
            End::Peer(port) => port,
            End::Board => return self.acknowledge_from_board(flow, 0),
        };
        self.flows[flow].unacked = 0;
        let frame = self.ack_frame(flow);
        self.delay(port, frame);
    }

    /// An acknowledgement or a ping leaves the peer, or reaches the program that waits for it.
    pub(super) fn peer_handles(&mut self, port: usize) {
        if let Some((_, frame)) = self.peers[port].later.pop_front() {
            let flow = usize::from(frame.flow);
            match frame.kind {
                Kind::Ping => self.send_echo(port, Frame { kind: Kind::Pong, ..frame }),
                Kind::Pong => self.pings.record(self.now - frame.since),
                _ if self.flows[flow].from == End::Peer(port) => {
                    self.acknowledged(flow, frame.index);
                    self.send_segments(flow, port);
                }
                _ => self.enqueue(port, frame),
            }
        }
        if let Some((at, _)) = self.peers[port].later.front() {
            let at = *at;
            self.schedule(slot::PEER + port, at);
        }
    }

    /// The host behind the first port sends a ping.
    pub(super) fn ping(&mut self) {
        let ping = Frame {
            index: 0,
            bytes: PING_BYTES + 4 * self.case.traffic.tags,
            payload: 0,
            flow: 0,
            kind: Kind::Ping,
            good: true,
            queue: 0,
            since: self.now,
        };
        self.send_echo(0, ping);
        self.schedule(slot::PING, self.now + from_us(self.case.traffic.ping_every_us));
    }

    fn send_echo(&mut self, port: usize, frame: Frame) {
        if self.case.switch.buffer == 0 || self.has_room(port, frame.bytes) {
            self.enqueue(port, frame);
        } else {
            self.drops.switch += 1;
            self.lose(frame);
        }
    }
}
