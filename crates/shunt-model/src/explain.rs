//! What limits a case, and what would limit it next.

use crate::{
    case::{BYTES_MAX, COUNT_MAX, Case, Direction, Impossible, Protocol, RATE_MAX},
    prediction::{Part, Prediction},
    world,
};
use serde::{Deserialize, Serialize};

/// What limits a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// What the case does.
    pub prediction: Prediction,
    /// What limits it.
    pub bottleneck: Part,
    /// Why that is so, as a sentence.
    pub because: String,
    /// What would limit it if that did not.
    pub next: Part,
    /// The goodput then, in bit/s.
    pub next_goodput: f64,
}

/// A part is the limit if it is busy for more than this.
const FULL: f64 = 0.97;

/// Finds what limits a case: the part whose relief raises goodput most, or the sender if none does. Each part is
/// relieved by a factor of ten.
///
/// # Errors
/// Fails if a parameter cannot be, or if a cost that the prediction depends on is unknown.
pub fn explain(case: &Case) -> Result<Explanation, Impossible> {
    let prediction = world::run(case)?;
    let gains = reliefs(case)?;
    let total = prediction.total();
    let (bottleneck, relieved) = match gains.first() {
        Some((part, goodput, relieved)) if *goodput > total * 1.01 => (*part, Some((*goodput, relieved))),
        _ => (Part::Sender, None),
    };
    let because = because(case, &prediction, bottleneck);
    let (next, next_goodput) = match relieved {
        Some((goodput, relieved)) => {
            let further = reliefs(relieved)?;
            let next = further.iter().find(|(_, then, _)| *then > goodput * 1.01);
            (next.map_or(Part::Sender, |(part, ..)| *part), goodput)
        }
        None => {
            let busiest = prediction.busy.first().map_or(Part::Line, |(part, _)| *part);
            (busiest, total)
        }
    };
    Ok(Explanation { prediction, bottleneck, because, next, next_goodput })
}

/// The goodput with each part relieved alone, the best first.
fn reliefs(case: &Case) -> Result<Vec<(Part, f64, Case)>, Impossible> {
    let mut all = Vec::new();
    for part in PARTS {
        if let Some(relieved) = relieve(case, part) {
            let goodput = world::run(&relieved)?.total();
            all.push((part, goodput, relieved));
        }
    }
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    Ok(all)
}

/// Every part that can be relieved. Of two parts that gain the same, the first is the limit.
const PARTS: [Part; 13] = [
    Part::Line,
    Part::Switch,
    Part::Bus,
    Part::Cpu,
    Part::Program,
    Part::Engine,
    Part::Idle,
    Part::Memory,
    Part::Fifo,
    Part::Ring,
    Part::Socket,
    Part::RoundTrip,
    Part::Window,
];

/// A relieved part is faster, or larger, by this.
const FACTOR: f64 = 10.0;

/// The case with one part relieved; `None` if the case has no such part.
fn relieve(case: &Case, part: Part) -> Option<Case> {
    let mut case = case.clone();
    let forwards = !case.ends_here();
    let external = case.uses_engine();
    let tcp = case.traffic.protocol == Protocol::Tcp;
    match part {
        Part::Line => {
            case.link.rate = (case.link.rate * FACTOR).min(RATE_MAX);
            case.link.loss /= FACTOR;
        }
        Part::Switch if case.switch.onward_rate > 0.0 => {
            case.switch.onward_rate = (case.switch.onward_rate * FACTOR).min(RATE_MAX);
        }
        Part::Fifo => {
            case.fifo.bytes = larger(case.fifo.bytes, BYTES_MAX);
            case.fifo.frames = larger(case.fifo.frames, COUNT_MAX);
            case.fifo.recover_us /= FACTOR;
        }
        Part::Bus => {
            for rate in [&mut case.bus.rx_rate, &mut case.bus.tx_rate] {
                *rate = (*rate * FACTOR).min(RATE_MAX);
            }
            case.bus.frame_ns /= FACTOR;
        }
        Part::Ring => {
            for descriptors in [&mut case.ring.rx, &mut case.ring.tx] {
                *descriptors = larger(*descriptors, COUNT_MAX);
            }
        }
        Part::Memory if !external => relieve_memory(&mut case),
        Part::Cpu if !external => relieve_cpu(&mut case),
        Part::Idle if case.cpu.idle_exit_us > 0.0 && !external => case.cpu.idle_exit_us = 0.0,
        Part::Program if case.cpu.own_core && !forwards => {
            case.cpu.socket_ns /= FACTOR;
            case.cpu.socket_tx_ns /= FACTOR;
            relieve_copies(&mut case);
        }
        Part::Engine if external => case.forward.external_ns /= FACTOR,
        Part::Socket if case.traffic.direction == Direction::Rx => {
            case.cpu.socket_packets = larger(case.cpu.socket_packets, COUNT_MAX);
        }
        Part::Window if tcp => case.traffic.window = larger(case.traffic.window, BYTES_MAX),
        Part::RoundTrip if tcp => {
            for us in [&mut case.traffic.peer_us, &mut case.traffic.peer_interrupt_us] {
                *us /= FACTOR;
            }
        }
        _ => return None,
    }
    Some(case)
}

