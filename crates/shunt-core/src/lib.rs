//! The policy: events in, actions out. No I/O, no clock, no threads, no randomness.
//!
//! [`Core::handle`] is all there is. What it is told are [`Event`]s, what it wants done are [`Action`]s.

mod action;
mod bridges;
mod core;
mod event;
mod network;
mod ports;
mod ruleset;

pub use action::{Action, Cause, PortSetting};
pub use bridges::{Bridge, BridgeCalls, Bridged, bridges};
pub use core::Core;
pub use event::{Connection, Event, Link, Program, Qdisc, Silent, Source};
pub use ports::{Choice, PortView};
pub use ruleset::{Effect, Hold, Statement, effect};
pub use shunt_api::Proto;
