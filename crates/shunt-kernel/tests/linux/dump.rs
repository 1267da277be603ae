//! Dumps of the present state, and answers to single requests.

use crate::{listener::Listener, netns::NetNs, netns::sh};
use shunt_core::{Bridge, BridgeCalls, Event, Link, LinkLayer};
use shunt_kernel::{Error, Forwarding, Linux, XdpSupport};
use std::{net::UdpSocket, path::Path, process::Command, time::Duration};

fn in_new_namespace(test: impl FnOnce(Linux) + Send) {
    let Some(ns) = NetNs::new() else { return };
    ns.enter(|| test(Linux::open().unwrap()));
}

fn link(events: &[Event], name: &str) -> Link {
    let named = |e: &Event| matches!(e, Event::Link(l) if l.name == name);
    match events.iter().find(|e| named(e)) {
        Some(Event::Link(link)) => link.clone(),
        _ => panic!("no {name} in {events:#?}"),
    }
}

#[test]
fn a_dump_has_everything_that_events_have_reported() {
    Listener::in_new_namespace(|mut listener| {
        sh("ip link add br0 type bridge; ip link set br0 up
            ip link add v0 type veth peer name v1; ip link set v0 master br0 up; ip link set v1 up
            ip addr add 192.0.2.1/24 dev v1; ip addr add 2001:db8::1/64 dev v1 nodad
            ip neigh replace 192.0.2.7 lladdr 02:00:00:00:00:07 dev v1 nud permanent
            bridge fdb replace 02:00:00:00:00:77 dev v0 master static
            tc qdisc add dev v1 root handle 1: htb; tc qdisc add dev v1 clsact
            tc filter add dev v1 egress u32 match u32 0 0");
        let events = Linux::open().unwrap().dump().unwrap();
        let (v0, v1) = (link(&events, "v0").ifindex, link(&events, "v1").ifindex);
        let u32_filter = |egress| {
            let kind = Some("u32".to_owned());
            Event::Filter { ifindex: v1, egress, kind, change: None }
        };
        let has = |is_expected: &dyn Fn(&Event) -> bool| events.iter().any(is_expected);
        assert_eq!(link(&events, "v0").master, Some(link(&events, "br0").ifindex));
        assert_eq!(link(&events, "lo").layer, LinkLayer::Other);
        assert!(has(&|e| *e == Event::Address { ifindex: v1, addr: [192, 0, 2, 1].into(), prefix: 24 }));
        assert!(has(&|e| matches!(e, Event::Neighbour { ifindex, mac: Some(_), addr }
            if *ifindex == v1 && addr.to_string() == "192.0.2.7")));
        assert!(
            !has(&|e| matches!(e, Event::Fdb { .. })),
            "stations are left out: there may be very many, and the policy does not need them"
        );
        assert!(has(&|e| matches!(e, Event::Qdisc(q) if q.ifindex == v1 && q.kind == "htb")));
        assert!(has(&|e| *e == u32_filter(true)));
        assert!(!has(&|e| matches!(e, Event::Filter { egress: false, .. })));
        for ifindex in [v0, v1] {
            assert!(has(
                &|e| matches!(e, Event::XdpFeatures { ifindex: on, native: true, target: false, .. }
                if *on == ifindex)
            ));
        }
        let first_other = events.iter().position(|e| !matches!(e, Event::Link(_))).unwrap();
        assert!(events[first_other..].iter().all(|e| !matches!(e, Event::Link(_))), "links come first");

        let is_told = |e: &Event| matches!(e, Event::Filter { ifindex, egress: true, .. } if *ifindex == v1);
        listener.until(is_told);
    });
}

#[test]
fn a_bridge_is_reported_with_its_settings() {
    in_new_namespace(|mut linux| {
        sh("ip link add br0 type bridge; ip link set br0 up");
        let mut bridge = || link(&linux.dump().unwrap(), "br0").bridge.unwrap();
        let plain = bridge();
        assert_eq!(plain.ageing.as_secs(), 300);
        assert!(!plain.vlan_filtering && !plain.promiscuous && plain.calls == BridgeCalls::default());
        sh("ip link set br0 promisc on; ip link set br0 type bridge ageing_time 250");
        assert_eq!(
            bridge(),
            Bridge { ageing: Duration::from_millis(2500), promiscuous: true, ..plain.clone() }
        );
        sh(
            "ip link set br0 promisc off; ip link set br0 type bridge ageing_time 30000 stp_state 1 forward_delay 400",
        );
        assert_eq!(
            bridge(),
            Bridge { ageing: Duration::from_secs(4), ..plain },
            "with a spanning tree, the forward delay may shorten the ageing time"
        );
    });
}

/// A bridge with two ports, each a veth whose other end stands for a host. The kernel reports later that a link is up.
const SEGMENT: &str = "ip link add br0 type bridge mcast_querier 1; ip link set br0 up
    ip addr add 192.0.2.1/24 dev br0; ip addr add 2001:db8::1/64 dev br0 nodad
    for p in a b; do
        ip link add p$p type veth peer name h$p; ip link set p$p master br0 up; ip link set h$p up
    done
    for link in pa pb ha hb br0; do
        for tries in $(seq 500); do ip link show $link | grep -q 'state UP' && break; sleep 0.02; done
        ip link show $link | grep -q 'state UP'
    done";

/// The digests of all links, by name.
fn digests(linux: &mut Linux) -> Vec<(String, u64)> {
    let links = linux.dump().unwrap().into_iter().filter_map(|event| match event {
        Event::Link(link) => Some((link.name, link.digest)),
        _ => None,
    });
    links.collect()
}

#[test]
fn counters_timers_and_stations_do_not_change_the_digest_of_a_link() {
    in_new_namespace(|mut linux| {
        sh(SEGMENT);
        let before = digests(&mut linux);
        let statistics = || sh("ip -s -d link show dev br0; ip -s -d link show dev pa");
        let counted = statistics();
        for round in 0..20 {
            sh(&format!(
                "ip neigh replace 192.0.2.9 lladdr 02:00:00:00:00:{round:02x} dev br0 nud permanent
                bridge fdb replace 02:00:00:00:01:{round:02x} dev pb master dynamic
                ip link set dev ha address 02:00:00:00:0a:{round:02x}"
            ));
            for (from, to) in [("192.0.2.1:0", "192.0.2.9:9"), ("[2001:db8::1]:0", "[ff02::1234%br0]:9")] {
                let to = to.replace("br0", &nix::net::if_::if_nametoindex("br0").unwrap().to_string());
                let socket = UdpSocket::bind(from).unwrap();
                for _ in 0..5 {
                    socket.send_to(b"counted", &to).unwrap();
                }
            }
            let now: Vec<_> = digests(&mut linux).into_iter().filter(|(name, _)| name != "ha").collect();
            let before: Vec<_> = before.iter().filter(|(name, _)| name != "ha").cloned().collect();
            assert_eq!(now, before);
        }
        assert_ne!(statistics(), counted);
    });
}

#[test]
fn settings_change_the_digest_of_a_link() {
    in_new_namespace(|mut linux| {
        sh(SEGMENT);
        let mut tried = 0;
        for (make, change, name) in [
            ("true", "ip link set pa group 5", "pa"),
            ("true", "ip link set pa alias uplink", "pa"),
            ("true", "ip link set pa txqueuelen 77", "pa"),
            ("true", "ip link set pa arp off", "pa"),
            ("true", "ip link set br0 type bridge group_fwd_mask 8", "br0"),
            ("true", "echo 1 > /proc/sys/net/ipv4/conf/pa/rp_filter", "pa"),
            ("true", "echo 1300 > /proc/sys/net/ipv6/conf/pa/mtu", "pa"),
            (
                "ip link add link pa name pa.7 type vlan id 7",
                "ip link set pa.7 type vlan egress-qos-map 0:5",
                "pa.7",
            ),
            ("ip link show pa.7", "ip link set pa.7 type vlan ingress-qos-map 3:1", "pa.7"),
            (
                "ip link add link hb name m0 type macvlan mode private",
                "ip link set m0 type macvlan mode bridge",
                "m0",
            ),
            ("ip link add v0 type vrf table 7", "true", "v0"),
            ("ip link add i0 type ipvlan link hb mode l2", "ip link set i0 type ipvlan mode l3", "i0"),
        ] {
            let attempt =
                |script: &str| Command::new("sh").args(["-ec", script]).output().unwrap().status.success();
            if !attempt(make) {
                eprintln!("skipped, because this failed: {make}");
                continue;
            }
            let digest = |linux: &mut Linux| link(&linux.dump().unwrap(), name).digest;
            let before = digest(&mut linux);
            if !attempt(change) {
                eprintln!("skipped, because this failed: {change}");
                continue;
            }
            assert_eq!(digest(&mut linux) != before, change != "true", "{change}");
            tried += 1;
        }
        assert!(tried >= 6, "only {tried} settings could be changed");
    });
}

#[test]
fn the_sysctls_of_br_netfilter_are_read_if_they_exist() {
    in_new_namespace(|linux| {
        sh("ip link add br0 type bridge");
        if !Path::new("/proc/sys/net/bridge").exists() {
            assert_eq!(linux.bridge_calls(), None);
            return;
        }
        let set = |name: &str, on: u8| sh(&format!("echo {on} > /proc/sys/net/bridge/bridge-nf-call-{name}"));
        for (v4, v6) in [(true, false), (false, true), (false, false)] {
            set("iptables", v4.into());
            set("ip6tables", v6.into());
            assert_eq!(linux.bridge_calls(), Some(BridgeCalls { v4, v6 }));
        }
    });
}

#[test]
fn a_dump_of_thousands_of_neighbours_is_complete() {
    in_new_namespace(|mut linux| {
        sh("ip link add d0 type veth peer name d0p; ip link set d0p up; ip link set d0 up
            i=0; while [ $i -lt 5000 ]; do
                echo neigh add 10.0.$((i / 256)).$((i % 256)) lladdr 02:00:00:00:00:01 dev d0 nud permanent
                i=$((i + 1))
            done | ip -batch -");
        let events = linux.dump().unwrap();
        let neighbours = events
            .iter()
            .filter(|e| matches!(e, Event::Neighbour { mac: Some(_), addr, .. } if addr.is_ipv4()));
        let count =
            neighbours.filter(|e| matches!(e, Event::Neighbour { addr, .. } if !addr.is_loopback())).count();
        assert_eq!(count, 5000);
    });
}

#[test]
fn the_xdp_features_of_a_veth_depend_on_its_peer() {
    in_new_namespace(|mut linux| {
        sh(
            "ip link add v0 type veth peer name v1; ip link set v0 up; ip link set v1 up; ethtool -K v1 gro on",
        );
        let events = linux.dump().unwrap();
        let known =
            |target| XdpSupport::Known { native: true, target, target_frags: target, zero_copy: false };
        assert_eq!(linux.xdp_features(link(&events, "v0").ifindex).unwrap(), known(true));
        assert_eq!(linux.xdp_features(link(&events, "v1").ifindex).unwrap(), known(false));
        assert!(matches!(linux.xdp_features(9999), Err(Error::Refused { .. })));
    });
}

#[test]
fn a_software_device_has_no_bus() {
    in_new_namespace(|mut linux| {
        sh("ip link add v0 type veth peer name v1");
        assert_eq!(link(&linux.dump().unwrap(), "v0").bus, None);
    });
}

/// Reads the devices of the machine, and changes nothing.
#[test]
fn a_physical_device_has_the_bus_that_sysfs_names() {
    let mut linux = Linux::open().unwrap();
    for event in linux.dump().unwrap() {
        let Event::Link(link) = event else { continue };
        let Ok(bus) = std::fs::read_link(format!("/sys/class/net/{}/device/subsystem", link.name)) else {
            continue;
        };
        let named = bus.file_name().unwrap().to_string_lossy().into_owned();
        eprintln!("{}: {named}", link.name);
        assert_eq!(link.bus, Some(named));
    }
}

#[test]
fn the_offloads_of_physical_devices_are_those_that_ethtool_shows() {
    let events = Linux::open().unwrap().dump().unwrap();
    for event in &events {
        let Event::Offloads { ifindex, merges, strips_tags } = *event else { continue };
        let is_its_link = |e: &&Event| matches!(e, Event::Link(link) if link.ifindex == ifindex);
        let Some(Event::Link(link)) = events.iter().find(is_its_link) else { panic!("{event:?}") };
        let shown = Command::new("ethtool").args(["-k", &link.name]).output().unwrap();
        let shown = String::from_utf8_lossy(&shown.stdout);
        eprintln!("{}: {event:?}", link.name);
        assert_eq!(merges, shown.contains("rx-gro-hw: on"));
        let strips = ["rx-vlan-offload: on", "rx-vlan-stag-hw-parse: on"];
        assert_eq!(strips_tags, strips.iter().any(|line| shown.contains(line)));
    }
}

#[test]
fn forwarding_is_read_from_this_namespace() {
    in_new_namespace(|linux| {
        let seen = || linux.forwarding().unwrap();
        sh("echo 0 > /proc/sys/net/ipv4/ip_forward; echo 0 > /proc/sys/net/ipv6/conf/all/forwarding
            ip link add d0 type ifb");
        assert_eq!(seen(), Forwarding { v4: false, v6: false });
        sh("echo 1 > /proc/sys/net/ipv4/conf/d0/forwarding");
        assert_eq!(seen(), Forwarding { v4: true, v6: false });
        sh("echo 0 > /proc/sys/net/ipv4/conf/d0/forwarding; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding");
        assert_eq!(seen(), Forwarding { v4: false, v6: true });
        sh("echo 1 > /proc/sys/net/ipv4/ip_forward");
        assert_eq!(seen(), Forwarding { v4: true, v6: true });
    });
}

#[test]
fn conntrack_timeouts_are_read_from_this_namespace() {
    in_new_namespace(|linux| {
        assert!(linux.conntrack_present());
        sh("echo 17 > /proc/sys/net/netfilter/nf_conntrack_udp_timeout
            echo 16 > /proc/sys/net/netfilter/nf_conntrack_udp_timeout_stream
            echo 4000 > /proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established");
        let timeouts = shunt_kernel::conntrack_timeouts().unwrap();
        let seconds = [timeouts.udp, timeouts.udp_stream, timeouts.tcp_established].map(|t| t.as_secs());
        assert_eq!(seconds, [17, 16, 4000]);
    });
}
