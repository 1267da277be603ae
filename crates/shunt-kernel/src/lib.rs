//! The Linux kernel by netlink, procfs and sysfs, as the policy sees it.
//!
//! [`Watcher`] tells what changes, [`Linux::dump`] what is there. Open the watcher first, then dump: whatever happens
//! in between is then told twice rather than not at all.
//!
//! Both look at the network namespace of the thread that opened them.

mod answers;
mod channel;
mod clsact;
mod conntrack;
mod error;
mod genl;
mod legacy;
mod linux;
mod packet;
mod route;
mod ruleset;
mod sysctl;
mod tracked;
mod watch;
mod wire;

pub use answers::{ConntrackTimeouts, Forwarding, Liberal, XdpSupport};
pub use channel::Channel;
pub use error::Error;
pub use legacy::Legacy;
pub use linux::Linux;
pub use route::OWN_FILTER_PRIORITY;
pub use ruleset::read_ruleset;
pub use sysctl::conntrack_counts;
pub use tracked::tracked;
pub use watch::Watcher;
pub use wire::Batch;
