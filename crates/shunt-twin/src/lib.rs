//! The twin-router oracle: two identical routers, one of them with Shunt, get the same packets and the same changes.
//! The packets that leave them must be equal, byte for byte; a difference is a fault of Shunt or of this crate.
//!
//! ```text
//! cargo xtask twin --packets 100000 --changes 100 --seed 1 --engine xdp --json
//! ```
//!
//! A run consists of episodes, each on two new routers. The episode's seed determines its flows, its packets and its
//! changes (`plan.rs`). Packets are sent in rounds. After each round, and after each change plus the time that Shunt
//! may take to react, both routers are idle, and the frames that left them are compared (`compare.rs`). The payload of
//! each packet identifies it. Replies answer the packets that left the router without Shunt.
//!
//! Where Linux chooses at random or by time, the choice is pinned (`router.rs`, `ruleset.rs`, `flow.rs`) or masked
//! (`compare.rs`); each has its reason. With `--without-shunt` neither router has Shunt, and any difference is a fault
//! of this crate.
//!
//! Other programs may flood the queues that all namespaces share (`shunt_testkit::backlog`). An episode that shows a
//! difference while that happens is repeated, and counted as disturbed.
//!
//! A difference is printed with its seed, and with the shortest sequence of steps found that shows it (`shrink.rs`).

mod change;
mod compare;
mod episode;
mod flow;
mod mid_change;
mod packet;
mod plan;
mod report;
mod router;
mod ruleset;
mod shrink;
mod site;
mod worker;

pub use report::{Failure, Report};

use episode::{EpisodeOptions, Outcome, carry_out};
use plan::EpisodePlan;
use shunt_testkit::backlog;
use site::Wires;
use std::time::{Duration, Instant};

/// The size and the conditions of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of packets to send to each router.
    pub packets: u64,
    /// Number of changes to make on each router.
    pub changes: u64,
    /// Determines the packets and the changes.
    pub seed: u64,
    /// Shunt's engine: auto, tc, xdp or external. With `None`, neither router has Shunt.
    pub engine: Option<String>,
    /// The daemon to start. With `None`, the one that `SHUNTD` names or that is next to this program.
    pub program: Option<String>,
    /// How long after a change Shunt may still apply actions from before it.
    pub reaction: Duration,
    /// Whether two of the wires carry a VLAN.
    pub vlans: bool,
    /// Whether changes include IPsec policies, which needs a kernel with XFRM.
    pub ipsec: bool,
    /// Whether to leave out changes of rules and sets on the router with Shunt, to test that the oracle finds this.
    pub one_sided: bool,
    /// How long to search for a shorter sequence that shows a difference; zero skips the search.
    pub shrink: Duration,
}

/// Packets per episode. Each episode has new routers, so that their tables do not fill up.
const EPISODE: u64 = 100_000;

/// How often an episode is repeated if packets were lost in queues that other programs filled.
const REPEATS: u32 = 3;

/// Runs episodes until all packets are sent or one fails.
///
/// # Panics
/// If routers cannot be set up, or if a daemon fails.
pub fn run(options: &Options) -> Report {
    run_with_progress(options, &mut |_| {})
}

/// Like [`run`], and calls `progress` about once a second with the report so far.
///
/// # Panics
/// If routers cannot be set up, or if a daemon fails.
pub fn run_with_progress(options: &Options, progress: &mut dyn FnMut(&Report)) -> Report {
    let start = Instant::now();
    let mut report = Report::new(options.seed);
    let episodes = options.packets.div_ceil(EPISODE).max(1);
    let wires = if options.vlans { Wires::Tagged } else { Wires::Plain };
    let share = |all: u64, episode: u64| all * (episode + 1) / episodes - all * episode / episodes;
    for episode in 0..episodes {
        let seed = options.seed.wrapping_add(episode.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let [packets, changes] = [options.packets, options.changes].map(|all| share(all, episode));
        let plan = EpisodePlan::new(seed, packets, changes, wires, options.ipsec);
        let episode_options = EpisodeOptions {
            engine: options.engine.clone(),
            program: options.program.clone(),
            reaction: options.reaction,
            one_sided: options.one_sided,
        };
        let before = report.clone();
        let mut observe = |partial: &Outcome| {
            let mut so_far = before.clone();
            so_far.add(partial);
            so_far.seconds = start.elapsed().as_secs_f64();
            progress(&so_far);
        };
        let outcome = run_undisturbed(&plan, &episode_options, &mut report.disturbed, &mut observe);
        report.add(&outcome);
        if outcome.is_bad() {
            report.failure = Some(Failure::new(&plan, &outcome, &episode_options, options));
            break;
        }
    }
    report.seconds = start.elapsed().as_secs_f64();
    report
}

/// Carries out a plan. Repeats it if it shows a difference while packets were lost in queues that all namespaces share.
fn run_undisturbed(
    plan: &EpisodePlan,
    episode_options: &EpisodeOptions,
    disturbed: &mut u64,
    observe: &mut dyn FnMut(&Outcome),
) -> Outcome {
    let mut left = REPEATS;
    loop {
        let before = backlog::dropped();
        let outcome = carry_out(plan, episode_options, observe);
        if !outcome.is_bad() || left == 0 || backlog::dropped() == before {
            return outcome;
        }
        (left, *disturbed) = (left - 1, *disturbed + 1);
    }
}
