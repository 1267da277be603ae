//! A port's sending side: ring, DMA, line.

use super::{End, Frame, Frames, World, slot, switch::Pause};

/// A port's sending side. The MAC holds one frame while another is on the line.
#[derive(Debug, Default)]
pub(super) struct Transmit {
    ring: Frames,
    dma: Option<Frame>,
    waiting: Option<Frame>,
    line: Option<Frame>,
    /// For each queue: frames that are sent, and whose descriptors the driver has not freed yet.
    pub(super) done: Vec<u32>,
    /// The pause that the switch asked for.
    pub(super) paused: Pause,
}

impl Transmit {
    pub(super) fn new(queues: u32) -> Self {
        Self { done: vec![0; queues as usize], ..Self::default() }
    }
}

impl World<'_> {
    pub(super) fn ring_has_room(&self, port: usize) -> bool {
        let out = &self.transmits[port];
        let done = out.done.iter().sum::<u32>() as usize;
        out.ring.len() + usize::from(out.dma.is_some()) + done < self.case.ring.tx as usize
    }

    pub(super) fn transmit(&mut self, port: usize, frame: Frame) {
        if !self.ring_has_room(port) {
            self.drops.tx_ring += 1;
            return self.lose(frame);
        }
        self.transmits[port].ring.push_back(frame);
        self.start_dma_out(port);
    }

    fn start_dma_out(&mut self, port: usize) {
        let out = &mut self.transmits[port];
        if out.dma.is_some() || out.waiting.is_some() {
            return;
        }
        let Some(frame) = out.ring.pop_front() else { return };
        out.dma = Some(frame);
        let took = self.costs.sent(frame.bytes);
        self.memory.moved(frame.bytes, self.now);
        self.busy.bus_out[port] += took;
        let mut begin = self.now;
        if self.case.bus.shared {
            begin = begin.max(self.bus_free);
            self.bus_free = begin + took;
        }
        self.schedule(slot::DMA_OUT + port, begin + took);
    }

    pub(super) fn dma_out_done(&mut self, port: usize) {
        let out = &mut self.transmits[port];
        out.waiting = out.dma.take();
        let queue = out.waiting.map_or(0, |frame| usize::from(frame.queue));
        self.start_line_out(port);
        self.start_dma_out(port);
        if self.case.driver.complete_ns > 0.0 && !self.case.uses_engine() {
            self.transmits[port].done[queue] += 1;
            self.raise(port, queue);
        } else {
            self.freed();
        }
    }

    /// The driver has freed descriptors of sent frames.
    pub(super) fn complete(&mut self, port: usize, queue: usize, frames: u32) {
        self.transmits[port].done[queue] -= frames;
        self.freed();
    }

    fn freed(&mut self) {
        if self.flows.iter().any(|flow| flow.from == End::Board) {
            self.kick_program();
        }
    }

    fn start_line_out(&mut self, port: usize) {
        let now = self.now;
        let out = &mut self.transmits[port];
        if out.line.is_some() || out.paused.holds(now) {
            return;
        }
        out.line = out.waiting.take();
        if let Some(frame) = out.line {
            if frame.kind.is_payload() {
                self.in_the_box.record(now - frame.since);
            }
            let took = self.costs.on_line(frame.bytes) + self.costs.gap;
            self.busy.lines[super::PORTS + port] += took;
            self.schedule(slot::LINE_OUT + port, self.now + took);
        }
    }

    /// The switch's pause is over.
    pub(super) fn resume_sending(&mut self, port: usize) {
        self.start_line_out(port);
        self.start_dma_out(port);
    }

    pub(super) fn line_out_done(&mut self, port: usize) {
        let frame = self.transmits[port].line.take();
        self.start_line_out(port);
        self.start_dma_out(port);
        match frame {
            Some(frame) if self.is_damaged() => self.lose_on_line(frame),
            Some(frame) if self.case.switch.onward_rate > 0.0 => self.reach_switch(port, frame),
            Some(frame) => self.reach_peer(port, frame),
            None => {}
        }
    }
}
