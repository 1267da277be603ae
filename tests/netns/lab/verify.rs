//! `shunt verify` finds what is wrong with a broken engine, by tc and by XDP, names it, and finds nothing wrong with a
//! sound one.

use nix::sys::socket::{MsgFlags, send};
use shunt_api::{Engine, Proto, Tuple};
use shunt_bpf::attach::program_by_id;
use shunt_inspect::verify::{self, Fault, Flow, Owner, Report, Request, Taps, Verdict, Way};
use shunt_testkit::{Host, Stop, Topology, require_root, rulesets};
use shunt_traffic::{EngineFault, EnginePlan, FaultyEngine};
use std::{
    net::UdpSocket,
    os::fd::{AsFd, AsRawFd},
    sync::atomic::AtomicBool,
    thread,
    time::Duration,
};

const TIME: Duration = Duration::from_secs(3);
/// One packet in this number has the fault.
const EVERY: u32 = 50;
const PORTS: (u16, u16) = (4000, 5000);

/// Sends numbered datagrams, some at once, until it is told to stop.
fn send_numbered(from: &Host, to: &Host, stop: &Stop) {
    let socket = from.ns.within(|| UdpSocket::bind((from.v4, PORTS.0))).unwrap();
    socket.connect(to.at(PORTS.1)).unwrap();
    let mut number = 0u32;
    while !stop.is_set() {
        for _ in 0..4 {
            number += 1;
            let payload = [number.to_be_bytes().to_vec(), vec![0x55; 80]].concat();
            // An ICMP error of a packet before makes one call fail.
            let _ = send(socket.as_raw_fd(), &payload, MsgFlags::empty());
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// The engines under test, all on the same port.
struct Engines {
    xdp: Option<FaultyEngine>,
    tc: Option<FaultyEngine>,
}

impl Engines {
    fn on(port: u32, engine: Engine, plan: EnginePlan) -> Self {
        let is_xdp = engine == Engine::Xdp;
        let xdp = is_xdp.then(|| FaultyEngine::on_xdp(port, plan).unwrap());
        // XDP leaves to tc what is to be delayed.
        let on_tc = match plan.fault {
            EngineFault::Delay if is_xdp => Some(EnginePlan { every: 1, ..plan }),
            _ => (!is_xdp).then_some(plan),
        };
        Self { xdp, tc: on_tc.map(|plan| FaultyEngine::on_tc(port, plan).unwrap()) }
    }
}

impl Owner for Engines {
    fn switch(&mut self, way: Way, _: Duration) -> Result<(), String> {
        let mut all = self.xdp.iter().chain(&self.tc);
        all.try_for_each(|engine| engine.set_off(way == Way::Slow).map_err(|error| error.to_string()))
    }

    fn attach(&mut self, taps: &Taps, _: Duration) -> Result<(), String> {
        let open = |id: u32| program_by_id(id).map_err(|error| error.to_string());
        let (leaving, entering) = (open(taps.leaving)?, open(taps.entering)?);
        let engine = self.xdp.as_ref().ok_or("no engine xdp")?;
        let attached = engine.set_exit_program(Some(leaving.as_fd()));
        attached.and_then(|()| engine.set_program(Some(&entering))).map_err(|error| error.to_string())
    }

    fn detach(&mut self) -> Result<(), String> {
        let engine = self.xdp.as_ref().ok_or("no engine xdp")?;
        let detached = engine.set_program(None).and_then(|()| engine.set_exit_program(None));
        detached.map_err(|error| error.to_string())
    }
}

/// The report on an engine with this fault.
fn verified(engine: Engine, fault: EngineFault) -> Report {
    let lab = Topology::two_hosts_and_a_router();
    lab.pin_neighbours();
    lab.keep_order();
    lab.offloads(false);
    let router = lab.router();
    // Conntrack sees what takes the slow path.
    router.nft(rulesets::OPEN);
    // The class 1:20 has room for one packet, which waits for 0.1 s.
    router.run(
        "tc qdisc add dev r1 root handle 1: htb default 10 && \
         tc class add dev r1 parent 1: classid 1:10 htb rate 1gbit && \
         tc class add dev r1 parent 1: classid 1:20 htb rate 8kbit burst 100 cburst 100 && \
         tc qdisc add dev r1 parent 1:20 pfifo limit 1",
    );
    let (r0, r1) = (router.ifindex("r0"), router.ifindex("r1"));
    let (destination, source) = (lab.wan().mac, lab.wan().gateway_mac);
    let plan = EnginePlan { to: r1, destination, source, fault, every: EVERY };
    let ends = Tuple::new((lab.lan().v4, PORTS.0).into(), lab.wan().at(PORTS.1));
    let flow = Flow {
        connection: 0,
        proto: Proto::Udp,
        in_port: "r0".to_owned(),
        out_port: "r1".to_owned(),
        enters: ends,
        leaves: ends,
        engine,
    };
    let request = Request { flows: vec![flow], time: TIME, doubts: Vec::new() };
    let stop = Stop::default();
    thread::scope(|scope| {
        let _stop = stop.on_drop();
        scope.spawn(|| send_numbered(lab.lan(), lab.wan(), &stop));
        router.within(|| {
            let mut engines = Engines::on(r0, engine, plan);
            verify::run(&request, &AtomicBool::new(false), &mut engines, || ()).unwrap()
        })
    })
}

#[track_caller]
fn is_named(report: &Report, fault: Fault) {
    assert_eq!(report.verdict, Verdict::Differs, "{report:#?}");
    let count = |way: Way| report.paths[&way].faults.get(&fault).copied().unwrap_or(0);
    assert!(count(Way::Fast) > 0, "{report:#?}");
    assert_eq!(report.paths[&Way::Slow].faults.values().sum::<u64>(), 0, "{report:#?}");
    // Nothing else is wrong.
    assert_eq!(report.paths[&Way::Fast].faults.len(), 1, "{report:#?}");
    assert!(report.differences.iter().any(|one| one.fault == fault && one.way == Way::Fast), "{report:#?}");
}

fn a_sound_engine(engine: Engine) {
    if !require_root() {
        return;
    }
    let report = verified(engine, EngineFault::None);
    assert_eq!(report.verdict, Verdict::Equal, "{report:#?}");
    assert!(report.unknown.is_empty(), "{report:#?}");
    let packets = |way: Way| report.paths[&way].packets;
    assert!(packets(Way::Fast) > 100 && packets(Way::Slow) > 100, "{report:#?}");
}

#[test]
fn a_sound_engine_is_equal_to_linux_by_tc() {
    a_sound_engine(Engine::Tc);
}

#[test]
fn a_sound_engine_is_equal_to_linux_by_xdp() {
    a_sound_engine(Engine::Xdp);
}

fn a_changed_bit(engine: Engine) {
    if !require_root() {
        return;
    }
    let report = verified(engine, EngineFault::Payload);
    is_named(&report, Fault::Bytes);
    let shown = &report.differences[0];
    // Behind the headers of IP and UDP, byte 20 of the payload.
    assert_eq!(shown.differing.iter().map(|at| at + shown.at).collect::<Vec<_>>(), [48], "{shown:#?}");
}

#[test]
fn a_changed_bit_of_the_payload_is_found_and_shown_by_tc() {
    a_changed_bit(Engine::Tc);
}

#[test]
fn a_changed_bit_of_the_payload_is_found_and_shown_by_xdp() {
    a_changed_bit(Engine::Xdp);
}

fn is_found(engine: Engine, fault: EngineFault, name: Fault) {
    if require_root() {
        is_named(&verified(engine, fault), name);
    }
}

#[test]
fn a_dropped_packet_is_found_by_tc() {
    is_found(Engine::Tc, EngineFault::Drop, Fault::Lost);
}

#[test]
fn a_dropped_packet_is_found_by_xdp() {
    is_found(Engine::Xdp, EngineFault::Drop, Fault::Lost);
}

#[test]
fn packets_in_another_order_are_found_by_tc() {
    is_found(Engine::Tc, EngineFault::Delay, Fault::Order);
}

#[test]
fn packets_in_another_order_are_found_by_xdp() {
    is_found(Engine::Xdp, EngineFault::Delay, Fault::Order);
}

fn a_wrong_mac(engine: Engine) {
    if !require_root() {
        return;
    }
    let report = verified(engine, EngineFault::Mac);
    is_named(&report, Fault::Headers);
    assert!(report.differences[0].what[0].starts_with("destination MAC"), "{report:#?}");
}

#[test]
fn a_wrong_mac_is_found_and_named_by_tc() {
    a_wrong_mac(Engine::Tc);
}

#[test]
fn a_wrong_mac_is_found_and_named_by_xdp() {
    a_wrong_mac(Engine::Xdp);
}
