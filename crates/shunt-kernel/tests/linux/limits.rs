//! Which traffic rules limit or change, as read from the kernel's own rulesets.

use crate::netns::{NetNs, sh};
use shunt_core::{Effect, Statement, effect};
use shunt_kernel::{LegacyIptables, read_ruleset};

/// The statements that limit, change or refresh, as `statement: traffic`.
fn described(statements: &[Statement]) -> Vec<String> {
    let is_about_traffic = |s: &&Statement| {
        matches!(effect(&s.name), Some(Effect::Limits | Effect::Rewrites | Effect::Refreshes))
    };
    let mut found: Vec<String> = statements
        .iter()
        .filter(is_about_traffic)
        .map(|s| format!("{}: {}", s.name, s.concerns.describe()).trim_end().to_owned())
        .collect();
    found.sort();
    found
}

fn read_nft() -> Vec<Statement> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(read_ruleset()).unwrap().statements
}

/// Loads each ruleset alone, and compares what is found about it.
#[track_caller]
fn check(cases: &[(&str, &[&str])]) {
    let Some(ns) = NetNs::new() else { return };
    ns.enter(|| {
        for (script, expected) in cases {
            sh("nft flush ruleset");
            sh(script);
            assert_eq!(described(&read_nft()), *expected, "{script}");
        }
    });
}

fn in_forward(rules: &str) -> String {
    format!("nft 'table inet t {{ chain c {{ type filter hook forward priority 0; {rules}; }}; }}'")
}

#[track_caller]
fn check_forward(cases: &[(&str, &[&str])]) {
    let scripts: Vec<String> = cases.iter().map(|(rules, _)| in_forward(rules)).collect();
    let cases: Vec<(&str, &[&str])> =
        scripts.iter().zip(cases).map(|(script, (_, expected))| (script.as_str(), *expected)).collect();
    check(&cases);
}

const UDP: &str = "limit: UDP over IPv4 and IPv6";
const ALL: &str = "limit: TCP and UDP over IPv4 and IPv6";
const NEW: &str = "limit: UDP before its first answer over IPv4 and IPv6";
const NONE: &str = "limit:";

#[test]
fn a_limit_concerns_the_traffic_that_it_drops() {
    check_forward(&[
        ("limit rate over 100/second drop", &[ALL]),
        ("udp dport 80 limit rate over 100/second drop", &[UDP]),
        ("udp dport 80 limit rate over 100/second reject", &[UDP]),
        ("ip saddr 192.0.2.1 limit rate over 1 mbytes/second drop", &["limit: TCP and UDP over IPv4"]),
        ("meta nfproto ipv6 meta l4proto tcp limit rate over 100/second drop", &["limit: TCP over IPv6"]),
        ("meta l4proto { tcp, udp } limit rate over 100/second drop", &[ALL]),
        ("meta l4proto != { tcp, icmp } limit rate over 100/second drop", &[UDP]),
        ("meta l4proto { icmp, ipv6-icmp } limit rate over 100/second drop", &[NONE]),
        ("icmp type echo-request limit rate over 100/second drop", &[NONE]),
        ("quota over 10 mbytes drop", &["quota: TCP and UDP over IPv4 and IPv6"]),
        ("tcp dport 80 ct count over 10 drop", &["ct count: TCP over IPv4 and IPv6"]),
        ("udp dport 80 ct bytes > 10000 drop", &["ct bytes: UDP over IPv4 and IPv6"]),
        ("meta random < 10 drop", &["meta random: TCP and UDP over IPv4 and IPv6"]),
    ]);
}

#[test]
fn a_limit_that_drops_nothing_and_saves_nothing_from_a_drop_concerns_no_traffic() {
    check_forward(&[
        ("limit rate 100/second accept", &[NONE]),
        ("limit rate 100/second log", &[NONE]),
        ("limit rate 100/second counter", &[NONE]),
        ("policy drop; limit rate over 100/second drop", &[NONE]),
        ("policy drop; limit rate 100/second accept", &[ALL]),
        ("policy drop; udp dport 53 limit rate 100/second accept", &[UDP]),
        ("policy drop; udp dport 53 limit rate 100/second accept; accept", &[NONE]),
        ("udp dport 53 limit rate 100/second accept; udp dport 53 drop", &[UDP]),
        ("udp dport 53 limit rate 100/second accept; tcp dport 53 drop", &[NONE]),
        // By the mark or the set, another rule may drop.
        ("limit rate over 100/second meta mark set 1", &[ALL]),
    ]);
}

