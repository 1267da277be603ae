//! The events of changes in the kernel.

use crate::{listener::Listener, netns::sh};
use shunt_core::{
    DefaultRoute, Event, EventSource, LinkLayer, Netconf, NextHop, Qdisc, RouteChange, RouteDetails,
    RulesPlace, Scope, Sysctl, SysctlOf, TcChange, TcObject, TcTurn,
};
use shunt_wire::Mac;
use std::net::IpAddr;

const ROOT: u32 = 0xffff_ffff;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn prefix(text: &str, len: u8) -> Scope {
    Scope::Prefix { addr: ip(text), len }
}

fn mac(text: &str) -> Mac {
    text.parse().unwrap()
}

#[test]
fn this_kernel_has_every_source_of_events() {
    Listener::in_new_namespace(|listener| assert_eq!(listener.subscription.missing(), []));
}

#[test]
fn a_veth_is_reported_from_creation_to_deletion() {
    Listener::in_new_namespace(|mut listener| {
        sh("ip link add v0 mtu 1400 address 02:00:00:00:00:01 type veth peer name v1");
        let v0 = listener.wait_for_link(|link| link.name == "v0");
        assert_eq!((v0.kind.as_deref(), v0.mtu, v0.mac), (Some("veth"), 1400, mac("02:00:00:00:00:01")));
        assert!(v0.layer == LinkLayer::Ethernet && !v0.up && !v0.carrier);
        assert_eq!((v0.lower, v0.master, v0.xdp_prog), (None, None, None));
        sh("ip link set v0 up; ip link set v1 up");
        listener.wait_for_link(|link| link.ifindex == v0.ifindex && link.up && link.carrier);
        sh("ip link set v1 down");
        listener.wait_for_link(|link| link.ifindex == v0.ifindex && link.up && !link.carrier);
        sh("ip link del v0");
        listener.wait_for(&Event::LinkGone { ifindex: v0.ifindex });
    });
}

#[test]
fn upper_devices_and_bridge_ports_are_reported_with_their_relations() {
    Listener::in_new_namespace(|mut listener| {
        sh(
            "ip link add d0 type veth peer name d0p; ip link add link d0 name m0 type macvlan; ip link add br0 type bridge",
        );
        let d0 = listener.wait_for_link(|link| link.name == "d0");
        let upper = listener.wait_for_link(|link| link.name == "m0");
        assert_eq!((upper.lower, upper.kind.as_deref()), (Some(d0.ifindex), Some("macvlan")));
        let bridge = listener.wait_for_link(|link| link.name == "br0");
        sh("ip link set m0 master br0");
        listener.wait_for_link(|link| link.ifindex == upper.ifindex && link.master == Some(bridge.ifindex));
        listener.events_so_far();
        sh("ip link set m0 nomaster");
        let events = listener.events_so_far();
        assert!(!events.contains(&Event::LinkGone { ifindex: upper.ifindex }), "{events:#?}");
        assert!(
            events
                .iter()
                .any(|e| matches!(e, Event::Link(l) if l.ifindex == upper.ifindex && l.master.is_none()))
        );
    });
}

#[test]
fn a_port_of_a_bridge_is_reported_the_same_by_both_kinds_of_messages() {
    Listener::in_new_namespace(|mut listener| {
        sh(
            "ip link add d0 type veth peer name d0p; ip link add br0 up type bridge; ip link set d0 master br0",
        );
        let port = listener.wait_for_link(|link| link.name == "d0" && link.bridge_port.is_some());
        let before = port.bridge_port.unwrap();
        listener.events_so_far();
        let mut reported = |script: &str| {
            sh(script);
            let of_port = |event: Event| match event {
                Event::BridgePort { ifindex, port: Some(now), runs } if ifindex == port.ifindex => {
                    Some((now, runs))
                }
                _ => None,
            };
            listener.events_so_far().into_iter().filter_map(of_port).next_back().expect(script)
        };
        let (isolated, _) = reported("bridge link set dev d0 isolated on");
        assert_ne!(isolated.settings, before.settings);
        let (again, runs) = reported("bridge link set dev d0 isolated off");
        assert_eq!((again.settings, again.state, runs), (before.settings, 0, false));
        let (dearer, _) = reported("bridge link set dev d0 cost 77");
        assert_eq!(dearer.settings, before.settings);
        assert_ne!(dearer.derived, before.derived);
        let (forwarding, runs) = reported("ip link set d0p up; ip link set d0 up");
        assert_eq!((forwarding.settings, forwarding.state, runs), (before.settings, 3, true));
        let (disabled, runs) = reported("ip link set d0 down");
        assert_eq!((disabled.settings, disabled.state, runs), (before.settings, 0, false));
    });
}

