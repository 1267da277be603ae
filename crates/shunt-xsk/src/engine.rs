//! The engine's loop over rings in this process's memory, with the driver's ends of the rings.

use crate::{
    abi::{CEngine, Desc, FRAME_ROOM, LANES, Lane, LaneCounters, REASONS_MAX, Ring},
    sched::{Policer, Scheduler},
    tables::Tables,
};
use shunt_bpf::Size;
use std::{
    ptr,
    sync::atomic::{AtomicU32, Ordering},
};

/// Where drivers put a packet in its frame, as AF_XDP does.
const HEADROOM: u64 = 256;
const FRAME_BYTES: u64 = 2048;

// SAFETY: the declaration is that of bpf/external/engine.h.
unsafe extern "C" {
    fn shunt_engine_poll(e: *mut CEngine, jiffies: u64, now_ns: u64) -> u32;
}

/// The memory of a ring.
#[derive(Debug)]
struct RingMemory {
    /// Producer and consumer, 64 bytes apart.
    indices: Box<[u32; 32]>,
    entries: Vec<Desc>,
    ring: Ring,
}

impl RingMemory {
    fn new(size: u32) -> Self {
        let mut indices = Box::new([0; 32]);
        let mut entries = vec![Desc { at: 0, bytes: 0, options: 0 }; size as usize];
        let ring = Ring {
            producer: &raw mut indices[0],
            consumer: &raw mut indices[16],
            entries: entries.as_mut_ptr().cast(),
            mask: size - 1,
        };
        Self { indices, entries, ring }
    }

    fn index(&self, which: *mut u32) -> &AtomicU32 {
        debug_assert!(self.indices.as_ptr_range().contains(&which.cast_const()));
        // SAFETY: `which` points into `indices`, which live as long as `self` and are used atomically.
        unsafe { AtomicU32::from_ptr(which) }
    }

    fn ends(&self) -> (u32, u32) {
        let load = |which| self.index(which).load(Ordering::Acquire);
        (load(self.ring.producer), load(self.ring.consumer))
    }

    fn has_room(&self) -> bool {
        let (producer, consumer) = self.ends();
        producer.wrapping_sub(consumer) <= self.ring.mask
    }

    /// An entry, as a descriptor or as an offset.
    fn at<T>(&self, index: u32) -> *mut T {
        debug_assert!(size_of::<T>() <= size_of::<Desc>() && !self.entries.is_empty());
        // SAFETY: the masked index is within the entries; a T is not larger than an entry.
        unsafe { self.ring.entries.cast::<T>().add((index & self.ring.mask) as usize) }
    }

    fn push<T>(&self, entry: T) {
        let (producer, _) = self.ends();
        // SAFETY: the entry is the producer's until the index moves.
        unsafe { self.at::<T>(producer).write(entry) };
        self.index(self.ring.producer).store(producer.wrapping_add(1), Ordering::Release);
    }

    fn pop<T>(&self) -> Option<T> {
        let (producer, consumer) = self.ends();
        if producer == consumer {
            return None;
        }
        // SAFETY: the entry is the consumer's until the index moves.
        let entry = unsafe { self.at::<T>(consumer).read() };
        self.index(self.ring.consumer).store(consumer.wrapping_add(1), Ordering::Release);
        Some(entry)
    }
}

/// The rings and queues of a port.
#[derive(Debug)]
struct Port {
    rx: RingMemory,
    tx: RingMemory,
    fill: RingMemory,
    done: RingMemory,
    scheduler: Option<Scheduler>,
    policer: Option<Policer>,
}

/// A frame on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent<'m> {
    /// The frame.
    pub frame: &'m [u8],
    /// For a frame that goes to Linux: the slot of its ingress port, and the number of the reason.
    pub up: Option<(usize, usize)>,
}

/// The engine, with its packet memory and ports.
#[derive(Debug)]
pub struct Engine {
    tables: Tables,
    inner: Box<CEngine>,
    memory: Vec<u8>,
    _free: Vec<u64>,
    up: RingMemory,
    ports: [Option<Box<Port>>; LANES],
}

impl Engine {
    /// An engine without ports, with room for `frames` packets.
    pub fn new(size: Size, frames: u32) -> Self {
        let mut memory = vec![0; frames as usize * FRAME_BYTES as usize];
        let mut free: Vec<u64> = (0..u64::from(frames)).map(|frame| frame * FRAME_BYTES).collect();
        let up = RingMemory::new(frames.next_power_of_two());
        let none =
            Ring { producer: ptr::null_mut(), consumer: ptr::null_mut(), entries: ptr::null_mut(), mask: 0 };
        let idle = Lane {
            rx: none,
            tx: none,
            fill: none,
            done: none,
            sched: ptr::null_mut(),
            policer: ptr::null_mut(),
            ifindex: 0,
        };
        let inner = Box::new(CEngine {
            memory: memory.as_mut_ptr(),
            memory_bytes: memory.len() as u64,
            free: free.as_mut_ptr(),
            free_count: frames,
            free_max: frames,
            frame_bytes: FRAME_BYTES,
            up: up.ring,
            lanes: [idle; LANES],
            counters: [LaneCounters::ZERO; LANES],
            bad_descs: 0,
        });
        let ports = [const { None }; LANES];
        Self { tables: Tables::new(size), inner, memory, _free: free, up, ports }
    }

