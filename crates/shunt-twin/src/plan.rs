//! What happens in an episode, from a seed: rounds of packets and changes between them.

use crate::{
    change::{Change, Changes},
    flow::{Flow, Speech},
    packet::{Intent, Shape},
    site::Wires,
};
use fastrand::Rng;
use std::{collections::VecDeque, fmt};

/// One step. A flow's packets within a round go one way, so that two routers meet them in the same order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Round(Vec<Intent>),
    Change(Change),
}

/// An episode: its flows, and its steps in their order.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) packets: u64,
    pub(crate) wires: Wires,
    pub(crate) flows: Vec<Flow>,
    pub(crate) steps: Vec<Step>,
}

const FLOWS: u16 = 240;
/// So many flows are busy at a time.
const BUSY: usize = 36;
/// Fewer than a veth holds, with all fragments.
const ROUND: usize = 100;

impl Plan {
    /// So many packets, with so many changes spread among them.
    pub(crate) fn new(seed: u64, packets: u64, changes: u64, wires: Wires) -> Self {
        let mut rng = Rng::with_seed(seed);
        let flows: Vec<Flow> = (0..FLOWS).map(Flow::of).collect();
        let mut talk = Talk::new(&flows, wires);
        let mut made = Changes::new(&flows, wires);
        let mut steps = Vec::new();
        let (mut sent, mut changed) = (0, 0);
        while sent < packets {
            let round = talk.round(&mut rng, (packets - sent).min(ROUND as u64) as usize);
            sent += round.len() as u64;
            steps.push(Step::Round(round));
            // After the first half of its share of packets, so that there is something to change and to see of it.
            while changed < changes && sent * changes * 2 >= (2 * changed + 1) * packets {
                steps.push(Step::Change(made.next(&mut rng)));
                changed += 1;
            }
        }
        Self { seed, packets, wires, flows, steps }
    }
}

/// Who says what next.
struct Talk<'a> {
    flows: &'a [Flow],
    wires: Wires,
    busy: Vec<Speaker>,
    number: u32,
}

struct Speaker {
    flow: usize,
    /// What must come next for the connection to open or close.
    script: VecDeque<(bool, Shape)>,
    open: bool,
}

impl<'a> Talk<'a> {
    fn new(flows: &'a [Flow], wires: Wires) -> Self {
        Self { flows, wires, busy: Vec::new(), number: 0 }
    }

    fn round(&mut self, rng: &mut Rng, packets: usize) -> Vec<Intent> {
        if self.busy.len() == BUSY && rng.u8(..3) == 0 {
            self.busy.swap_remove(rng.usize(..BUSY));
        }
        while self.busy.len() < BUSY {
            let flow = rng.usize(..self.flows.len());
            if self.busy.iter().all(|speaker| speaker.flow != flow) {
                self.busy.push(Speaker { flow, script: VecDeque::new(), open: false });
            }
        }
        rng.shuffle(&mut self.busy);
        let mut round = Vec::new();
        for speaker in &mut self.busy {
            let flow = &self.flows[speaker.flow];
            let (back, shapes) = speaker.next(flow.speech, rng);
            for shape in shapes {
                // Linux puts fragments of IPv6 together, and sends them on as they came only where there is room for the
                // headers in front of each. For a VLAN's there is none on a veth, but what has been through XDP has it.
                let cut = flow.kind.is_v6() && shape == Shape::Fragments;
                let shape = if cut && self.wires == Wires::Tagged { Shape::Plain } else { shape };
                if round.len() < packets {
                    self.number += 1;
                    round.push(Intent {
                        flow: flow.number,
                        back,
                        shape,
                        size: size(shape, rng),
                        number: self.number,
                    });
                }
            }
        }
        round
    }
}

impl Speaker {
    /// Its direction, and what it sends this time.
    fn next(&mut self, speech: Speech, rng: &mut Rng) -> (bool, Vec<Shape>) {
        if speech == Speech::Tcp {
            if !self.open {
                self.open = true;
                self.script.extend([(false, Shape::Syn), (true, Shape::SynAck), (false, Shape::Plain)]);
            }
            if let Some((back, shape)) = self.script.pop_front() {
                return (back, vec![shape]);
            }
            if rng.u8(..40) == 0 {
                // The same ports are used again next.
                self.open = false;
                self.script.extend(ends(rng));
            }
        }
        let back = speech != Speech::OneWay && rng.bool();
        let shapes = (0..rng.usize(1..6)).map(|_| shape(speech, rng)).collect();
        (back, shapes)
    }
}

/// The ends of a connection: one side after the other, both at once, by reset.
fn ends(rng: &mut Rng) -> Vec<(bool, Shape)> {
    let first = rng.bool();
    match rng.u8(..3) {
        0 => vec![(first, Shape::Fin), (!first, Shape::Plain), (!first, Shape::Fin), (first, Shape::Plain)],
        1 => vec![(first, Shape::Fin), (!first, Shape::Fin), (!first, Shape::Plain), (first, Shape::Plain)],
        _ => vec![(first, Shape::Reset)],
    }
}

fn shape(speech: Speech, rng: &mut Rng) -> Shape {
    const ODD: &[Shape] = &[
        Shape::Large,
        Shape::Large,
        Shape::Ttl,
        Shape::Class,
        Shape::BadChecksum,
        Shape::NoChecksum,
        Shape::BadHeader,
        Shape::Options,
        Shape::Fragments,
        Shape::Lie,
        Shape::Lie,
        Shape::Tagged,
        Shape::Padded,
        Shape::OtherMac,
        Shape::Error,
        Shape::Error,
        Shape::Junk,
    ];
    match rng.u8(..100) {
        0..88 => Shape::Plain,
        88 if speech == Speech::Tcp => Shape::Flags,
        _ => ODD[rng.usize(..ODD.len())],
    }
}

fn size(shape: Shape, rng: &mut Rng) -> u16 {
    match shape {
        Shape::Large => rng.u16(1200..1900),
        Shape::Fragments => rng.u16(40..1400),
        _ => match rng.u8(..8) {
            0..4 => 12,
            4..7 => rng.u16(12..600),
            _ => rng.u16(600..1200),
        },
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Change(change) => write!(f, "change: {change}"),
            Self::Round(intents) => {
                write!(f, "packets:")?;
                for intent in intents {
                    let Intent { flow, back, shape, size, number } = intent;
                    let way = if *back { "back" } else { "there" };
                    write!(f, " [{number}: flow {flow} {way}, {shape:?}, {size} bytes]")?;
                }
                Ok(())
            }
        }
    }
}
