//! The engine at work: a turn goes through all queues. It keeps the order of each flow: what is to be sent before a
//! frame for Linux is sent before that frame is passed on, and what follows it waits.

use crate::{
    abi::IngressCounters,
    engine::Engine,
    protocol::{Port, Qos, QosCounters},
    sched::{Policer, Scheduler},
    socket::{Mode, PacketMemory, QueueSocket, RING},
};
use nix::time::{ClockId, clock_gettime};
use shunt_bpf::{
    EngineSide, Size,
    abi::{EXTERNAL_PORTS_MAX, ExternalPort, INJECTED_MAX, QUEUES_MAX},
};
use std::{io, os::fd::BorrowedFd, time::Duration};

/// Packets that the queues of a port may hold.
const QUEUED_MAX: u32 = 4096;
/// Frames per queue: its rings on both sides.
const FRAMES_PER_QUEUE: u32 = 6 * RING;
/// A batch that took longer is dropped: the kernel's sweep may have reused entries of the flow table after 100 ms.
const BATCH_NS_MAX: u64 = 50_000_000;
/// How long sending may take before frames are passed to Linux in spite of it.
const FLUSH_NS_MAX: u64 = 2_000_000;

/// The engine with its sockets.
pub(crate) struct Worker {
    queues: Vec<QueueSocket>,
    engine: Engine,
    clock: Clock,
    counted: Vec<IngressCounters>,
    /// The slots of the ports that are served.
    slots: Vec<u16>,
    /// Frames passed to Linux, by slot; since the last count.
    passed: Vec<u64>,
    lost: Vec<u64>,
    /// The last failure to pass frames to Linux.
    trouble: Option<io::Error>,
    /// Ports whose queues are to go once they are empty.
    unscheduling: Vec<usize>,
}

/// The kernel's jiffies between two heartbeats.
#[derive(Debug, Clone, Copy)]
struct Clock {
    jiffies: u64,
    at_ns: u64,
    ns_per_tick: u64,
}

impl Clock {
    fn jiffies(self, now_ns: u64) -> u64 {
        self.jiffies + now_ns.saturating_sub(self.at_ns) / self.ns_per_tick
    }
}

pub(crate) fn now_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default().as_nanos() as u64
}

/// What became of the start.
pub(crate) struct Started {
    pub(crate) worker: Worker,
    /// The slots of the ports that are served.
    pub(crate) served: Vec<u16>,
    /// The slots of the others, and why.
    pub(crate) failed: Vec<(u16, String)>,
    pub(crate) zero_copy: bool,
    /// Why zero copy was tried in vain.
    pub(crate) refused: Option<String>,
}

/// The sockets of all ports, by port.
struct Opened<'p> {
    ports: Vec<(&'p Port, Vec<QueueSocket>)>,
    failed: Vec<(u16, String)>,
    /// The frames that the kernel was given, also by sockets that are closed by now.
    frames: Vec<u64>,
}

impl<'p> Opened<'p> {
    /// Opens the sockets of all queues in one mode. Ports that cannot be served are left out.
    fn open(engine: &mut Engine, ports: &'p [Port], mode: Mode) -> io::Result<Self> {
        let mut memory = PacketMemory::of(engine, mode)?;
        let mut opened = Self { ports: Vec::new(), failed: Vec::new(), frames: Vec::new() };
        let mut further = EXTERNAL_PORTS_MAX as usize;
        for port in ports {
            let queues = (0..port.queues.clamp(1, QUEUES_MAX)).map(|queue| {
                let pair = if queue == 0 { usize::from(port.slot) } else { further + queue as usize - 1 };
                let free = || engine.take_free().inspect(|frame| opened.frames.push(*frame));
                memory
                    .open(&port.name, queue, pair, port.slot, free)
                    .map_err(|e| format!("queue {queue}: {e}"))
            });
            match queues.collect::<Result<Vec<_>, String>>() {
                Ok(sockets) => {
                    further += sockets.len() - 1;
                    opened.ports.push((port, sockets));
                }
                Err(why) => {
                    opened.failed.push((port.slot, why));
                    if opened.ports.is_empty() {
                        // The socket that failed was that of the memory.
                        memory = PacketMemory::of(engine, mode)?;
                    }
                }
            }
        }
        Ok(opened)
    }

