//! A port's sending side: ring, DMA, line.

use super::{End, Frame, Frames, World, slot};
use crate::time::Ps;

/// A port's sending side. The MAC holds one frame while another is on the line.
#[derive(Debug, Default)]
pub(super) struct Transmit {
    ring: Frames,
    dma: Option<Frame>,
    waiting: Option<Frame>,
    line: Option<Frame>,
}

impl World<'_> {
    pub(super) fn ring_has_room(&self, port: usize) -> bool {
        let out = &self.transmits[port];
        out.ring.len() + usize::from(out.dma.is_some()) < self.case.ring.tx as usize
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
        let took = self.costs.bus_frame + (f64::from(frame.bytes) * self.costs.byte_tx) as Ps;
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
        self.start_line_out(port);
        self.start_dma_out(port);
        // A descriptor is free again.
        if self.flows.iter().any(|flow| flow.from == End::Board) {
            self.kick_program();
        }
    }

    fn start_line_out(&mut self, port: usize) {
        let out = &mut self.transmits[port];
        if out.line.is_some() {
            return;
        }
        out.line = out.waiting.take();
        if let Some(frame) = out.line {
            let took = (f64::from(frame.bytes) * self.costs.byte_line) as Ps + self.costs.gap;
            self.busy.lines[super::PORTS + port] += took;
            self.schedule(slot::LINE_OUT + port, self.now + took);
        }
    }

    pub(super) fn line_out_done(&mut self, port: usize) {
        let frame = self.transmits[port].line.take();
        self.start_line_out(port);
        self.start_dma_out(port);
        if let Some(frame) = frame {
            self.reach_peer(port, frame);
        }
    }
}
