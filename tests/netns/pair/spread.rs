//! Four routers side by side, over which two edge routers spread connections by ECMP.

use crate::{
    guide::file,
    machine::Machine,
    require_programs,
    traffic::{Conversation, ECHO, Witness},
};
use shunt_api::FlowState;
use shunt_testkit::{
    NetNs, Process, Shuntd, Switch, TcpEcho, UdpEcho, refusals, require_root, wait_for, wait_until,
};
use shunt_wire::Mac;
use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    time::{Duration, Instant},
};

const ROUTERS: usize = 4;
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 2, 1, 2);
/// Conversations by UDP, all with one service, and by TCP, each with a service of its own.
const UDP: usize = 10;
const TCP: u16 = 3;
/// Edge a, one of the routers, edge b.
const HOPS: u8 = 3;
/// Time limit for a step. Generous, for machines that run other tests.
const PATIENCE: Duration = Duration::from_secs(60);
/// `fib_multipath_hash_fields`: addresses, protocol and ports.
const ADDRESSES_AND_PORTS: u32 = 0x37;
const ADDRESSES_ONLY: u32 = 0x7;
/// How long a connection that has moved is given before its conntrack entry is suspected.
const MOVED: Duration = Duration::from_secs(3);
/// Where Debian has FRR's daemons.
const FRR: &str = "/usr/lib/frr";

/// The number of a router, by the client's port of each conversation that it carries.
type Carriers = BTreeMap<u16, usize>;

/// How the edges choose a router.
trait Spreading {
    fn configure(&mut self, site: &Site);
    /// Ends the use of a router, or begins it again.
    fn use_router(&self, site: &Site, number: usize, used: bool);
}

/// One of the routers between the edges.
struct Member {
    shuntd: Option<Shuntd>,
    machine: Machine,
}

struct Site {
    members: Vec<Member>,
    /// Towards the client, and towards the server.
    edges: [Machine; 2],
    client: NetNs,
    server: NetNs,
    _switches: [Switch; 2],
}

impl Site {
    fn new() -> Self {
        let switches = [1, 2].map(|side| Switch::new(&format!("switch{side}")));
        let edges = ["edge-a", "edge-b"].map(Machine::router);
        let [client, server] = ["client", "server"].map(NetNs::new);
        for (side, (edge, host)) in (1..).zip(edges.iter().zip([&client, &server])) {
            edge.ns.connect("host0", host, "eth0");
            switches[side as usize - 1].plug(&edge.ns, "core0", Mac([2, 0, 0, 0, side, 100]));
            edge.ns.run(&format!(
                "ip address add 10.{side}.1.1/24 dev host0; ip address add 10.{side}.0.100/24 dev core0"
            ));
            // Then every frame has its checksum, which the witness compares.
            host.run(&format!(
                "ip address add 10.{side}.1.2/24 dev eth0; ip route add default via 10.{side}.1.1
                 ethtool -K eth0 tx off tso off gso off gro off"
            ));
            edge.ns.sysctl("ipv4/fib_multipath_hash_policy", 3);
            edge.ns.sysctl("ipv4/fib_multipath_hash_fields", ADDRESSES_AND_PORTS);
        }
        let member = |number: usize| {
            let machine = Machine::router(&format!("router{number}"));
            for (side, nic) in [(1, "lan0"), (2, "wan0")] {
                let last = number as u8 + 1;
                switches[side - 1].plug(&machine.ns, nic, Mac([2, 0, 0, 0, side as u8, last]));
                machine.ns.run(&format!("ip address add 10.{side}.0.{last}/24 dev {nic}"));
            }
            machine.ns.nft("table inet filter { chain forward { type filter hook forward priority filter; ct state established,related accept; }; }");
            Member { shuntd: None, machine }
        };
        let members = (0..ROUTERS).map(member).collect();
        let mut site = Self { members, edges, client, server, _switches: switches };
        (0..ROUTERS).for_each(|number| site.start(number));
        site
    }

    /// Whether both edges list the routers in the same order. FRR lists them in the order in which it met them.
    fn edges_agree(&self) -> bool {
        let [a, b] = [(0, 2), (1, 1)].map(|(edge, far)| {
            let routes = self.edges[edge].run(&format!("ip route show to exact 10.{far}.1.0/24"));
            let ways = routes.split_whitespace().filter(|word| word.contains(".0."));
            ways.filter_map(|way| way.rsplit('.').next().map(str::to_owned)).collect::<Vec<_>>()
        });
        a == b
    }

