//! Reads and changes kernel state over netlink, procfs and sysfs, and translates it into the policy's events.
//!
//! [`NetlinkSubscription`] reports changes; [`Linux::dump`] reports the state that exists. Open the subscription first
//! and dump afterwards: a change in between is then reported twice instead of being missed.
//!
//! Both work in the network namespace of the thread that opened them.

mod answers;
mod clsact;
mod conntrack;
mod error;
mod ethtool;
#[doc(hidden)]
pub mod fuzz;
mod generic_netlink;
mod legacy_iptables;
mod linux;
mod netdev;
mod netlink_channel;
mod netlink_message;
mod netlink_subscription;
mod nftables;
mod packet_path;
mod packet_sockets;
mod pppoe;
mod rtnetlink;
mod rtnl;
mod sysctl;
mod xtables;

pub use answers::{ConntrackTimeouts, Forwarding, Liberal, XdpSupport};
pub use conntrack::{
    counts::{ConntrackCounts, ConntrackEnds, CountedEntry, Ended, conntrack_counts},
    table::{ConntrackTable, conntrack_table},
};
pub use error::Error;
pub use legacy_iptables::{LegacyIptables, LegacyRules};
pub use linux::Linux;
pub use netlink_channel::Channel;
pub use netlink_message::Batch;
pub use netlink_subscription::NetlinkSubscription;
pub use nftables::{AddressSet, NftablesRuleset, read_ruleset, rules_track};
pub use rtnetlink::{OWN_FILTER_PRIORITY, SilentHop, devices_to, silent_hop_to};
pub use rtnl::Rtnl;
pub use sysctl::{conntrack_accounting, conntrack_timeouts, forwarding};
