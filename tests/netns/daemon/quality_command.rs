//! `shunt quality`: names the side of a bad line through fast connections, says what it cannot tell, and leaves nothing
//! behind.

use nix::sys::signal::Signal;
use shunt_inspect::quality::{Part, Report, Side, Symptom, Verdict};
use shunt_testkit::{
    Host, KernelObjects, Line, LinePlan, Shunt, Stop, Topology, require_root, rulesets, wait_for, wait_until,
};
use std::{
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::Duration,
};

const TIMEOUT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(60);
const PORT: u16 = 5001;
const CONNECTIONS: usize = 6;
const DELAY: Duration = Duration::from_millis(10);
/// One frame in this number is lost.
const LOST: u64 = 40;

fn goes_on(moved: std::io::Result<usize>) -> bool {
    moved.map_or_else(|error| error.kind() == ErrorKind::WouldBlock, |bytes| bytes > 0)
}

/// What TCP connections between the two hosts carry.
#[derive(Debug, Clone, Copy)]
struct Load {
    v6: bool,
    /// From the LAN host, which opens the connections, to the WAN host.
    upload: bool,
}

const DOWNLOADS: Load = Load { v6: false, upload: false };

/// Runs `work` while the LAN host downloads or uploads.
fn under<T>(load: Load, from: &Host, server: &Host, work: impl FnOnce() -> T) -> T {
    let stop = Stop::default();
    let to = if load.v6 { server.at6(PORT) } else { server.at(PORT) };
    let listener = server.ns.within(|| TcpListener::bind(to)).unwrap();
    thread::scope(|scope| {
        let _end = stop.on_drop();
        for _ in 0..CONNECTIONS {
            let near = from.ns.within(|| TcpStream::connect(to)).unwrap();
            let (far, _) = listener.accept().unwrap();
            let (mut sender, mut receiver) = if load.upload { (near, far) } else { (far, near) };
            let stop = &stop;
            sender.set_write_timeout(Some(TIMEOUT)).unwrap();
            receiver.set_read_timeout(Some(TIMEOUT)).unwrap();
            scope.spawn(move || {
                while !stop.is_set() && goes_on(sender.write(&[7; 16_384])) {
                    thread::sleep(Duration::from_millis(4));
                }
            });
            scope.spawn(move || {
                let mut block = [0; 65_536];
                while !stop.is_set() && goes_on(receiver.read(&mut block)) {}
            });
        }
        work()
    })
}

fn router() -> Topology {
    let lab = Topology::two_hosts_and_a_router();
    lab.keep_order();
    lab.offloads(false);
    lab.router().nft(rulesets::HOME_GATEWAY);
    lab
}

/// Waits until the fast path has forwarded packets of all connections.
#[track_caller]
fn all_are_fast(shunt: &Shunt) {
    let fast = wait_for(LONG, || {
        let flows = shunt.done("flows --json --over 0s --state active");
        let flows: serde_json::Value = serde_json::from_str(&flows).unwrap();
        (flows.as_array().unwrap().len() >= CONNECTIONS).then_some(())
    });
    assert!(fast.is_some(), "{}{}", shunt.done("flows"), shunt.done("status"));
}

/// The middle round trip is that of the line, which delays each direction by `delay`. A line whose threads had to wait
/// for a CPU delayed some frames for longer, and which ones is not known.
#[track_caller]
fn assert_median(line: &Line, delay: Duration, p50: f64) {
    let (truth, least) = (line.round_trip_ms(), 2.0 * delay.as_secs_f64() * 1000.0);
    assert!(p50 > 0.95 * least, "{least} ms at least, and {truth} ms: {p50} ms");
    if truth < 1.1 * least {
        assert!(p50 > 0.95 * truth && p50 < 1.05 * truth + 2.0, "{truth} ms: {p50} ms");
    } else {
        eprintln!("the line did not keep its delay: {truth} ms, not {least} ms; measured {p50} ms");
    }
}

