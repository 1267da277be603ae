//! The policy: events in, actions out. No I/O, no clock, no threads, no randomness.
//!
//! [`Core::handle`] takes [`Event`]s, which say what changed in the kernel, and returns [`Action`]s, which say what the
//! daemon must do. The other modules answer questions about flows from values that the daemon has read:
//! [`DirectionFacts::verdict`], [`join_flows`], [`PortCounters`], [`compile_static_flow`].

mod action;
mod bridges;
mod cause;
mod changes;
mod choice;
mod connections;
mod core;
mod device_setting;
mod event;
mod external;
mod findings;
mod flow_state;
mod known_macs;
mod local_side;
mod network;
mod port_counters;
mod ports;
mod route;
mod ruleset;
mod scope;
mod slow_causes;
mod statement;
mod static_flow;
mod survey;
mod table_size;
mod tc_change;
mod tc_words;
mod told;
mod traffic;
mod turns;
mod verdict;

pub use action::{Action, ExternalPorts, PortSetting};
pub use bridges::{Bridged, has_bridge_with_two_ports};
pub use cause::Cause;
pub use changes::{ChangeDetails, TcNews, Told};
pub use choice::Choice;
pub use connections::{RateBasis, join_flows, reversed, set_rates};
pub use core::Core;
pub use device_setting::{BridgePort, Netconf, Sysctl, SysctlOf};
pub use event::{
    Bridge, BridgeCalls, Connection, Correction, CorrectionKind, Event, EventSource, ExternalState, Link,
    LinkLayer, Program, Qdisc, RulesPlace, Sessions, SurveyCounts, TrackedDirection,
};
pub use findings::Findings;
pub use flow_state::{EntryState, TickClock};
pub use local_side::{End, LocalSide};
pub use port_counters::PortCounters;
pub use ports::PortView;
pub use route::{DefaultRoute, NextHop, RouteChange, RouteDetails};
pub use scope::Scope;
pub use shunt_api::Proto;
pub use slow_causes::{TrackedCounts, untracked_by_rules};
pub use statement::{Effect, Statement, effect};
pub use static_flow::{CompiledFlow, compile_static_flow};
pub use survey::Received;
pub use table_size::flow_table_size;
pub use tc_change::{TcChange, TcObject, TcTurn};
pub use traffic::Traffic;
pub use verdict::{
    DirectionFacts, FlowFacts, LastUse, LearningBlocked, Look, Obstacle, PortFacts, Reason, Stayed,
    TurnedOff, Verdict, WINDOW_S, is_doubtful,
};
