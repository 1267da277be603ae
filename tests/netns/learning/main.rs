//! When a flow becomes fast, when it goes back to Linux, and which packets teach nothing.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod candidates;
mod crowds;
mod flow_states;
mod refused;
mod rest;
mod tcp_ends;

use shunt_api::Engine;
use shunt_testkit::{SELDOM_PROVED, Shuntd, Topology, daemon_with};

/// A daemon that uses one engine and re-proves flows only every 30 seconds.
fn daemon(lab: &Topology, engine: Engine) -> Shuntd {
    daemon_with(lab, engine, SELDOM_PROVED)
}
