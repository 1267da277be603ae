//! What changes in Linux holds at once, whatever fails fails safe, and what is wrong is said in one line.

#![expect(clippy::unwrap_used, reason = "a test fails where what it expects is not there")]

mod access;
mod bridge;
mod bridged;
mod bursts;
mod calls;
mod captures;
mod clients;
mod clsact;
mod command;
mod conntrack;
mod engines;
mod excluded;
mod faults;
mod faults_churn;
mod faults_storm;
mod filters;
mod hanging;
mod helpers;
mod instances;
mod legacy;
mod lifetimes;
mod lifetimes_tcp;
mod links;
mod metrics;
mod neighbours;
mod openapi;
mod ports;
mod programs;
mod refusals;
mod routes;
mod rules;
mod service;
mod stage;
mod stops;
mod tracked;
mod undone;
mod watch;
mod why;

use shunt_api::{Engine, Status};
use shunt_testkit::{Shuntd, Topology, silent};
use stage::Stage;

const ENGINES: [Engine; 2] = [Engine::Tc, Engine::Xdp];

/// Stateful, and open in every direction.
const OPEN: &str = r"
table inet filter {
	chain forward {
		type filter hook forward priority filter; policy drop;
		ct state established,related accept
		ct state new accept
	}
}
";

/// The daemon with one engine for all ports.
fn daemon(lab: &Topology, engine: Engine) -> Shuntd {
    Shuntd::on(lab.router()).engine(&engine.to_string()).start()
}

/// The same with these lines in its configuration.
fn daemon_with(lab: &Topology, engine: Engine, config: &str) -> Shuntd {
    Shuntd::on(lab.router()).engine(&engine.to_string()).config(config).start()
}

/// How often the epoch has moved for this cause.
fn moves(status: &Status, cause: &str) -> u64 {
    status.epoch_moves.get(cause).copied().unwrap_or(0)
}

/// The engine by which packets leave a port.
#[track_caller]
fn engine_of(status: &Status, port: &str) -> Engine {
    let found = status.ports.iter().find(|p| p.name == port);
    found.unwrap_or_else(|| panic!("{port} is no port: {status:#?}")).engine
}
