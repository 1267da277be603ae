//! Clients of other processes: the daemon on its control socket, and a `shunt lab agent` on the DUT.

pub(crate) mod agent;
pub(crate) mod candidates;
pub(crate) mod control;
mod http;
mod ssh;
pub(crate) mod token;