    /// Opens the sockets without a copy if that is asked for and works on every port; else with one. Returns why zero
    /// copy does not work, if it was tried.
    fn open_best(
        engine: &mut Engine,
        ports: &'p [Port],
        zero_copy: bool,
    ) -> io::Result<(Self, Mode, Option<String>)> {
        if !zero_copy {
            return Ok((Self::open(engine, ports, Mode::Copy)?, Mode::Copy, None));
        }
        let refused = Self::open(engine, ports, Mode::ZeroCopy)?;
        let why = match refused.failed.first() {
            None => return Ok((refused, Mode::ZeroCopy, None)),
            Some((slot, why)) => {
                let name = ports.iter().find(|port| port.slot == *slot).map_or("", |port| &port.name);
                format!("{name}: {why}")
            }
        };
        let Self { ports: sockets, frames, .. } = refused;
        drop(sockets);
        let opened = Self::open(engine, ports, Mode::Copy)?;
        // A NIC may write to its frames until another socket has its queue.
        if opened.failed.is_empty() {
            frames.into_iter().for_each(|frame| engine.release(frame));
        }
        Ok((opened, Mode::Copy, Some(why)))
    }
}

impl Worker {
    /// Opens the sockets of all queues. Ports that cannot be served are left out.
    pub(crate) fn start(
        side: EngineSide,
        size: Size,
        ports: &[Port],
        zero_copy: bool,
    ) -> io::Result<Started> {
        let queues: u32 = ports.iter().map(|port| port.queues.clamp(1, QUEUES_MAX)).sum();
        let frames = queues * FRAMES_PER_QUEUE + ports.len() as u32 * QUEUED_MAX;
        let mut engine = Engine::of_kernel(side, size, frames);
        let (opened, mode, refused) = Opened::open_best(&mut engine, ports, zero_copy)?;
        let (mut served, mut sockets) = (Vec::new(), Vec::new());
        for (port, queues) in opened.ports {
            for socket in &queues {
                if socket.pair == usize::from(port.slot) {
                    engine.add_port(socket.pair, port.ifindex, RING);
                } else {
                    engine.add_queue_pair(socket.pair, port.slot.into(), port.ifindex, RING);
                }
            }
            served.push(port.slot);
            sockets.extend(queues);
        }
        let hz = engine.tables().side().map_or(1, EngineSide::ticks_per_s).max(1);
        let worker = Self {
            clock: Clock { jiffies: 0, at_ns: 0, ns_per_tick: 1_000_000_000 / u64::from(hz) },
            counted: vec![IngressCounters::default(); EXTERNAL_PORTS_MAX as usize],
            passed: vec![0; EXTERNAL_PORTS_MAX as usize],
            lost: vec![0; EXTERNAL_PORTS_MAX as usize],
            slots: served.clone(),
            queues: sockets,
            engine,
            trouble: None,
            unscheduling: Vec::new(),
        };
        let zero_copy = mode == Mode::ZeroCopy;
        Ok(Started { worker, served, failed: opened.failed, zero_copy, refused })
    }

    fn side(&mut self) -> io::Result<&EngineSide> {
        self.engine.tables().side().ok_or_else(|| io::Error::other("the flow tables are not the kernel's"))
    }

    /// Gives all queues their first frames, and lets XDP give packets to the sockets.
    pub(crate) fn open_queues(&mut self) -> io::Result<()> {
        self.beat()?;
        self.turn();
        for at in 0..self.queues.len() {
            self.steer(at, true)?;
        }
        Ok(())
    }

    /// Lets XDP pass packets to Linux.
    pub(crate) fn close_queues(&mut self) {
        for at in 0..self.queues.len() {
            // A socket that is not in the map any more needs nothing.
            let _ = self.steer(at, false);
        }
    }

