//! Reads the rules of legacy iptables from the kernel.

use crate::netns::{NetNs, sh};
use shunt_kernel::LegacyIptables;
use std::{
    collections::BTreeSet,
    net::UdpSocket,
    time::{Duration, Instant},
};

/// The statements as `family table chain number statement`; `None` if no rule has changed.
fn read_if_changed(legacy: &mut LegacyIptables) -> Option<Vec<String>> {
    let found = legacy.read_if_changed().unwrap()?;
    let line =
        |s: &shunt_core::Statement| format!("{} {} {} {} {}", s.family, s.table, s.chain, s.handle, s.name);
    let mut found: Vec<String> = found.statements.iter().map(line).collect();
    found.sort();
    Some(found)
}

fn in_new_namespace(test: impl FnOnce(LegacyIptables) + Send) {
    let Some(ns) = NetNs::new() else { return };
    ns.enter(|| test(LegacyIptables::default()));
}

#[test]
fn reading_creates_no_table() {
    in_new_namespace(|mut legacy| {
        assert_eq!(read_if_changed(&mut legacy), Some(Vec::new()));
        assert_eq!(read_if_changed(&mut legacy), None);
        assert_eq!(
            sh("cat /proc/thread-self/net/ip_tables_names /proc/thread-self/net/ip6_tables_names"),
            ""
        );
    });
}

#[test]
fn a_table_that_is_only_listed_is_no_change_and_its_first_rule_is_one() {
    in_new_namespace(|mut legacy| {
        assert_eq!(read_if_changed(&mut legacy), Some(Vec::new()));
        sh("iptables-legacy -t nat -L -n; ip6tables-legacy -L -n");
        let tables = sh("cat /proc/thread-self/net/ip_tables_names /proc/thread-self/net/ip6_tables_names");
        assert!(tables.contains("nat") && tables.contains("filter"), "{tables}");
        assert_eq!(read_if_changed(&mut legacy), None);
        sh("iptables-legacy -t nat -A POSTROUTING -j ACCEPT");
        let rules = legacy.read_if_changed().unwrap().expect("a rule");
        assert_eq!(rules.changed, ["iptables -t nat"]);
        sh("ip6tables-legacy -P FORWARD DROP; iptables-legacy -t nat -F");
        let rules = legacy.read_if_changed().unwrap().expect("a policy, and no rule any more");
        assert_eq!(rules.changed, ["ip6tables -t filter", "iptables -t nat"]);
    });
}

#[test]
fn rules_of_all_tables_are_read() {
    in_new_namespace(|mut legacy| {
        sh("iptables-legacy -t raw -A PREROUTING -p udp --dport 9 -j NFLOG
            iptables-legacy -t mangle -N copies; iptables-legacy -t mangle -N unused
            iptables-legacy -t mangle -A PREROUTING -p udp -j TPROXY --on-port 1
            iptables-legacy -t mangle -A POSTROUTING -o lo -g copies
            iptables-legacy -t mangle -A copies -m mark --mark 1 -j ACCEPT
            iptables-legacy -t mangle -A copies -j TEE --gateway 192.0.2.1
            iptables-legacy -t mangle -A unused -j TEE --gateway 192.0.2.1
            iptables-legacy -A INPUT -j NFQUEUE; iptables-legacy -A OUTPUT -j LOG
            iptables-legacy -A FORWARD -m limit --limit 1/s; iptables-legacy -A FORWARD -j QUEUE
            iptables-legacy -t security -A FORWARD -m quota --quota 9 -j ACCEPT
            iptables-legacy -t nat -A PREROUTING -j LOG
            ip6tables-legacy -A FORWARD -p tcp -j SYNPROXY
            ip6tables-legacy -t mangle -A FORWARD -m hashlimit --hashlimit-above 9/s --hashlimit-name x -j NFQUEUE");
        let expected = [
            "ip filter FORWARD 1 limit",
            "ip filter FORWARD 2 QUEUE",
            "ip mangle PREROUTING 1 TPROXY",
            "ip mangle copies 2 TEE",
            "ip raw PREROUTING 1 NFLOG",
            "ip security FORWARD 1 quota",
            "ip6 filter FORWARD 1 SYNPROXY",
            "ip6 mangle FORWARD 1 NFQUEUE",
            "ip6 mangle FORWARD 1 hashlimit",
        ];
        assert_eq!(read_if_changed(&mut legacy).unwrap(), expected);
        assert_eq!(read_if_changed(&mut legacy), None);
    });
}

#[test]
fn a_change_of_any_rule_is_reported_and_a_change_of_counters_is_not() {
    in_new_namespace(|mut legacy| {
        sh("iptables-legacy -A INPUT -i lo -p udp -m statistic --mode nth --every 2 --packet 0 -j ACCEPT
            iptables-legacy -A INPUT -i lo -m limit --limit 9/s -j ACCEPT
            iptables-legacy -A INPUT -i lo -m quota --quota 100000 -j ACCEPT");
        read_if_changed(&mut legacy).unwrap();
        let before = sh("iptables-legacy -vnL INPUT");
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..9 {
            socket.send_to(b"counted", socket.local_addr().unwrap()).unwrap();
        }
        assert_ne!(sh("iptables-legacy -vnL INPUT"), before, "the counters must have changed");
        assert_eq!(read_if_changed(&mut legacy), None);
        let mut digests =
            BTreeSet::from([LegacyIptables::default().read_if_changed().unwrap().unwrap().digest]);
        for change in [
            "iptables-legacy -P FORWARD DROP",
            "iptables-legacy -A FORWARD -p udp --dport 5000 -j ACCEPT",
            "iptables-legacy -R FORWARD 1 -p udp --dport 5001 -j ACCEPT",
            "iptables-legacy -R FORWARD 1 -p udp --dport 5001 -j DROP",
            "iptables-legacy -t nat -A POSTROUTING -j MASQUERADE",
            "ip6tables-legacy -A FORWARD -s 2001:db8::1 -j ACCEPT",
            "ip6tables-legacy -R FORWARD 1 -s 2001:db8::2 -j ACCEPT",
            "ip6tables-legacy -F",
        ] {
            sh(change);
            let rules = legacy.read_if_changed().unwrap().expect(change);
            assert_eq!(rules.statements, [], "{change}");
            let table = if change.contains("-t nat") { "nat" } else { "filter" };
            let command = change.split('-').next().unwrap();
            assert_eq!(rules.changed, [format!("{command} -t {table}")], "{change}");
            assert_eq!(read_if_changed(&mut legacy), None, "{change}");
            // Another process finds the same number.
            let again = LegacyIptables::default().read_if_changed().unwrap().unwrap();
            assert_eq!(again.digest, rules.digest, "{change}");
            // Without rules of IPv6, all rules are those of before.
            assert_eq!(digests.insert(rules.digest), change != "ip6tables-legacy -F", "{change}");
        }
    });
}

#[test]
fn ten_thousand_rules_are_read_completely() {
    in_new_namespace(|mut legacy| {
        sh("(echo '*filter'; seq 10000 | sed 's/.*/-A FORWARD -p udp --dport & -j ACCEPT/'
            echo '-A FORWARD -j LOG'; echo COMMIT) | iptables-legacy-restore");
        assert_eq!(read_if_changed(&mut legacy).unwrap(), ["ip filter FORWARD 10001 LOG"]);
        let since = Instant::now();
        assert_eq!(read_if_changed(&mut legacy), None);
        eprintln!("10,001 rules were read in {:?}", since.elapsed());
        assert!(since.elapsed() < Duration::from_secs(2));
    });
}
