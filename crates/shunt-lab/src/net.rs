//! Networks to measure in: namespaces, topologies, raw sockets.
//!
//! Everything made here is undone on drop, and nothing that was made elsewhere is touched. What begins with `try_` says what
//! went wrong; the others are for tests and demos, and panic with the command and what it said.

mod borrowed;
mod host;
mod netns;
mod process;
mod tap;
mod topology;
mod wait;

pub use borrowed::Borrowed;
pub use netns::{NetNs, delete_namespaces_of_this_process};
pub use process::Process;
pub(crate) use tap::link_address;
pub use tap::{Frame, Tap};
pub use topology::{Host, Segment, Topology};
pub use wait::{wait_for, wait_until};
