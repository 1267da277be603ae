//! Changes, as the watcher tells them.

use crate::{ear::Ear, netns::sh};
use shunt_core::{Event, Qdisc, Source};
use shunt_wire::Mac;
use std::net::IpAddr;

const ROOT: u32 = 0xffff_ffff;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn mac(text: &str) -> Mac {
    text.parse().unwrap()
}

#[test]
fn this_kernel_has_every_source() {
    Ear::in_new_namespace(|ear| assert_eq!(ear.watcher.missing(), []));
}

#[test]
fn a_veth_is_told_from_birth_to_end() {
    Ear::in_new_namespace(|mut ear| {
        sh("ip link add v0 mtu 1400 address 02:00:00:00:00:01 type veth peer name v1");
        let v0 = ear.hear_link(|link| link.name == "v0");
        assert_eq!((v0.kind.as_deref(), v0.mtu, v0.mac), (Some("veth"), 1400, mac("02:00:00:00:00:01")));
        assert!(v0.ethernet && !v0.up && !v0.carrier);
        assert_eq!((v0.lower, v0.master, v0.xdp_prog), (None, None, None));
        sh("ip link set v0 up; ip link set v1 up");
        ear.hear_link(|link| link.ifindex == v0.ifindex && link.up && link.carrier);
        sh("ip link set v1 down");
        ear.hear_link(|link| link.ifindex == v0.ifindex && link.up && !link.carrier);
        sh("ip link del v0");
        ear.hear(&Event::LinkGone { ifindex: v0.ifindex });
    });
}

#[test]
fn upper_devices_and_bridge_ports_are_told_with_their_relations() {
    Ear::in_new_namespace(|mut ear| {
        sh(
            "ip link add d0 type veth peer name d0p; ip link add link d0 name m0 type macvlan; ip link add br0 type bridge",
        );
        let d0 = ear.hear_link(|link| link.name == "d0");
        let upper = ear.hear_link(|link| link.name == "m0");
        assert_eq!((upper.lower, upper.kind.as_deref()), (Some(d0.ifindex), Some("macvlan")));
        let bridge = ear.hear_link(|link| link.name == "br0");
        sh("ip link set m0 master br0");
        ear.hear_link(|link| link.ifindex == upper.ifindex && link.master == Some(bridge.ifindex));
        ear.so_far();
        sh("ip link set m0 nomaster");
        let heard = ear.so_far();
        assert!(!heard.contains(&Event::LinkGone { ifindex: upper.ifindex }), "{heard:#?}");
        assert!(
            heard
                .iter()
                .any(|e| matches!(e, Event::Link(l) if l.ifindex == upper.ifindex && l.master.is_none()))
        );
    });
}

#[test]
fn addresses_routes_rules_and_nexthops_are_told() {
    Ear::in_new_namespace(|mut ear| {
        sh("ip link add d0 type veth peer name d0p; ip link set d0p up; ip link set d0 up");
        let ifindex = ear.hear_link(|link| link.name == "d0").ifindex;
        sh("ip addr add 192.0.2.1/24 dev d0");
        ear.hear(&Event::Address { ifindex, addr: ip("192.0.2.1"), prefix: 24 });
        sh("ip addr add 2001:db8::1/64 dev d0 nodad");
        ear.hear(&Event::Address { ifindex, addr: ip("2001:db8::1"), prefix: 64 });
        ear.so_far();
        for (script, wanted) in [
            ("ip route add 198.51.100.0/24 via 192.0.2.9", Event::Route),
            ("ip route del 198.51.100.0/24", Event::Route),
            ("ip route add 2001:db8:1::/64 via 2001:db8::9", Event::Route),
            ("ip rule add from 192.0.2.0/24 lookup 100", Event::Rule),
            ("ip rule del from 192.0.2.0/24 lookup 100", Event::Rule),
            ("ip -6 rule add from 2001:db8::/64 lookup 100", Event::Rule),
            ("ip nexthop add id 5 via 192.0.2.9 dev d0", Event::Nexthop),
            ("echo 1 > /proc/sys/net/ipv4/conf/d0/forwarding", Event::Netconf),
            ("echo 1 > /proc/sys/net/ipv6/conf/all/forwarding", Event::Netconf),
        ] {
            sh(script);
            let heard = ear.so_far();
            assert!(heard.contains(&wanted), "{script}: {heard:#?}");
        }
        sh("ip addr del 192.0.2.1/24 dev d0");
        ear.hear(&Event::AddressGone { ifindex, addr: ip("192.0.2.1"), prefix: 24 });
    });
}

