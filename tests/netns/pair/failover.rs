//! A router and its standby: keepalived moves the addresses, conntrackd the connections.

use crate::{
    guide::{file, with},
    machine::Machine,
    require_programs,
    traffic::{Conversation, ECHO, Witness},
};
use nix::{
    ifaddrs::getifaddrs,
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use shunt_api::{FlowState, Proto};
use shunt_testkit::{NetNs, Process, Shuntd, Switch, TcpEcho, UdpEcho, wait_for, wait_until};
use shunt_wire::Mac;
use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant, SystemTime},
};

/// Time limit for a step. Generous, for machines that run other tests.
const PATIENCE: Duration = Duration::from_secs(60);
const VIRTUAL: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

/// One of the two routers of the guide.
struct Router {
    keepalived: Option<Process>,
    conntrackd: Option<Process>,
    shuntd: Option<Shuntd>,
    machine: Machine,
    number: u8,
}

impl Router {
    /// Router a is number 1, b is 2.
    fn new(label: &str, number: u8, lan: &Switch, wan: &Switch) -> Self {
        let machine = Machine::router(label);
        for (switch, nic, subnet) in [(lan, "lan0", 1), (wan, "wan0", 2)] {
            switch.plug(&machine.ns, nic, Mac([2, 0, 0, 0, subnet, number + 1]));
        }
        Self { keepalived: None, conntrackd: None, shuntd: None, machine, number }
    }