    /// The flow tables.
    pub fn tables(&mut self) -> &mut Tables {
        &mut self.tables
    }

    /// Adds a port whose rings have `size` entries, a power of two.
    ///
    /// # Panics
    /// If the slot or the size is invalid.
    pub fn add_port(&mut self, slot: usize, ifindex: u32, size: u32) {
        assert!(size.is_power_of_two() && ifindex != 0);
        let ring = || RingMemory::new(size);
        let port = Box::new(Port {
            rx: ring(),
            tx: ring(),
            fill: ring(),
            done: ring(),
            scheduler: None,
            policer: None,
        });
        let [rx, tx, fill, done] = [&port.rx, &port.tx, &port.fill, &port.done].map(|memory| memory.ring);
        self.inner.lanes[slot] =
            Lane { rx, tx, fill, done, sched: ptr::null_mut(), policer: ptr::null_mut(), ifindex };
        self.ports[slot] = Some(port);
    }

    /// Puts a scheduler before a port's egress.
    pub fn schedule(&mut self, slot: usize, scheduler: Scheduler) {
        if let Some(port) = &mut self.ports[slot] {
            self.inner.lanes[slot].sched = port.scheduler.insert(scheduler).inner();
        }
    }

    /// Puts a policer behind a port's ingress.
    pub fn police(&mut self, slot: usize, policer: Policer) {
        if let Some(port) = &mut self.ports[slot] {
            self.inner.lanes[slot].policer = port.policer.insert(policer).inner();
        }
    }

    /// The scheduler of a port.
    pub fn scheduler(&self, slot: usize) -> Option<&Scheduler> {
        self.ports[slot].as_ref()?.scheduler.as_ref()
    }

    /// Counters of a port.
    pub fn counters(&self, slot: usize) -> &LaneCounters {
        &self.inner.counters[slot]
    }

    /// Frames that are neither in a ring nor in a queue.
    pub fn free_frames(&self) -> u32 {
        self.inner.free_count
    }

    /// Receives a frame at a port, as a driver does. Returns false if the port has no free frame or no room.
    pub fn receive(&mut self, slot: usize, frame: &[u8]) -> bool {
        let Some(port) = &self.ports[slot] else { return false };
        if !port.rx.has_room() || frame.len() as u64 > FRAME_BYTES - HEADROOM {
            return false;
        }
        let Some(base) = port.fill.pop::<u64>() else { return false };
        let at = base + HEADROOM;
        self.memory[at as usize..][..frame.len()].copy_from_slice(frame);
        port.rx.push(Desc { at, bytes: frame.len() as u32, options: 0 });
        true
    }

    /// One turn over all ports. Returns the number of packets received and sent.
    pub fn poll(&mut self, jiffies: u64, now_ns: u64) -> u32 {
        // SAFETY: memory, rings and queues are those of `self`, and nothing else uses them now.
        unsafe { shunt_engine_poll(&raw mut *self.inner, jiffies, now_ns) }
    }

    /// Takes the frames that a port has sent, and gives their memory back, as a driver does. Returns how many.
    pub fn sent(&mut self, slot: usize, mut visit: impl FnMut(Sent<'_>)) -> u32 {
        let Some(port) = &self.ports[slot] else { return 0 };
        let mut count = 0;
        while port.done.has_room() {
            let Some(desc) = port.tx.pop::<Desc>() else { break };
            visit(Sent { frame: &self.memory[desc.at as usize..][..desc.bytes as usize], up: None });
            port.done.push(desc.at);
            count += 1;
        }
        count
    }

    /// Takes the frames for Linux. Returns how many.
    pub fn passed_up(&mut self, mut visit: impl FnMut(Sent<'_>)) -> u32 {
        let mut count = 0;
        while let Some(desc) = self.up.pop::<Desc>() {
            let up = Some((desc.options as usize & 0xffff, desc.options as usize >> 16));
            visit(Sent { frame: &self.memory[desc.at as usize..][..desc.bytes as usize], up });
            let inner = &mut *self.inner;
            // SAFETY: `free` has room for all frames, and this one is not among them.
            unsafe { inner.free.add(inner.free_count as usize).write(desc.at & !(FRAME_BYTES - 1)) };
            inner.free_count += 1;
            count += 1;
        }
        count
    }
}

impl LaneCounters {
    const ZERO: Self = Self {
        pkts: 0,
        bytes: 0,
        slow_pkts: 0,
        policed_pkts: 0,
        tx_full_pkts: 0,
        up_full_pkts: 0,
        queue_drops: 0,
        reasons: [0; REASONS_MAX],
    };
}

const _: () = assert!(HEADROOM as usize >= FRAME_ROOM);

#[cfg(test)]
mod tests;
