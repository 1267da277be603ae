//! The engine's loop over rings in this process's memory, with the driver's ends of the rings.

use crate::{
    abi::{self, BATCH, Desc, FRAME_ROOM, Frame, IngressCounters, PORTS, QUEUE_PAIRS, QueuePair, Ring},
    fixed::Fixed,
    ring::RingMemory,
    sched::{Policer, Scheduler},
    tables::Tables,
};
use shunt_bpf::{EngineSide, Size};
use std::{
    ptr::{self, NonNull},
    rc::Rc,
};

/// Where drivers put a packet in its frame, as AF_XDP does.
const HEADROOM: u64 = 256;
pub(crate) const FRAME_BYTES: u64 = 2048;

const _: () = assert!(FRAME_BYTES - HEADROOM == shunt_bpf::abi::FRAME_MAX as u64);

/// AF_XDP wants whole pages.
#[repr(C, align(4096))]
#[derive(Debug, Clone, Copy)]
struct Page([u8; 4096]);

/// The packet memory. The engine and the sockets of the kernel have it together.
#[derive(Debug)]
pub(crate) struct PacketBytes {
    pages: Fixed<[Page]>,
    bytes: usize,
}

impl PacketBytes {
    fn new(bytes: usize) -> Self {
        Self { pages: Fixed::new(vec![Page([0; 4096]); bytes.div_ceil(size_of::<Page>())]), bytes }
    }

    /// All of it; valid as long as `self`.
    pub(crate) fn all(&self) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.pages.start().cast(), self.bytes)
    }

    /// A pointer to these bytes; None if they are not within the memory.
    fn at(&self, at: u64, bytes: u64) -> Option<NonNull<u8>> {
        let fits = at.checked_add(bytes)? <= self.bytes as u64;
        // SAFETY: the offset is within the memory.
        fits.then(|| unsafe { self.all().cast().add(at as usize) })
    }
}

// SAFETY: the declaration is that of bpf/external/engine.h.
unsafe extern "C" {
    fn shunt_engine_poll(e: *mut abi::Engine, jiffies: u64, now_ns: u64) -> u32;
    fn shunt_engine_receive(e: *mut abi::Engine, pair: u32, jiffies: u64, now_ns: u64) -> u32;
    fn shunt_engine_settle(e: *mut abi::Engine, now_ns: u64) -> u32;
    fn shunt_engine_discard(e: *mut abi::Engine);
    fn shunt_engine_send(e: *mut abi::Engine, now_ns: u64) -> u32;
}

/// The rings and queues of a queue pair.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) rx: RingMemory<Desc>,
    pub(crate) tx: RingMemory<Desc>,
    pub(crate) fill: RingMemory<u64>,
    pub(crate) done: RingMemory<u64>,
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
    inner: Box<abi::Engine>,
    memory: Rc<PacketBytes>,
    free: Fixed<[u64]>,
    up: RingMemory<Desc>,
    ports: [Option<Box<Port>>; QUEUE_PAIRS],
}

impl Engine {
    /// An engine without ports, with room for `frames` packets.
    pub fn new(size: Size, frames: u32) -> Self {
        Self::with(Tables::new(size), frames)
    }

    /// An engine without ports that uses the flow tables of the kernel's programs.
    pub(crate) fn of_kernel(side: EngineSide, size: Size, frames: u32) -> Self {
        Self::with(Tables::of_kernel(side, size), frames)
    }

    fn with(tables: Tables, frames: u32) -> Self {
        let bytes = u64::from(frames) * FRAME_BYTES;
        let memory = Rc::new(PacketBytes::new(bytes as usize));
        let free: Fixed<[u64]> =
            Fixed::new((0..u64::from(frames)).map(|frame| frame * FRAME_BYTES).collect::<Box<_>>());
        let up = RingMemory::new(frames.next_power_of_two());
        let none =
            Ring { producer: ptr::null_mut(), consumer: ptr::null_mut(), entries: ptr::null_mut(), mask: 0 };
        let idle = QueuePair {
            rx: none,
            tx: none,
            fill: none,
            done: none,
            sched: ptr::null_mut(),
            policer: ptr::null_mut(),
            ifindex: 0,
            slot: 0,
        };
        let inner = Box::new(abi::Engine {
            memory: memory.all().as_ptr().cast(),
            memory_bytes: bytes,
            free: free.as_ptr().cast(),
            free_count: frames,
            free_max: frames,
            frame_bytes: FRAME_BYTES,
            up: up.ring(),
            pairs: [idle; QUEUE_PAIRS],
            pairs_end: 0,
            batch_count: 0,
            batch_slot: 0,
            copy_vlan: 0,
            copy_slots: [0; 2],
            reachable: 0,
            batch: [Frame::NONE; BATCH],
            counters: [IngressCounters::default(); PORTS],
            bad_descs: 0,
        });
        let ports = [const { None }; QUEUE_PAIRS];
        Self { tables, inner, memory, free, up, ports }
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
        assert!(slot < PORTS);
        self.add_queue_pair(slot, slot, ifindex, size);
        self.inner.reachable |= 1 << slot;
    }

