//! Clients of other processes: the daemon on its control socket, and a `shunt lab agent` on another machine.

pub(crate) mod agent;
pub(crate) mod candidates;
pub(crate) mod control;
mod http;
pub(crate) mod partner;
mod ssh;
pub(crate) mod token;
