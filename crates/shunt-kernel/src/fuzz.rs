//! Runs every parser of kernel data on arbitrary bytes, for `fuzz/src/netlink.rs`, and has what makes such bytes.

use crate::{
    conntrack::{self, parse_addresses},
    ethtool, legacy_iptables, netdev,
    netlink_message::{Attrs, Messages, errno},
    netlink_subscription, nftables, packet_sockets, rtnetlink,
};

pub use crate::{legacy_iptables::INFO_BYTES, netlink_message::Batch};

/// Parses bytes as a datagram of each netlink protocol, as a table of legacy iptables, and as /proc/net/packet. Must
/// return, and must not panic.
pub fn parse(bytes: &[u8]) {
    for message in Messages(bytes).map_while(Result::ok) {
        let _ = (
            rtnetlink::event(&message),
            netdev::event(&message),
            ethtool::parse(&message),
            netlink_subscription::ruleset_event(&message),
        );
        let _ = (
            errno(message.payload),
            packet_sockets::captured(message.payload),
            conntrack::table::parse(message.payload),
        );
        let _ = parse_addresses(Attrs::after(message.payload, 4));
    }
    let _ = nftables::parse(Messages(bytes).map_while(Result::ok));
    legacy_iptables::parse(bytes);
    String::from_utf8_lossy(bytes).lines().for_each(|line| {
        let _ = packet_sockets::captured_by_proc_line(line);
    });
}
