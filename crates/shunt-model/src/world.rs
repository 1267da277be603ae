//! The simulation: senders, lines, MACs, rings, the CPU and what it runs.
//!
//! Each part has at most one event ahead, so the agenda is an array with one slot for each part, and the next event is
//! the earliest slot. Slots of equal time run in the order of their numbers.

mod cpu;
mod frame;
mod latency;
mod mac;
mod memory;
mod outcome;
mod peer;
mod program;
mod switch;
mod tcp;
mod transmit;

use crate::{
    case::{Case, Direction, Impossible, Protocol},
    prediction::{Drops, Prediction},
    send_times::SendTimes,
    time::{NEVER, Ps, SECOND, from_ns, from_ps, of_bytes},
};
use cpu::Core;
use fastrand::Rng;
use frame::{Frame, Frames, Kind};
use latency::Latency;
use mac::Mac;
use memory::Memory;
use peer::Peer;
use program::Program;
use switch::Onward;
use tcp::Sender;
use transmit::Transmit;

const PORTS: usize = 2;

/// A receiver waits at most 40 ms for another segment to acknowledge, as Linux does.
const DELAYED_ACK: Ps = 40_000_000_000;

/// What a slot of the agenda is for; per port, flow, core or queue, the number is added.
mod slot {
    pub(super) const LINE_IN: usize = 0;
    pub(super) const DMA_IN: usize = 2;
    pub(super) const PROGRAM: usize = 4;
    pub(super) const ENGINE: usize = 5;
    pub(super) const DMA_OUT: usize = 6;
    pub(super) const LINE_OUT: usize = 8;
    pub(super) const PEER: usize = 10;
    pub(super) const SEND: usize = 12;
    pub(super) const ACK: usize = 14;
    pub(super) const TIMEOUT: usize = 16;
    pub(super) const ONWARD: usize = 18;
    pub(super) const RESUME: usize = 20;
    pub(super) const XON: usize = 22;
    pub(super) const PING: usize = 24;
    /// The cores, and behind them the interrupts of the queues of both ports.
    pub(super) const CORES: usize = 25;
}

/// Where a flow begins or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Peer(usize),
    Board,
}

#[derive(Debug)]
struct Flow {
    from: End,
    to: End,
    source: SendTimes,
    sender: Sender,
    /// TCP: when the sender at a peer can send again.
    ready: Ps,
    /// The sender waits for room: in a queue, in a ring.
    blocked: bool,
    sent: u64,
    received: u64,
    received_bytes: u64,
    lost: u64,
    /// Receiver: segments that are not acknowledged, and since when.
    unacked: u32,
    unacked_since: Ps,
    last: u64,
    /// The core of the board that received the last segment.
    core: usize,
}

/// Time that parts were busy.
#[derive(Debug, Default)]
struct Busy {
    lines: [Ps; 2 * PORTS],
    bus_in: [Ps; PORTS],
    bus_out: [Ps; PORTS],
    cores: Vec<Ps>,
    program: Ps,
    engine: Ps,
    sender_waits: bool,
}

#[derive(Debug)]
struct World<'c> {
    case: &'c Case,
    now: Ps,
    agenda: Vec<Ps>,
    flows: Vec<Flow>,
    peers: [Peer; PORTS],
    macs: [Mac; PORTS],
    transmits: [Transmit; PORTS],
    onward: [Onward; PORTS],
    cores: Vec<Core>,
    program: Program,
    /// The frame in the external engine, and the port that the engine looks at next.
    engine: Option<(usize, Frame)>,
    bus_free: Ps,
    memory: Memory,
    drops: Drops,
    pauses: u64,
    pauses_received: u64,
    busy: Busy,
    /// Time of payload in the board, and round trips of pings.
    in_the_box: Latency,
    pings: Latency,
    pings_lost: u64,
    costs: Costs,
    /// What the line damages.
    damage: Rng,
}

/// Durations that are computed once.
#[derive(Debug)]
struct Costs {
    byte_line: f64,
    byte_rx: f64,
    byte_tx: f64,
    bus_frame: Ps,
    gap: Ps,
    propagation: Ps,
    /// From the moment when a MAC asks for a pause until its partner stops: the pause frame, and the cable both ways,
    /// since the clocks of the two differ by a propagation.
    until_pause: Ps,
    /// What a pause frame asks for.
    pause_quanta: Ps,
}

impl Costs {
    fn new(case: &Case) -> Self {
        let per_byte = |rate: f64| 8.0 / rate * SECOND;
        let gap = of_bytes(case.link.gap_bytes, case.link.rate);
        let propagation = from_ns(case.link.propagation_ns);
        Self {
            byte_line: per_byte(case.link.rate),
            byte_rx: per_byte(case.bus.rx_rate),
            byte_tx: per_byte(case.bus.tx_rate),
            bus_frame: from_ns(case.bus.frame_ns),
            gap,
            propagation,
            until_pause: of_bytes(64, case.link.rate) + gap + 2 * propagation,
            pause_quanta: of_bytes(64, case.link.rate).saturating_mul(Ps::from(case.fifo.pause_quanta)),
        }
    }

    fn on_line(&self, bytes: u32) -> Ps {
        from_ps(f64::from(bytes) * self.byte_line)
    }

    fn received(&self, bytes: u32) -> Ps {
        self.bus_frame + from_ps(f64::from(bytes) * self.byte_rx)
    }

    fn sent(&self, bytes: u32) -> Ps {
        self.bus_frame + from_ps(f64::from(bytes) * self.byte_tx)
    }
}

/// Predicts what a case does.
///
/// # Errors
/// Fails if a parameter cannot be, or if a cost that the prediction depends on is unknown.
pub fn run(case: &Case) -> Result<Prediction, Impossible> {
    case.check()?;
    case.check_known()?;
    Ok(World::new(case).run())
}

