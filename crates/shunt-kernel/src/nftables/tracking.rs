//! Whether nftables makes conntrack track routed packets: conntrack works in a network namespace as long as a rule
//! needs it there, whichever chain the rule is in.

use super::{GETRULE, NEWRULE, is_missing, message::FIXED_BYTES};
use crate::{
    Error,
    netlink_channel::Channel,
    netlink_message::{AF_UNSPEC, Attrs, Message},
};
use netlink_sys::protocols::NETLINK_NETFILTER;

/// Expressions of nft that need conntrack.
const EXPRESSIONS: [&str; 6] = ["ct", "nat", "masq", "redir", "connlimit", "flow_offload"];
/// Matches and targets of iptables-nft that need conntrack.
const EXTENSIONS: [&str; 12] = [
    "conntrack",
    "state",
    "connmark",
    "connbytes",
    "connlimit",
    "helper",
    "CONNMARK",
    "MASQUERADE",
    "SNAT",
    "DNAT",
    "REDIRECT",
    "NETMAP",
];
const NFPROTO_INET: u8 = 1;
const NFPROTO_IPV4: u8 = 2;
const NFPROTO_IPV6: u8 = 10;

/// Whether a rule of nftables or iptables-nft makes conntrack track routed packets in the calling thread's network
/// namespace. Legacy iptables is not looked at.
///
/// # Errors
/// When the kernel refuses to list the rules.
pub async fn rules_track() -> Result<bool, Error> {
    let everything = [AF_UNSPEC, 0, 0, 0];
    let mut tracks = false;
    let listed = match Channel::open(NETLINK_NETFILTER, "NETLINK_NETFILTER") {
        Ok(mut channel) => {
            let each = |message: Message| tracks |= needs_conntrack(&message);
            channel.dump_in_steps("NFT_MSG_GETRULE", GETRULE, &everything, |_| {}, each).await
        }
        Err(error) => Err(error),
    };
    match listed {
        Ok(_) => Ok(tracks),
        Err(Error::Socket { source, .. } | Error::Refused { source, .. }) if is_missing(&source) => Ok(false),
        Err(error) => Err(error),
    }
}

pub(super) fn needs_conntrack(message: &Message) -> bool {
    /// NFTA_RULE_EXPRESSIONS, NFTA_EXPR_NAME, NFTA_EXPR_DATA.
    const LIST: u16 = 4;
    const NAME: u16 = 1;
    const DATA: u16 = 2;
    let is_routed = matches!(message.payload.first(), Some(&(NFPROTO_INET | NFPROTO_IPV4 | NFPROTO_IPV6)));
    let needs = |expression: Attrs| match expression.text(NAME).as_deref() {
        // NFTA_MATCH_NAME, NFTA_TARGET_NAME
        Some("match" | "target") => {
            expression.nested(DATA).text(1).is_some_and(|name| EXTENSIONS.contains(&name.as_str()))
        }
        Some(name) => EXPRESSIONS.contains(&name),
        None => false,
    };
    let list = Attrs::after(message.payload, FIXED_BYTES).nested(LIST);
    message.kind == NEWRULE && is_routed && list.into_iter().any(|(_, bytes)| needs(Attrs::new(bytes)))
}
