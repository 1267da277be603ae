//! Rulesets for the router of [`crate::Topology::two_hosts_and_a_router`].

/// A home gateway: the LAN is masqueraded, and only port 8080 of TCP and UDP comes in, to the LAN host.
pub const HOME_GATEWAY: &str = r#"
table inet filter {
	chain forward {
		type filter hook forward priority filter; policy drop;
		ct state established,related accept
		ct state invalid drop
		iifname "r0" oifname "r1" ct state new accept
		iifname "r1" oifname "r0" ct status dnat accept
	}
}
table ip nat {
	chain prerouting {
		type nat hook prerouting priority dstnat; policy accept;
		iifname "r1" ip daddr 198.18.0.1 meta l4proto { tcp, udp } th dport 8080 dnat to 192.168.1.2:8080
	}
	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		oifname "r1" masquerade
	}
}
"#;

/// Stateful, and open in every direction.
pub const OPEN: &str = r"
table inet filter {
	chain forward {
		type filter hook forward priority filter; policy drop;
		ct state established,related accept
		ct state new accept
	}
}
";

/// Ten stateful rules. Packets of an established connection pass two of them, packets of a new one all.
pub const TEN_RULES: &str = r#"
table inet filter {
	chain forward {
		type filter hook forward priority filter; policy drop;
		ct state invalid drop
		ct state established,related accept
		iifname "r1" ip saddr { 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 } drop
		iifname "r0" oifname "r0" accept
		iifname "r0" tcp dport { 25, 465, 587 } reject with tcp reset
		iifname "r0" ip daddr 192.0.2.0/24 drop
		iifname "r1" ct status dnat accept
		iifname "r1" icmpv6 type { echo-request, packet-too-big } accept
		iifname "r1" icmp type echo-request limit rate 10/second accept
		iifname "r0" oifname "r1" ct state new accept
	}
}
"#;

/// Masquerades everything that goes to the WAN, in both families.
pub const MASQUERADE: &str = r#"
table inet nat {
	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		oifname "r1" masquerade
	}
}
"#;
