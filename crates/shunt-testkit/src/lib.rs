//! Namespaces, topologies, traffic and packets for tests, demo and bench.
//!
//! Everything made here is undone on drop, and nothing that was made elsewhere is touched. What cannot be set up panics
//! with the command and what it said: to a test that is a failure, and there is nobody else to tell.

mod command;
mod crossing;
mod echo;
mod netns;
mod process;
mod requirement;
pub mod rulesets;
mod shuntd;
mod tap;
mod topology;
mod wait;

pub use command::{Said, Shunt};
pub use crossing::{Crossing, Handshake};
pub use echo::{TcpEcho, UdpEcho, tcp_exchange, udp_exchange};
pub use netns::{NetNs, delete_namespaces_of_this_process};
pub use process::Process;
pub use requirement::{require_root, skip};
pub use shuntd::{Shuntd, ShuntdBuilder};
pub use tap::{Frame, Tap};
pub use topology::{Host, Segment, Topology};
pub use wait::{wait_for, wait_until};
