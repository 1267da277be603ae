use super::{super::arguments::parse_args, *};
use crate::commands::{
    flows::sample::{connections, slow, tcp, udp6},
    listed::Listed,
};
use clap::error::ErrorKind;
use shunt_api::{HostNames, Network, Proto, Selection, Tuple};

fn shown(filter: &Filter) -> Vec<Proto> {
    let fast = [tcp(), udp6()].map(Listed::Fast);
    fast.iter().filter(|c| filter.matches(c)).filter_map(Listed::proto).collect()
}

fn network(text: &str) -> Option<Network> {
    Some(text.parse().unwrap())
}

#[test]
fn without_a_filter_all_connections_are_shown() {
    assert!(connections().iter().all(|connection| Filter::default().matches(connection)));
}

#[test]
fn addresses_match_either_direction_as_conntrack_prints_it() {
    let reply = tcp().reply;
    let with = |selection| Filter { selections: vec![selection], ..Filter::default() };
    let to_the_nat_address = with(Selection { dst: network("203.0.113.1"), ..Selection::default() });
    assert_eq!(shown(&to_the_nat_address), [Proto::Tcp]);
    let exact = with(Selection {
        src: network(&reply.src.to_string()),
        dst: network(&reply.dst.to_string()),
        sport: Some(reply.sport),
        dport: Some(reply.dport),
        proto: None,
    });
    assert_eq!(shown(&exact), [Proto::Tcp]);
    let host = |text: &str| Selection { src: network(text), ..Selection::default() };
    let of_both =
        Filter { selections: vec![host("192.168.1.2"), host("2001:db8:1::2")], ..Filter::default() };
    assert_eq!(shown(&of_both), [Proto::Tcp, Proto::Udp], "a host with two addresses");
}

#[test]
fn protocol_state_engine_and_port_match_exactly() {
    let filter = Filter::default;
    assert_eq!(
        shown(&Filter {
            selections: vec![Selection { proto: Some(Proto::Udp), ..Selection::default() }],
            ..filter()
        }),
        [Proto::Udp]
    );
    assert_eq!(shown(&Filter { state: Some(FlowState::Pending), ..filter() }), [Proto::Udp]);
    assert_eq!(shown(&Filter { engine: Some(Engine::Xdp), ..filter() }), [Proto::Tcp]);
    assert_eq!(shown(&Filter { port: Some("eth1".to_owned()), ..filter() }), [Proto::Tcp, Proto::Udp]);
    assert!(shown(&Filter { port: Some("eth".to_owned()), ..filter() }).is_empty());
}

#[test]
fn every_key_sorts_and_reverses() {
    let (mut a, mut b) = (tcp(), tcp());
    (a.orig.src, a.orig.dst) = ("10.0.0.2".parse().unwrap(), "10.9.0.1".parse().unwrap());
    (b.orig.src, b.orig.dst) = ("10.0.0.10".parse().unwrap(), "10.8.0.1".parse().unwrap());
    (a.rate_bps, a.packets, a.bytes, a.age_s, a.idle_s) = (5, 50, 10, 7, 1);
    (b.rate_bps, b.packets, b.bytes, b.age_s, b.idle_s) = (6, 40, 20, 6, 2);
    let first = |key, reverse| {
        let [a, b] = [a.clone(), b.clone()].map(Listed::Fast);
        let mut both = vec![a.clone(), b];
        Order { key, reverse, limit: Some(1) }.apply(&mut both);
        assert_eq!(both.len(), 1);
        if both[0] == a { 'a' } else { 'b' }
    };
    for (key, want) in [
        (SortKey::Rate, 'b'),
        (SortKey::Packets, 'a'),
        (SortKey::Bytes, 'b'),
        (SortKey::Age, 'a'),
        (SortKey::Idle, 'a'),
        (SortKey::Src, 'a'),
        (SortKey::Dst, 'b'),
    ] {
        assert_eq!(first(key, false), want, "{key:?}");
        assert_ne!(first(key, true), want, "{key:?}");
    }
}

