//! What Shunt itself costs: a part of the answer of `GET /v1/status`.

use crate::engine::Engine;
use serde::{Deserialize, Serialize};

/// What Shunt itself costs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OwnCosts {
    /// The part of a core that the daemon used over the last ten seconds or so; absent in the first ten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemon_cores: Option<f64>,
    /// The part of a core that the programs in the kernel use: their time for a packet, times the packets of the last
    /// ten seconds or so; absent until it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programs_cores: Option<f64>,
    /// Bytes of memory of the daemon's process, without maps; 0 until it was measured, as in the two below.
    pub daemon_bytes: u64,
    /// Bytes of memory of the maps in the kernel, the flow table among them.
    pub maps_bytes: u64,
    /// Bytes of memory for each flow of the table, of both address families together; they are in `maps_bytes`.
    pub flow_bytes: u64,
    /// The programs that ran when they were last measured, those with most CPU time first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<ProgramCost>,
    /// Seconds since the programs were measured; absent if they were not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_ago_s: Option<f64>,
    /// The change of engine after which `programs_cores` has not been measured again; absent if it has, and if no
    /// engine has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmeasured_since: Option<EngineChange>,
    /// What Shunt has cost in the last seven days; absent if the daemon is older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub week: Option<WeekCosts>,
}

/// What Shunt has cost in the last seven days, in the hours that are also in the savings of the week.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WeekCosts {
    /// Core hours of the daemon.
    pub daemon_core_hours: f64,
    /// Core hours of the programs in the kernel. They are in the savings already.
    pub programs_core_hours: f64,
    /// Hours that `daemon_core_hours` is about.
    pub counted_hours: f64,
    /// Those of them in which the cost of the programs was known.
    pub programs_hours: f64,
}

/// Packets leave through a port by another engine, so they run other programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EngineChange {
    /// The name of the port.
    pub port: String,
    /// The engine before.
    pub from: Engine,
    /// The engine from then on.
    pub to: Engine,
    /// When, in seconds since 1970.
    pub at: u64,
}

impl OwnCosts {
    /// The time that `daemon_cores` and `programs_cores` are about, in seconds.
    pub const NOW_S: u64 = 10;
    /// The time for which the programs are measured, in milliseconds.
    pub const PROGRAMS_MS: u64 = 250;
    /// Packets in a second that a measurement of the programs needs.
    pub const LEAST_PPS: u32 = 100;
}

/// The CPU time of a program in the kernel. Measuring it takes two readings of the clock for each run, which are partly
/// in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProgramCost {
    /// The name, as `bpftool prog` shows it.
    pub name: String,
    /// CPU time of a run, in nanoseconds: the mean.
    pub run_ns: f64,
    /// Runs in a second.
    pub runs_per_s: f64,
}