#[test]
fn a_bad_line_is_named_by_fast_packets() {
    if !require_root() {
        return;
    }
    let lab = router();
    let line =
        Line::before(lab.wan(), LinePlan { delay: DELAY, lost_to_router: LOST, ..LinePlan::default() });
    let shunt = Shunt::on(lab.router());
    shunt.done("up --engine tc");
    let output = under(DOWNLOADS, lab.lan(), lab.wan(), || {
        all_are_fast(&shunt);
        shunt.run("quality --for 5s --wan r1 --json")
    });
    assert_eq!(output.code, Some(30), "{output:?}");
    let report: Report = serde_json::from_str(&output.out).unwrap();
    assert_eq!(report.verdict, Verdict::Fault, "{report:#?}");
    let p50 = report.sides[&Side::Wan].round_trip.unwrap().p50.unwrap().ms;
    assert_median(&line, DELAY, p50);
    let share = report.sides[&Side::Wan].towards_router.share.unwrap();
    let truth = line.loss_to_router();
    assert!(share.low < truth && truth < share.high, "{truth}: {report:#?}");
    // The connections were open before: one packet of each that takes the slow path names the host behind NAT.
    let host = report.hosts.iter().find(|one| one.host == Some(lab.lan().v4.into())).unwrap();
    assert!(host.sides.contains_key(&Side::Wan), "{report:#?}");
    // Until then, nobody knows whose they are. The router itself has no connection.
    assert!(report.hosts.iter().all(|one| !one.is_router), "{report:#?}");
    assert!(report.hosts.iter().any(|one| one.is_not_attributed), "{report:#?}");
    shunt.done("down");
}

#[test]
fn round_trips_and_losses_of_ipv6_are_those_of_the_line() {
    if !require_root() {
        return;
    }
    let lab = router();
    let plan = LinePlan { delay: DELAY * 2, lost_to_router: LOST, ..LinePlan::default() };
    let line = Line::before(lab.wan(), plan);
    let shunt = Shunt::on(lab.router());
    shunt.done("up --engine tc");
    let downloads = Load { v6: true, ..DOWNLOADS };
    let output = under(downloads, lab.lan(), lab.wan(), || {
        all_are_fast(&shunt);
        line.forget_delays();
        shunt.run("quality --for 5s --wan r1 --json")
    });
    assert_eq!(output.code, Some(30), "{output:?}");
    let report: Report = serde_json::from_str(&output.out).unwrap();
    let wan = &report.sides[&Side::Wan];
    let times = wan.round_trip.unwrap();
    let (p50, p95) = (times.p50.unwrap().ms, times.p95.unwrap().ms);
    assert_median(&line, DELAY * 2, p50);
    let truth = line.round_trip_ms();
    let [low, high] = line.round_trip_quantile_ms(0.95);
    // A line whose threads had to wait for a CPU delayed some frames for longer, and which ones is not known.
    if high < 1.2 * truth {
        assert!(p95 > 0.95 * low && p95 < 1.05 * high + 2.0, "{low} to {high} ms: {report:#?}");
    } else {
        eprintln!("the line did not keep its delay: {truth} ms, p95 {low} to {high} ms; measured {p95} ms");
        assert!(p95 >= p50, "{report:#?}");
    }
    let (share, truth) = (wan.towards_router.share.unwrap(), line.loss_to_router());
    assert!(share.low < truth && truth < share.high, "{truth}: {report:#?}");
    let host = report.hosts.iter().find(|one| one.host == Some(lab.lan().v6.into())).unwrap();
    assert!(host.sides.contains_key(&Side::Wan), "{report:#?}");
    shunt.done("down");
}

#[test]
fn losses_on_the_lan_side_are_those_of_the_line_in_both_directions() {
    if !require_root() {
        return;
    }
    for upload in [false, true] {
        let lab = router();
        let plan = if upload {
            LinePlan { delay: DELAY, lost_to_router: LOST, ..LinePlan::default() }
        } else {
            LinePlan { delay: DELAY, lost_from_router: LOST, ..LinePlan::default() }
        };
        let line = Line::before(lab.lan(), plan);
        let shunt = Shunt::on(lab.router());
        shunt.done("up --engine tc");
        let output = under(Load { v6: upload, upload }, lab.lan(), lab.wan(), || {
            all_are_fast(&shunt);
            shunt.run("quality --for 5s --wan r1 --json")
        });
        assert_eq!(output.code, Some(30), "{output:?}");
        let report: Report = serde_json::from_str(&output.out).unwrap();
        let lan = &report.sides[&Side::Lan];
        let (share, truth, symptom) = if upload {
            (lan.towards_router.share, line.loss_to_router(), Symptom::LosesTowardsRouter)
        } else {
            (lan.from_router.share, line.loss_from_router(), Symptom::LosesFromRouter)
        };
        let share = share.unwrap();
        assert!(share.low < truth && truth < share.high, "upload {upload}, {truth}: {report:#?}");
        let blamed: Vec<_> = report.findings.iter().map(|one| (one.part, one.symptom)).collect();
        assert!(blamed.contains(&(Part::LanSide, symptom)), "upload {upload}: {report:#?}");
        // The other side lost nothing, and is not blamed for losses.
        assert!(
            !blamed.iter().any(|(part, what)| *part == Part::WanSide && *what != Symptom::Waits),
            "{blamed:?}"
        );
        shunt.done("down");
    }
}

