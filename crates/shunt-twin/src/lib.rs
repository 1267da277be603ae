//! The twin-router oracle: two identical routers, one of them with Shunt, fed the same packets and the same changes.
//! What leaves them must be the same, byte for byte, or Shunt is wrong, or this is.
//!
//! ```text
//! cargo xtask twin --packets 100000 --changes 100 --seed 1 --engine xdp --json
//! ```
//!
//! A run consists of episodes, each on two new routers. From the episode's seed follow its flows, its packets and its
//! changes (`plan.rs`). Packets go in by rounds; after each round, and after each change and the time that Shunt may
//! take to react to it, the routers have nothing left to do, and what has left them is compared (`compare.rs`). Each packet says
//! in its payload which one it is. Replies answer what left the router without Shunt.
//!
//! What Linux makes random or lets time decide is pinned (`router.rs`, `ruleset.rs`, `flow.rs`) or masked (`compare.rs`),
//! each with its reason. `--without-shunt` has Shunt on neither router: whatever it finds is a fault of this crate.
//!
//! Queues that all namespaces share may be flooded by others (`shunt_testkit::backlog`): an episode that shows a difference meanwhile is repeated, and
//! counted as disturbed.
//!
//! A difference is printed with its seed, and with the shortest sequence of steps that was found to show it (`shrink.rs`).

mod amid;
mod change;
mod compare;
mod episode;
mod flow;
mod lane;
mod packet;
mod plan;
mod report;
mod router;
mod ruleset;
mod shrink;
mod site;

pub use report::{Failure, Report};

use episode::{Manner, Outcome, carry_out};
use plan::Plan;
use shunt_testkit::backlog;
use site::Wires;
use std::time::{Duration, Instant};

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many packets to send to each router.
    pub packets: u64,
    /// How many changes to make on each.
    pub changes: u64,
    /// The same seed is the same packets and changes.
    pub seed: u64,
    /// Of Shunt: auto, tc or xdp. None leaves Shunt out.
    pub engine: Option<String>,
    /// How long after a change an action of before may be used.
    pub reaction: Duration,
    /// Some wires carry a VLAN.
    pub vlans: bool,
    /// Leaves changes of rules and sets out on the router with Shunt, to see that this is found.
    pub one_sided: bool,
    /// How long to look for a shorter sequence that shows a difference; zero does not look.
    pub shrink: Duration,
}

/// Packets of an episode: routers are made anew before their tables fill up.
const EPISODE: u64 = 100_000;

/// An episode is repeated so often where somebody else floods the machine's queues.
const DISTURBED: u32 = 3;

/// Runs episodes until all packets are sent or one fails.
///
/// # Panics
/// When routers cannot be set up, or a daemon fails.
pub fn run(options: &Options) -> Report {
    let start = Instant::now();
    let mut report = Report::new(options.seed);
    let episodes = options.packets.div_ceil(EPISODE).max(1);
    let wires = if options.vlans { Wires::Tagged } else { Wires::Plain };
    let share = |all: u64, episode: u64| all * (episode + 1) / episodes - all * episode / episodes;
    for episode in 0..episodes {
        let seed = options.seed.wrapping_add(episode.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let plan = Plan::new(seed, share(options.packets, episode), share(options.changes, episode), wires);
        let manner = Manner {
            engine: options.engine.clone(),
            reaction: options.reaction,
            one_sided: options.one_sided,
        };
        let outcome = undisturbed(&plan, &manner, &mut report.disturbed);
        report.add(&outcome);
        if outcome.is_bad() {
            report.failure = Some(Failure::of(&plan, &outcome, &manner, options));
            break;
        }
    }
    report.seconds = start.elapsed().as_secs_f64();
    report
}

/// Carries out a plan, and again where packets were lost meanwhile that neither router had.
fn undisturbed(plan: &Plan, manner: &Manner, disturbed: &mut u64) -> Outcome {
    let mut left = DISTURBED;
    loop {
        let before = backlog::dropped();
        let outcome = carry_out(plan, manner);
        if !outcome.is_bad() || left == 0 || backlog::dropped() == before {
            return outcome;
        }
        (left, *disturbed) = (left - 1, *disturbed + 1);
    }
}
