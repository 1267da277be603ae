//! What happened in the last day: the answer of `GET /v1/history`.

mod happening;

pub use happening::{Happening, Verdict, Verified};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The last day, oldest first. All times are seconds since 1970, by the router's clock.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HistoryTable {
    /// The time of the answer.
    pub now: u64,
    /// Traffic by minutes, or by longer times if `rows` was asked for. If a row begins more than
    /// [`HistoryTable::GAP_S`] seconds after the end of the one before, no daemon counted in between: that traffic is
    /// not known.
    pub rows: Vec<HistoryRow>,
    /// What happened.
    pub events: Vec<HistoryEvent>,
    /// Events of the last day that are not in `events`, because there were more than [`HistoryTable::OF_A_KIND_MAX`] of
    /// their kind: those before the ones that are listed.
    #[serde(default)]
    pub left_out: u64,
    /// Bytes of memory that the history takes.
    pub memory_bytes: u64,
}

/// Traffic within a time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HistoryRow {
    /// When the time begins.
    pub at: u64,
    /// The seconds of this time in which a daemon counted. Rates are over these.
    pub seconds: f64,
    /// Packets that arrived through ports and took the fast path. A GRO or GSO aggregate counts as one packet here, and
    /// in the three counts below.
    pub fast: u64,
    /// Packets that took the slow path.
    pub slow: u64,
    /// Packets that the fast path dropped.
    pub dropped: u64,
    /// The share of packets on the fast path, from 0 to 1; absent if no packet arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fast_share: Option<f64>,
    /// Cores that the fast path saved, over those minutes of the row for which that is known; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved_cores: Option<f64>,
    /// Bits per second that arrived through all ports.
    pub in_bps: u64,
    /// Packets per second that arrived through all ports.
    pub in_pps: u64,
    /// Bits per second that left through all ports.
    pub out_bps: u64,
    /// Packets per second that left through all ports.
    pub out_pps: u64,
    /// The same by port, as the devices count: frames with their L2 headers. At most [`HistoryTable::PORTS_MAX`] ports;
    /// the others are in the sums only.
    pub ports: BTreeMap<String, PortRates>,
    /// The main reasons why packets took the slow path, with their numbers of packets; at most three a minute.
    pub reasons: BTreeMap<String, u64>,
}

/// The traffic of a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PortRates {
    /// Bits per second that arrived.
    pub in_bps: u64,
    /// Packets per second that arrived.
    pub in_pps: u64,
    /// Bits per second that left.
    pub out_bps: u64,
    /// Packets per second that left.
    pub out_pps: u64,
}

/// Something that happened, once or several times in a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HistoryEvent {
    /// When it happened first.
    pub at: u64,
    /// When it happened last; the same as `at` if it happened once.
    pub last_at: u64,
    /// How often it happened. The same again within ten minutes is counted here.
    pub times: u64,
    /// What happened, in one sentence. The file of the daemon does not have it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// What happened.
    #[serde(flatten)]
    pub what: Happening,
}

impl HistoryTable {
    /// The most ports that a row names.
    pub const PORTS_MAX: usize = 16;
    /// The most events of a kind.
    pub const OF_A_KIND_MAX: usize = 64;
    /// The time that is kept, in seconds.
    pub const KEPT_S: u64 = 86_400;
    /// The longest time between two rows that is no gap, in seconds: a restart, or a daemon that was late.
    pub const GAP_S: u64 = 90;
}

impl HistoryRow {
    /// When the time ends: no row has a gap within.
    pub fn end(&self) -> u64 {
        self.at + self.seconds.round() as u64
    }
}