#[test]
fn packets_of_the_engine_xdp_are_not_seen_and_the_answer_says_so() {
    if !require_root() {
        return;
    }
    let lab = router();
    let shunt = Shunt::on(lab.router());
    shunt.done("up --engine xdp");
    under(DOWNLOADS, lab.lan(), lab.wan(), || {
        all_are_fast(&shunt);
        let output = shunt.run("quality --for 2s --wan r1");
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(output.out.contains("cannot tell: the engines xdp and external forwarded"), "{output:?}");
        // What the answer advises.
        let output = shunt.run("quality --for 3s --wan r1 --off --json");
        let report: Report = serde_json::from_str(&output.out).unwrap();
        assert_eq!(report.unseen, None, "{report:#?}");
        assert!(report.sides[&Side::Wan].towards_router.segments > 1000, "{report:#?}");
        let status = shunt.status();
        assert_eq!(status.off, []);
        let history = shunt.done("history --events");
        assert!(history.contains("quality --off"), "{history}");
        assert!(!history.contains("shunt verify"), "{history}");
    });
    shunt.done("down");
}

#[test]
fn what_cannot_be_answered_is_said_with_the_way_out() {
    if !require_root() {
        return;
    }
    let lab = router();
    let shunt = Shunt::on(lab.router());
    assert_eq!(shunt.run("quality").code, Some(21));
    shunt.done("up --engine tc");
    for (words, code, part) in [
        ("quality", 2, "no default route leads to a port; name the port of the WAN side: --wan PORT"),
        ("quality --wan eth9", 2, "eth9 is no port of this instance; its ports are r0, r1"),
        ("quality --wan r1 --for 0.5", 2, "expected 1s to 1d"),
        ("quality --wan r1 --host nosuch", 2, "--host: `nosuch` is not a host that this machine knows ("),
        (
            "quality --wan r1 --for 1 --host 203.0.113.9",
            2,
            "no TCP data of 203.0.113.9 passed the ports; seen was no host",
        ),
        ("quality --wan r1 --for 1", 2, "no TCP data passed the ports"),
    ] {
        let output = shunt.run(words);
        assert_eq!(output.code, Some(code), "{words}: {output:?}");
        assert!(output.out.contains(part) || output.err.contains(part), "{words}: {output:?}");
    }
    lab.router().run(&format!("ip route add default via {}", lab.wan().v4));
    let output = shunt.run("quality --for 1");
    assert!(output.out.contains("no TCP data passed the ports"), "{output:?}");
    let output = shunt.run("quality --for 1 --wan r0");
    let refusal =
        "--wan: a default route leads to r1, and none to r0, so r1 cannot be on the LAN side: --wan r1";
    assert_eq!((output.code, output.err.trim_end()), (Some(2), format!("shunt: {refusal}").as_str()));
    shunt.done("down");
}

#[test]
fn a_killed_command_leaves_nothing_behind() {
    if !require_root() {
        return;
    }
    let lab = router();
    let shunt = Shunt::on(lab.router());
    shunt.done("up --engine tc");
    let mut running = shunt.start("quality --wan r1 --for 60");
    wait_until("it observes", || running.err().contains("observing") || running.ended().is_some());
    let held = KernelObjects::held_by(running.pid());
    assert!(!held.links().is_empty(), "{held:?}");
    running.signal(Signal::SIGKILL);
    wait_until("the command is dead", || running.ended().is_some());
    assert_eq!(held.not_freed(), None);
    shunt.done("down");
}
