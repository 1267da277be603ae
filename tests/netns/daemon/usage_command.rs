//! `shunt usage`: what hosts have sent and received, to the byte, fast and slow, across restarts.

use shunt_api::{Counted, Engine, Usage, UsageCount, UsageStep, WatchEvent};
use shunt_testkit::{
    Crossing, ENGINES, Handshake, Running, Shunt, Topology, require_root, rulesets, silent_router, wait_for,
    wait_until,
};
use shunt_wire::{Mac, Network, Packet};
use std::{collections::BTreeMap, net::Ipv4Addr, thread, time::Duration};

const AGAIN: Duration = Duration::from_secs(30);
/// Another host of the LAN.
const SECOND: (Ipv4Addr, Mac) = (Ipv4Addr::new(192, 168, 1, 3), Mac([2, 0, 0, 0, 0, 0x33]));

/// A router with a default route to the WAN, and a second host on the LAN, whose packets the tap of the first sends.
fn router() -> Topology {
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let (address, mac) = SECOND;
    let (port, wan) = (&lab.lan().gateway, lab.wan());
    lab.router().sysctl("netfilter/nf_conntrack_acct", 1);
    for command in [
        format!("ip neigh replace {address} lladdr {mac} dev {port} nud permanent"),
        format!("ip route add default via {} dev {}", wan.v4, wan.gateway),
        format!("ip -6 route add default via {} dev {}", wan.v6, wan.gateway),
    ] {
        lab.router().run(&command);
    }
    lab
}

fn up(shunt: &Shunt, engine: Engine) {
    let config = shunt.file("shunt.toml", "reprove = \"300ms\"\nidle = \"1s\"\n");
    shunt.done(&format!("up --engine {engine} --config {}", config.display()));
}

fn on_wire(packet: &Packet) -> Counted {
    Counted { packets: 1, bytes: packet.to_bytes().len() as u64 - 14 }
}

/// What each host should have, by its MAC.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wire(BTreeMap<Mac, Used>);

/// Sent and received.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Used {
    sent: Counted,
    received: Counted,
}

impl Used {
    const fn of(count: &UsageCount) -> Self {
        Self { sent: count.sent, received: count.received }
    }

    const fn bytes(&self) -> u64 {
        self.sent.bytes + self.received.bytes
    }
}

impl Wire {
    fn sent(&mut self, host: Mac, packet: &Packet) {
        let count = self.0.entry(host).or_default();
        count.sent = count.sent.plus(on_wire(packet));
    }

    fn received(&mut self, host: Mac, packet: &Packet) {
        let count = self.0.entry(host).or_default();
        count.received = count.received.plus(on_wire(packet));
    }
}

fn usage(shunt: &Shunt, words: &str) -> Usage {
    serde_json::from_str(&shunt.done(&format!("usage --json {words}"))).unwrap()
}

fn listed(usage: &Usage) -> Wire {
    Wire(usage.hosts.iter().map(|host| (host.mac.unwrap(), Used::of(&host.count))).collect())
}

/// Asserts that the ledger becomes exactly what was on the wire.
#[track_caller]
fn assert_exact(shunt: &Shunt, wire: &Wire, when: &str) {
    let exact = wait_for(AGAIN, || (listed(&usage(shunt, "--for 1h")) == *wire).then_some(()));
    let seen = usage(shunt, "--for 1h");
    assert!(exact.is_some(), "{when}: {:#?}\n{wire:#?}\n{seen:#?}", listed(&seen));
    // A reading that follows adds nothing.
    wait_until("a reading has followed", || usage(shunt, "--for 1h").counted_s > seen.counted_s);
    let later = usage(shunt, "--for 1h");
    assert_eq!(listed(&later), *wire, "{when}: counted twice");
    let days = usage(shunt, "--by day").steps;
    let days: u64 = days.iter().filter_map(UsageStep::count).map(|count| count.bytes()).sum();
    assert_eq!(days, wire.0.values().map(Used::bytes).sum::<u64>(), "{when}: by day");
}