#[test]
fn addresses_routes_rules_and_nexthops_are_reported() {
    Listener::in_new_namespace(|mut listener| {
        sh("ip link add d0 type veth peer name d0p; ip link set d0p up; ip link set d0 up");
        let ifindex = listener.wait_for_link(|link| link.name == "d0").ifindex;
        sh("ip addr add 192.0.2.1/24 dev d0");
        listener.wait_for(&Event::Address { ifindex, addr: ip("192.0.2.1"), prefix: 24 });
        sh("ip addr add 2001:db8::1/64 dev d0 nodad");
        listener.wait_for(&Event::Address { ifindex, addr: ip("2001:db8::1"), prefix: 64 });
        listener.events_so_far();
        let route = || RouteDetails::from(Some(ifindex));
        let default = |gateway, change| {
            let hop = NextHop { gateway: Some(ip(gateway)), device: Some(ifindex) };
            let default = DefaultRoute { hops: vec![hop], metric: 50, change, ..DefaultRoute::default() };
            RouteDetails { default: Some(Box::new(default)), ..route() }
        };
        let sysctl = |family, of| {
            Event::Netconf(Netconf::Changed(Sysctl { family, of, name: "forwarding", value: 1 }))
        };
        for (script, expected) in [
            ("ip route add 198.51.100.0/24 via 192.0.2.9", Event::Route(prefix("198.51.100.0", 24), route())),
            ("ip route del 198.51.100.0/24", Event::RouteGone(prefix("198.51.100.0", 24), route())),
            (
                "ip route add 2001:db8:1::/64 via 2001:db8::9",
                Event::Route(prefix("2001:db8:1::", 64), route()),
            ),
            (
                "ip route add default via 192.0.2.9 metric 50",
                Event::Route(prefix("0.0.0.0", 0), default("192.0.2.9", RouteChange::Added)),
            ),
            (
                "ip route change default via 192.0.2.8 metric 50",
                Event::Route(prefix("0.0.0.0", 0), default("192.0.2.8", RouteChange::Replaced)),
            ),
            (
                "ip route del default",
                Event::RouteGone(prefix("0.0.0.0", 0), default("192.0.2.8", RouteChange::Either)),
            ),
            ("ip rule add from 192.0.2.0/24 lookup 100", Event::Rule),
            ("ip rule del from 192.0.2.0/24 lookup 100", Event::Rule),
            ("ip -6 rule add from 2001:db8::/64 lookup 100", Event::Rule),
            ("ip nexthop add id 5 via 192.0.2.9 dev d0", Event::Nexthop),
            ("echo 1 > /proc/sys/net/ipv4/conf/d0/forwarding", sysctl("ipv4", SysctlOf::Device(ifindex))),
            ("echo 1 > /proc/sys/net/ipv6/conf/all/forwarding", sysctl("ipv6", SysctlOf::All)),
        ] {
            sh(script);
            let events = listener.events_so_far();
            assert!(events.contains(&expected), "{script}: {events:#?}");
        }
        sh("ip addr del 192.0.2.1/24 dev d0");
        listener.wait_for(&Event::AddressGone { ifindex, addr: ip("192.0.2.1"), prefix: 24 });
    });
}

#[test]
fn a_neighbour_is_reported_with_each_change_of_its_mac() {
    Listener::in_new_namespace(|mut listener| {
        sh(
            "ip link add d0 type veth peer name d0p; ip link set d0p up; ip link set d0 up; ip addr add 192.0.2.1/24 dev d0",
        );
        let ifindex = listener.wait_for_link(|link| link.name == "d0").ifindex;
        let addr = ip("192.0.2.7");
        let neighbour = |mac| Event::Neighbour { ifindex, addr, mac };
        sh("ip neigh replace 192.0.2.7 lladdr 02:00:00:00:00:07 dev d0 nud reachable");
        listener.wait_for(&neighbour(Some(mac("02:00:00:00:00:07"))));
        sh("ip neigh replace 192.0.2.7 lladdr 02:00:00:00:00:08 dev d0 nud permanent");
        listener.wait_for(&neighbour(Some(mac("02:00:00:00:00:08"))));
        sh("ip neigh replace 192.0.2.7 dev d0 nud failed");
        listener.wait_for(&neighbour(None));
        sh("ip neigh del 192.0.2.7 dev d0");
        listener.wait_for(&Event::NeighbourGone { ifindex, addr });
        sh("ip -6 neigh replace fe80::7 lladdr 02:00:00:00:00:09 dev d0 nud stale");
        listener.wait_for(&Event::Neighbour {
            ifindex,
            addr: ip("fe80::7"),
            mac: Some(mac("02:00:00:00:00:09")),
        });
    });
}

