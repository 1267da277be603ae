//! The rulesets of a router of our own.

use super::Error;
use crate::net::NetNs;

/// A stateful firewall: Shunt learns only connections that the router tracks.
const STATEFUL: &str = "table inet filter { chain forward { type filter hook forward priority filter; policy drop; \
    ct state established,related,new accept; }; }";
/// Masquerade of traffic to the WAN in both families, by the port itself or by a device on top of it. New UDP from the
/// WAN to the router's own address is dropped, or it would take the ports of connections that are not yet open.
const MASQUERADE: &str = "table inet nat { chain postrouting { type nat hook postrouting priority srcnat; oifname \"r1*\" masquerade; }; \
    chain input { type filter hook input priority filter; iifname \"r1*\" meta l4proto udp ct state new drop; }; }";
/// Timeout of translated connections, longer than any measurement.
const TIMEOUT_S: u32 = 86_400;

/// Makes the router track connections.
pub(crate) fn track(router: &NetNs) -> Result<(), Error> {
    Ok(router.try_run(&format!("nft '{STATEFUL}'")).map(drop)?)
}

/// Makes the router translate traffic to the WAN; its connections do not time out.
pub(crate) fn masquerade(router: &NetNs) -> Result<(), Error> {
    router.try_run(&format!("nft '{MASQUERADE}'"))?;
    for timeout in ["udp_timeout", "udp_timeout_stream"] {
        router.try_sysctl(&format!("netfilter/nf_conntrack_{timeout}"), TIMEOUT_S)?;
    }
    Ok(())
}