/// Connections of two hosts: UDP and TCP, over NAT and IPv6, in both directions.
struct Traffic<'c> {
    lab: &'c Topology,
    there: &'c Crossing,
    back: &'c Crossing,
    /// Requests of UDP, with their hosts and the answers to them.
    udp: Vec<(Mac, Packet, Packet)>,
    tcp: Vec<(Packet, Handshake, u32)>,
}

impl<'c> Traffic<'c> {
    /// Opens the connections from these ports on.
    fn open(lab: &'c Topology, ways: (&'c Crossing, &'c Crossing), port: u16, wire: &mut Wire) -> Self {
        let (there, back) = ways;
        let (lan, wan) = (lab.lan(), lab.wan());
        let mut traffic = Self { lab, there, back, udp: Vec::new(), tcp: Vec::new() };
        let (address, mac) = SECOND;
        let mut second = lan.udp_to(port + 1, wan.at(5000)).macs(mac, lan.gateway_mac);
        if let Network::V4(header) = &mut second.network {
            header.source = address;
        }
        let requests = [
            (lan.mac, lan.udp_to(port, wan.at(5000))),
            (lan.mac, lan.udp_to(port, wan.at6(5000))),
            (mac, second),
        ];
        for (host, request) in requests {
            let first = request.clone().payload("the first");
            let seen = there.pass(&first).packet().unwrap();
            wire.sent(host, &first);
            traffic.udp.push((host, request, wan.answer_to(&seen)));
        }
        for to in [wan.at(80), wan.at6(80)] {
            let syn = lan.tcp_to(port + 2, to, 0);
            let opened = Handshake::open(there, back, &syn, wan);
            // SYN, ACK and SYN-ACK are as long as a packet without data.
            let bare = opened.from_client(&syn, 0, Vec::new());
            (0..2).for_each(|_| wire.sent(lan.mac, &bare));
            wire.received(lan.mac, &bare);
            traffic.tcp.push((syn, opened, 0));
        }
        traffic
    }

    /// Sends a packet in each direction of each connection.
    fn send(&mut self, bytes: usize, wire: &mut Wire) {
        let data = vec![bytes as u8; bytes];
        for (host, request, answer) in &self.udp {
            let (request, answer) =
                (request.clone().payload(data.clone()), answer.clone().payload(data.clone()));
            self.there.pass(&request);
            wire.sent(*host, &request);
            self.back.pass(&answer);
            wire.received(*host, &answer);
        }
        for (syn, opened, offset) in &mut self.tcp {
            let request = opened.from_client(syn, *offset, data.clone());
            let answer = opened.from_server(self.lab.wan(), *offset, data.clone());
            *offset += bytes as u32;
            self.there.pass(&request);
            wire.sent(self.lab.lan().mac, &request);
            self.back.pass(&answer);
            wire.received(self.lab.lan().mac, &answer);
        }
    }
}

fn fast_packets(shunt: &Shunt) -> u64 {
    let status = shunt.status();
    status.packets.fast
}

/// Sends until many packets have been fast.
#[track_caller]
fn send_fast(shunt: &Shunt, traffic: &mut Traffic<'_>, wire: &mut Wire) {
    let before = fast_packets(shunt);
    let fast = wait_for(AGAIN, || {
        (0..10).for_each(|n| traffic.send(20 + 97 * n, wire));
        (fast_packets(shunt) > before + 150).then_some(())
    });
    assert!(fast.is_some(), "too few packets are fast: {}", shunt.done("status"));
}