fn larger(count: u32, most: u32) -> u32 {
    count.saturating_mul(FACTOR as u32).min(most)
}

fn relieve_cpu(case: &mut Case) {
    let (driver, cpu, forward) = (&mut case.driver, &mut case.cpu, &mut case.forward);
    for cost in [
        &mut driver.rx_ns,
        &mut driver.fragment_ns,
        &mut driver.tx_ns,
        &mut driver.complete_ns,
        &mut driver.descriptor_ns,
        &mut driver.buffer_ns,
        &mut case.memory.maintain_ns,
        &mut cpu.irq_ns,
        &mut cpu.stack_rx_ns,
        &mut cpu.stack_tx_ns,
        &mut cpu.ack_ns,
        &mut forward.slow_ns,
        &mut forward.slow_nat_ns,
        &mut forward.slow_tcp_ns,
        &mut forward.tc_ns,
        &mut forward.xdp_ns,
    ] {
        *cost /= FACTOR;
    }
    if !cpu.own_core {
        cpu.socket_ns /= FACTOR;
        cpu.socket_tx_ns /= FACTOR;
    }
    relieve_copies(case);
}

fn relieve_copies(case: &mut Case) {
    let memory = &mut case.memory;
    for cost in [&mut memory.uncached_ns, &mut memory.cold_ns, &mut memory.cached_ns, &mut memory.checksum_ns]
    {
        *cost /= FACTOR;
    }
}

fn relieve_memory(case: &mut Case) {
    case.memory.rate = (case.memory.rate * FACTOR).min(RATE_MAX);
    for cost in [&mut case.memory.uncached_ns, &mut case.memory.cold_ns] {
        *cost /= FACTOR;
    }
}

fn because(case: &Case, prediction: &Prediction, bottleneck: Part) -> String {
    let busy = prediction.busy.iter().find(|(part, _)| *part == bottleneck).map(|(_, busy)| 100.0 * busy);
    let most = prediction.drops.by_place().into_iter().max_by_key(|(count, _)| *count);
    let most = most.filter(|(count, _)| *count > 0);
    let lost = most.map_or(String::new(), |(count, what)| format!("; {count} packets {what}"));
    let name = bottleneck.name();
    let why = match (bottleneck, busy) {
        (Part::Sender, _) if case.traffic.protocol == Protocol::Udp => "no more is offered".to_owned(),
        (Part::Sender, _) => "no part holds it back".to_owned(),
        (Part::Cpu, Some(busy)) if prediction.cores.len() > 1 && busy >= 100.0 * FULL => {
            let cores = prediction.cores.len();
            let mean = 100.0 * prediction.cores.iter().sum::<f64>() / cores as f64;
            format!("one core of {cores} is busy for {busy:.0} % of the time, and their mean is {mean:.0} %")
        }
        (_, Some(busy)) if busy < 100.0 * FULL => {
            format!("{name} is busy for {busy:.0} % of the time, and traffic comes in bursts")
        }
        (_, Some(busy)) => format!("{name} is busy for {busy:.0} % of the time"),
        (Part::Idle, None) => {
            format!("after a gap in the traffic, the CPU wakes {} us late", case.cpu.idle_exit_us)
        }
        (Part::Fifo, None) => format!("{} bytes do not hold the bursts", case.fifo.bytes),
        (Part::Ring, None) => "its descriptors are used up".to_owned(),
        (Part::Socket, None) => format!("it holds {} packets", case.cpu.socket_packets),
        (Part::Memory, None) => "driver and stack wait for it".to_owned(),
        (_, None) => format!("{name} holds the sender back"),
    };
    why + &lost
}