    fn start(&mut self, number: usize) {
        let member = &mut self.members[number];
        member.shuntd = Some(Shuntd::on(&member.machine.ns).port("lan0").port("wan0").start());
    }

    fn shuntd(&self, number: usize) -> &Shuntd {
        self.members[number].shuntd.as_ref().unwrap()
    }

    /// Fast packets so far, by router, client's port and direction.
    fn fast(&self) -> BTreeMap<(usize, u16, usize), u64> {
        let members =
            self.members.iter().enumerate().filter_map(|(n, m)| Some((n, m.shuntd.as_ref()?.flows())));
        let connections = members.flat_map(|(n, flows)| flows.into_iter().map(move |flow| (n, flow)));
        connections
            .flat_map(|(n, flow)| {
                // A router that sees a reply first takes it for the original direction.
                let port = if flow.orig.dst == SERVER { flow.orig.sport } else { flow.orig.dport };
                let active = flow.directions.into_iter().filter(|d| d.state == FlowState::Active);
                active.map(move |d| ((n, port, d.dir as usize), d.packets))
            })
            .collect()
    }

    /// The router of each conversation that is fast in both directions on one router.
    fn carriers(&self, talks: &[Conversation]) -> Carriers {
        let before = self.fast();
        let answered: Vec<usize> = talks.iter().map(Conversation::answers).collect();
        wait_until("the conversations go on", || {
            talks.iter().zip(&answered).all(|(talk, before)| talk.answers() > before + 20)
        });
        let after = self.fast();
        let grows = |key: &(usize, u16, usize)| {
            after.get(key).copied().unwrap_or(0) >= before.get(key).copied().unwrap_or(0) + 5
        };
        let routers = |port| (0..ROUTERS).find(|&n| grows(&(n, port, 0)) && grows(&(n, port, 1)));
        talks.iter().filter_map(|talk| Some((talk.port, routers(talk.port)?))).collect()
    }

    /// Waits until each conversation is fast on a router for which `expected` holds.
    fn all_fast(&self, talks: &[Conversation], expected: impl Fn(usize) -> bool) -> Carriers {
        let mut last = Carriers::new();
        let all = wait_for(PATIENCE, || {
            last = self.carriers(talks);
            (last.len() == talks.len() && last.values().all(|&n| expected(n))).then_some(())
        });
        assert!(all.is_some(), "not all are fast: {last:?}\n{}", self.describe());
        last
    }

    /// Waits until all conversations are fast after some have moved. A router that conntrack lets pick up a TCP
    /// connection while its edges still change misses some of its packets, and conntrack may never find the window
    /// again. Such a connection goes on, on the slow path, until its entry is deleted and made again.
    fn settle(&self, talks: &[Conversation], expected: impl Fn(usize) -> bool) -> Carriers {
        self.all_fast(&talks[..UDP], &expected);
        let fast = wait_for(MOVED, || Some(self.carriers(talks)).filter(|fast| fast.len() == talks.len()));
        let fast = fast.unwrap_or_else(|| self.carriers(talks));
        for port in talks.iter().map(|talk| talk.port).filter(|port| !fast.contains_key(port)) {
            let lost = self.members.iter().any(|member| {
                member.shuntd.as_ref().is_some_and(|shuntd| refusals(&shuntd.status(), "not-established") > 0)
            });
            assert!(lost, "port {port} is slow for another reason: {}", self.describe());
            eprintln!("port {port}: conntrack has lost the window of this connection, and makes a new entry");
            for member in &self.members {
                let gone = format!("conntrack -D -p tcp --dport {port} || true");
                member.machine.run(&format!("conntrack -D -p tcp --sport {port} || {gone}"));
            }
        }
        self.all_fast(talks, expected)
    }

    /// What a failed test needs to say.
    fn describe(&self) -> String {
        let members = self.members.iter().filter_map(|member| {
            let status = member.shuntd.as_ref()?.status();
            let connections = member.machine.run("conntrack -L 2>/dev/null");
            Some(format!("reasons {:?}, refusals {:?}\n{connections}\n", status.reasons, status.refusals))
        });
        let edges = self.edges.iter().map(|edge| edge.run("ip route; ip nexthop") + &edge.log());
        members.chain(edges).collect()
    }
}

/// Echo services, one for all UDP conversations, and one for each of TCP.
fn services(site: &Site, tcp: u16) -> (UdpEcho, Vec<TcpEcho>) {
    let services = (0..tcp).map(|n| TcpEcho::start(&site.server, (SERVER, ECHO + n).into()));
    (UdpEcho::start(&site.server, (SERVER, ECHO).into()), services.collect())
}