#[test]
fn connections_with_equal_rates_are_sorted_by_address() {
    let order = Order { key: SortKey::Rate, reverse: false, limit: None };
    let with = |sport| Listed::Fast(Connection { orig: Tuple { sport, ..udp6().orig }, ..udp6() });
    let mut same: Vec<Listed> = [3, 1, 2].map(with).to_vec();
    order.apply(&mut same);
    assert_eq!(same.iter().map(|c| c.orig().sport).collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn options_become_a_filter_and_an_order() {
    let parse = |words: &str| parse_args::<FlowsArgs>(words);
    let typed = parse("--dst 198.18.0.0/15 --dport 53 --proto udp --state stale --engine tc --port eth0");
    let only = Selection {
        dst: network("198.18.0.0/15"),
        dport: Some(53),
        proto: Some(Proto::Udp),
        ..Selection::default()
    };
    let filter = Filter {
        selections: vec![only.clone()],
        state: Some(FlowState::Stale),
        engine: Some(Engine::Tc),
        port: Some("eth0".to_owned()),
    };
    let typed = typed.unwrap();
    assert_eq!(typed.filter(vec![only]), filter);
    assert_eq!(typed.order(), Order { key: SortKey::Rate, reverse: false, limit: None });
    let typed = parse("--sort idle --reverse --limit 5 --over 2s").unwrap();
    assert_eq!(typed.order(), Order { key: SortKey::Idle, reverse: true, limit: Some(5) });
    assert_eq!(typed.over, Duration::from_secs(2));
    for words in ["--src 300.1.1.1", "--dst 10.0.0.0/33", "--over 11s", "--sport 65536"] {
        assert_eq!(parse(words).unwrap_err().kind(), ErrorKind::ValueValidation, "{words}");
    }
    assert_eq!(parse("--sort size").unwrap_err().kind(), ErrorKind::InvalidValue);
}

#[test]
fn hosts_are_sorted_by_the_same_keys() {
    let first = |words: &str| {
        let typed = parse_args::<FlowsArgs>(words).unwrap();
        assert_eq!(typed.by, Some(By::Host));
        let mut hosts = totals(&[tcp(), udp6()].map(Listed::Fast), &HostNames::default());
        typed.order().apply_to_hosts(&mut hosts);
        hosts[0].addr.to_string()
    };
    assert_eq!(first("--by host"), "192.168.1.2");
    assert_eq!(first("--by host --reverse"), "2001:db8:2::9");
    assert_eq!(first("--by host --sort idle --reverse"), "2001:db8:2::9");
    assert_eq!(first("--by host --sort bytes --limit 1"), "192.168.1.2");
    assert!(parse_args::<FlowsArgs>("--by port").is_err());
}

#[test]
fn slow_connections_are_listed_unless_a_filter_asks_for_what_they_lack() {
    let filter = |words: &str| {
        let typed = parse_args::<FlowsArgs>(words).unwrap();
        let which = typed.connections.named().unwrap().with(|_| Vec::new()).unwrap();
        typed.filter(which)
    };
    let slow = Listed::Slow(slow());
    for (words, expected) in [
        ("", true),
        ("--state slow", true),
        ("--src 192.168.1.2 --dport 8080 --proto tcp", true),
        ("--proto udp", false),
        ("--state active", false),
        ("--engine tc", false),
        ("--dev lan0", false),
    ] {
        let filter = filter(words);
        assert_eq!(filter.allows_slow() && filter.matches(&slow), expected, "{words}");
    }
    assert!(!filter("--state slow").allows_fast() && filter("").allows_fast());
    let mut both = vec![Listed::Fast(udp6()), slow.clone()];
    Order { key: SortKey::Rate, reverse: false, limit: None }.apply(&mut both);
    assert_eq!(both[0], slow, "the slow one has the higher rate");
}

#[test]
fn a_device_that_is_no_port_and_a_limit_of_none_are_refused() {
    let ports = ["lan0", "wan0"];
    assert!(must_be_port("wan0", ports.into_iter()).is_ok());
    let why = must_be_port("lan9", ports.into_iter()).unwrap_err().message;
    assert_eq!(why, "--dev: lan9 is no port of this instance, which has lan0, wan0");
    let why = must_be_port("443", ports.into_iter()).unwrap_err().message;
    assert!(why.ends_with("; a TCP or UDP port is --dport 443 or --sport 443"), "{why}");
    assert!(must_be_port("lan9", [].into_iter()).unwrap_err().message.ends_with("which has no port"));
    let none = parse_args::<FlowsArgs>("--limit 0").unwrap_err().to_string();
    assert!(none.contains("'0' for '--limit <N>': expected a number from 1 on"), "{none}");
}