    /// Copies frames of a VLAN from one of two ports to the other, unchanged.
    pub fn copy_vlan(&mut self, vlan: u16, slots: [u16; 2]) {
        (self.inner.copy_vlan, self.inner.copy_slots) = (vlan.into(), slots.map(u32::from));
    }

    /// Adds a queue of the port in a slot, whose rings have `size` entries, a power of two. The queue pair of a port's
    /// first queue is its slot.
    pub(crate) fn add_queue_pair(&mut self, pair: usize, slot: usize, ifindex: u32, size: u32) {
        assert!(ifindex != 0);
        let port = Box::new(Port {
            rx: RingMemory::new(size),
            tx: RingMemory::new(size),
            fill: RingMemory::new(size),
            done: RingMemory::new(size),
            scheduler: None,
            policer: None,
        });
        self.inner.pairs[pair] = QueuePair {
            rx: port.rx.ring(),
            tx: port.tx.ring(),
            fill: port.fill.ring(),
            done: port.done.ring(),
            sched: ptr::null_mut(),
            policer: ptr::null_mut(),
            ifindex,
            slot: slot as u32,
        };
        self.inner.pairs_end = self.inner.pairs_end.max(pair as u32 + 1);
        self.ports[pair] = Some(port);
    }

    /// The rings of a queue pair.
    pub(crate) fn pair(&self, pair: usize) -> Option<&Port> {
        self.ports[pair].as_deref()
    }

    /// The packet memory.
    pub(crate) fn memory(&self) -> &Rc<PacketBytes> {
        &self.memory
    }

    /// The frame of a descriptor; empty if it is not within the packet memory.
    fn frame(&self, desc: Desc) -> &[u8] {
        let Some(start) = self.memory.at(desc.at, desc.bytes.into()) else { return &[] };
        // SAFETY: the bytes are within the memory, and the engine does not run while `self` is borrowed; the kernel
        // does not write to a frame that the engine has.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), desc.bytes as usize) }
    }

    /// Receives a batch of a queue pair, and rewrites it. Returns the number of packets.
    pub(crate) fn receive_batch(&mut self, pair: usize, jiffies: u64, now_ns: u64) -> u32 {
        // SAFETY: memory, rings and queues are those of `self`, and nothing else uses them now.
        unsafe { shunt_engine_receive(&raw mut *self.inner, pair as u32, jiffies, now_ns) }
    }

    /// Hands the frames of the batch on. Returns how many must wait until the frames for Linux have been taken.
    pub(crate) fn settle(&mut self, now_ns: u64) -> u32 {
        // SAFETY: as above.
        unsafe { shunt_engine_settle(&raw mut *self.inner, now_ns) }
    }

    /// Drops the packets of the batch, and counts them as late.
    pub(crate) fn discard(&mut self) {
        // SAFETY: as above.
        unsafe { shunt_engine_discard(&raw mut *self.inner) }
    }

    /// Sends what the schedulers let go. Returns the number of packets.
    pub(crate) fn send(&mut self, now_ns: u64) -> u32 {
        // SAFETY: as above.
        unsafe { shunt_engine_send(&raw mut *self.inner, now_ns) }
    }

    /// When a scheduler lets the next packet go; `None` if none has a packet.
    pub(crate) fn next_send_ns(&self) -> Option<u64> {
        self.ports.iter().flatten().filter_map(|port| port.scheduler.as_ref()?.due_ns()).min()
    }

    /// Whether frames for Linux wait.
    pub(crate) fn has_for_linux(&self) -> bool {
        self.up.waiting() > 0
    }

    /// Puts a scheduler before a port's egress.
    pub fn schedule(&mut self, slot: usize, scheduler: Scheduler) {
        if let Some(port) = &mut self.ports[slot] {
            self.inner.pairs[slot].sched = port.scheduler.insert(scheduler).inner();
        }
    }

    /// Puts a policer behind a port's ingress, or changes the one that is there.
    pub(crate) fn set_policer(&mut self, slot: usize, bytes_per_s: u64, burst_bytes: u32) {
        match self.ports[slot].as_mut().and_then(|port| port.policer.as_mut()) {
            Some(policer) => policer.set(bytes_per_s, burst_bytes),
            None => self.police(slot, Policer::new(bytes_per_s, burst_bytes)),
        }
    }