fn exact(engine: Engine) {
    let lab = &router();
    let shunt = &Shunt::on(lab.router());
    let (there, back) = (Crossing::between(lab.lan(), lab.wan()), Crossing::between(lab.wan(), lab.lan()));
    let mut wire = Wire::default();
    up(shunt, engine);
    let mut traffic = Traffic::open(lab, (&there, &back), 4000, &mut wire);
    send_fast(shunt, &mut traffic, &mut wire);
    assert_exact(shunt, &wire, "while the flows are in the table");
    send_fast(shunt, &mut traffic, &mut wire);
    shunt.done("flush");
    send_fast(shunt, &mut traffic, &mut wire);
    assert_exact(shunt, &wire, "after a flush");
    wait_until("the flow table is empty", || shunt.done("flows --json --over 0s --state active") == "[]\n");
    traffic.send(500, &mut wire);
    assert_exact(shunt, &wire, "after the flows have idled out");

    // Connections that come and go between two readings, with fast packets.
    let mut brief = Traffic::open(lab, (&there, &back), 4100, &mut wire);
    send_fast(shunt, &mut brief, &mut wire);
    lab.router().run("conntrack -D -s 192.168.1.2 2>/dev/null");
    lab.router().run("conntrack -F 2>/dev/null");
    assert_exact(shunt, &wire, "after the connections have ended");
    let mut again = Traffic::open(lab, (&there, &back), 4100, &mut wire);
    send_fast(shunt, &mut again, &mut wire);
    assert_exact(shunt, &wire, "after the same connections have begun again");
    assert_paths(shunt);

    send_fast(shunt, &mut again, &mut wire);
    shunt.done("down");
    up(shunt, engine);
    assert_exact(shunt, &wire, "after a restart");
    let mut last = Traffic::open(lab, (&there, &back), 4200, &mut wire);
    send_fast(shunt, &mut last, &mut wire);
    assert_exact(shunt, &wire, "after a restart, with more traffic");

    let seen = usage(shunt, "--for 1h");
    let [first, second] = &seen.hosts[..] else { panic!("{seen:#?}") };
    assert_eq!((first.addresses.len(), second.addresses.len()), (2, 1), "{seen:#?}");
    assert_eq!((seen.total.transit, seen.total.local), Default::default(), "{seen:#?}");
    assert_total(&seen, &wire);
    let one = usage(shunt, &format!("--host {} --by minute", SECOND.0));
    assert_eq!((one.hosts.len(), one.hosts[0].count), (1, second.count));

    thread::scope(|scope| {
        let restart = scope.spawn(|| shunt.done("restart"));
        while !restart.is_finished() {
            last.send(100, &mut wire);
        }
    });
    assert_exact(shunt, &wire, "after a hand-over under traffic");
    assert_total(&usage(shunt, "--for 1h"), &wire);
    shunt.done("down");
    assert_kept(shunt, &wire);
}

/// Asserts that the ports have received what the hosts have used.
#[track_caller]
fn assert_total(seen: &Usage, wire: &Wire) {
    let total = seen.total;
    // The hosts themselves send a few packets that belong to no connection, such as multicast listener reports.
    assert!(total.not_attributed.packets < 10, "{seen:#?}");
    let attributed = total.received.bytes - total.not_attributed.bytes;
    assert_eq!(attributed, wire.0.values().map(Used::bytes).sum::<u64>(), "{seen:#?}");
}

/// Asserts that the fast part of what hosts have used is what the ports have counted as fast, to the byte. The ports
/// count apart from flows.
#[track_caller]
fn assert_paths(shunt: &Shunt) {
    let parts = || {
        let (seen, ports) = (usage(shunt, "--for 1h"), shunt.status().bytes);
        let fast: u64 = seen.hosts.iter().filter_map(|host| host.count.fast).map(|fast| fast.bytes()).sum();
        (fast, seen.total.fast.map(|fast| fast.bytes), ports.fast)
    };
    let equal = wait_for(AGAIN, || {
        let (hosts, total, ports) = parts();
        (hosts == ports && total == Some(ports) && hosts > 0).then_some(())
    });
    assert!(equal.is_some(), "hosts, total, ports: {:?}", parts());
}

