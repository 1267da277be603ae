//! Packets from ring to ring. Only the engine's turns are timed: a driver would write the packets by DMA.

use anyhow::{Context, ensure};
use nix::time::{ClockId, clock_gettime};
use shunt_bpf::{Entry, Key, Size, abi, wire::flow_between};
use shunt_wire::{Packet, Tag};
use shunt_xsk::Engine;
use std::{
    cell::RefCell,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

/// Entries of each ring, the default of AF_XDP's users.
const RING: u32 = 2048;
/// Frames in the packet memory: both fill rings, and as many on their way.
const FRAMES: u32 = 4 * RING;
const PACKETS: u32 = 400 * RING;
const IN: usize = 0;
const OUT: usize = 1;
const IFINDEX: u32 = 7;
/// The clock stands still: no proof becomes due.
const TICKS: u64 = 1000;

/// The order in which packets of the flows arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// One flow after the other.
    InTurn,
    /// Each packet is of any flow.
    Random,
}

/// Frames of 64 bytes on the wire that differ in few bytes. Whole frames of 100,000 flows would displace the engine's
/// data from the caches.
#[derive(Default)]
struct Frames {
    first: Vec<u8>,
    varying: Vec<[u8; VARYING.len()]>,
}

/// Offsets of the header checksum, the source address, the source port and the UDP checksum.
const VARYING: [usize; 10] = [24, 25, 26, 27, 28, 29, 34, 35, 40, 41];

impl Frames {
    fn push(&mut self, frame: Vec<u8>) -> anyhow::Result<()> {
        self.varying.push(VARYING.map(|at| frame[at]));
        if self.first.is_empty() {
            self.first = frame.clone();
        }
        let mut buffer = self.first.clone();
        ensure!(self.get(self.varying.len() - 1, &mut buffer) == frame, "frames differ elsewhere: {frame:?}");
        Ok(())
    }

    /// The frame with this number, in a buffer that has another one.
    fn get<'b>(&self, number: usize, buffer: &'b mut [u8]) -> &'b [u8] {
        for (at, byte) in VARYING.into_iter().zip(self.varying[number]) {
            buffer[at] = byte;
        }
        buffer
    }
}

/// Flows behind a source NAT: their entries, and their packets as they arrive and leave.
pub struct Flows {
    entries: Vec<(Key, Entry)>,
    before: Frames,
    after: Frames,
}

impl Flows {
    /// Makes this many flows.
    pub fn new(count: u32) -> anyhow::Result<Self> {
        let mut flows = Self { entries: Vec::new(), before: Frames::default(), after: Frames::default() };
        for number in 0..count {
            let (before, after) = pair(number);
            let (key, entry) = learned(&before, &after).context("a flow cannot be expressed")?;
            flows.entries.push((key, entry));
            flows.before.push(before.to_bytes())?;
            flows.after.push(after.to_bytes())?;
        }
        Ok(flows)
    }

    /// Forwards packets of the first `count` flows; returns million packets per second of CPU time.
    pub fn mpps(&self, count: usize, order: Order) -> anyhow::Result<f64> {
        let mut engine = engine(3 * count as u32 / 2);
        for (key, entry) in &self.entries[..count] {
            engine.tables().put(key, entry)?;
        }
        let mut chosen = Chosen { flows: count, order, next: 0, random: fastrand::Rng::with_seed(1) };
        let (mut before, mut after) = (self.before.first.clone(), self.after.first.clone());
        let given = RefCell::new(Vec::new());
        timed(
            &mut engine,
            |receive| {
                given.borrow_mut().clear();
                (0..RING).all(|_| {
                    let number = chosen.next();
                    given.borrow_mut().push(number);
                    receive(self.before.get(number, &mut before))
                })
            },
            |at, frame| frame == self.after.get(given.borrow()[at], &mut after),
        )
    }
}

/// As [`Flows::mpps`], for frames of a VLAN that the engine only copies.
pub fn copied_mpps() -> anyhow::Result<f64> {
    const VLAN: u16 = 255;
    let mut engine = engine(1);
    engine.copy_vlan(VLAN, [IN as u16, OUT as u16]);
    let frame = pair(0).0.with_tags(&[Tag::vlan(VLAN)]).to_bytes();
    timed(&mut engine, |receive| (0..RING).all(|_| receive(&frame)), |_, sent| sent == frame)
}

/// An engine with two ports and an empty table.
fn engine(max_flows: u32) -> Engine {
    let mut engine = Engine::new(Size { max_flows, seed: 1 }, FRAMES);
    engine.add_port(IN, IFINDEX, RING);
    engine.add_port(OUT, IFINDEX + 1, RING);
    engine.tables().change_control(|control| {
        (control.epoch, control.heartbeat_ticks, control.heartbeat_max_ticks) = (7, TICKS, 1000);
    });
    engine.poll(TICKS, 0);
    engine
}

/// Fills the ring of the ingress port, has the engine empty it, checks what leaves, and so on. Returns million packets
/// per second of the engine's CPU time.
fn timed(
    engine: &mut Engine,
    mut fill: impl FnMut(&mut dyn FnMut(&[u8]) -> bool) -> bool,
    mut is_right: impl FnMut(usize, &[u8]) -> bool,
) -> anyhow::Result<f64> {
    let (mut spent, mut sent) = (Duration::ZERO, 0);
    for round in 0..=PACKETS / RING {
        ensure!(fill(&mut |frame| engine.receive(IN, frame)), "the ring of the ingress port is full");
        let begun = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
        while engine.poll(TICKS, 0) != 0 {}
        let ended = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
        // The first round warms up.
        if round > 0 {
            spent += Duration::from(ended - begun);
            sent += RING;
        }
        let (mut at, mut wrong) = (0, 0);
        engine.sent(OUT, |frame| {
            wrong += u32::from(!is_right(at, frame.frame));
            at += 1;
        });
        ensure!(at == RING as usize && wrong == 0, "{at} of {RING} packets left, {wrong} of them wrong");
    }
    Ok(f64::from(sent) / spent.as_secs_f64() / 1e6)
}

struct Chosen {
    flows: usize,
    order: Order,
    next: usize,
    random: fastrand::Rng,
}

impl Chosen {
    fn next(&mut self) -> usize {
        self.next = match self.order {
            Order::InTurn => (self.next + 1) % self.flows,
            Order::Random => self.random.usize(..self.flows),
        };
        self.next
    }
}

/// The packet of a flow as it arrives, and as it leaves.
fn pair(number: u32) -> (Packet, Packet) {
    let end = |network: [u8; 4], host: u32, port| {
        SocketAddr::from((Ipv4Addr::from(u32::from_be_bytes(network) + host), port))
    };
    let port = 1024 + (number % 250) as u16;
    let to = end([198, 18, 0, 2], 0, 443);
    let before = Packet::udp_between(end([10, 0, 0, 1], number / 250, port), to).payload([0; 18]);
    let after = before.clone().with_source(end([198, 18, 1, 0], 0, port)).with_hop_limit(63);
    (before, after)
}

fn learned(before: &Packet, after: &Packet) -> Option<(Key, Entry)> {
    let (key, mut entry) = flow_between(before, after, IFINDEX)?;
    entry.flow.flags &= !abi::FLOW_STATIC;
    entry.flow.epoch = 7;
    (entry.flow.reprove_at_ticks, entry.flow.prove_by_ticks) = (TICKS as u32 + 1000, TICKS as u32 + 2000);
    (entry.flow.in_slot, entry.flow.out_slot) = (IN as u16, OUT as u16);
    Some((key, entry))
}