    /// Addresses, rules and settings, and the files of the guide as this router has them.
    fn configure(&self, virtual_macs: bool) {
        let Self { machine, number, .. } = self;
        self.address();
        let mut rules = with(&file("/etc/nftables.conf"), "flush ruleset", "");
        if virtual_macs {
            rules = rules.replace("\"lan0\"", "\"vrrp.51\"").replace("\"wan0\"", "{ \"wan0\", \"vrrp.52\" }");
        }
        machine.ns.nft(&rules);
        for line in file("/etc/sysctl.d/60-two-routers.conf").lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.split_once(" = ").unwrap_or_else(|| panic!("no setting: {line}"));
            machine.ns.sysctl(&name.trim_start_matches("net.").replace('.', "/"), value);
        }
        let mut keepalived = file("/etc/keepalived/keepalived.conf");
        let mut conntrackd = with(&file("/etc/conntrackd/conntrackd.conf"), "Syslog on", "Syslog off");
        if *number == 2 {
            keepalived = with(&keepalived, "priority 150", "priority 100");
            conntrackd = with(
                &conntrackd,
                "IPv4_address 172.31.0.1\n\t\tIPv4_Destination_Address 172.31.0.2",
                "IPv4_address 172.31.0.2\n\t\tIPv4_Destination_Address 172.31.0.1",
            );
        }
        if virtual_macs {
            for nic in ["lan0", "wan0"] {
                keepalived =
                    with(&keepalived, &format!("interface {nic}"), &format!("interface {nic}\n\tuse_vmac"));
            }
        }
        machine.write("/etc/keepalived/keepalived.conf", &keepalived, 0o644);
        machine.write("/etc/conntrackd/conntrackd.conf", &conntrackd, 0o644);
        let noted = format!("{}touch /run/state.$1\n", file("/etc/keepalived/state.sh"));
        machine.write("/etc/keepalived/state.sh", &noted, 0o755);
    }

    fn address(&self) {
        let Self { machine, number, .. } = self;
        machine.run(&format!(
            "for nic in lan0 wan0 sync0; do ip link set $nic up; done
             ip address replace 192.168.1.{}/24 dev lan0
             ip address replace 198.51.100.{}/24 dev wan0
             ip address replace 172.31.0.{number}/30 dev sync0",
            number + 1,
            number + 2,
        ));
    }

    fn start(&mut self) {
        self.shuntd = Some(Shuntd::on(&self.machine.ns).port("lan0").port("wan0").start());
        self.conntrackd = Some(self.machine.start("conntrackd -C /etc/conntrackd/conntrackd.conf"));
        wait_until("conntrackd answers", || self.conntrackd("-s").contains("cache external"));
        self.keepalived = Some(self.machine.start("keepalived --dont-fork --log-console --log-detail"));
    }

    fn shuntd(&self) -> &Shuntd {
        self.shuntd.as_ref().unwrap()
    }

    /// What conntrackd says; empty while it does not answer.
    fn conntrackd(&self, option: &str) -> String {
        self.machine.run(&format!("conntrackd {option} 2>/dev/null || true"))
    }

    fn is_active(&self) -> bool {
        self.machine.ns.within(|| {
            getifaddrs().unwrap().any(|interface| {
                let address = interface.address.and_then(|a| a.as_sockaddr_in().map(|a| a.ip()));
                address == Some(VIRTUAL)
            })
        })
    }

    /// Whether the standby knows a connection from this port.
    fn has_received(&self, port: u16) -> bool {
        self.conntrackd("-e").contains(&format!("sport={port} "))
    }

    /// Whether both directions of a connection are fast.
    fn is_fast(&self, proto: Proto, port: u16) -> bool {
        self.shuntd().flows().iter().any(|connection| {
            let fast = connection.directions.iter().filter(|d| d.state == FlowState::Active && d.packets > 0);
            connection.proto == proto && connection.orig.sport == port && fast.count() == 2
        })
    }

    /// A power cut: no daemon says good-bye, and no packet leaves any more.
    fn die(&mut self) {
        let keepalived = self.keepalived.take().unwrap();
        let children = format!("/proc/{0}/task/{0}/children", keepalived.pid());
        for child in fs::read_to_string(children).unwrap().split_whitespace() {
            kill(Pid::from_raw(child.parse().unwrap()), Signal::SIGKILL).unwrap();
        }
        keepalived.signal(Signal::SIGKILL).unwrap();
        self.machine.run("for nic in lan0 wan0 sync0; do ip link set $nic down; done");
        keepalived.finish();
        let conntrackd = self.conntrackd.take().unwrap();
        conntrackd.signal(Signal::SIGKILL).unwrap();
        conntrackd.finish();
        if let Some(mut shuntd) = self.shuntd.take() {
            shuntd.kill();
        }
    }

    /// Starts again, with an empty conntrack and without the virtual addresses, as after a boot.
    fn boot(&mut self) {
        self.machine.run(
            "ip address del 192.168.1.1/24 dev lan0 || ip link del vrrp.51
             ip address del 198.51.100.2/24 dev wan0 || ip link del vrrp.52
             conntrack -F 2>/dev/null; rm -rf /run/*; mkdir /run/lock",
        );
        self.address();
        self.start();
    }
}

/// Both routers, and a host on each side.
struct Site {
    a: Router,
    b: Router,
    client: NetNs,
    server: NetNs,
    _switches: [Switch; 2],
}

impl Site {
    fn new(virtual_macs: bool) -> Self {
        let [lan, wan] = ["lan-switch", "wan-switch"].map(Switch::new);
        let [client, server] = ["client", "server"].map(NetNs::new);
        lan.plug(&client, "eth0", Mac([2, 0, 0, 0, 1, 9]));
        wan.plug(&server, "eth0", Mac([2, 0, 0, 0, 2, 9]));
        client.run("ip address add 192.168.1.9/24 dev eth0 && ip route add default via 192.168.1.1");
        server.run(&format!("ip address add {SERVER}/24 dev eth0"));
        for host in [&client, &server] {
            // Then every frame has its checksum, which the witness compares.
            host.run("ethtool -K eth0 tx off tso off gso off gro off");
        }
        let (a, b) = (Router::new("router-a", 1, &lan, &wan), Router::new("router-b", 2, &lan, &wan));
        a.machine.ns.connect("sync0", &b.machine.ns, "sync0");
        let mut site = Self { a, b, client, server, _switches: [lan, wan] };
        for router in [&site.a, &site.b] {
            router.configure(virtual_macs);
        }
        site.a.start();
        wait_for(PATIENCE, || site.a.is_active().then_some(()))
            .unwrap_or_else(|| panic!("a does not become active: {}", site.a.machine.log()));
        site.b.start();
        site
    }
}

/// Waits until this router makes both conversations fast; returns how long each took, UDP first.
fn fast_after(router: &Router, since: Instant, [udp, tcp]: [&Conversation; 2]) -> [Duration; 2] {
    let mut took = [None; 2];
    let done = wait_for(PATIENCE, || {
        for (slot, (proto, talk)) in took.iter_mut().zip([(Proto::Udp, udp), (Proto::Tcp, tcp)]) {
            if slot.is_none() && router.is_fast(proto, talk.port) {
                *slot = Some(since.elapsed());
            }
        }
        took.iter().all(Option::is_some).then_some(())
    });
    assert!(
        done.is_some(),
        "not fast: {took:?}: {:#?} {:#?}\n{}\n{}",
        router.shuntd().status(),
        router.shuntd().flows(),
        router.machine.ns.run("conntrack -L 2>&1"),
        router.machine.log()
    );
    took.map(Option::unwrap_or_default)
}

/// Waits until the standby knows both conversations.
fn is_prepared(standby: &Router, talks: [&Conversation; 2]) {
    let ready = wait_for(PATIENCE, || talks.iter().all(|talk| standby.has_received(talk.port)).then_some(()));
    assert!(
        ready.is_some(),
        "{} does not know the connections: {}{}\n{}",
        standby.machine.ns.name(),
        standby.conntrackd("-e"),
        standby.conntrackd("-s"),
        standby.machine.log()
    );
}

/// Prints what a take-over by this router took.
fn print(
    what: &str,
    router: &Router,
    (since, wall): (Instant, SystemTime),
    active: Duration,
    fast: [Duration; 2],
    udp: &Conversation,
) {
    let committed = router.machine.written("/run/state.master").and_then(|at| at.duration_since(wall).ok());
    let (gap, end) = udp.record().longest_gap(since);
    let status = router.shuntd().status();
    eprintln!(
        "{what}: address moved after {active:.2?}, state there after {committed:.2?}, packets pass after {:.2?} \
         (gap {gap:.2?}), UDP fast after {:.2?}, TCP fast after {:.2?}; load {}; epoch moves {:?}; refusals {:?}",
        end - since,
        fast[0],
        fast[1],
        fs::read_to_string("/proc/loadavg").unwrap_or_default().trim(),
        status.epoch_moves,
        status.refusals,
    );
}

/// The witness saw the conversations from one address and port each, unchanged; their clients saw every answer once.
fn assert_unchanged(witness: &Witness, [udp, tcp]: [&Conversation; 2]) {
    let testimony = witness.testimony();
    assert_eq!(testimony.wrong, Vec::<String>::new());
    let expected: Vec<SocketAddr> =
        testimony.sources.iter().copied().filter(|from| from.ip() == VIRTUAL).collect();
    assert_eq!(expected.len(), testimony.sources.len(), "other sources: {:?}", testimony.sources);
    assert!(testimony.sources.len() <= 2, "a connection has changed its port: {:?}", testimony.sources);
    for talk in [udp, tcp] {
        assert_eq!(talk.record().faults, Vec::<String>::new());
    }
}

/// A power cut at the active router, its return as the standby, and a planned change back.
fn fail_over(virtual_macs: bool) {
    if !require_programs(&["keepalived", "conntrackd"]) {
        return;
    }
    let mut site = Site::new(virtual_macs);
    let at = SocketAddr::from((SERVER, ECHO));
    let _echoes = (UdpEcho::start(&site.server, at), TcpEcho::start(&site.server, at));
    let witness = Witness::listen(&site.server, "eth0", 1);
    let (udp, tcp) = (Conversation::udp(&site.client, at), Conversation::tcp(&site.client, at));
    let talks = [&udp, &tcp];
    fast_after(&site.a, Instant::now(), talks);
    is_prepared(&site.b, talks);
    assert_eq!(site.b.shuntd().status().flows.active, 0);
    assert!(!site.b.is_active());

    let since = (Instant::now(), SystemTime::now());
    site.a.die();
    take_over("power cut", &site.b, since, talks, &witness);

    site.a.boot();
    is_prepared(&site.a, talks);
    assert!(site.b.is_active() && !site.a.is_active(), "a must stay standby: nopreempt");

    // keepalived says good-bye.
    let since = (Instant::now(), SystemTime::now());
    site.b.keepalived.as_ref().unwrap().signal(Signal::SIGTERM).unwrap();
    take_over("planned", &site.a, since, talks, &witness);

    drop((udp, tcp));
    for router in [&mut site.a, &mut site.b] {
        router.shuntd.take().unwrap().stop();
    }
}

#[test]
#[ignore = "needs keepalived and conntrackd: packaging/deps.sh --pair"]
fn connections_survive_the_router_that_carried_them() {
    fail_over(false);
}

#[test]
#[ignore = "needs keepalived and conntrackd: packaging/deps.sh --pair"]
fn connections_to_virtual_macs_survive_their_router() {
    fail_over(true);
}

/// Waits until this router carries both conversations, and asserts that the server noticed nothing.
fn take_over(
    what: &str,
    router: &Router,
    since: (Instant, SystemTime),
    talks: [&Conversation; 2],
    witness: &Witness,
) {
    let active = wait_for(PATIENCE, || router.is_active().then(|| since.0.elapsed()));
    let active = active.unwrap_or_else(|| panic!("{what}: no take-over: {}", router.machine.log()));
    let fast = fast_after(router, since.0, talks);
    print(what, router, since, active, fast, talks[0]);
    let before = talks.map(Conversation::answers);
    wait_until("the conversations go on", || {
        talks.iter().zip(before).all(|(talk, before)| talk.answers() > before + 100)
    });
    assert_unchanged(witness, talks);
}