#[test]
fn a_commit_of_nftables_is_one_event_and_others_say_where_rules_changed() {
    Listener::in_new_namespace(|mut listener| {
        listener.events_so_far();
        sh(
            "nft 'add table ip t; add chain ip t c { type filter hook forward priority 0; }; add set ip t s { type \
            ipv4_addr; }; add rule ip t c ip saddr @s drop; add element ip t s { 192.0.2.1, 192.0.2.2 }'",
        );
        let at = |name: &str, is_set| {
            Event::RulesAt(RulesPlace { family: 2, table: "t".to_owned(), name: name.to_owned(), is_set })
        };
        let first = [Event::Rules, at("s", true), at("c", false), Event::Ruleset];
        assert_eq!(listener.events_so_far(), first);
        sh("nft add element ip t s '{ 192.0.2.3 }'; nft delete element ip t s '{ 192.0.2.1 }'");
        assert_eq!(
            listener.events_so_far(),
            [Event::Ruleset, Event::Ruleset],
            "a set of addresses changes no rules"
        );
        sh("nft 'add map ip t m { type ipv4_addr : verdict; }; add chain ip t d'");
        assert_eq!(listener.events_so_far(), [at("m", true), at("d", false), Event::Ruleset]);
        sh("nft 'rename chain ip t d e'; nft 'rename chain ip t e d'");
        assert_eq!(listener.events_so_far(), [Event::Rules, Event::Ruleset, Event::Rules, Event::Ruleset]);
        sh("nft 'add element ip t m { 192.0.2.1 : jump d, 192.0.2.2 : accept }'");
        assert_eq!(listener.events_so_far(), [at("m", true), Event::Ruleset], "a new jump");
        sh("nft 'delete element ip t m { 192.0.2.2 }'");
        assert_eq!(listener.events_so_far(), [Event::Ruleset], "an accept leads nowhere");
        sh("nft flush ruleset");
        let events = listener.events_so_far();
        assert!(events.contains(&Event::Rules) && events.last() == Some(&Event::Ruleset), "{events:?}");
        sh("nft list ruleset");
        assert_eq!(listener.events_so_far(), []);
    });
}

#[test]
fn an_ipsec_policy_is_reported() {
    Listener::in_new_namespace(|mut listener| {
        listener.events_so_far();
        sh("ip xfrm policy add src 192.0.2.0/24 dst 198.51.100.0/24 dir out tmpl proto esp mode tunnel");
        assert_eq!(listener.events_so_far(), [Event::IpsecPolicy]);
        sh("ip xfrm policy flush");
        assert_eq!(listener.events_so_far(), [Event::IpsecPolicy]);
    });
}

#[test]
fn qdiscs_classes_and_filters_are_reported() {
    Listener::in_new_namespace(|mut listener| {
        sh("ip link add d0 type veth peer name d0p; ip link set d0p up; ip link set d0 up");
        let ifindex = listener.wait_for_link(|link| link.name == "d0").ifindex;
        let htb = Qdisc { ifindex, kind: "htb".to_owned(), handle: 0x10000, parent: ROOT };
        sh("tc qdisc add dev d0 root handle 1: htb");
        listener.wait_for(&Event::Qdisc(htb.clone()));
        sh("tc class add dev d0 parent 1: classid 1:1 htb rate 1mbit");
        let class = TcObject::Class { kind: "htb".to_owned(), handle: 0x1_0001 };
        let change = Some(TcChange { object: class, turn: TcTurn::AddedOrChanged });
        listener.wait_for(&Event::Filter { ifindex, egress: true, kind: None, change });
        sh("tc qdisc del dev d0 root");
        listener.wait_for(&Event::QdiscGone(htb));
        sh("tc qdisc add dev d0 clsact");
        let is_clsact =
            |e: &Event| matches!(e, Event::Qdisc(q) if q.kind == "clsact" && q.parent == 0xffff_fff1);
        listener.until(is_clsact);
        listener.events_so_far();
        let u32_filter = |egress, turn| {
            let kind = Some("u32".to_owned());
            let change = Some(TcChange { object: TcObject::Filter("u32".to_owned()), turn });
            Event::Filter { ifindex, egress, kind, change }
        };
        for (direction, egress) in [("ingress", false), ("egress", true)] {
            sh(&format!("tc filter add dev d0 {direction} u32 match u32 0 0"));
            let added = u32_filter(egress, TcTurn::Added);
            assert_eq!(listener.events_so_far().last(), Some(&added), "{direction}");
        }
        // The kernel makes a chain for the filter, and removes it.
        sh("! tc filter add dev d0 ingress chain 5 prio 9 nosuch 2> /tmp/refused.$$; rm /tmp/refused.$$");
        let events = listener.events_so_far();
        assert!(events.iter().all(|e| matches!(e, Event::Filter { change: None, .. })), "{events:#?}");
        sh("tc filter replace dev d0 egress prio 7 u32 match u32 0 0");
        assert_eq!(listener.events_so_far().last(), Some(&u32_filter(true, TcTurn::AddedOrChanged)));
        sh("tc filter del dev d0 ingress");
        let events = listener.events_so_far();
        assert!(events.contains(&u32_filter(false, TcTurn::Removed)), "{events:#?}");
    });
}

