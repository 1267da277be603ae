//! The router's ruleset: the constant part, and the chains and sets that changes fill.

use crate::{
    flow::Flow,
    site::{Site, Wires},
};
use std::{fmt::Write, net::SocketAddr};

/// Chains `slot0` and so on are empty until a change fills them.
pub(crate) const SLOTS: usize = 6;

/// The whole ruleset. After its conntrack entry was deleted, an answer must not make a new entry, which would take a
/// port from the next packet of its flow. So answers to the router itself and from DNAT's destinations make none.
pub(crate) fn ruleset(flows: &[Flow], wires: Wires) -> String {
    let mut text = String::from(FILTER_HEAD);
    for slot in 0..SLOTS {
        let _ = writeln!(text, "\tchain slot{slot} {{ }}");
    }
    text += FORWARD_HEAD;
    for slot in 0..SLOTS {
        let _ = writeln!(text, "\t\tjump slot{slot}");
    }
    text += "\t}\n}\n";
    let wan2 = wires.device(Site::Wan2);
    text += &nat(flows, "ip", "ipv4_addr", wan2);
    text += &nat(flows, "ip6", "ipv6_addr", wan2);
    text
}

const FILTER_HEAD: &str = r"
table inet twin {
	set blocked4 { type ipv4_addr; }
	set blocked6 { type ipv6_addr; }
	set ranges4 { type ipv4_addr; flags interval; }
	set ranges6 { type ipv6_addr; flags interval; }
	set blocked { type inet_service; }
	map marks { type inet_service : mark; }
	map verdicts { type inet_service : verdict; }
	chain marking {
		type filter hook prerouting priority mangle; policy accept;
		meta l4proto { tcp, udp } meta mark set th sport map @marks
		meta l4proto { tcp, udp } meta mark set th dport map @marks
	}
	chain input {
		type filter hook input priority filter; policy drop;
		icmp type echo-request accept
		icmpv6 type echo-request accept
	}
";

const FORWARD_HEAD: &str = r"
	chain forward {
		type filter hook forward priority filter; policy accept;
		meta l4proto { tcp, udp } th sport 40000-49999 ct state new drop
		ct state invalid drop
		ip daddr @blocked4 drop
		ip6 daddr @blocked6 drop
		ip daddr @ranges4 drop
		ip6 daddr @ranges6 drop
		meta l4proto { tcp, udp } th sport @blocked drop
		meta l4proto { tcp, udp } th dport @blocked drop
		meta l4proto { tcp, udp } ct original proto-src vmap @verdicts
";

fn nat(flows: &[Flow], family: &str, address: &str, wan2: &str) -> String {
    let v6 = family == "ip6";
    let map = |what: &str, of: &dyn Fn(&Flow) -> Option<(u16, SocketAddr)>| {
        let ours = flows.iter().filter(|flow| flow.kind.is_v6() == v6);
        let elements: Vec<String> =
            ours.filter_map(of).map(|(port, to)| format!("{port} : {} . {}", to.ip(), to.port())).collect();
        let elements = elements.join(", ");
        let elements = if elements.is_empty() { elements } else { format!("elements = {{ {elements} }};") };
        format!("\tmap {what} {{ type inet_service : {address} . inet_service; {elements} }}\n")
    };
    let inner = map("inner", &|flow| Some((flow.destination.port(), flow.inner?)));
    let outer = map("outer", &|flow| Some((flow.source.port(), flow.outer?)));
    // Source network of flows without translation: see flow.rs.
    let plain = if v6 { "fd00:1::/64" } else { "192.168.2.0/24" };
    let router = if v6 { "fd00:2::1" } else { "198.18.0.1" };
    format!(
        r#"table {family} nat {{
{inner}{outer}
	chain prerouting {{
		type nat hook prerouting priority dstnat; policy accept;
		{family} daddr {router} meta l4proto {{ tcp, udp }} dnat {family} to th dport map @inner
	}}
	chain postrouting {{
		type nat hook postrouting priority srcnat; policy accept;
		oifname "r1" meta l4proto {{ tcp, udp }} snat {family} to th sport map @outer
		oifname {{ "r1", "{wan2}" }} {family} saddr != {plain} masquerade
		iifname "br0" oifname "br0" ct status dnat masquerade
	}}
}}
"#
    )
}