fn conversations(site: &Site, udp: usize, tcp: u16) -> Vec<Conversation> {
    let udp = (0..udp).map(|_| Conversation::udp(&site.client, (SERVER, ECHO).into()));
    let tcp = (0..tcp).map(|n| Conversation::tcp(&site.client, (SERVER, ECHO + n).into()));
    udp.chain(tcp).collect()
}

/// Ends everything, and asserts that no message was lost or changed.
fn end_whole(site: &mut Site, talks: Vec<Conversation>, witness: &Witness) {
    let testimony = witness.testimony();
    assert_eq!(testimony.wrong, Vec::<String>::new());
    assert_eq!(testimony.sources.len(), talks.len(), "{:?}", testimony.sources);
    drop(testimony);
    for talk in talks {
        let port = talk.port;
        let record = talk.finish();
        assert_eq!(record.faults, Vec::<String>::new());
        assert_eq!(record.answers.len(), record.sent as usize, "messages from port {port} are lost");
    }
    for member in &mut site.members {
        member.shuntd.take().unwrap().stop();
    }
}

/// The conversations that are with the same router as before.
fn stayed(before: &Carriers, after: &Carriers) -> usize {
    before.iter().filter(|(port, router)| after.get(port) == Some(router)).count()
}

/// Withdraws the router with the most conversations, exchanges its daemon, and uses it again. Nothing may be lost or
/// changed. `stay`: the conversations of the other routers keep theirs.
fn withdraw_one(mut spreading: impl Spreading, stay: bool) {
    let mut site = Site::new();
    spreading.configure(&site);
    if !site.edges_agree() {
        eprintln!(
            "SKIP: the edges list their next hops in different orders, so no connection has one router"
        );
        return;
    }
    let _services = services(&site, TCP);
    let witness = Witness::listen(&site.server, "eth0", HOPS);
    wait_for(PATIENCE, || site.client.try_run(&format!("ping -c 1 -W 1 {SERVER}")).ok()).unwrap_or_else(
        || panic!("no way to the server: {}{}", site.edges[0].run("ip route"), site.edges[0].log()),
    );
    let talks = conversations(&site, UDP, TCP);
    let before = site.all_fast(&talks, |_| true);
    let busiest = (0..ROUTERS).max_by_key(|n| before.values().filter(|router| *router == n).count()).unwrap();
    let others: Vec<usize> = (0..ROUTERS).filter(|n| *n != busiest).collect();
    let epochs: Vec<u32> = others.iter().map(|n| site.shuntd(*n).status().epoch).collect();

    let since = Instant::now();
    spreading.use_router(&site, busiest, false);
    let during = site.settle(&talks, |n| n != busiest);
    eprintln!(
        "router {busiest} withdrawn: all fast elsewhere within {:.2?}; of {} conversations of the others, {} stayed",
        since.elapsed(),
        before.values().filter(|n| **n != busiest).count(),
        stayed(&before, &during)
    );
    for (n, epoch) in others.iter().zip(epochs) {
        assert_eq!(
            site.shuntd(*n).status().epoch,
            epoch,
            "a change elsewhere has made flows of router {n} slow"
        );
    }
    if stay {
        let theirs: Carriers = before.iter().filter(|(_, n)| **n != busiest).map(|(p, n)| (*p, *n)).collect();
        assert_eq!(stayed(&theirs, &during), theirs.len(), "{before:?} {during:?}");
    }
    site.members[busiest].shuntd.take().unwrap().stop();
    site.start(busiest);
    spreading.use_router(&site, busiest, true);
    let after = site.settle(&talks, |_| true);
    if stay {
        assert_eq!(after, during, "no conversation has to move back");
    }
    end_whole(&mut site, talks, &witness);
}

/// `ip nexthop` groups of the edges, with resilient hashing.
struct NextHops;

impl NextHops {
    fn set(site: &Site, command: &str, members: impl Fn(usize) -> bool) {
        let group: Vec<String> = (0..ROUTERS).filter(|n| members(*n)).map(|n| (n + 1).to_string()).collect();
        for edge in &site.edges {
            edge.ns.run(&format!(
                "ip nexthop {command} id 10 group {} type resilient buckets 128 idle_timer 60",
                group.join("/")
            ));
        }
    }
}

