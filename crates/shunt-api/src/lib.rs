//! The messages of the control socket and the configuration file. No logic.
//!
//! The socket speaks HTTP/1.1 with JSON bodies:
//!
//! | request | body | answer |
//! | --- | --- | --- |
//! | `GET /v1/status` | | [`Status`] |
//! | `GET /v1/flows?rate_over_ms=500` | | a list of [`Connection`] |
//! | `GET /v1/why?dst=198.51.100.1&dport=443` | | [`Explanation`]; all of [`Selection`] |
//! | `GET /v1/conntrack` | | [`TrackedTable`] |
//! | `GET /v1/watch?dst=198.51.100.1&dport=443` | | [`WatchEvent`]s as they happen, a line each; all of [`Selection`] |
//! | `POST /v1/flush` | | [`Count`]: flows retired |
//! | `POST /v1/stop` | | [`Count`]: 0 |
//! | `GET /v1/static` | | [`StaticTable`] |
//! | `POST /v1/static` | [`StaticTable`] | [`Count`]: flows and routes added or replaced |
//! | `DELETE /v1/static` | [`StaticRemoval`] | [`Count`]: flows and routes removed |
//! | `GET /v1/openapi.json` | | the description of all this, as in docs/openapi.json |
//! | `GET /metrics` | | metrics in Prometheus' text format |
//!
//! What goes wrong is answered by an [`ErrorBody`].

mod config;
mod document;
mod failure;
mod files;
mod flows;
mod instance;
mod mark;
mod selection;
mod statics;
mod status;
mod tracked;
mod watch;
mod why;

pub use config::{CaptureChoice, Config, EngineChoice, LogLevel};
pub use document::read as read_document;
pub use failure::{ErrorBody, Failure, FailureCode};
pub use files::FILES;
pub use flows::{Connection, Direction, DirectionName, Family, FlowState, Proto, Tuple};
pub use instance::{Instance, runtime_dir};
pub use mark::MarkMatch;
pub use selection::{Network, Selection};
pub use statics::{Hop, RouteChoice, StaticFlow, StaticKey, StaticRemoval, StaticRoute, StaticTable};
pub use status::{
    Attach, ByteTotals, Count, Engine, FilterHook, FlowCounts, PacketTotals, PortFilter, PortPackets,
    PortStatus, Probe, ProbeAnswer, RuleNote, RulesetStatus, Status, TopReason,
};
pub use tracked::{Counted, Icmp, Tracked, TrackedDirection, TrackedTable};
pub use watch::{FlowEvent, WatchEvent};
pub use why::{Because, Explained, Explanation, Why};

/// The version of these messages, in [`Status::api`] and in the paths.
pub const API: u32 = 1;