#[test]
fn a_neighbour_is_told_with_its_mac_and_each_change_of_it() {
    Ear::in_new_namespace(|mut ear| {
        sh(
            "ip link add d0 type veth peer name d0p; ip link set d0p up; ip link set d0 up; ip addr add 192.0.2.1/24 dev d0",
        );
        let ifindex = ear.hear_link(|link| link.name == "d0").ifindex;
        let addr = ip("192.0.2.7");
        let told = |mac| Event::Neighbour { ifindex, addr, mac };
        sh("ip neigh replace 192.0.2.7 lladdr 02:00:00:00:00:07 dev d0 nud reachable");
        ear.hear(&told(Some(mac("02:00:00:00:00:07"))));
        sh("ip neigh replace 192.0.2.7 lladdr 02:00:00:00:00:08 dev d0 nud permanent");
        ear.hear(&told(Some(mac("02:00:00:00:00:08"))));
        sh("ip neigh replace 192.0.2.7 dev d0 nud failed");
        ear.hear(&told(None));
        sh("ip neigh del 192.0.2.7 dev d0");
        ear.hear(&Event::NeighbourGone { ifindex, addr });
        sh("ip -6 neigh replace fe80::7 lladdr 02:00:00:00:00:09 dev d0 nud stale");
        ear.hear(&Event::Neighbour { ifindex, addr: ip("fe80::7"), mac: Some(mac("02:00:00:00:00:09")) });
    });
}

#[test]
fn a_commit_of_nftables_is_one_ruleset_and_says_whether_rules_are_others() {
    Ear::in_new_namespace(|mut ear| {
        ear.so_far();
        sh(
            "nft 'add table ip t; add chain ip t c { type filter hook forward priority 0; }; add set ip t s { type \
            ipv4_addr; }; add rule ip t c ip saddr @s drop; add element ip t s { 192.0.2.1, 192.0.2.2 }'",
        );
        assert_eq!(ear.so_far(), [Event::Rules, Event::Ruleset]);
        sh("nft add element ip t s '{ 192.0.2.3 }'; nft delete element ip t s '{ 192.0.2.1 }'");
        assert_eq!(ear.so_far(), [Event::Ruleset, Event::Ruleset], "no other rules");
        sh("nft 'add map ip t m { type ipv4_addr : verdict; }; add chain ip t d'");
        assert_eq!(ear.so_far(), [Event::Rules, Event::Ruleset]);
        sh("nft 'add element ip t m { 192.0.2.1 : jump d, 192.0.2.2 : accept }'");
        assert_eq!(ear.so_far(), [Event::Rules, Event::Ruleset], "another way");
        sh("nft 'delete element ip t m { 192.0.2.2 }'");
        assert_eq!(ear.so_far(), [Event::Ruleset], "no other way");
        sh("nft flush ruleset");
        assert_eq!(ear.so_far(), [Event::Rules, Event::Ruleset]);
        sh("nft list ruleset");
        assert_eq!(ear.so_far(), []);
    });
}

#[test]
fn an_ipsec_policy_is_told() {
    Ear::in_new_namespace(|mut ear| {
        ear.so_far();
        sh("ip xfrm policy add src 192.0.2.0/24 dst 198.51.100.0/24 dir out tmpl proto esp mode tunnel");
        assert_eq!(ear.so_far(), [Event::IpsecPolicy]);
        sh("ip xfrm policy flush");
        assert_eq!(ear.so_far(), [Event::IpsecPolicy]);
    });
}

#[test]
fn qdiscs_classes_and_filters_are_told() {
    Ear::in_new_namespace(|mut ear| {
        sh("ip link add d0 type veth peer name d0p; ip link set d0p up; ip link set d0 up");
        let ifindex = ear.hear_link(|link| link.name == "d0").ifindex;
        let htb = Qdisc { ifindex, kind: "htb".to_owned(), handle: 0x10000, parent: ROOT };
        sh("tc qdisc add dev d0 root handle 1: htb");
        ear.hear(&Event::Qdisc(htb.clone()));
        sh("tc class add dev d0 parent 1: classid 1:1 htb rate 1mbit");
        ear.hear(&Event::Filter { ifindex, egress: true, kind: None });
        sh("tc qdisc del dev d0 root");
        ear.hear(&Event::QdiscGone(htb));
        sh("tc qdisc add dev d0 clsact");
        let wanted =
            |e: &Event| matches!(e, Event::Qdisc(q) if q.kind == "clsact" && q.parent == 0xffff_fff1);
        ear.until(wanted);
        ear.so_far();
        let u32_filter = |egress| Event::Filter { ifindex, egress, kind: Some("u32".to_owned()) };
        for (direction, egress) in [("ingress", false), ("egress", true)] {
            sh(&format!("tc filter add dev d0 {direction} u32 match u32 0 0"));
            assert_eq!(ear.so_far().last(), Some(&u32_filter(egress)), "{direction}");
        }
        sh("tc filter del dev d0 ingress");
        let heard = ear.so_far();
        assert!(heard.contains(&u32_filter(false)), "{heard:#?}");
    });
}

