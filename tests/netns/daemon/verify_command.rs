//! `shunt verify`: the fast path is equal to Linux, its periods end even if it is killed, and nothing is left behind.

use nix::sys::signal::Signal;
use shunt_api::{Happening, HistoryTable};
use shunt_inspect::verify::{Report, Verdict, Way};
use shunt_testkit::{Host, KernelObjects, Shunt, Stop, Topology, UdpEcho, require_root, rulesets, wait_for};
use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    thread,
    time::{Duration, Instant},
};

const TIMEOUT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(60);
const UDP_PORT: u16 = 5000;
const TCP_PORT: u16 = 5001;

/// Sends datagrams of several sizes and reads their echo, until it is told to stop.
fn exchange_datagrams(from: &Host, bind: IpAddr, to: SocketAddr, stop: &Stop) {
    let socket = from.ns.within(|| UdpSocket::bind((bind, 0))).unwrap();
    socket.connect(to).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut answer = [0; 2000];
    for number in 0u32.. {
        if stop.is_set() {
            return;
        }
        let payload = [&number.to_be_bytes()[..], &vec![7; number as usize % 1400]].concat();
        // Linux may drop the first packets of a connection.
        let _ = socket.send(&payload);
        let _ = socket.recv(&mut answer);
        thread::sleep(Duration::from_millis(1));
    }
}

/// Downloads over one TCP connection until it is told to stop.
fn download(from: &Host, server: &Host, bind: IpAddr, stop: &Stop) {
    let address = SocketAddr::new(bind, TCP_PORT);
    let listener = server.ns.within(|| TcpListener::bind(address)).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let block: Vec<u8> = (0..16_384u32).map(|n| (n * 7 % 251) as u8).collect();
            while !stop.is_set() && stream.write_all(&block).is_ok() {
                thread::sleep(Duration::from_millis(4));
            }
        });
        let mut stream = from.ns.within(|| TcpStream::connect(address)).unwrap();
        let mut block = [0; 65_536];
        while !stop.is_set() && stream.read(&mut block).is_ok_and(|bytes| bytes > 0) {}
    });
}

/// Runs `work` while UDP and TCP, over IPv4 with NAT and over IPv6, cross the router.
fn under_traffic<T>(lab: &Topology, work: impl FnOnce() -> T) -> T {
    let (lan, wan) = (lab.lan(), lab.wan());
    let stop = Stop::default();
    let _echoes = [wan.at(UDP_PORT), wan.at6(UDP_PORT)].map(|address| UdpEcho::start(&wan.ns, address));
    thread::scope(|scope| {
        let _end = stop.on_drop();
        scope.spawn(|| exchange_datagrams(lan, lan.v4.into(), wan.at(UDP_PORT), &stop));
        scope.spawn(|| exchange_datagrams(lan, lan.v6.into(), wan.at6(UDP_PORT), &stop));
        scope.spawn(|| download(lan, wan, wan.v4.into(), &stop));
        scope.spawn(|| download(lan, wan, wan.v6.into(), &stop));
        work()
    })
}

/// The number of connections in this state.
fn connections(shunt: &Shunt, state: &str) -> usize {
    let flows = shunt.done(&format!("flows --json --over 0s --state {state}"));
    let flows: serde_json::Value = serde_json::from_str(&flows).unwrap();
    flows.as_array().unwrap().len()
}

/// Waits until all connections are on the fast path.
#[track_caller]
fn all_are_fast(shunt: &Shunt) {
    let fast = wait_for(LONG, || (connections(shunt, "active") >= 4).then_some(()));
    assert!(fast.is_some(), "{}{}", shunt.done("flows"), shunt.done("status"));
}

/// Waits for long, since other load delays the command, the daemon and the kernel.
#[track_caller]
fn holds_at_last(what: &str, mut condition: impl FnMut() -> bool) {
    assert!(wait_for(LONG, || condition().then_some(())).is_some(), "this never holds: {what}");
}

fn off_rules(shunt: &Shunt) -> usize {
    let status = shunt.status();
    status.off.len()
}

/// Verifies a router with this engine, whose links have offloads or not.
#[track_caller]
fn is_equal(engine: &str, offloads: bool) {
    if !require_root() {
        return;
    }
    let lab = Topology::two_hosts_and_a_router();
    lab.keep_order();
    lab.offloads(offloads);
    lab.router().nft(rulesets::HOME_GATEWAY);
    let shunt = Shunt::on(lab.router());
    shunt.done(&format!("up --engine {engine}"));
    let output = under_traffic(&lab, || {
        all_are_fast(&shunt);
        let output = shunt.run("verify --for 6s --json");
        // The last period was one of the fast path. Ports of XDP get their programs back behind it.
        let back = ["active", "pending"].map(|state| connections(&shunt, state)).iter().sum::<usize>();
        assert!(engine == "xdp" || back >= 4, "{}", shunt.done("flows"));
        all_are_fast(&shunt);
        output
    });
    assert_eq!(output.code, Some(0), "{}{}", output.err, output.out);
    let report: Report = serde_json::from_str(&output.out).unwrap();
    assert_eq!(report.verdict, Verdict::Equal);
    // Both directions of four connections, on both paths.
    assert_eq!(report.flows.len(), 8, "{report:#?}");
    let packets = |way: Way| report.flows.iter().all(|flow| flow.packets.get(&way) > Some(&0));
    assert!(packets(Way::Fast) && packets(Way::Slow), "{report:#?}");
    assert!(report.paths[&Way::Fast].round_trip_us.is_some(), "{report:#?}");
    assert!(report.flows.iter().all(|flow| flow.engine.to_string() == engine), "{report:#?}");
    assert_eq!(off_rules(&shunt), 0);
    let history: HistoryTable = serde_json::from_str(&shunt.done("history --json")).unwrap();
    let happened = |what: &dyn Fn(&Happening) -> bool| history.events.iter().any(|event| what(&event.what));
    let by = |owner| move |what: &Happening| matches!(what, Happening::OffAdded { by, .. } if by.is_owner() == owner);
    assert!(happened(&by(false)) && !happened(&by(true)), "{history:#?}");
    let moved = |name: &'static str| move |what: &Happening| matches!(what, Happening::Invalidated { cause, .. } if cause == name);
    assert!(happened(&moved("verify")) && !happened(&moved("off")), "{history:#?}");
    let verdict = Happening::Verified { verdict: Verdict::Equal, connections: 4 };
    assert!(happened(&|what: &Happening| *what == verdict), "{history:#?}");
    if engine == "xdp" {
        assert!(has_engine_programs(&lab), "{:?}", xdp_programs(&lab));
    }
    shunt.done("down");
}

