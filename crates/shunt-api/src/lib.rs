//! The messages of the control socket, and the configuration file. This crate performs no I/O.
//!
//! The socket speaks HTTP/1.1 with JSON bodies:
//!
//! | request | body | answer |
//! | --- | --- | --- |
//! | `GET /v1/status` | | [`Status`] |
//! | `GET /v1/flows?rate_over_ms=500&most=100` | | a list of [`Connection`]; rates are measured over this time; without `most`, of all |
//! | `GET /v1/slow?rate_over_ms=500` | | [`SlowTable`]; rates are measured over this time |
//! | `GET /v1/why?dst=198.51.100.1&dport=443` | | [`Explanation`]; the parameters are those of [`Selection`] |
//! | `GET /v1/conntrack` | | [`TrackedTable`] |
//! | `GET /v1/watch?dst=198.51.100.1&dport=443` | | [`WatchEvent`]s as they happen, one per line; the parameters are those of [`Selection`] |
//! | `GET /v1/usage?span=day&host=192.0.2.1` | | [`Usage`]; the parameters are those of [`UsageQuery`] |
//! | `POST /v1/flush` | | [`Count`]: the flows that were retired |
//! | `POST /v1/reload` | [`ReloadRequest`], or nothing | [`Reload`] |
//! | `POST /v1/stop` | | [`Count`]: 0 |
//! | `POST /v1/restart` | | [`Restart`]: the next daemon is getting ready |
//! | `GET /v1/restart` | | [`Restart`]: how far it is |
//! | `GET /v1/static` | | [`StaticTable`] |
//! | `POST /v1/static` | [`StaticTable`] | [`Count`]: the flows and routes that were added or replaced |
//! | `DELETE /v1/static` | [`StaticRemoval`] | [`Count`]: the flows and routes that were removed |
//! | `GET /v1/qos` | | a list of [`QosStatus`] |
//! | `POST /v1/qos` | [`QosTable`] | [`Count`]: the ports whose queues were set |
//! | `DELETE /v1/qos` | [`QosRemoval`] | [`Count`]: the ports whose queues were removed |
//! | `GET /v1/off` | | a list of [`OffRule`] |
//! | `POST /v1/off` | [`OffRequest`] | [`Count`]: the rules that there are now |
//! | `DELETE /v1/off` | [`OffRemoval`] | [`Count`]: the rules that were removed |
//! | `POST /v1/taps` | [`TapRequest`] | [`Count`]: the ports whose program was exchanged |
//! | `DELETE /v1/taps` | | [`Count`]: the ports that got theirs back |
//! | `GET /v1/history?for_s=86400&rows=120` | | [`HistoryTable`] of the last seconds, merged into at most so many rows |
//! | `POST /v1/history` | [`Verified`] | [`Count`]: 1; `shunt verify` notes its verdict |
//! | `GET /v1/openapi.json` | | the OpenAPI description of all requests |
//! | `GET /metrics` | | metrics in the text format of Prometheus |
//!
//! If a request fails, the body of the answer is an [`ErrorBody`].

mod config;
mod costs;
#[cfg(feature = "cli")]
mod daemon_arguments;
mod document;
mod duration;
mod engine;
mod failure;
mod file_trouble;
mod files;
mod flows;
mod history;
mod host_names;
mod instance;
mod mark;
mod off;
mod port_name;
mod preview;
mod qos;
mod range;
mod reload;
mod restart;
mod savings;
mod selection;
mod slow;
mod statics;
mod status;
mod stored_report;
mod taps;
mod tracked;
mod usage;
mod watch_event;
mod why;
mod wording;

pub use config::{
    CaptureChoice, ChecksumChoice, Config, EngineChoice, KeyAnswer, LimitChoice, LogLevel, UnusedKey,
    WaitChoice,
};
pub use costs::{EngineChange, OwnCosts, ProgramCost, WeekCosts};
#[cfg(feature = "cli")]
pub use daemon_arguments::DaemonArguments;
pub use document::{describe as describe_toml_error, read as read_document};
pub use engine::Engine;
pub use failure::{ErrorBody, Failure, FailureCode};
pub use file_trouble::{cannot_read, cannot_write, without_number};
pub use files::FILES;
pub use flows::{Connection, Direction, DirectionName, Family, FlowState, Proto, Tuple};
pub use history::{Happening, HistoryEvent, HistoryRow, HistoryTable, PortRates, Verdict, Verified};
pub use host_names::{EndNames, HostName, HostNames, not_a_host};
pub use instance::{Instance, RUNTIME_DIR_VARIABLE, STATE_DIR_VARIABLE, runtime_dir, state_dir};
pub use mark::MarkMatch;
pub use off::{OffBy, OffEnd, OffRemoval, OffRequest, OffRule};
pub use port_name::no_device;
pub use preview::{DeviceReport, DryRun, PlannedPort, ProbeReport};
pub use qos::{
    BitRate, Bytes, Dscp, PortQos, QosClass, QosCounters, QosRemoval, QosStatus, QosTable, UnusedQueues,
    check_qos,
};
pub use reload::{ChangeEffect, ConfigStatus, KeyChange, LastReload, Reload, ReloadRequest};
pub use restart::{FailedRestart, Restart, RestartKind};
pub use savings::{Bounds, CannotTell, PathCosts, SamplingCosts, Savings};
pub use selection::{Network, Selection, has_zone};
pub use slow::{SlowConnection, SlowCount, SlowDirection, SlowTable};
pub use statics::{Hop, RouteChoice, StaticFlow, StaticKey, StaticRemoval, StaticRoute, StaticTable};
pub use status::{
    AfXdpMode, Attach, ByteTotals, Count, FilterHook, FlowCounts, LongestStep, NotKept, PacketTotals,
    PortFilter, PortPackets, PortStatus, Probe, ProbeAnswer, RuleNote, RulesetStatus, SlowCause, Status,
    TopReason, UnstableStation,
};
pub use stored_report::StoredReport;
pub use taps::{EnteringTap, TapRequest};
pub use tracked::{Counted, Icmp, Tracked, TrackedDirection, TrackedTable};
pub use usage::{
    FastCount, HostUsage, StepSize, Usage, UsageCount, UsageQuery, UsageSpan, UsageStep, UsageTotal,
};
pub use watch_event::{ConnectionEnd, EndedDirection, FlowEvent, WatchEvent};
pub use why::{Because, Explained, Explanation, Idle, Why};
pub use wording::{nearest, reword_json, reword_toml};

/// The version of the messages, in [`Status::api`] and in the paths.
pub const API: u32 = 1;
