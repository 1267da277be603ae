//! Benchmarks of a stateful NAT by RFC 9693: the connection establishment rate, the connection tear-down rate, the
//! capacity of the connection tracking table, and throughput by number of sessions.
//!
//! The initiator sends one frame of each connection (test phase 1). The responder keeps a state table of the addresses
//! and ports that it has seen, and answers only those; a connection counts if its answer arrives (validation). Loads
//! are sent over known connections only (test phase 2). Ports come in a pseudo-random order in both phases.

mod capacity;
mod connection;
mod gateway;
mod measure;
mod plan;
mod ports;
mod saving;

pub use capacity::CapacitySearch;
pub use measure::{Capacity, Established, Throughput, TornDown};
pub use plan::{Effort, NatPlan};
pub use ports::TUPLES;

use crate::{Doubt, Results};
use serde::{Deserialize, Serialize};

/// A quantity that RFC 9693 defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NatMetric {
    /// The maximum connection establishment rate.
    Establishment,
    /// The connection tear-down rate.
    TearDown,
    /// The capacity of the connection tracking table.
    Capacity,
    /// Throughput by number of sessions.
    Throughput,
}

/// The result of a measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The measured routers, in the order in which they were measured.
    pub routers: Vec<Measured>,
    /// All readings, with doubts and conditions.
    #[serde(flatten, serialize_with = "Results::serialize_file")]
    pub results: Results,
}

/// The measurements of a router, in one run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Name of the router: the engine, or `dut`.
    pub device: String,
    /// Number of this run of the router, from 1.
    pub run: u32,
    /// Rate at which connections were opened where no rate was measured, in connections/s.
    pub open_pps: f64,
    /// The maximum connection establishment rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub establishment: Option<Established>,
    /// The connection tear-down rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tear_down: Option<TornDown>,
    /// The capacity of the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
    /// Throughput, by number of sessions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub throughput: Vec<Throughput>,
    /// Reasons why all results may be wrong.
    pub doubts: Vec<Doubt>,
}

impl Measured {
    /// Whether at least one quantity was measured.
    fn has_results(&self) -> bool {
        self.establishment.is_some()
            || self.tear_down.is_some()
            || self.capacity.is_some()
            || !self.throughput.is_empty()
    }
}
