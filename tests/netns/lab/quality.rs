//! `shunt quality` measures what lies beyond the ports: it finds the delay and the loss of a line, names its side, and
//! blames neither side for a slow application or for a queue of the router.

use shunt_inspect::quality::{self, Finding, Part, Report, Request, Side, Symptom, Verdict};
use shunt_testkit::{Host, Line, LinePlan, Stop, Topology, require_root, rulesets};
use std::{
    io::{ErrorKind, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    sync::atomic::AtomicBool,
    thread,
    time::Duration,
};

const TIME: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_millis(200);
const CONNECTIONS: u16 = 6;
/// Between blocks of a connection: the threads that make the line must keep up.
const PAUSE: Duration = Duration::from_millis(20);
const DOWNLOAD: u16 = 6000;
const UPLOAD: u16 = 7000;
/// One frame in this number is lost.
const LOST: u64 = 40;
/// Delay of a line in each direction.
const DELAY: Duration = Duration::from_millis(10);
/// How much longer a round trip may be than its line, for the threads that make the line and for rounding.
const SLACK_MS: f64 = 2.0;

/// A router with NAT, whose ports merge what they receive, and which sends frames of the MTU.
fn router() -> Topology {
    let lab = Topology::two_hosts_and_a_router();
    lab.keep_order();
    lab.offloads(false);
    lab.router().nft(rulesets::HOME_GATEWAY);
    lab.router().run("ethtool -K r0 gro on gso on && ethtool -K r1 gro on gso on");
    lab
}

/// Whether a connection is still there: it moved bytes, or its timeout is over.
fn goes_on(moved: std::io::Result<usize>) -> bool {
    moved.map_or_else(|error| error.kind() == ErrorKind::WouldBlock, |bytes| bytes > 0)
}

/// Sends until it is told to stop, or the other end is gone.
fn pour(mut stream: TcpStream, stop: &Stop) {
    stream.set_write_timeout(Some(TIMEOUT)).unwrap();
    let block = [7; 16_384];
    while !stop.is_set() && goes_on(stream.write(&block)) {
        thread::sleep(PAUSE);
    }
}

/// Reads until it is told to stop, or the other end is gone.
fn drain(mut stream: TcpStream, stop: &Stop) {
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut block = [0; 65_536];
    while !stop.is_set() && goes_on(stream.read(&mut block)) {}
}

/// Runs `work` while connections of `client` send to `server`, or receive from it.
fn under_load<T>(client: &Host, server: &Host, address: IpAddr, port: u16, work: impl FnOnce() -> T) -> T {
    let stop = Stop::default();
    let address = SocketAddr::new(address, port);
    let listener = server.ns.within(|| TcpListener::bind(address)).unwrap();
    thread::scope(|scope| {
        let _end = stop.on_drop();
        let is_upload = port == UPLOAD;
        for _ in 0..CONNECTIONS {
            let near = client.ns.within(|| TcpStream::connect(address)).unwrap();
            let (far, _) = listener.accept().unwrap();
            let (sender, receiver) = if is_upload { (near, far) } else { (far, near) };
            scope.spawn(|| pour(sender, &stop));
            scope.spawn(|| drain(receiver, &stop));
        }
        work()
    })
}

fn observe(lab: &Topology, time: Duration) -> Report {
    let ports = [("r0".to_owned(), Side::Lan), ("r1".to_owned(), Side::Wan)].into();
    let request = Request { ports, time };
    let stop = AtomicBool::new(false);
    let observed = lab.router().within(|| quality::observe(&request, &stop, || ()).unwrap());
    observed.report(None, |_| true, |_| None)
}

/// The interval of the median holds the true one, and no round trip is shorter than the line.
#[track_caller]
fn has_round_trip(report: &Report, side: Side, truth_ms: f64) {
    let times = report.sides[&side].round_trip.unwrap();
    let p50 = times.p50.unwrap();
    assert!(p50.low_ms < truth_ms + SLACK_MS && 0.95 * truth_ms < p50.high_ms, "{truth_ms} ms: {report:#?}");
    let line_ms = 2000.0 * DELAY.as_secs_f64();
    assert!(times.shortest_ms > 0.95 * line_ms && times.shortest_ms < truth_ms + SLACK_MS, "{report:#?}");
}

fn losses(report: &Report) -> Vec<&Finding> {
    // On a busy machine, the threads that make the line let packets wait.
    report.findings.iter().filter(|one| one.symptom != Symptom::Waits).collect()
}

/// The only loss is at this place, and its interval holds the true share.
#[track_caller]
fn is_only_loss(report: &Report, part: Part, symptom: Symptom, truth: f64) {
    assert_eq!(report.verdict, Verdict::Fault, "{report:#?}");
    let found = losses(report);
    let [found] = found.as_slice() else { panic!("{report:#?}") };
    assert_eq!((found.part, found.symptom), (part, symptom), "{report:#?}");
    let share = found.share.unwrap();
    assert!(share.low < truth && truth < share.high, "{truth}: {report:#?}");
}

#[test]
fn loss_and_delay_before_the_wan_port_are_the_wan_sides() {
    if !require_root() {
        return;
    }
    let lab = router();
    let line =
        Line::before(lab.wan(), LinePlan { delay: DELAY, lost_to_router: LOST, ..LinePlan::default() });
    let (lan, wan) = (lab.lan(), lab.wan());
    let report = under_load(lan, wan, wan.v4.into(), DOWNLOAD, || observe(&lab, TIME));
    has_round_trip(&report, Side::Wan, line.round_trip_ms());
    is_only_loss(&report, Part::WanSide, Symptom::LosesTowardsRouter, line.loss_to_router());
    // NAT hides the host behind the router at the WAN port.
    let host = report.hosts.iter().find(|host| host.host == Some(lan.v4.into())).unwrap();
    assert_eq!(host.sides.len(), 2, "{report:#?}");
}

#[test]
fn loss_behind_the_wan_port_is_the_wan_sides() {
    if !require_root() {
        return;
    }
    let lab = router();
    let line =
        Line::before(lab.wan(), LinePlan { delay: DELAY, lost_from_router: LOST, ..LinePlan::default() });
    let (lan, wan) = (lab.lan(), lab.wan());
    let report = under_load(lan, wan, wan.v6.into(), UPLOAD, || observe(&lab, TIME));
    has_round_trip(&report, Side::Wan, line.round_trip_ms());
    is_only_loss(&report, Part::WanSide, Symptom::LosesFromRouter, line.loss_from_router());
}

#[test]
fn loss_and_delay_behind_the_lan_port_are_the_lan_sides() {
    if !require_root() {
        return;
    }
    let lab = router();
    let line =
        Line::before(lab.lan(), LinePlan { delay: DELAY, lost_from_router: LOST, ..LinePlan::default() });
    let (lan, wan) = (lab.lan(), lab.wan());
    let report = under_load(lan, wan, wan.v4.into(), DOWNLOAD, || observe(&lab, TIME));
    has_round_trip(&report, Side::Lan, line.round_trip_ms());
    is_only_loss(&report, Part::LanSide, Symptom::LosesFromRouter, line.loss_from_router());
}

#[test]
fn loss_before_the_lan_port_is_the_lan_sides() {
    if !require_root() {
        return;
    }
    let lab = router();
    let line =
        Line::before(lab.lan(), LinePlan { delay: DELAY, lost_to_router: LOST, ..LinePlan::default() });
    let (lan, wan) = (lab.lan(), lab.wan());
    let report = under_load(lan, wan, wan.v6.into(), UPLOAD, || observe(&lab, TIME));
    is_only_loss(&report, Part::LanSide, Symptom::LosesTowardsRouter, line.loss_to_router());
}

#[test]
fn packets_that_wait_in_the_routers_queue_are_the_routers() {
    if !require_root() {
        return;
    }
    let lab = router();
    // Full after a second: half a megabyte waits for 200 ms and more.
    lab.router().run("tc qdisc add dev r1 root tbf rate 20mbit burst 20k limit 500k");
    let (lan, wan) = (lab.lan(), lab.wan());
    let report = under_load(lan, wan, wan.v4.into(), UPLOAD, || observe(&lab, TIME));
    assert!(report.findings.iter().any(|one| one.part == Part::Router), "{report:#?}");
    // What the queue drops is lost on neither side.
    assert!(losses(&report).is_empty(), "{report:#?}");
    let p50 = report.router[&Side::Wan].p50.unwrap();
    assert!(p50.ms > 50.0, "{report:#?}");
}

#[test]
fn the_time_that_a_server_thinks_is_no_round_trip() {
    if !require_root() {
        return;
    }
    const THINKS: Duration = Duration::from_millis(300);
    let lab = router();
    let (lan, wan) = (lab.lan(), lab.wan());
    let (stop, address) = (Stop::default(), wan.at(DOWNLOAD));
    let listener = wan.ns.within(|| TcpListener::bind(address)).unwrap();
    let report = thread::scope(|scope| {
        let _end = stop.on_drop();
        for _ in 0..CONNECTIONS {
            let mut near = lan.ns.within(|| TcpStream::connect(address)).unwrap();
            let (mut far, _) = listener.accept().unwrap();
            let stop = &stop;
            scope.spawn(move || {
                let mut answer = [0; 4000];
                while !stop.is_set()
                    && near.write_all(&[1; 100]).is_ok()
                    && near.read_exact(&mut answer).is_ok()
                {}
            });
            scope.spawn(move || {
                let mut question = [0; 100];
                while !stop.is_set() && far.read_exact(&mut question).is_ok() {
                    thread::sleep(THINKS);
                    if far.write_all(&[2; 4000]).is_err() {
                        return;
                    }
                }
            });
        }
        observe(&lab, TIME)
    });
    assert!(losses(&report).is_empty(), "{report:#?}");
    // Linux acknowledges at the latest after 200 ms.
    for side in report.sides.values() {
        let times = side.round_trip.unwrap();
        assert!(times.p50.is_none_or(|p50| p50.ms < 250.0), "{report:#?}");
        assert!(times.shortest_ms < 20.0, "{report:#?}");
    }
}
