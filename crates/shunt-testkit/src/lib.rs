//! Namespaces, topologies, traffic and packets for tests, demo and bench.
//!
//! Values undo on drop what they set up, and touch nothing that was made elsewhere. If a command fails, functions panic
//! with the command and its output, which fails the test.

pub mod backlog;
mod cli;
mod conntrack_events;
mod crossing;
mod echo;
mod kernel_objects;
mod line;
mod memory;
mod requirement;
pub mod rulesets;
mod shuntd;
pub mod soak;
pub mod stage;
mod status;
mod stop;
pub mod tree;
mod xdp_frames;

use shunt_api::Engine;

pub use cli::{CommandOutput, Running, Shunt};
pub use conntrack_events::ConntrackEvents;
pub use crossing::{Crossing, Handshake};
pub use echo::{TcpEcho, UdpEcho, tcp_exchange, udp_exchange};
pub use kernel_objects::KernelObjects;
pub use line::{Line, LinePlan};
pub use memory::MemoryLimit;
pub use requirement::{
    engines, is_guest, kernel_is_at_least, require_bonds, require_ipsec, require_qdiscs, require_root,
    require_vlans, skip, skip_fetched, skip_missing_feature,
};
pub use shunt_lab::net::{
    Frame, Host, NetNs, Process, Segment, Switch, Tap, Topology, delete_namespaces_of_this_process, wait_for,
    wait_until,
};
pub use shuntd::{SELDOM_PROVED, Shuntd, ShuntdBuilder, daemon, daemon_with, program};
pub use stage::Stage;
pub use status::{epoch_moves, is_sent_by, port_engine, punts, refusals, sent_by};
pub use stop::{Stop, StopOnDrop};
pub use xdp_frames::offer_xdp_frames;

/// The engines in the kernel. They forward a packet before the next one is received.
pub const ENGINES: [Engine; 2] = [Engine::Tc, Engine::Xdp];

/// All engines. The external one works by itself: packets of other flows that Linux forwards may overtake its packets,
/// so a test must wait for each packet.
pub const ALL_ENGINES: [Engine; 3] = [Engine::Tc, Engine::Xdp, Engine::External];

/// Makes the hosts around a router silent, with static neighbour entries, and loads a ruleset on the router.
///
/// # Panics
/// If a command fails.
#[must_use]
#[track_caller]
pub fn silent(lab: Topology, ruleset: &str) -> Topology {
    lab.pin_neighbours();
    lab.hosts().iter().for_each(Host::be_silent);
    lab.router().nft(ruleset);
    lab
}

/// A router with this ruleset between two silent hosts.
///
/// # Panics
/// If the network cannot be set up.
#[must_use]
#[track_caller]
pub fn silent_router(ruleset: &str) -> Topology {
    silent(Topology::two_hosts_and_a_router(), ruleset)
}

/// Runs many `ip` commands, one for each number below `count`, in one `ip -batch`.
///
/// # Panics
/// If one fails.
#[track_caller]
pub fn ip_batch(netns: &NetNs, count: u32, command: impl Fn(u32) -> String) {
    let lines: String = (0..count).map(|number| command(number) + "\n").collect();
    let file = std::env::temp_dir().join(format!("{}.batch", netns.name()));
    std::fs::write(&file, lines).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    netns.run(&format!("ip -batch {0}; rm {0}", file.display()));
}

#[cfg(test)]
mod tests;