#[test]
fn connections_that_were_accepted_before_do_not_reach_a_limit() {
    check_forward(&[
        ("ct state established,related accept; limit rate over 9/second drop", &[NEW]),
        ("ct state { established, related } accept; limit rate over 9/second drop", &[NEW]),
        ("ct state vmap { established : accept, related : accept }; limit rate over 9/second drop", &[NEW]),
        ("ct state established accept; tcp dport 22 limit rate over 9/second drop", &[NONE]),
        ("ct state new accept; ct state established accept; limit rate over 9/second drop", &[NEW]),
        (
            "ct state vmap { new : accept, related : accept, established : accept }; limit rate over 9/second drop",
            &[NONE],
        ),
        ("iifname lo ct state established accept; limit rate over 9/second drop", &[ALL]),
        ("ct state new limit rate over 9/second drop", &[NEW]),
        ("ct state != established limit rate over 9/second drop", &[NEW]),
        ("ct state invalid limit rate over 9/second drop", &[NONE]),
        ("tcp flags syn limit rate over 9/second drop", &[NONE]),
        ("tcp flags & (fin|syn|rst|ack) == syn limit rate over 9/second drop", &[NONE]),
        ("tcp flags & (syn|ack) == ack limit rate over 9/second drop", &["limit: TCP over IPv4 and IPv6"]),
        (
            "tcp flags & (psh|ack) == psh|ack limit rate over 9/second drop",
            &["limit: TCP over IPv4 and IPv6"],
        ),
    ]);
}

/// In the chains before conntrack, no packet has a state yet.
#[test]
fn the_state_of_connections_counts_only_behind_conntrack() {
    let rules = "ct state established accept; limit rate over 9/second drop";
    let at = |priority: i32| {
        format!(
            "nft 'table inet t {{ chain c {{ type filter hook prerouting priority {priority}; {rules}; }}; }}'"
        )
    };
    check(&[(&at(-300), &[ALL]), (&at(-200), &[ALL]), (&at(-150), &[NEW])]);
}

#[test]
fn a_limit_is_followed_through_the_chains_that_lead_to_it_and_behind_it() {
    let chain = |chains: &str, rules: &str| {
        format!(
            "nft 'table inet t {{ {chains} chain c {{ type filter hook forward priority 0; {rules}; }}; }}'"
        )
    };
    let flood = "chain flood { limit rate 9/second return; drop; };";
    let logs = "chain logs { log; };";
    let both = "chain deep { limit rate over 9/second log drop; }; chain flood { ct state established accept; jump deep; };";
    let ports = "chain flood { limit rate over 9/second drop; }; map ports { type inet_service : verdict; elements = { 53 : jump flood }; };";
    check(&[
        (&chain(flood, "udp dport 80 jump flood"), &[UDP]),
        (&chain(flood, "tcp flags & (fin|syn|rst|ack) == syn jump flood"), &[NONE]),
        (&chain(flood, "ct state established accept; jump flood"), &[NEW]),
        (&chain(logs, "limit rate over 9/second jump logs"), &[NONE]),
        (&chain(logs, "policy drop; limit rate over 9/second jump logs"), &[NONE]),
        (&chain("chain drops { log; drop; };", "udp dport 80 limit rate over 9/second goto drops"), &[UDP]),
        (&chain(both, "jump flood"), &[NEW]),
        (&chain(ports, "udp dport vmap @ports"), &[UDP]),
        (&chain("chain lonely { limit rate over 9/second drop; };", "accept"), &[]),
        // Elements of named maps come and go.
        (
            &chain(
                "map states { type ct_state : verdict; elements = { established : accept }; };",
                "ct state vmap @states; limit rate over 9/second drop",
            ),
            &[ALL],
        ),
    ]);
}

#[test]
fn limits_of_sets_objects_and_meters_are_limits() {
    let table = |rest: &str, rules: &str| {
        format!(
            "nft 'table inet t {{ {rest} chain c {{ type filter hook forward priority 0; {rules}; }}; }}'"
        )
    };
    check(&[
        (&table("limit l { rate over 9/second; };", "udp dport 80 limit name l drop"), &[UDP]),
        (
            &table("quota q { over 9 mbytes; };", "udp dport 80 quota name q drop"),
            &["quota: UDP over IPv4 and IPv6"],
        ),
        (
            &table(
                "set seen { type ipv4_addr; flags dynamic; };",
                "udp dport 80 add @seen { ip saddr limit rate over 9/second } drop",
            ),
            &["limit: UDP over IPv4"],
        ),
        (
            &table(
                "set bad { type ipv4_addr; flags dynamic,timeout; };",
                "udp dport 80 limit rate over 9/second add @bad { ip saddr timeout 1m }; ip saddr @bad drop",
            ),
            &["limit: UDP over IPv4"],
        ),
    ]);
}

