//! The messages of the control socket and the configuration file. No logic.
//!
//! The socket speaks HTTP/1.1 with JSON bodies:
//!
//! | request | body | answer |
//! | --- | --- | --- |
//! | `GET /v1/status` | | [`Status`] |
//! | `GET /v1/flows?rate_over_ms=500` | | a list of [`Connection`] |
//! | `POST /v1/flush` | | [`Count`]: flows retired |
//! | `POST /v1/stop` | | [`Count`]: 0 |
//! | `GET /v1/static` | | [`StaticTable`] |
//! | `POST /v1/static` | [`StaticTable`] | [`Count`]: flows and routes added or replaced |
//! | `DELETE /v1/static` | [`StaticRemoval`] | [`Count`]: flows and routes removed |
//!
//! What goes wrong is answered by an [`ErrorBody`].

mod config;
mod document;
mod failure;
mod flows;
mod instance;
mod statics;
mod status;

pub use config::{Config, EngineChoice, LogLevel};
pub use failure::{ErrorBody, Failure, FailureCode};
pub use flows::{Connection, Direction, DirectionName, Family, FlowState, Proto, Tuple};
pub use instance::{Instance, runtime_dir};
pub use statics::{Hop, RouteChoice, StaticFlow, StaticKey, StaticRemoval, StaticRoute, StaticTable};
pub use status::{
    Attach, ByteTotals, Count, Engine, FlowCounts, PacketTotals, PortPackets, PortStatus, Probe, ProbeAnswer,
    Status,
};

/// The version of these messages, in [`Status::api`] and in the paths.
pub const API: u32 = 1;