/// Asserts that the ledger is shown without a daemon, with its failure.
#[track_caller]
fn assert_kept(shunt: &Shunt, wire: &Wire) {
    let kept = shunt.run("usage --for 1h --json");
    assert_eq!(kept.code, Some(21), "{kept:?}");
    assert!(kept.err.contains("is not running") && kept.err.contains("kept until"), "{kept:?}");
    let seen: Usage = serde_json::from_str(&kept.out).unwrap();
    assert_eq!((listed(&seen), seen.to), (Wire(wire.0.clone()), seen.now), "{seen:#?}");
    let text = shunt.run("usage --by minute --for 1h").out;
    assert!(text.contains("(the last count)") && text.contains("not counted"), "{text}");
    let csv = shunt.run("usage --csv").out;
    assert!(csv.starts_with("from,to,host,mac,address,"), "{csv}");
}

#[test]
fn what_a_host_has_used_equals_the_bytes_on_the_wire() {
    if require_root() {
        ENGINES.into_iter().for_each(exact);
    }
}

#[test]
fn what_conntrack_does_not_count_is_shown_as_not_attributed() {
    if !require_root() {
        return;
    }
    let lab = &router();
    lab.router().sysctl("netfilter/nf_conntrack_acct", 0);
    let shunt = &Shunt::on(lab.router());
    up(shunt, Engine::Tc);
    let (there, back) = (Crossing::between(lab.lan(), lab.wan()), Crossing::between(lab.wan(), lab.lan()));
    let mut wire = Wire::default();
    let mut traffic = Traffic::open(lab, (&there, &back), 4000, &mut wire);
    send_fast(shunt, &mut traffic, &mut wire);
    let all: u64 = wire.0.values().map(Used::bytes).sum();
    let seen = wait_for(AGAIN, || {
        let seen = usage(shunt, "--for 1h");
        let attributed: u64 = seen.hosts.iter().map(|host| host.count.bytes()).sum();
        // On a busy machine, a host reports its multicast groups so late that the ports count this, too.
        let received = attributed + seen.total.not_attributed.bytes;
        (all..all + 500).contains(&received).then_some((seen, attributed))
    });
    let (seen, attributed) = seen.unwrap_or_else(|| panic!("{all}: {:#?}", usage(shunt, "--for 1h")));
    assert!(!seen.accounting && attributed > 0 && attributed < all, "{all}: {seen:#?}");
    let said = shunt.run("usage");
    assert!(said.err.contains("net.netfilter.nf_conntrack_acct=1"), "{said:?}");
    shunt.done("down");
}

/// That conntrack reports ends costs for each connection, so the daemon listens only if they can have counts.
#[test]
fn the_ends_of_connections_are_read_once_conntrack_counts() {
    const NFNLGRP_CONNTRACK_DESTROY: u32 = 3;
    if !require_root() {
        return;
    }
    let lab = &router();
    lab.router().sysctl("netfilter/nf_conntrack_acct", 0);
    lab.router().run("conntrack -F 2>/dev/null");
    let shunt = &Shunt::on(lab.router());
    up(shunt, Engine::Tc);
    // Sockets of the namespace in which this is read: the protocol is NETLINK_NETFILTER, and the fourth column has the
    // groups. The data plane has such a socket for its filter, which never wakes anybody.
    let listens = || {
        let sockets = lab.router().run("cat /proc/net/netlink");
        let listeners = sockets.lines().skip(1).filter(|line| {
            let columns: Vec<&str> = line.split_whitespace().collect();
            let groups = u32::from_str_radix(columns[3], 16).unwrap();
            columns[1] == "12" && groups >> (NFNLGRP_CONNTRACK_DESTROY - 1) & 1 == 1
        });
        listeners.count() > 1
    };
    wait_until("the daemon has seen that conntrack counts nothing", || !listens());
    let watch = shunt.start("watch");
    wait_until("the daemon listens for the client", listens);
    drop(watch);
    wait_until("the client has gone", || !listens());
    lab.router().sysctl("netfilter/nf_conntrack_acct", 1);
    wait_until("the daemon listens", listens);
    let (there, back) = (Crossing::between(lab.lan(), lab.wan()), Crossing::between(lab.wan(), lab.lan()));
    let mut wire = Wire::default();
    let mut brief = Traffic::open(lab, (&there, &back), 4000, &mut wire);
    send_fast(shunt, &mut brief, &mut wire);
    lab.router().run("conntrack -F 2>/dev/null");
    assert_exact(shunt, &wire, "after connections that began when conntrack counted");
    shunt.done("down");
}