#[test]
fn a_station_that_moves_between_bridge_ports_is_told_at_its_new_place() {
    Ear::in_new_namespace(|mut ear| {
        sh("ip link add br0 type bridge; ip link set br0 up
            for p in a b; do ip link add p$p type veth peer name h$p; ip link set p$p master br0 up; ip link set h$p up
            done");
        let a = ear.hear_link(|link| link.name == "pa").ifindex;
        let b = ear.hear_link(|link| link.name == "pb").ifindex;
        let mac = mac("02:00:00:00:00:77");
        sh("bridge fdb replace 02:00:00:00:00:77 dev pa master dynamic");
        ear.hear(&Event::Fdb { ifindex: a, vlan: 0, mac });
        sh("bridge fdb replace 02:00:00:00:00:77 dev pb master dynamic");
        ear.hear(&Event::Fdb { ifindex: b, vlan: 0, mac });
        sh("bridge fdb del 02:00:00:00:00:77 dev pb master");
        ear.hear(&Event::FdbGone { ifindex: b, vlan: 0, mac });
    });
}

#[test]
fn a_station_that_sends_is_learned_behind_its_port() {
    Ear::in_new_namespace(|mut ear| {
        sh("ip link add br0 type bridge; ip link set br0 up
            ip link add pa type veth peer name ha address 02:00:00:00:00:0a
            ip link set pa master br0 up; ip addr add 192.0.2.1/24 dev ha; ip link set ha up
            ip neigh replace 192.0.2.9 lladdr 02:00:00:00:00:99 dev ha nud permanent
            ping -c 1 -W 1 192.0.2.9 || true");
        let a = ear.hear_link(|link| link.name == "pa").ifindex;
        ear.hear(&Event::Fdb { ifindex: a, vlan: 0, mac: mac("02:00:00:00:00:0a") });
    });
}

#[test]
fn a_veth_becomes_a_target_of_xdp_when_its_peer_has_gro() {
    Ear::in_new_namespace(|mut ear| {
        sh("ip link add v0 type veth peer name v1; ip link set v0 up; ip link set v1 up");
        let ifindex = ear.hear_link(|link| link.name == "v0").ifindex;
        ear.so_far();
        sh("ethtool -K v1 gro on");
        ear.hear(&Event::XdpFeatures { ifindex, native: true, target: true });
        sh("ethtool -K v1 gro off");
        ear.hear(&Event::XdpFeatures { ifindex, native: true, target: false });
    });
}

#[test]
fn an_overrun_is_an_event_and_what_comes_after_it_is_heard() {
    Ear::in_new_namespace(|mut ear| {
        sh("ip link add d0 type veth peer name d0p; ip link set d0p up; ip link set d0 up
            i=0; while [ $i -lt 40000 ]; do echo route add 10.0.$((i / 256)).$((i % 256))/32 dev d0; i=$((i + 1)); done |
            ip -batch -");
        let heard = ear.until(|event| *event == Event::Overrun(Source::Route));
        let routes = heard.iter().filter(|e| **e == Event::Route).count();
        assert!((1..40000).contains(&routes), "{routes} of 40000 routes");
        sh("ip link add d1 type ifb");
        ear.hear_link(|link| link.name == "d1");
        assert!(!ear.so_far().contains(&Event::Overrun(Source::Route)));
    });
}

#[test]
fn a_watcher_that_was_not_waited_for_has_lost_nothing() {
    Ear::in_new_namespace(|mut ear| {
        sh("i=0; while [ $i -lt 300 ]; do echo link add l$i type ifb; i=$((i + 1)); done | ip -batch -");
        for i in 0..300 {
            ear.hear_link(|link| link.name == format!("l{i}"));
        }
    });
}
