//! Namespaces, topologies, traffic and packets for tests, demo and bench.
//!
//! Everything made here is undone on drop, and nothing that was made elsewhere is touched. What cannot be set up panics
//! with the command and what it said: to a test that is a failure, and there is nobody else to tell.

pub mod backlog;
mod command;
mod crossing;
mod echo;
mod memory;
mod requirement;
pub mod rulesets;
mod shuntd;
pub mod soak;
mod stop;

pub use command::{Running, Said, Shunt};
pub use crossing::{Crossing, Handshake};
pub use echo::{TcpEcho, UdpEcho, tcp_exchange, udp_exchange};
pub use memory::MemoryLimit;
pub use requirement::{engines, is_guest, require_qdiscs, require_root, require_vlans, skip};
pub use shunt_lab::net::{
    Frame, Host, NetNs, Process, Segment, Tap, Topology, delete_namespaces_of_this_process, wait_for,
    wait_until,
};
pub use shuntd::{Shuntd, ShuntdBuilder};
pub use stop::{Stop, StopOnDrop};

/// Hosts that are silent and know all neighbours, around a router with this ruleset.
///
/// # Panics
/// When they cannot be made so.
#[must_use]
#[track_caller]
pub fn silent(lab: Topology, ruleset: &str) -> Topology {
    lab.pin_neighbours();
    lab.hosts().iter().for_each(Host::be_silent);
    lab.router().nft(ruleset);
    lab
}

#[cfg(test)]
mod tests;
