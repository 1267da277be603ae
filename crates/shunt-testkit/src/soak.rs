//! Real traffic through a router for a long time, while its configuration, its connections and its daemon come and go.
//!
//! What must not happen all the while: a packet lost that Linux alone would not lose, a byte changed, a packet delivered
//! that the ruleset refuses, a flow whose connection is gone, a packet that no counter has seen, a daemon that grows.

mod changes;
mod checks;
mod traffic;

use crate::{Topology, rulesets};
use changes::Changes;
use serde::Serialize;
use std::{
    thread,
    time::{Duration, Instant},
};
use traffic::{Services, Traffic};

/// What is to be done.
#[derive(Debug, Clone)]
pub struct Plan {
    /// For how long.
    pub duration: Duration,
    /// Chooses the changes and the sizes of packets.
    pub seed: u64,
    /// The daemon; none for the one beside this program.
    pub program: Option<String>,
}

/// What was seen.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Of the plan.
    pub seed: u64,
    /// How long it took.
    pub minutes: f64,
    /// Datagrams and pieces of streams that went there and back.
    pub packets: u64,
    /// Of these daemons' fast path, as they counted.
    pub fast: u64,
    /// Connections of TCP and UDP.
    pub connections: u64,
    /// Changes of the router's configuration.
    pub changes: u64,
    /// Daemons that were stopped, killed or hung, and came back.
    pub restarts: u64,
    /// Exchanges without an answer.
    pub lost: u64,
    /// The same while Linux itself loses: a qdisc goes with what waits in it, a connection is deleted, or others fill queues that all
    /// network namespaces share.
    pub excused: u64,
    /// Exchanges with another answer than what was asked.
    pub wrong: u64,
    /// Packets that were delivered although the ruleset refused them.
    pub refused: u64,
    /// Flows without a connection.
    pub stale: u64,
    /// Looks at ports whose counters and interface counters disagreed.
    pub miscounted: u64,
    /// Memory of the first daemon, warm.
    pub rss_start_kb: u64,
    /// Memory of the last one, at its end.
    pub rss_end_kb: u64,
    /// What grew, or was left behind.
    pub leaks: Vec<String>,
}

impl Report {
    /// Whether nothing has happened that must not.
    pub fn is_clean(&self) -> bool {
        self.lost + self.wrong + self.refused + self.stale + self.miscounted == 0 && self.leaks.is_empty()
    }
}

/// Runs it.
///
/// # Panics
/// When the network cannot be set up, or a daemon does not start.
#[track_caller]
pub fn run(plan: &Plan) -> Report {
    let lab = Topology::two_hosts_and_a_router();
    // Then a packet is one packet for every counter.
    lab.offloads(false);
    lab.router().nft(rulesets::HOME_GATEWAY);
    lab.router().nft(changes::REFUSED);
    let services = Services::start(&lab);
    let traffic = Traffic::default();
    let since = Instant::now();
    let mut changes = Changes::new(&lab, &traffic, plan);
    thread::scope(|scope| {
        services.clients(scope, &lab, &traffic, plan.seed);
        // Threads that wait for the end must see it whatever happens here.
        let _end = traffic.end_on_drop();
        while since.elapsed() < plan.duration {
            changes.next(&services);
            thread::sleep(changes.pause());
        }
        changes.end();
    });
    let mut report = changes.report();
    traffic.tell(&mut report);
    report.seed = plan.seed;
    report.minutes = since.elapsed().as_secs_f64() / 60.0;
    report
}
