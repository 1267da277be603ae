//! Real traffic through a router for a long time, while its configuration, its connections and its daemon change.
//!
//! The soak fails if a packet is lost that Linux alone would not lose, a byte differs, a packet is delivered that the
//! ruleset refuses, a flow outlives its conntrack entry, counters disagree, or the daemon grows.

mod changes;
mod checks;
mod clients;

use crate::{Topology, rulesets};
use changes::Changes;
use clients::{Services, Traffic};

/// Time between two calls of the progress function.
const PROGRESS: Duration = Duration::from_secs(1);
use serde::Serialize;
use std::{
    thread,
    time::{Duration, Instant},
};

/// The length and the conditions of a soak.
#[derive(Debug, Clone)]
pub struct SoakPlan {
    /// How long to run.
    pub duration: Duration,
    /// Determines the changes and the sizes of packets.
    pub seed: u64,
    /// The daemon to start; with `None`, the one that `SHUNTD` names or that is next to this program.
    pub program: Option<String>,
}

/// The results of a soak.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Seed of the plan.
    pub seed: u64,
    /// How long the soak ran, in minutes.
    pub minutes: f64,
    /// Datagrams and pieces of TCP streams that were echoed unchanged.
    pub packets: u64,
    /// Packets that the daemons' fast path forwarded, summed over the daemons that have ended.
    pub fast: u64,
    /// TCP and UDP connections opened.
    pub connections: u64,
    /// Changes of the router's configuration.
    pub changes: u64,
    /// Number of times the daemon was stopped, killed or suspended, and started or resumed.
    pub restarts: u64,
    /// Exchanges without an answer.
    pub lost: u64,
    /// Exchanges without an answer that Linux alone would lose, too: a qdisc was deleted with its packets, a conntrack
    /// entry was deleted, or other programs filled queues that all network namespaces share.
    pub excused: u64,
    /// Exchanges with a wrong answer.
    pub wrong: u64,
    /// Packets that were delivered although the ruleset refused them.
    pub refused: u64,
    /// Active flows without a conntrack entry.
    pub stale: u64,
    /// Checks at which Shunt's counters and the interface counters disagreed.
    pub miscounted: u64,
    /// Resident memory of the first daemon after its first seconds.
    pub rss_start_kb: u64,
    /// Resident memory of the last daemon at its end.
    pub rss_end_kb: u64,
    /// Descriptions of daemons that grew and of objects left behind.
    pub leaks: Vec<String>,
}

impl Report {
    /// Whether the soak found no fault.
    pub fn is_clean(&self) -> bool {
        self.lost + self.wrong + self.refused + self.stale + self.miscounted == 0 && self.leaks.is_empty()
    }
}

/// Runs a soak.
///
/// # Panics
/// If the network cannot be set up, or if a daemon does not start.
#[track_caller]
pub fn run(plan: &SoakPlan) -> Report {
    run_with_progress(plan, &mut |_| {})
}

/// Like [`run`], and calls `progress` about once a second with the report so far.
///
/// # Panics
/// If the network cannot be set up, or if a daemon does not start.
#[track_caller]
pub fn run_with_progress(plan: &SoakPlan, progress: &mut dyn FnMut(&Report)) -> Report {
    let lab = Topology::two_hosts_and_a_router();
    // Without aggregates, all counters count the same packets.
    lab.offloads(false);
    lab.router().nft(rulesets::HOME_GATEWAY);
    lab.router().nft(changes::REFUSED);
    let services = Services::start(&lab);
    let traffic = Traffic::default();
    let since = Instant::now();
    let mut changes = Changes::new(&lab, &traffic, plan);
    let so_far = |changes: &Changes<'_>| {
        let mut report = changes.report();
        traffic.add_to(&mut report);
        report.seed = plan.seed;
        report.minutes = since.elapsed().as_secs_f64() / 60.0;
        report
    };
    thread::scope(|scope| {
        services.clients(scope, &lab, &traffic, plan.seed);
        // The clients' threads must end even if this one panics.
        let _end = traffic.end_on_drop();
        let mut reported = Instant::now();
        while since.elapsed() < plan.duration {
            changes.next(&services);
            thread::sleep(changes.pause());
            if reported.elapsed() > PROGRESS {
                progress(&so_far(&changes));
                reported = Instant::now();
            }
        }
        changes.end();
    });
    so_far(&changes)
}