#[test]
fn changes_of_packets_are_named_with_the_traffic_that_they_reach() {
    check_forward(&[
        ("ip ttl set 64", &["ip ttl set: TCP and UDP over IPv4"]),
        ("ip6 hoplimit set 64", &["ip6 hoplimit set: TCP and UDP over IPv6"]),
        ("udp dport 53 ip dscp set cs1", &["ip dscp set: UDP over IPv4"]),
        ("ip6 dscp set cs1", &["ip6 dscp set: TCP and UDP over IPv6"]),
        ("icmp type echo-request ip ttl set 64", &["payload set:"]),
        ("udp dport 53 @th,64,16 set 7", &["payload set: UDP over IPv4 and IPv6"]),
        ("tcp flags syn tcp option maxseg size set rt mtu", &[]),
    ]);
    check(&[
        ("iptables-nft -t mangle -A POSTROUTING -j TTL --ttl-set 64", &["TTL: TCP and UDP over IPv4"]),
        (
            "ip6tables-nft -t mangle -A FORWARD -p tcp --dport 22 -j DSCP --set-dscp 8",
            &["DSCP: TCP over IPv6"],
        ),
        ("iptables-nft -t mangle -A POSTROUTING -p tcp --syn -j TCPMSS --clamp-mss-to-pmtu", &[]),
    ]);
}

/// Both kinds of iptables, by the same commands.
const OF_IPTABLES: [(&str, &[&str]); 9] = [
    (
        "-A FORWARD -p udp --dport 80 -m limit --limit 9/s -j ACCEPT; I -A FORWARD -p udp --dport 80 -j DROP",
        &["limit: UDP over IPv4"],
    ),
    ("-A FORWARD -p udp --dport 80 -m limit --limit 9/s -j LOG", &[NONE]),
    ("-A FORWARD -m limit --limit 9/s -j ACCEPT; I -P FORWARD DROP", &["limit: TCP and UDP over IPv4"]),
    (
        "-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT; \
         I -A FORWARD -m hashlimit --hashlimit-above 9/s --hashlimit-name x -j DROP",
        &["hashlimit: UDP before its first answer over IPv4"],
    ),
    (
        "-A FORWARD -i lo -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT; \
         I -A FORWARD -m statistic --mode random --probability 0.1 -j REJECT",
        &["statistic: TCP and UDP over IPv4"],
    ),
    (
        "-t raw -A PREROUTING -p udp -m conntrack --ctstate NEW -m limit --limit 9/s -j ACCEPT; \
         I -t raw -A PREROUTING -p udp -j DROP",
        &["limit: UDP over IPv4"],
    ),
    (
        "-N flood; I -A flood -m limit --limit 9/s -j RETURN; I -A flood -j DROP; I -A FORWARD -p tcp --syn -j flood",
        &[NONE],
    ),
    (
        "-N flood; I -A flood -m limit --limit 9/s -j RETURN; I -A flood -j DROP; I -A FORWARD -p tcp -g flood",
        &["limit: TCP over IPv4"],
    ),
    (
        "-A FORWARD -p tcp --dport 80 -m connlimit --connlimit-above 9 -j REJECT --reject-with tcp-reset; \
         I -A FORWARD -p udp -m quota ! --quota 9000 -j MARK --set-mark 1",
        &["connlimit: TCP over IPv4", "quota: UDP over IPv4"],
    ),
];

fn with(command: &str, rules: &str) -> String {
    format!("{command} {}", rules.replace("; I ", &format!("; {command} ")))
}

#[test]
fn iptables_nft_limits_the_same_traffic() {
    let scripts: Vec<String> = OF_IPTABLES.iter().map(|(rules, _)| with("iptables-nft", rules)).collect();
    let cases: Vec<(&str, &[&str])> =
        scripts.iter().zip(OF_IPTABLES).map(|(script, (_, expected))| (script.as_str(), expected)).collect();
    check(&cases);
}

#[test]
fn legacy_iptables_limits_the_same_traffic() {
    for (rules, expected) in OF_IPTABLES {
        let Some(ns) = NetNs::new() else { return };
        ns.enter(|| {
            sh(&with("iptables-legacy", rules));
            let read = LegacyIptables::default().read_if_changed().unwrap().unwrap();
            assert_eq!(described(&read.statements), expected, "{rules}");
        });
    }
}

#[test]
fn a_rule_that_refreshes_elements_has_the_timeout_of_the_rule_or_of_the_set() {
    let Some(ns) = NetNs::new() else { return };
    ns.enter(|| {
        for (set, rule, expected) in [
            ("timeout 5s;", "update @seen { ip saddr }", vec![Some(5)]),
            ("timeout 5s;", "update @seen { ip saddr timeout 3s }", vec![Some(3)]),
            ("", "update @seen { ip saddr }", vec![None]),
            ("timeout 5s;", "add @seen { ip saddr }", vec![]),
        ] {
            sh("nft flush ruleset");
            sh(&format!(
                "nft 'table ip t {{ set seen {{ type ipv4_addr; flags dynamic,timeout; {set} }}; \
                 chain c {{ type filter hook forward priority 0; {rule}; }}; }}'"
            ));
            let found = read_nft();
            let seconds: Vec<_> = found
                .iter()
                .filter(|s| s.name == "update")
                .map(|s| s.timeout.map(|timeout| timeout.as_secs()))
                .collect();
            assert_eq!(seconds, expected, "{rule}");
        }
    });
}
