//! The address families of nftables: NFPROTO_* of linux/netfilter.h.

pub(super) const NFPROTO_INET: u8 = 1;
pub(super) const NFPROTO_IPV4: u8 = 2;
pub(super) const NFPROTO_NETDEV: u8 = 5;
pub(super) const NFPROTO_BRIDGE: u8 = 7;
pub(super) const NFPROTO_IPV6: u8 = 10;

/// The name that nft uses for a family.
pub(super) fn family_name(family: u8) -> &'static str {
    match family {
        NFPROTO_IPV4 => "ip",
        NFPROTO_IPV6 => "ip6",
        NFPROTO_INET => "inet",
        NFPROTO_BRIDGE => "bridge",
        _ => "netdev",
    }
}
