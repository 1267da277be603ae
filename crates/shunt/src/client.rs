//! Clients of other processes: the daemon on its control socket, and a `shunt lab agent` on another machine.

#[cfg(feature = "full")]
pub(crate) mod agent;
pub(crate) mod candidates;
pub(crate) mod control;
mod http;
pub(crate) mod instances;
pub(crate) mod kept;
#[cfg(feature = "full")]
pub(crate) mod partner;
#[cfg(feature = "full")]
mod ssh;
#[cfg(feature = "full")]
pub(crate) mod token;
