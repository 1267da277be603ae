//! Tests with bounds on the time: how soon a change in Linux takes effect on a fast flow, how long conntrack keeps its
//! entries, how soon the daemon answers, and rates and delays of packets that pass a qdisc.
//!
//! Other load on the machine can break such bounds, even another test. A test that fails therefore runs once more
//! (`.config/nextest.toml`); by hand: `cargo test -p shunt-tests --test reaction -- --test-threads=1`.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod awake;
mod bridged;
mod conntrack_timeouts;
mod flapping;
mod flow_lists;
mod heartbeat;
mod kernel_hooks;
mod legacy_rules;
mod links;
mod neighbours;
mod rates;
mod rates_by_qdisc;
mod rest;
mod routed_bridge;
mod routes;
mod rules;
mod rules_aside;
mod slow_clients;
mod storms;
mod tcp_lifetimes;
mod udp_lifetimes;
mod unrelated;
mod watchdog;
