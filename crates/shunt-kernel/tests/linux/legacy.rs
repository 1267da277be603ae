//! The rules of legacy iptables, from the kernel.

use crate::netns::{NetNs, sh};
use shunt_kernel::Legacy;
use std::{
    net::UdpSocket,
    time::{Duration, Instant},
};

/// `family table chain number statement`; none where nothing has changed.
fn look(legacy: &mut Legacy) -> Option<Vec<String>> {
    let found = legacy.look().unwrap()?;
    let said =
        |s: &shunt_core::Statement| format!("{} {} {} {} {}", s.family, s.table, s.chain, s.handle, s.name);
    let mut found: Vec<String> = found.iter().map(said).collect();
    found.sort();
    Some(found)
}

fn in_new_namespace(test: impl FnOnce(Legacy) + Send) {
    let Some(ns) = NetNs::new() else { return };
    ns.enter(|| test(Legacy::default()));
}

#[test]
fn looking_makes_no_table_and_finds_none() {
    in_new_namespace(|mut legacy| {
        assert_eq!(look(&mut legacy), Some(Vec::new()));
        assert_eq!(look(&mut legacy), None);
        assert_eq!(
            sh("cat /proc/thread-self/net/ip_tables_names /proc/thread-self/net/ip6_tables_names"),
            ""
        );
    });
}

#[test]
fn rules_of_all_tables_are_read_as_iptables_made_them() {
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
        let said = [
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
        assert_eq!(look(&mut legacy).unwrap(), said);
        assert_eq!(look(&mut legacy), None);
    });
}

#[test]
fn a_change_of_any_rule_is_seen_and_one_of_counters_is_not() {
    in_new_namespace(|mut legacy| {
        sh("iptables-legacy -A INPUT -i lo -p udp -m statistic --mode nth --every 2 --packet 0 -j ACCEPT
            iptables-legacy -A INPUT -i lo -m limit --limit 9/s -j ACCEPT
            iptables-legacy -A INPUT -i lo -m quota --quota 100000 -j ACCEPT");
        look(&mut legacy).unwrap();
        let before = sh("iptables-legacy -vnL INPUT");
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..9 {
            socket.send_to(b"counted", socket.local_addr().unwrap()).unwrap();
        }
        assert_ne!(sh("iptables-legacy -vnL INPUT"), before, "packets were counted");
        assert_eq!(look(&mut legacy), None);
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
            assert_eq!(look(&mut legacy), Some(Vec::new()), "{change}");
            assert_eq!(look(&mut legacy), None, "{change}");
        }
    });
}

#[test]
fn ten_thousand_rules_are_read_whole() {
    in_new_namespace(|mut legacy| {
        sh("(echo '*filter'; seq 10000 | sed 's/.*/-A FORWARD -p udp --dport & -j ACCEPT/'
            echo '-A FORWARD -j LOG'; echo COMMIT) | iptables-legacy-restore");
        assert_eq!(look(&mut legacy).unwrap(), ["ip filter FORWARD 10001 LOG"]);
        let since = Instant::now();
        assert_eq!(look(&mut legacy), None);
        eprintln!("10,001 rules are looked at in {:?}", since.elapsed());
        assert!(since.elapsed() < Duration::from_secs(2));
    });
}
