//! What limits a case, and what would limit it next.

use crate::{
    case::{BYTES_MAX, Case, Direction, Impossible, Protocol, RATE_MAX},
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

/// Finds what limits a case: the part whose relief raises goodput most, or the sender if none does.
///
/// # Errors
/// Fails if a parameter cannot be.
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
    for part in [Part::Line, Part::Switch, Part::Bus, Part::Cpu, Part::Program, Part::Engine, Part::Window] {
        if let Some(relieved) = relieve(case, part) {
            let goodput = world::run(&relieved)?.total();
            all.push((part, goodput, relieved));
        }
    }
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    Ok(all)
}

/// The case with a part of ten times the speed; `None` if the case has no such part.
fn relieve(case: &Case, part: Part) -> Option<Case> {
    const FASTER: f64 = 10.0;
    let mut case = case.clone();
    let router = matches!(case.traffic.direction, Direction::Forward | Direction::Both);
    let external = case.forward.path == crate::Path::External;
    match part {
        Part::Line => case.link.rate = (case.link.rate * FASTER).min(RATE_MAX),
        Part::Switch if case.switch.onward_rate > 0.0 => {
            case.switch.onward_rate = (case.switch.onward_rate * FASTER).min(RATE_MAX);
        }
        Part::Bus => {
            for rate in [&mut case.bus.rx_rate, &mut case.bus.tx_rate] {
                *rate = (*rate * FASTER).min(RATE_MAX);
            }
            case.bus.frame_ns /= FASTER;
        }
        Part::Cpu if external => return None,
        Part::Cpu => {
            let (driver, cpu, forward) = (&mut case.driver, &mut case.cpu, &mut case.forward);
            for cost in [
                &mut driver.rx_ns,
                &mut driver.tx_ns,
                &mut driver.complete_ns,
                &mut driver.descriptor_ns,
                &mut driver.buffer_ns,
                &mut cpu.irq_ns,
                &mut cpu.stack_rx_ns,
                &mut cpu.stack_tx_ns,
                &mut cpu.ack_ns,
                &mut cpu.idle_exit_us,
                &mut forward.slow_ns,
                &mut forward.slow_nat_ns,
                &mut forward.tc_ns,
                &mut forward.xdp_ns,
            ] {
                *cost /= FASTER;
            }
            if !cpu.own_core {
                cpu.socket_ns /= FASTER;
            }
            relieve_memory(&mut case);
        }
        Part::Program if case.cpu.own_core && !router => {
            case.cpu.socket_ns /= FASTER;
            relieve_memory(&mut case);
        }
        Part::Engine if external => case.forward.external_ns /= FASTER,
        Part::Window if case.traffic.protocol == Protocol::Tcp => {
            case.traffic.window = case.traffic.window.saturating_mul(10).min(BYTES_MAX);
        }
        Part::Switch | Part::Program | Part::Engine | Part::Window | Part::Sender => return None,
    }
    Some(case)
}

fn relieve_memory(case: &mut Case) {
    let memory = &mut case.memory;
    for cost in [&mut memory.uncached_ns, &mut memory.cold_ns, &mut memory.cached_ns, &mut memory.checksum_ns]
    {
        *cost /= 10.0;
    }
}

fn because(case: &Case, prediction: &Prediction, bottleneck: Part) -> String {
    let busy = prediction.busy.iter().find(|(part, _)| *part == bottleneck).map(|(_, busy)| 100.0 * busy);
    let most = prediction.drops.by_place().into_iter().max_by_key(|(count, _)| *count);
    let most = most.filter(|(count, _)| *count > 0);
    let lost = most.map_or(String::new(), |(count, what)| format!("; {count} packets {what}"));
    match (bottleneck, busy) {
        (Part::Sender, _) => {
            let asked = if case.traffic.protocol == Protocol::Udp {
                "no more is offered"
            } else {
                "no part holds it back"
            };
            format!("{asked}{lost}")
        }
        (part, Some(busy)) if busy < 100.0 * FULL => {
            format!("{} is busy for {busy:.0} % of the time, and traffic comes in bursts{lost}", part.name())
        }
        (part, Some(busy)) => format!("{} is busy for {busy:.0} % of the time{lost}", part.name()),
        (part, None) => format!("{} holds the sender back{lost}", part.name()),
    }
}