#[test]
fn a_station_that_moves_to_another_bridge_port_is_reported_there() {
    Listener::in_new_namespace(|mut listener| {
        sh("ip link add br0 type bridge; ip link set br0 up
            for p in a b; do ip link add p$p type veth peer name h$p; ip link set p$p master br0 up; ip link set h$p up
            done");
        let a = listener.wait_for_link(|link| link.name == "pa").ifindex;
        let b = listener.wait_for_link(|link| link.name == "pb").ifindex;
        let mac = mac("02:00:00:00:00:77");
        sh("bridge fdb replace 02:00:00:00:00:77 dev pa master dynamic");
        listener.wait_for(&Event::Fdb { ifindex: a, vlan: 0, mac });
        sh("bridge fdb replace 02:00:00:00:00:77 dev pb master dynamic");
        listener.wait_for(&Event::Fdb { ifindex: b, vlan: 0, mac });
        sh("bridge fdb del 02:00:00:00:00:77 dev pb master");
        listener.wait_for(&Event::FdbGone { ifindex: b, vlan: 0, mac });
    });
}

#[test]
fn a_station_that_sends_is_reported_at_its_port() {
    Listener::in_new_namespace(|mut listener| {
        sh("ip link add br0 type bridge; ip link set br0 up
            ip link add pa type veth peer name ha address 02:00:00:00:00:0a
            ip link set pa master br0 up; ip addr add 192.0.2.1/24 dev ha; ip link set ha up
            ip neigh replace 192.0.2.9 lladdr 02:00:00:00:00:99 dev ha nud permanent
            ping -c 1 -W 1 192.0.2.9 || true");
        let a = listener.wait_for_link(|link| link.name == "pa").ifindex;
        listener.wait_for(&Event::Fdb { ifindex: a, vlan: 0, mac: mac("02:00:00:00:00:0a") });
    });
}

#[test]
fn offloads_are_reported_when_they_change() {
    Listener::in_new_namespace(|mut listener| {
        sh("ip link add v0 type veth peer name v1");
        let ifindex = listener.wait_for_link(|link| link.name == "v0").ifindex;
        for (set, strips_tags) in [("off", false), ("on", true)] {
            listener.events_so_far();
            sh(&format!("ethtool -K v0 rx-vlan-stag-hw-parse {set} rxvlan {set}"));
            listener.wait_for(&Event::Offloads { ifindex, merges: false, strips_tags });
        }
    });
}

#[test]
fn a_veth_accepts_redirected_frames_when_its_peer_has_gro() {
    Listener::in_new_namespace(|mut listener| {
        sh("ip link add v0 type veth peer name v1; ip link set v0 up; ip link set v1 up");
        let ifindex = listener.wait_for_link(|link| link.name == "v0").ifindex;
        listener.events_so_far();
        sh("ethtool -K v1 gro on");
        // Since Linux 6.8, a veth tells programs of VLAN tags.
        let accepts = |accepts| {
            let features = |vlan_tags| {
                let (native, target, target_frags) = (true, accepts, accepts);
                Event::XdpFeatures { ifindex, native, target, target_frags, vlan_tags, zero_copy: false }
            };
            [false, true].map(features)
        };
        listener.wait_for_one_of(&accepts(true));
        sh("ethtool -K v1 gro off");
        listener.wait_for_one_of(&accepts(false));
    });
}

#[test]
fn an_overrun_is_an_event_and_later_changes_are_reported() {
    Listener::in_new_namespace(|mut listener| {
        sh("ip link add d0 type veth peer name d0p; ip link set d0p up; ip link set d0 up
            i=0; while [ $i -lt 40000 ]; do echo route add 10.0.$((i / 256)).$((i % 256))/32 dev d0; i=$((i + 1)); done |
            ip -batch -");
        let events = listener.until(|event| *event == Event::Overrun(EventSource::Route));
        let routes = events.iter().filter(|e| matches!(e, Event::Route(..))).count();
        assert!((1..40000).contains(&routes), "{routes} of 40000 routes");
        sh("ip link add d1 type ifb");
        listener.wait_for_link(|link| link.name == "d1");
        assert!(!listener.events_so_far().contains(&Event::Overrun(EventSource::Route)));
    });
}

#[test]
fn a_subscription_that_is_read_late_has_lost_nothing() {
    Listener::in_new_namespace(|mut listener| {
        sh("i=0; while [ $i -lt 300 ]; do echo link add l$i type ifb; i=$((i + 1)); done | ip -batch -");
        for i in 0..300 {
            listener.wait_for_link(|link| link.name == format!("l{i}"));
        }
    });
}
