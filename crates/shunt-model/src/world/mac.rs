//! A port's receiving side: FIFO, DMA, ring, interrupt.

use super::{Frame, Frames, World, slot, switch::Pause};
use crate::{
    case::Interrupt,
    time::{NEVER, Ps, from_us},
};
use std::collections::VecDeque;

/// A port's receiving side.
#[derive(Debug, Default)]
pub(super) struct Mac {
    /// Frames in the FIFO, and when DMA of each may begin.
    fifo: VecDeque<(Frame, Ps)>,
    fifo_bytes: u32,
    /// Begin and end of the DMA of the first frame.
    dma: Option<(Ps, Ps)>,
    dma_free: Ps,
    /// After an overrun: frames are discarded until the FIFO has room.
    discards: bool,
    recovered: Ps,
    /// Whether the last pause frame was XOFF, and until when its quanta last.
    paused: bool,
    quanta_end: Ps,
    /// Level when the frame that comes in began.
    level_at_start: u32,
    pub(super) queues: Vec<Queue>,
}

/// A receive queue: a ring, and an interrupt.
#[derive(Debug, Clone, Default)]
pub(super) struct Queue {
    /// Frames in memory that the driver has not seen.
    pub(super) ready: Frames,
    descriptors: u32,
    /// NAPI: the queue is polled, so it raises no interrupt.
    pub(super) polled: bool,
    pub(super) pending: bool,
}

impl Mac {
    pub(super) fn new(queues: u32) -> Self {
        Self { queues: vec![Queue::default(); queues as usize], ..Self::default() }
    }

    /// Bytes in the FIFO. DMA takes bytes out at a constant rate.
    fn occupied(&self, now: Ps) -> u32 {
        let gone = match (self.dma, self.fifo.front()) {
            (Some((begin, end)), Some((frame, _))) if now >= end || end == begin => frame.bytes,
            (Some((begin, end)), Some((frame, _))) if now > begin => {
                (f64::from(frame.bytes) * (now - begin) as f64 / (end - begin) as f64) as u32
            }
            _ => 0,
        };
        self.fifo_bytes - gone
    }
}