impl<'c> World<'c> {
    fn new(case: &'c Case) -> Self {
        let t = &case.traffic;
        let ends: &[(End, End)] = match t.direction {
            Direction::Rx => &[(End::Peer(0), End::Board)],
            Direction::Tx => &[(End::Board, End::Peer(0))],
            Direction::Forward => &[(End::Peer(0), End::Peer(1))],
            Direction::Both => &[(End::Peer(0), End::Peer(1)), (End::Peer(1), End::Peer(0))],
        };
        let costs = Costs::new(case);
        // The line limits a sender at a peer; the rings limit the board.
        let line = costs.on_line(t.frame_bytes(t.payload)) + costs.gap;
        let least = |from| from_ns(t.sender_ns).max(if from == End::Board { 0 } else { line });
        let flow = |(number, &(from, to)): (usize, &(End, End))| Flow {
            from,
            to,
            source: SendTimes::new(t, least(from), Rng::with_seed(u64::from(case.seed) * 2 + number as u64)),
            sender: Sender::default(),
            ready: 0,
            blocked: false,
            sent: 0,
            received: 0,
            received_bytes: 0,
            lost: 0,
            unacked: 0,
            unacked_since: 0,
            last: 0,
            core: 0,
        };
        let (cores, queues) = (case.stack_cores(), case.ring.queues);
        Self {
            case,
            now: 0,
            agenda: vec![NEVER; slot::CORES + cores + PORTS * queues as usize],
            flows: ends.iter().enumerate().map(flow).collect(),
            peers: Default::default(),
            macs: [(); PORTS].map(|()| Mac::new(queues)),
            transmits: [(); PORTS].map(|()| Transmit::new(queues)),
            onward: Default::default(),
            cores: (0..cores).map(|_| Core::default()).collect(),
            program: Program::default(),
            engine: None,
            bus_free: 0,
            memory: Memory::new(case),
            drops: Drops::default(),
            pauses: 0,
            pauses_received: 0,
            busy: Busy { cores: vec![0; cores], ..Busy::default() },
            in_the_box: Latency::default(),
            pings: Latency::default(),
            pings_lost: 0,
            costs,
            damage: Rng::with_seed(!u64::from(case.seed)),
        }
    }

    fn run(mut self) -> Prediction {
        let end = (self.case.traffic.seconds * SECOND) as Ps;
        for flow in 0..self.flows.len() {
            // The second direction begins half a microsecond later, so that the two are not in step.
            self.agenda[slot::SEND + flow] = 500_000 * flow as Ps;
        }
        if self.case.traffic.ping_every_us > 0.0 {
            self.agenda[slot::PING] = 0;
        }
        let mut events = 0;
        loop {
            let (slot, at) = self.next();
            if at >= end {
                break;
            }
            self.now = at;
            self.agenda[slot] = NEVER;
            events += 1;
            self.handle(slot);
        }
        self.now = end;
        self.predict(events)
    }

    fn next(&self) -> (usize, Ps) {
        let mut first = (0, self.agenda[0]);
        for (slot, at) in self.agenda.iter().enumerate().skip(1) {
            if *at < first.1 {
                first = (slot, *at);
            }
        }
        first
    }

    fn handle(&mut self, slot: usize) {
        match slot {
            0..2 => self.line_in(slot - slot::LINE_IN),
            2..4 => self.dma_in_done(slot - slot::DMA_IN),
            slot::PROGRAM => self.program_done(),
            slot::ENGINE => self.engine_done(),
            6..8 => self.dma_out_done(slot - slot::DMA_OUT),
            8..10 => self.line_out_done(slot - slot::LINE_OUT),
            10..12 => self.peer_handles(slot - slot::PEER),
            12..14 => self.send(slot - slot::SEND),
            14..16 => self.acknowledge(slot - slot::ACK),
            16..18 => self.timeout(slot - slot::TIMEOUT),
            18..20 => self.onward_done(slot - slot::ONWARD),
            20..22 => self.resume_sending(slot - slot::RESUME),
            22..24 => self.check_xon(slot - slot::XON),
            slot::PING => self.ping(),
            _ => match (slot - slot::CORES).checked_sub(self.cores.len()) {
                None => self.core_done(slot - slot::CORES),
                Some(irq) => self.interrupt(irq % PORTS, irq / PORTS),
            },
        }
    }

    fn irq_slot(&self, port: usize, queue: usize) -> usize {
        slot::CORES + self.cores.len() + PORTS * queue + port
    }

    fn schedule(&mut self, slot: usize, at: Ps) {
        self.agenda[slot] = at.max(self.now);
    }

    /// Notes that a frame is lost. What is lost shows in the acknowledgement of a later frame.
    fn lose(&mut self, frame: Frame) {
        let flow = &mut self.flows[usize::from(frame.flow)];
        match frame.kind {
            Kind::Udp => flow.lost += 1,
            Kind::Data => {
                flow.lost += 1;
                flow.sender.dropped(frame.index);
            }
            Kind::Ack => {}
            Kind::Ping | Kind::Pong => self.pings_lost += 1,
        }
    }

    fn is_damaged(&mut self) -> bool {
        self.case.link.loss > 0.0 && self.damage.f64() < self.case.link.loss
    }

    fn lose_on_line(&mut self, frame: Frame) {
        self.drops.line += 1;
        self.lose(frame);
    }

    fn receive(&mut self, frame: Frame) {
        let flow = &mut self.flows[usize::from(frame.flow)];
        flow.received += 1;
        flow.received_bytes += u64::from(frame.payload);
    }
}