    fn steer(&mut self, at: usize, on: bool) -> io::Result<()> {
        let Self { queues, engine, .. } = self;
        let QueueSocket { slot, queue, .. } = queues[at];
        let side = engine.tables().side().ok_or_else(|| io::Error::other("no kernel"))?;
        side.set_socket(slot, queue, on.then(|| queues[at].fd()))
    }

    /// Writes the heartbeat, and sets the clock by the kernel's.
    pub(crate) fn beat(&mut self) -> io::Result<()> {
        let jiffies = self.side()?.beat()?;
        (self.clock.jiffies, self.clock.at_ns) = (jiffies, now_ns());
        Ok(())
    }

    /// The descriptors to wait for while there is nothing to do.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.queues.iter().map(QueueSocket::fd)
    }

    /// When a packet may leave a queue next.
    pub(crate) fn next_send_ns(&self) -> Option<u64> {
        self.engine.next_send_ns()
    }

    /// Goes through all queues once. Returns whether there was anything to do, or something is left to send.
    pub(crate) fn turn(&mut self) -> bool {
        let mut work = 0;
        for at in 0..self.queues.len() {
            work += self.receive(at);
        }
        work += self.engine.send(now_ns());
        if work > 0 {
            self.count();
        }
        let left = self.transmit();
        work > 0 || left
    }

    fn receive(&mut self, at: usize) -> u32 {
        let Self { queues, engine, clock, .. } = self;
        let queue = &mut queues[at];
        let Some(pair) = engine.pair(queue.pair) else { return 0 };
        queue.take(pair);
        let begun = now_ns();
        let received = engine.receive_batch(queue.pair, clock.jiffies(begun), begun);
        if let Some(pair) = engine.pair(queue.pair) {
            queue.fill(pair);
        }
        if received == 0 {
            return 0;
        }
        if now_ns() - begun > BATCH_NS_MAX {
            engine.discard();
            return received;
        }
        loop {
            let left = self.engine.settle(begun);
            if self.engine.has_for_linux() {
                self.flush();
                self.pass_to_linux();
            }
            if left == 0 {
                return received;
            }
        }
    }

    /// Gives frames to the kernel to send. Returns whether some are left.
    fn transmit(&mut self) -> bool {
        let mut left = false;
        for queue in &mut self.queues {
            // The first queue of a port sends.
            if let Some(pair) = self.engine.pair(queue.pair).filter(|_| queue.pair == usize::from(queue.slot))
            {
                left |= queue.transmit(pair);
            }
        }
        left
    }

    /// Sends until nothing is left, or a port does not send.
    fn flush(&mut self) {
        self.count();
        let until = now_ns() + FLUSH_NS_MAX;
        while self.transmit() && now_ns() < until {
            for queue in &mut self.queues {
                if let Some(pair) = self.engine.pair(queue.pair) {
                    queue.take(pair);
                }
            }
        }
    }

    /// Passes the frames that the engine did not forward to Linux, port by port.
    fn pass_to_linux(&mut self) {
        let mut frames: Vec<(u16, Vec<u8>)> = Vec::new();
        self.engine.passed_up(|sent| {
            let slot = sent.up.map_or(0, |(slot, _)| slot);
            frames.push((slot as u16, sent.frame.to_vec()));
        });
        for chunk in frames.chunk_by(|(a, _), (b, _)| a == b) {
            let slot = chunk[0].0;
            let Some(ifindex) =
                self.queues.iter().find(|queue| queue.slot == slot).map(|queue| queue.ifindex)
            else {
                continue;
            };
            for some in chunk.chunks(INJECTED_MAX as usize) {
                let Ok(side) = self.side() else { return };
                match side.inject(ifindex, some.iter().map(|(_, frame)| &frame[..])) {
                    Ok(()) => self.passed[usize::from(slot)] += some.len() as u64,
                    Err(error) => {
                        self.lost[usize::from(slot)] += some.len() as u64;
                        self.trouble = Some(error);
                    }
                }
            }
        }
    }

    /// A failure since the last call.
    pub(crate) fn take_trouble(&mut self) -> Option<io::Error> {
        self.trouble.take()
    }

    /// Adds what was counted since the last call to the counters that the daemon reads. Called before packets are given
    /// to the kernel: who has seen a packet leave finds it counted.
    pub(crate) fn count(&mut self) {
        for at in 0..self.slots.len() {
            let slot = self.slots[at];
            let now = *self.engine.counters(slot.into());
            let before = std::mem::replace(&mut self.counted[usize::from(slot)], now);
            let more = |field: fn(&IngressCounters) -> u64| field(&now).wrapping_sub(field(&before));
            let counted = ExternalPort {
                pkts: more(|c| c.pkts),
                bytes: more(|c| c.bytes),
                passed_pkts: std::mem::take(&mut self.passed[usize::from(slot)]),
                full_pkts: more(|c| c.tx_full_pkts + c.up_full_pkts + c.late_pkts)
                    + std::mem::take(&mut self.lost[usize::from(slot)]),
                queue_pkts: more(|c| c.queue_pkts),
                policed_pkts: more(|c| c.policed_pkts),
            };
            if let Ok(side) = self.side() {
                side.count(slot, &counted);
            }
        }
    }

    /// Copies frames of this VLAN between two ports, or no frames. Returns a warning if there is such a VLAN.
    pub(crate) fn copy_vlan(&mut self, vlan: Option<u16>) -> io::Result<Option<String>> {
        let slots = <[u16; 2]>::try_from(self.slots.as_slice()).ok();
        if let Some((vlan, slots)) = vlan.zip(slots) {
            self.engine.copy_vlan(vlan, slots);
            self.side()?.copy_vlan(vlan);
        } else {
            self.side()?.copy_vlan(0);
        }
        let ports = self.slots.len();
        Ok(vlan.map(|vlan| match slots {
            Some(_) => {
                format!("frames of VLAN {vlan} pass between its two ports without Linux (external_copy_vlan)")
            }
            None => format!(
                "external_copy_vlan: VLAN {vlan} needs exactly two ports to copy between; it serves {ports}"
            ),
        }))
    }

    /// Sets the queues and policers of all ports. Returns what is wrong with them.
    pub(crate) fn set_qos(&mut self, qos: &[Qos]) -> Vec<String> {
        let mut wrong = Vec::new();
        self.unscheduling.clear();
        for at in 0..self.slots.len() {
            let slot = usize::from(self.slots[at]);
            let of_port = qos.iter().find(|qos| qos.slot() == slot);
            match of_port.and_then(Qos::policer) {
                Some((bytes_per_s, burst)) => self.engine.set_policer(slot, bytes_per_s, burst),
                None => self.engine.unpolice(slot),
            }
            let done = match (of_port.and_then(Qos::scheduler), self.engine.scheduler_mut(slot)) {
                (Some(config), Some(scheduler)) => scheduler.configure(&config),
                (Some(config), None) => {
                    Scheduler::new(&config, QUEUED_MAX).map(|scheduler| self.engine.schedule(slot, scheduler))
                }
                (None, Some(scheduler)) => {
                    // What is queued leaves first, without a shaper.
                    let drained = scheduler.unshape();
                    self.unscheduling.push(slot);
                    drained
                }
                (None, None) => Ok(()),
            };
            wrong.extend(done.err().map(|error| format!("slot {slot}: {error}")));
        }
        wrong
    }

    /// Takes the schedulers off the ports that are to have none, once their queues are empty.
    pub(crate) fn finish_qos(&mut self) {
        let engine = &mut self.engine;
        self.unscheduling.retain(|slot| !engine.unschedule(*slot));
    }

    /// What the queues have counted.
    pub(crate) fn qos_counters(&self) -> Vec<QosCounters> {
        let of = |slot: &u16| {
            let scheduler = self.engine.scheduler((*slot).into());
            let policer = self.engine.policer((*slot).into()).map(Policer::counts);
            if scheduler.is_none() && policer.is_none() {
                return None;
            }
            let classes: Vec<_> = scheduler.map(Scheduler::all_counters).unwrap_or_default();
            Some(QosCounters::new(*slot, &classes, policer))
        };
        self.slots.iter().filter_map(of).collect()
    }
}