impl World<'_> {
    /// Whether the MAC discards a frame that begins now.
    pub(super) fn refuses(&mut self, port: usize) -> bool {
        let mac = &mut self.macs[port];
        mac.level_at_start = mac.occupied(self.now);
        mac.discards &= self.now < mac.recovered || mac.occupied(self.now) > self.case.fifo.resume_at();
        mac.discards
    }

    /// A frame has come in from the line.
    pub(super) fn arrive(&mut self, port: usize, mut frame: Frame, start: Ps, discarded: bool) {
        let now = self.now;
        if discarded {
            self.overrun(port, frame);
            let level = self.macs[port].occupied(now);
            return self.check_xoff(port, start, level);
        }
        let section = self.case.fifo.section(frame.bytes);
        let earliest = start + self.costs.on_line(section);
        frame.queue = self.queue_of(frame);
        if frame.kind.is_payload() {
            frame.since = now;
        }
        let mac = &self.macs[port];
        let before = mac.occupied(now);
        let used = mac.queues[usize::from(frame.queue)].descriptors;
        let has_descriptors = used + self.case.ring.descriptors(frame.bytes) <= self.case.ring.rx;
        let has_status = self.case.fifo.frames == 0 || mac.fifo.len() < self.case.fifo.frames as usize;
        // If DMA has nothing else to do, it takes bytes out of the FIFO while the frame comes in.
        let through = if mac.fifo.is_empty() && has_descriptors {
            let since = now.saturating_sub(earliest.max(mac.dma_free) + self.costs.bus_frame);
            ((since as f64 / self.costs.byte_rx) as u32).min(frame.bytes)
        } else {
            0
        };
        let room = if has_status { self.case.fifo.bytes.saturating_sub(before) + through } else { 0 };
        if frame.bytes > room {
            self.overrun(port, frame);
            self.macs[port].discards = true;
            self.macs[port].recovered = now + from_us(self.case.fifo.recover_us);
            if !self.case.fifo.passes_errors || room == 0 {
                return self.check_xoff(port, start, before);
            }
            frame.bytes = room;
            frame.good = false;
        }
        let mac = &mut self.macs[port];
        mac.fifo.push_back((frame, earliest));
        mac.fifo_bytes += frame.bytes;
        let full = before + frame.bytes - through.min(frame.bytes);
        self.check_xoff(port, start, full);
        self.start_dma_in(port);
        self.expect_xon(port);
    }

    /// Sends XOFF if the frame that began at `start` has filled the FIFO beyond the threshold: when it did so, not when
    /// the frame ended.
    fn check_xoff(&mut self, port: usize, start: Ps, full: u32) {
        let (fifo, mac, now) = (&self.case.fifo, &mut self.macs[port], self.now);
        let threshold = fifo.pause_at();
        if !fifo.sends_pause() || full <= threshold || mac.paused && now < mac.quanta_end {
            return;
        }
        let rise = f64::from(full.saturating_sub(mac.level_at_start)).max(1.0);
        let part = (f64::from(threshold.saturating_sub(mac.level_at_start)) / rise).min(1.0);
        let crossed = start + ((now - start) as f64 * part) as Ps;
        let (from, quanta) = (crossed + self.costs.until_pause, self.costs.pause_quanta);
        (mac.paused, mac.quanta_end) = (true, from.saturating_add(quanta));
        self.pauses += 1;
        if self.case.switch.pause {
            self.peers[port].paused = Pause::of(from, quanta);
        }
    }

    /// Schedules XON for when DMA will have emptied the FIFO to its threshold, if nothing else comes.
    fn expect_xon(&mut self, port: usize) {
        let mac = &self.macs[port];
        let Some((begin, end)) = mac.dma.filter(|_| mac.paused) else { return };
        let Some((frame, _)) = mac.fifo.front() else { return };
        let above = mac.fifo_bytes.saturating_sub(self.case.fifo.unpause_at());
        // One byte more, since levels are whole bytes.
        let part = (f64::from(above + 1) / f64::from(frame.bytes.max(1))).min(1.0);
        let at = begin + ((end - begin) as f64 * part).ceil() as Ps;
        self.schedule(slot::XON + port, at);
    }

    /// The level may have reached the threshold that ends a pause.
    pub(super) fn check_xon(&mut self, port: usize) {
        let mac = &mut self.macs[port];
        if !mac.paused || mac.occupied(self.now) > self.case.fifo.unpause_at() {
            return;
        }
        mac.paused = false;
        self.agenda[slot::XON + port] = NEVER;
        if self.case.switch.pause {
            self.unpause(port, self.now + self.costs.until_pause);
        }
    }

    /// A frame is lost in the FIFO. The MAC reports that by an interrupt, which polling drivers leave off.
    fn overrun(&mut self, port: usize, frame: Frame) {
        self.drops.fifo += 1;
        self.lose(frame);
        if self.case.driver.interrupt == Interrupt::PerPacket {
            self.macs[port].queues[0].pending = true;
            self.kick_core(0);
        }
    }

    pub(super) fn start_dma_in(&mut self, port: usize) {
        let mac = &mut self.macs[port];
        let Some((frame, earliest)) = mac.fifo.front().copied() else { return };
        let descriptors = self.case.ring.descriptors(frame.bytes);
        if mac.dma.is_some() {
            return;
        }
        let queue = &mut mac.queues[usize::from(frame.queue)];
        if queue.descriptors + descriptors > self.case.ring.rx {
            return self.refuse_without_descriptor(port);
        }
        queue.descriptors += descriptors;
        let shared = self.case.bus.shared;
        let mut begin = mac.dma_free.max(earliest);
        if shared {
            begin = begin.max(self.bus_free);
        }
        let took = self.costs.received(frame.bytes);
        self.memory.moved(frame.bytes, self.now);
        let end = (begin + took).max(self.now);
        mac.dma = Some((begin, end));
        self.busy.bus_in[port] += took;
        if shared {
            self.bus_free = end;
        }
        self.schedule(slot::DMA_IN + port, end);
    }

    /// The queue of the first frame has no descriptor. The frame waits if there is no other queue, or if flow control
    /// keeps the FIFO from overrunning; else it is dropped, so that the other queues do not wait for it.
    fn refuse_without_descriptor(&mut self, port: usize) {
        if self.case.ring.queues == 1 || self.case.fifo.sends_pause() {
            return;
        }
        if let Some((frame, _)) = self.macs[port].fifo.pop_front() {
            self.macs[port].fifo_bytes -= frame.bytes;
            self.drops.queue += 1;
            self.lose(frame);
        }
        self.start_dma_in(port);
    }

    pub(super) fn dma_in_done(&mut self, port: usize) {
        let mac = &mut self.macs[port];
        mac.dma = None;
        mac.dma_free = self.now;
        let Some((frame, _)) = mac.fifo.pop_front() else { return };
        let queue = usize::from(frame.queue);
        mac.fifo_bytes -= frame.bytes;
        mac.queues[queue].ready.push_back(frame);
        self.check_xon(port);
        self.raise(port, queue);
        self.start_dma_in(port);
        self.expect_xon(port);
    }

    /// A queue has something for the driver: received frames, or sent ones.
    pub(super) fn raise(&mut self, port: usize, queue: usize) {
        if self.case.uses_engine() {
            return self.kick_engine();
        }
        let driver = &self.case.driver;
        if driver.interrupt == Interrupt::PerPacket {
            return self.kick_core(self.core_of(queue));
        }
        let of = &mut self.macs[port].queues[queue];
        if of.polled || of.pending {
            return;
        }
        let slot = self.irq_slot(port, queue);
        if driver.coalesce_us == 0.0 {
            self.interrupt(port, queue);
        } else if self.agenda[slot] == NEVER {
            let at = self.now + from_us(driver.coalesce_us);
            self.schedule(slot, at);
        }
    }

    /// The interrupt of a queue is raised, at the end of coalescing if there is any.
    pub(super) fn interrupt(&mut self, port: usize, queue: usize) {
        self.macs[port].queues[queue].pending = true;
        self.kick_core(self.core_of(queue));
    }

    /// The driver is done with the buffers of a frame.
    pub(super) fn refill(&mut self, port: usize, frame: Frame) {
        let queue = &mut self.macs[port].queues[usize::from(frame.queue)];
        queue.descriptors -= self.case.ring.descriptors(frame.bytes);
        self.start_dma_in(port);
        self.expect_xon(port);
    }
}
