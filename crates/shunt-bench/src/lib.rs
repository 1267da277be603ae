//! Benches: Shunt compared with Linux alone and with other fast paths, with the lab's networks, statistics and results.
//!
//! Each module is a command of `cargo xtask`; `rig` has the routers that they measure, and `tables` makes the tables of
//! the documentation from committed results.

mod auto;
mod bench;
mod bench_external;
mod churn;
mod cost;
mod demo;
mod gains;
mod generators;
pub mod interrupt;
mod load_latency;
mod peers;
mod predict;
mod progress;
mod reaction;
mod rig;
mod rows;
mod savings;
mod scale;
mod soak;
mod summary;
mod table_cells;
mod tables;
mod trace_cost;
mod twin;
mod two_cpus;

pub use peers::{CountingGuest, CountingGuests};

/// The benches, by their names on the command line of `cargo xtask`.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Check that the engine that Shunt chooses is never worse than Linux alone.
    Auto(auto::Options),
    /// Measure Shunt compared with Linux alone.
    Bench(bench::Options),
    /// Measure the external engine's loop in memory.
    BenchExternal(bench_external::Options),
    /// Measure how much traffic stays fast while Linux changes in ways that concern no flow.
    Churn(churn::Options),
    /// Count the instructions of each path for a packet, and compare them with the committed figures.
    Cost(cost::Options),
    /// Show real traffic without Shunt and with it.
    Demo(demo::Options),
    /// Measure the packet rates of Shunt's generator and of others.
    Generators(generators::Options),
    /// Measure Shunt compared with other fast paths, in instructions per packet.
    Peers(peers::Options),
    /// Predict the cost of a packet in `bench` and `scale` before measuring it on this machine.
    Predict(predict::Options),
    /// The part of `peers` that runs in a guest.
    #[command(hide = true)]
    PeersGuest(peers::guest::Options),
    /// Measure how soon a change in Linux takes effect on fast flows.
    Reaction(reaction::Options),
    /// Compare what Shunt says that it saves with the CPU time of the same packets with Shunt and without.
    Savings(savings::Options),
    /// Measure the cost of a packet, memory and learning with up to a million flows.
    Scale(scale::Options),
    /// Run real traffic for a long time while configuration, connections and daemon change.
    Soak(soak::Options),
    /// Rewrite the tables and figures of the documents, and the index of lab/results, from the committed results.
    Tables(tables::Options),
    /// Measure what `shunt trace` costs a router that forwards.
    TraceCost(trace_cost::Options),
    /// Compare a router with Shunt and a router without, packet by packet.
    Twin(twin::Options),
    /// Measure how much two CPUs forward, compared with one.
    TwoCpus(two_cpus::Options),
}

impl Command {
    /// Runs the bench; `guests` boots guests that count instructions.
    ///
    /// # Errors
    /// If the bench cannot be made, or finds a fault.
    pub fn run(&self, guests: &dyn CountingGuests) -> anyhow::Result<()> {
        match self {
            Self::Auto(options) => auto::run(options),
            Self::Bench(options) => bench::run(options),
            Self::BenchExternal(options) => bench_external::run(options),
            Self::Churn(options) => churn::run(options),
            Self::Cost(options) => cost::run(options, guests),
            Self::Demo(options) => demo::run(options),
            Self::Generators(options) => generators::run(options),
            Self::Peers(options) => peers::run(options, guests),
            Self::PeersGuest(options) => peers::guest::run(options),
            Self::Predict(options) => predict::run(options),
            Self::Reaction(options) => reaction::run(options),
            Self::Savings(options) => savings::run(options),
            Self::Scale(options) => scale::run(options),
            Self::Soak(options) => soak::run(options),
            Self::Tables(options) => tables::run(options),
            Self::TraceCost(options) => trace_cost::run(options),
            Self::Twin(options) => twin::run(options),
            Self::TwoCpus(options) => two_cpus::run(options),
        }
    }
}