impl Spreading for NextHops {
    fn configure(&mut self, site: &Site) {
        for (side, edge) in [1, 2].into_iter().zip(&site.edges) {
            for n in 1..=ROUTERS {
                edge.ns.run(&format!("ip nexthop add id {n} via 10.{side}.0.{n} dev core0"));
            }
        }
        Self::set(site, "add", |_| true);
        for (far, edge) in [2, 1].into_iter().zip(&site.edges) {
            edge.ns.run(&format!("ip route add 10.{far}.1.0/24 nhid 10"));
        }
        for member in &site.members {
            member
                .machine
                .ns
                .run("ip route add 10.1.1.0/24 via 10.1.0.100; ip route add 10.2.1.0/24 via 10.2.0.100");
        }
    }

    fn use_router(&self, site: &Site, number: usize, used: bool) {
        Self::set(site, "replace", |n| used || n != number);
    }
}

/// OSPF by FRR, on the routers and the edges.
#[derive(Default)]
struct Ospf(Vec<Process>);

impl Spreading for Ospf {
    fn configure(&mut self, site: &Site) {
        let [router, edge] = ["/etc/frr/frr.conf of a router", "/etc/frr/frr.conf of an edge"].map(file);
        let machines = site.members.iter().map(|member| (&member.machine, &router));
        for (machine, text) in machines.chain(site.edges.iter().map(|machine| (machine, &edge))) {
            machine.write("/etc/frr/frr.conf", text, 0o644);
            self.0.push(machine.start(&format!("{FRR}/zebra")));
            wait_until("zebra answers", || machine.written("/run/frr/zserv.api").is_some());
            self.0.push(machine.start(&format!("{FRR}/ospfd")));
            wait_until("ospfd answers", || machine.written("/run/frr/ospfd.vty").is_some());
            machine.run("vtysh -b");
        }
        for (far, edge) in [2, 1].into_iter().zip(&site.edges) {
            let ways = || {
                edge.run(&format!("ip route show to exact 10.{far}.1.0/24")).matches("nexthop via").count()
            };
            let all = wait_for(PATIENCE, || (ways() == ROUTERS).then_some(()));
            assert!(
                all.is_some(),
                "{}\n{}",
                edge.run("ip route; vtysh -c 'show ip ospf neighbor'"),
                edge.log()
            );
        }
    }

    fn use_router(&self, site: &Site, number: usize, used: bool) {
        let no = if used { "no " } else { "" };
        site.members[number].machine.run(&format!(
            "vtysh -c 'configure terminal' -c 'router ospf' -c '{no}max-metric router-lsa administrative'"
        ));
    }
}

#[test]
fn with_resilient_next_hops_only_the_flows_of_a_withdrawn_router_move() {
    if require_root() {
        withdraw_one(NextHops, true);
    }
}

/// Each edge hashes other fields: all replies take one router, and requests any of them.
#[test]
fn tcp_with_a_direction_on_each_router_stays_slow_and_whole() {
    if !require_root() {
        return;
    }
    let mut site = Site::new();
    NextHops.configure(&site);
    site.edges[1].ns.sysctl("ipv4/fib_multipath_hash_fields", ADDRESSES_ONLY);
    // With so many, some have their directions on two routers.
    let (udp, tcp) = (4, 10);
    let _services = services(&site, tcp);
    let witness = Witness::listen(&site.server, "eth0", HOPS);
    let talks = conversations(&site, udp, tcp);
    wait_until("UDP is fast in both directions, wherever they pass", || {
        let fast = site.fast();
        let directions =
            |port| fast.iter().filter(|((_, of, _), packets)| *of == port && **packets > 0).count();
        talks[..udp].iter().all(|talk| directions(talk.port) == 2)
    });
    let carriers = site.carriers(&talks);
    let fast: Vec<u16> = site.fast().into_keys().map(|(_, port, _)| port).collect();
    let apart: Vec<u16> =
        talks[udp..].iter().map(|talk| talk.port).filter(|p| !carriers.contains_key(p)).collect();
    assert!(!apart.is_empty(), "{carriers:?}");
    assert!(apart.iter().all(|port| !fast.contains(port)), "{apart:?} {}", site.describe());
    eprintln!("{} of {tcp} TCP connections have their directions on two routers", apart.len());
    end_whole(&mut site, talks, &witness);
}

#[test]
#[ignore = "needs FRR: packaging/deps.sh --pair"]
fn no_packet_is_lost_or_changed_when_ospf_withdraws_a_router() {
    if require_programs(&["zebra", "ospfd", "vtysh"]) {
        withdraw_one(Ospf::default(), false);
    }
}
