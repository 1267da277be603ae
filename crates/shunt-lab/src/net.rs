//! Networks for measurements and tests: namespaces, topologies, raw sockets.
//!
//! Everything is undone on drop, and no object that was made elsewhere is changed. Functions whose name begins with
//! `try_` return errors; the others are for tests and demos and panic with the failed command and its output.

mod borrowed;
mod frame_socket;
mod host;
mod ip_tunnel;
mod modem;
mod netns;
mod pppoe;
mod process;
mod segment;
mod switch;
mod tap;
mod topology;
mod tunnel;
mod wait;

pub use borrowed::Borrowed;
pub(crate) use frame_socket::FrameSocket;
pub use netns::{NetNs, delete_namespaces_of_this_process};
pub use process::{Process, is_ignored, reset_ignored_signals_in_children};
pub use segment::{Segment, Wire};
pub use switch::Switch;
use tap::link_address;
pub use tap::{Frame, Tap};
pub use topology::{Host, Topology};
pub use wait::{wait_for, wait_until};