/// The names of the XDP programs of both ports.
fn xdp_programs(lab: &Topology) -> Vec<String> {
    let links = lab.router().run("ip -json -details link show");
    let links: serde_json::Value = serde_json::from_str(&links).unwrap();
    let names = links.as_array().unwrap().iter().filter_map(|link| {
        let program = link["xdp"]["prog"]["name"].as_str();
        program.map(ToOwned::to_owned)
    });
    names.collect()
}

/// Whether both ports have the engine's programs, and no others.
fn has_engine_programs(lab: &Topology) -> bool {
    xdp_programs(lab) == ["shunt_xdp_usual"; 2]
}

#[test]
fn tc_is_equal_to_linux() {
    is_equal("tc", false);
}

#[test]
fn tc_is_equal_to_linux_with_aggregates() {
    is_equal("tc", true);
}

#[test]
fn xdp_is_equal_to_linux_and_gets_its_programs_back() {
    is_equal("xdp", false);
}

/// A full queue drops packets in each period, and nobody waits for them.
#[test]
fn drops_by_linux_do_not_make_it_longer() {
    if !require_root() {
        return;
    }
    let lab = Topology::two_hosts_and_a_router();
    lab.keep_order();
    lab.offloads(false);
    lab.router().nft(rulesets::HOME_GATEWAY);
    lab.router().run("tc qdisc add dev r0 root tbf rate 2mbit burst 4kb limit 6kb");
    let shunt = Shunt::on(lab.router());
    shunt.done("up --engine tc");
    let (output, took) = under_traffic(&lab, || {
        all_are_fast(&shunt);
        let start = Instant::now();
        (shunt.run("verify --for 3s --json"), start.elapsed())
    });
    let report: Report = serde_json::from_str(&output.out).unwrap();
    assert!(report.paths.values().any(|path| path.dropped() > 0), "{report:#?}");
    assert!(took < Duration::from_secs(7), "{took:?}, {} s followed", report.seconds);
    shunt.done("down");
}

#[test]
fn without_fast_connections_there_is_no_answer() {
    if !require_root() {
        return;
    }
    let lab = Topology::two_hosts_and_a_router();
    let shunt = Shunt::on(lab.router());
    assert_eq!(shunt.run("verify").code, Some(21));
    shunt.done("up --engine tc");
    let output = shunt.run("verify --for 3s");
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(output.out.contains("cannot tell: no connection is on the fast path"), "{output:?}");
    let named = shunt.run("verify 192.168.1.99 --for 3s");
    assert!(
        named.code == Some(27) && named.out.is_empty() && named.err.contains("`192.168.1.99`"),
        "{named:?}"
    );
    // What compared nothing is no event.
    assert!(!shunt.done("history --for 1h").contains("shunt verify"));
    shunt.done("down");
}

#[track_caller]
fn a_killed_verify_leaves_nothing_behind(engine: &str) {
    if !require_root() {
        return;
    }
    let lab = Topology::two_hosts_and_a_router();
    lab.offloads(false);
    lab.router().nft(rulesets::HOME_GATEWAY);
    let shunt = Shunt::on(lab.router());
    shunt.done(&format!("up --engine {engine}"));
    under_traffic(&lab, || {
        all_are_fast(&shunt);
        let mut running = shunt.start("verify --for 6s");
        holds_at_last("the slow period begins", || off_rules(&shunt) > 0 || running.ended().is_some());
        let held = KernelObjects::held_by(running.pid());
        if engine == "xdp" {
            assert!(xdp_programs(&lab).iter().any(|name| name.starts_with("verify_xdp")));
        }
        running.signal(Signal::SIGKILL);
        holds_at_last("the command is dead", || running.ended().is_some());
        // The daemon ends the period.
        holds_at_last("the rules have ended", || off_rules(&shunt) == 0);
        holds_at_last("the programs are gone", || engine != "xdp" || has_engine_programs(&lab));
        // The kernel frees maps some grace periods after their last user.
        holds_at_last("the kernel's objects are freed", || held.not_freed().is_none());
        all_are_fast(&shunt);
    });
    shunt.done("down");
}

#[test]
fn a_killed_verify_of_tc_leaves_nothing_behind() {
    a_killed_verify_leaves_nothing_behind("tc");
}

#[test]
fn a_killed_verify_of_xdp_leaves_nothing_behind() {
    a_killed_verify_leaves_nothing_behind("xdp");
}