    /// Puts a policer behind a port's ingress.
    pub fn police(&mut self, slot: usize, policer: Policer) {
        if let Some(port) = &mut self.ports[slot] {
            self.inner.pairs[slot].policer = port.policer.insert(policer).inner();
        }
    }

    /// Takes the scheduler off a port, if its queues are empty. Returns whether the port has none now.
    pub(crate) fn unschedule(&mut self, slot: usize) -> bool {
        let Some(port) = &mut self.ports[slot] else { return true };
        if port.scheduler.as_ref().is_some_and(|scheduler| scheduler.due_ns().is_some()) {
            return false;
        }
        self.inner.pairs[slot].sched = ptr::null_mut();
        port.scheduler = None;
        true
    }

    /// Takes the policer off a port.
    pub(crate) fn unpolice(&mut self, slot: usize) {
        self.inner.pairs[slot].policer = ptr::null_mut();
        if let Some(port) = &mut self.ports[slot] {
            port.policer = None;
        }
    }

    /// The scheduler of a port.
    pub(crate) fn scheduler_mut(&mut self, slot: usize) -> Option<&mut Scheduler> {
        self.ports[slot].as_mut()?.scheduler.as_mut()
    }

    /// The policer of a port.
    pub(crate) fn policer(&self, slot: usize) -> Option<&Policer> {
        self.ports[slot].as_ref()?.policer.as_ref()
    }

    /// The scheduler of a port.
    pub fn scheduler(&self, slot: usize) -> Option<&Scheduler> {
        self.ports[slot].as_ref()?.scheduler.as_ref()
    }

    /// Counters of a port.
    pub fn counters(&self, slot: usize) -> &IngressCounters {
        &self.inner.counters[slot]
    }

    /// Frames that are neither in a ring nor in a queue.
    pub fn free_frames(&self) -> u32 {
        self.inner.free_count
    }

    /// Receives a frame at a port, as a driver does. Returns false if the port has no free frame or no room.
    pub fn receive(&mut self, slot: usize, frame: &[u8]) -> bool {
        self.receive_with(slot, [0; FRAME_ROOM], frame)
    }

    /// The same, with the metadata that XDP left before the frame.
    fn receive_with(&mut self, slot: usize, metadata: [u8; FRAME_ROOM], frame: &[u8]) -> bool {
        let Some(port) = &self.ports[slot] else { return false };
        if !port.rx.has_room() || frame.len() as u64 > FRAME_BYTES - HEADROOM {
            return false;
        }
        let Some(base) = port.fill.pop() else { return false };
        let at = base.saturating_add(HEADROOM);
        for (at, bytes) in [(at - FRAME_ROOM as u64, &metadata[..]), (at, frame)] {
            let Some(to) = self.memory.at(at, bytes.len() as u64) else { return false };
            // SAFETY: the frame is within the memory, the fill ring has given it to us, and nobody has a reference to
            // it.
            unsafe { to.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
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
            let Some(desc) = port.tx.pop() else { break };
            visit(Sent { frame: self.frame(desc), up: None });
            port.done.push(desc.at);
            count += 1;
        }
        count
    }

    /// Takes a free frame, for the driver.
    pub(crate) fn take_free(&mut self) -> Option<u64> {
        let count = self.inner.free_count.checked_sub(1)?;
        // SAFETY: the place is within `free`, and has been written.
        let at = unsafe { self.inner.free.add(count as usize).read() };
        self.inner.free_count = count;
        Some(at)
    }

    /// Gives the memory of a frame back.
    pub(crate) fn release(&mut self, at: u64) {
        let inner = &mut *self.inner;
        debug_assert!(inner.free_count < inner.free_max, "a frame came back twice");
        if (inner.free_count as usize) < self.free.len() {
            // SAFETY: the place is within `free`, which nobody has a reference to.
            unsafe { inner.free.add(inner.free_count as usize).write(at & !(FRAME_BYTES - 1)) };
            inner.free_count += 1;
        }
    }

    /// Takes the frames for Linux. Returns how many.
    pub fn passed_up(&mut self, mut visit: impl FnMut(Sent<'_>)) -> u32 {
        let mut count = 0;
        while let Some(desc) = self.up.pop() {
            let up = Some((desc.options as usize & 0xffff, desc.options as usize >> 16));
            visit(Sent { frame: self.frame(desc), up });
            self.release(desc.at);
            count += 1;
        }
        count
    }
}

const _: () = assert!(HEADROOM as usize >= FRAME_ROOM);

#[cfg(test)]
mod tests;