#[test]
fn invented_addresses_make_no_lines_of_their_own() {
    if !require_root() {
        return;
    }
    let lab = &router();
    let shunt = &Shunt::on(lab.router());
    up(shunt, Engine::Tc);
    let there = Crossing::between(lab.lan(), lab.wan());
    let mut bytes = 0;
    for number in 100..150 {
        let mut packet = lab.lan().udp_to(4000, lab.wan().at(5000)).payload("spoofed");
        if let Network::V4(header) = &mut packet.network {
            header.source = Ipv4Addr::new(192, 168, 1, number);
        }
        there.pass(&packet);
        bytes += on_wire(&packet).bytes;
    }
    let counted = wait_for(AGAIN, || {
        let seen = usage(shunt, "--for 1h");
        (seen.others.sent.bytes == bytes && seen.hosts.is_empty()).then_some(())
    });
    assert!(counted.is_some(), "{bytes}: {:#?}", usage(shunt, "--for 1h"));
    shunt.done("down");
}

fn ends(watch: &Running) -> Vec<WatchEvent> {
    let output = watch.out();
    let whole = output.rfind('\n').map_or("", |end| &output[..end]);
    let events = whole.lines().map(|line| serde_json::from_str::<WatchEvent>(line).unwrap());
    events.filter(|event| matches!(event, WatchEvent::End(_))).collect()
}

#[test]
fn the_end_of_a_connection_has_all_of_its_packets() {
    if !require_root() {
        return;
    }
    let lab = &router();
    let shunt = &Shunt::on(lab.router());
    up(shunt, Engine::Tc);
    let watch = shunt.start("watch --json --dport 5000");
    wait_until("watch has started", || watch.err().contains("watching"));
    let (there, back) = (Crossing::between(lab.lan(), lab.wan()), Crossing::between(lab.wan(), lab.lan()));
    let mut wire = Wire::default();
    let mut traffic = Traffic::open(lab, (&there, &back), 4000, &mut wire);
    send_fast(shunt, &mut traffic, &mut wire);
    wait_until("the flow table is empty", || shunt.done("flows --json --over 0s --state active") == "[]\n");
    send_fast(shunt, &mut traffic, &mut wire);
    lab.router().run("conntrack -D -s 192.168.1.3 2>/dev/null");
    wait_until("the end is reported", || !ends(&watch).is_empty());
    let [WatchEvent::End(end)] = &ends(&watch)[..] else { panic!("{:#?}", ends(&watch)) };
    let count = wire.0[&SECOND.1];
    assert_eq!((end.orig.count, end.reply.count), (Some(count.sent), Some(count.received)), "{end:#?}");
    assert!(end.orig.fast.packets > 0 && end.orig.fast.packets < count.sent.packets, "{end:#?}");
    shunt.done("down");
}

#[test]
fn a_ledger_that_is_off_says_how_to_turn_it_on() {
    if !require_root() {
        return;
    }
    let lab = router();
    let shunt = Shunt::on(lab.router());
    let config = shunt.file("shunt.toml", "usage = false\n");
    shunt.done(&format!("up --config {}", config.display()));
    let refused = shunt.run("usage");
    assert!(refused.code != Some(0) && refused.err.contains("usage = true"), "{refused:?}");
    shunt.done("down");
}
