//! The steps of an episode, determined by its seed: rounds of packets, and changes between them.

use crate::{
    change::{Change, Changes},
    flow::{Flow, Speech},
    packet::{Intent, Shape},
    site::Wires,
};
use fastrand::Rng;
use std::{collections::VecDeque, fmt};

/// One step. Within a round, a flow's packets go in one direction, so that both routers see them in the same order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Round(Vec<Intent>),
    Change(Change),
}

/// An episode: its flows and its steps.
#[derive(Debug, Clone)]
pub(crate) struct EpisodePlan {
    pub(crate) seed: u64,
    pub(crate) packets: u64,
    pub(crate) wires: Wires,
    pub(crate) flows: Vec<Flow>,
    pub(crate) steps: Vec<Step>,
}

const FLOWS: u16 = 240;
/// Number of flows that are active at a time.
const BUSY: usize = 36;
/// Packets per round: fewer than a veth's ring holds, including all fragments.
const ROUND: usize = 100;
/// Shapes that often have RST come in one round of four: after each RST, a run waits until conntrack is corrected.
const RESETS_EVERY: u32 = 4;

impl EpisodePlan {
    /// Generates an episode with `packets` packets, and `changes` changes spread among them.
    pub(crate) fn new(seed: u64, packets: u64, changes: u64, wires: Wires, ipsec: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        let flows: Vec<Flow> = (0..FLOWS).map(Flow::new).collect();
        let mut talk = Talk::new(&flows, wires);
        let mut made = Changes::new(&flows, wires, ipsec);
        let mut steps = Vec::new();
        let (mut sent, mut changed) = (0, 0);
        while sent < packets {
            let round = talk.round(&mut rng, (packets - sent).min(ROUND as u64) as usize);
            sent += round.len() as u64;
            steps.push(Step::Round(round));
            // Make a change after the first half of its share of packets, so that packets come before and after it.
            while changed < changes && sent * changes * 2 >= (2 * changed + 1) * packets {
                steps.push(Step::Change(made.next(&mut rng)));
                changed += 1;
            }
        }
        Self { seed, packets, wires, flows, steps }
    }
}

/// Generates the packets.
struct Talk<'a> {
    flows: &'a [Flow],
    wires: Wires,
    busy: Vec<Speaker>,
    number: u32,
    rounds: u32,
}

struct Speaker {
    flow: usize,
    /// The next packets that open or close the connection.
    script: VecDeque<(bool, Shape)>,
    open: bool,
}

impl<'a> Talk<'a> {
    fn new(flows: &'a [Flow], wires: Wires) -> Self {
        Self { flows, wires, busy: Vec::new(), number: 0, rounds: 0 }
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
        self.rounds += 1;
        let resets = self.rounds.is_multiple_of(RESETS_EVERY);
        let mut round = Vec::new();
        for speaker in &mut self.busy {
            let flow = &self.flows[speaker.flow];
            let (back, shapes) = speaker.next(flow.speech, resets, rng);
            for shape in shapes {
                // Linux reassembles IPv6 fragments and forwards the originals only if each has headroom for its
                // headers. For a VLAN device's, a veth has no headroom, but a frame that passed XDP has.
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
    /// The direction and the shapes of the packets for the next round; shapes that often have RST only if `resets`.
    fn next(&mut self, speech: Speech, resets: bool, rng: &mut Rng) -> (bool, Vec<Shape>) {
        if speech == Speech::Tcp {
            if !self.open {
                self.open = true;
                self.script.extend([(false, Shape::Syn), (true, Shape::SynAck), (false, Shape::Plain)]);
            }
            if let Some((back, shape)) = self.script.front().copied() {
                if shape.often_resets() && !resets {
                    return (back, Vec::new());
                }
                self.script.pop_front();
                return (back, vec![shape]);
            }
            if rng.u8(..40) == 0 {
                // The next connection uses the same ports.
                self.open = false;
                self.script.extend(ends(rng));
            }
        }
        let back = speech != Speech::OneWay && rng.bool();
        let count = rng.usize(1..6);
        let mut permitted = || Some(shape(speech, rng)).filter(|shape| resets || !shape.often_resets());
        let shapes = (0..count).map(|_| permitted().unwrap_or(Shape::Plain)).collect();
        (back, shapes)
    }
}

/// The end of a connection: by FIN of one side after the other, by FIN of both at once, or by RST. Acknowledgements may
/// be missing, a FIN may come twice, one side may send more after the other has ended, and a reset that closes nothing
/// may come before any of these packets.
fn ends(rng: &mut Rng) -> Vec<(bool, Shape)> {
    use Shape::{Fin, FinAgain, NearReset, Plain, Reset};
    let first = rng.bool();
    let (ours, theirs) = (|shape| (first, shape), |shape| (!first, shape));
    let mut end = match rng.u8(..6) {
        0 => vec![ours(Fin), theirs(Plain), theirs(Fin), ours(Plain)],
        1 => vec![ours(Fin), theirs(Fin), theirs(Plain), ours(Plain)],
        2 => vec![ours(Fin), ours(FinAgain), theirs(Plain), theirs(Fin), theirs(FinAgain), ours(Plain)],
        3 => vec![ours(Fin), theirs(Plain), ours(Plain), theirs(Plain), theirs(Fin)],
        4 => vec![ours(Fin), theirs(Fin), if rng.bool() { ours(Reset) } else { theirs(Reset) }],
        _ => vec![ours(Reset)],
    };
    if rng.u8(..3) == 0 {
        end.insert(rng.usize(..end.len()), (rng.bool(), NearReset));
    }
    end
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
