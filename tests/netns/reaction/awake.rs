//! The daemon stays awake: it beats, answers and reacts while others hold the kernel's RTNL lock, and no step of it
//! takes long.

use nix::sys::signal::Signal;
use shunt_api::{Engine, LongestStep, StaticRemoval, StaticTable, Status};
use shunt_testkit::{
    ENGINES, NetNs, Process, Stage, daemon, daemon_with, ip_batch, require_root, rulesets,
    stage::nothing_leaves, tree::root, wait_until,
};
use shunt_wire::Packet;
use std::{
    fmt::Write,
    fs,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

const HOLDER: &str = "tests/netns/reaction/hold_rtnl.py";
/// Longer than a heartbeat may be old.
const HOLD: Duration = Duration::from_secs(3);
/// The bound for a step is 5 ms. A machine that is busy with other tests adds to the time, but not to the CPU time, of
/// which an unoptimised daemon needs more. A step that waits for the lock takes seconds.
const STEP_MAX: Duration = Duration::from_millis(500);
const STEP_CPU_MAX: Duration = Duration::from_millis(25);

/// Holds the RTNL lock for some time from now on.
struct HeldRtnl {
    holder: Process,
    since: Instant,
    directory: tempfile::TempDir,
}

impl HeldRtnl {
    #[track_caller]
    fn new(router: &NetNs, time: Duration) -> Self {
        let mut held = Self::prepared(router, time);
        held.hold();
        held
    }

    /// Prepares everything but the hold itself.
    #[track_caller]
    fn prepared(router: &NetNs, time: Duration) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let held = directory.path().join("held");
        // A namespace of its own: the lock is one for all.
        let mut command = router.command("unshare");
        let line = format!(
            "ip link add h0 type veth peer h1 && exec python3 {} {} h0 {}",
            root().join(HOLDER).display(),
            time.as_secs_f64(),
            held.display()
        );
        command.args(["--net", "sh", "-c", &line]);
        command.stdout(Stdio::null());
        let mut prepared = Self { holder: Process::start(command), since: Instant::now(), directory };
        prepared.wait_for("held.ready");
        prepared
    }

    #[track_caller]
    fn hold(&mut self) {
        fs::write(self.directory.path().join("held.go"), "").unwrap();
        self.wait_for("held");
        self.since = Instant::now();
    }

    #[track_caller]
    fn wait_for(&mut self, file: &str) {
        wait_until(file, || {
            assert!(self.holder.ended().is_none(), "cannot hold the lock");
            self.directory.path().join(file).exists()
        });
    }

    fn is_held(&mut self) -> bool {
        self.holder.ended().is_none()
    }
}

#[track_caller]
fn assert_awake(status: &Status) {
    let LongestStep { name, seconds, cpu_seconds } = status.longest_step.as_ref().unwrap();
    eprintln!("longest step: {name}, {:.1} ms, {:.1} ms of CPU time", seconds * 1e3, cpu_seconds * 1e3);
    assert_eq!(status.reasons.get("no-daemon"), None, "the heartbeat stopped: {:#?}", status.reasons);
    assert!(*seconds < STEP_MAX.as_secs_f64(), "{name} took {seconds} s");
    assert_short(status);
}

#[track_caller]
fn assert_short(status: &Status) {
    let LongestStep { name, cpu_seconds, .. } = status.longest_step.as_ref().unwrap();
    assert!(*cpu_seconds < STEP_CPU_MAX.as_secs_f64(), "{name} took {cpu_seconds} s of CPU time");
}

/// Passes packets until the condition holds; returns how many. None may be lost.
fn pass_while(stage: &Stage, packet: &Packet, mut condition: impl FnMut() -> bool) -> u64 {
    let mut passed = 0;
    while condition() {
        stage.pass(packet);
        passed += 1;
        thread::sleep(Duration::from_millis(2));
    }
    passed
}

#[test]
fn a_held_rtnl_lock_stops_neither_the_heartbeat_nor_answers_nor_reactions() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
        let shuntd = daemon(&lab, engine);
        stage.teach(&shuntd, &packet);
        let before = shuntd.status();
        let mut held = HeldRtnl::new(lab.router(), HOLD);
        let passed = pass_while(&stage, &packet, || held.since.elapsed() < HOLD * 4 / 5);
        let asked = Instant::now();
        let status = shuntd.status();
        let answered = asked.elapsed();
        lab.router().run("nft insert rule inet filter forward udp dport 5000 drop");
        let left = stage.send(&packet);
        assert!(held.is_held(), "the lock was not held long enough to tell");
        let fast = status.packets.fast - before.packets.fast;
        eprintln!("{engine}: {fast} of {passed} packets fast; an answer after {answered:?}");
        assert!(nothing_leaves(&left), "{engine}: a rule was bypassed: {left:#?}");
        assert!(answered < Duration::from_millis(500), "an answer took {answered:?}");
        assert!(fast > passed / 2, "{engine}: only {fast} of {passed} packets were fast");
        wait_until("the lock is free", || !held.is_held());
        assert_awake(&shuntd.status());
        stage.never_fast(&shuntd, &packet, nothing_leaves);
        shuntd.stop();
    }
}

/// As many static flows as fill some hundred slices.
const STATIC_FLOWS: u32 = 50_000;

#[test]
fn many_static_flows_stop_nothing_when_they_come_follow_a_port_and_go() {
    if !require_root() {
        return;
    }
    let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
    lab.router().run(
        "ip link add spare type veth peer spare-peer && ip link set spare up && ip link set spare-peer up",
    );
    let shuntd = daemon_with(&lab, Engine::Tc, "max_flows = 131072\nports = [\"r0\", \"r1\", \"spare\"]");
    stage.teach(&shuntd, &packet);
    let mut text =
        "[[route]]\nname = \"wan\"\nout_port = \"spare\"\ndmac = \"02:00:00:00:00:21\"\n".to_owned();
    for n in 0..STATIC_FLOWS {
        let (address, port) = (n / 50_000, 10_000 + n % 50_000);
        writeln!(
            text,
            "[[flow]]\nin_port = \"r0\"\nproto = \"udp\"\nsrc = \"10.77.0.{address}\"\nsport = {port}\ndst = \"10.78.0.1\"\ndport = 53\nroute = \"wan\""
        )
        .unwrap();
    }
    let table = StaticTable::parse(&text).unwrap();
    for flow in table.flow.chunks(10_000) {
        let part = StaticTable { route: table.route.clone(), flow: flow.to_vec() };
        assert_eq!(shuntd.load(&part), Ok(flow.len() as u64 + 1));
    }
    let statics = |status: &Status| status.flows.static_;
    shuntd.wait_until("the flows are in the table", |s| statics(s) == u64::from(STATIC_FLOWS));
    // Its flows go with the port, and come back with it.
    lab.router().run("ip link set spare down");
    lab.router().run("ip link del spare");
    let mut gone = false;
    pass_while(&stage, &packet, || {
        gone |= statics(&shuntd.status()) == 0;
        !gone
    });
    lab.router().run(
        "ip link add spare type veth peer spare-peer && ip link set spare up && ip link set spare-peer up",
    );
    shuntd.wait_until("the flows are back", |s| statics(s) == u64::from(STATIC_FLOWS));
    assert_eq!(shuntd.statics().flow.len(), table.flow.len());
    let all = StaticRemoval { all: true, ..StaticRemoval::default() };
    assert_eq!(shuntd.unload(&all), Ok(u64::from(STATIC_FLOWS) + 1));
    assert_awake(&shuntd.status());
    shuntd.stop();
}

#[test]
fn a_port_that_comes_or_goes_while_the_rtnl_lock_is_held_stops_nothing() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
        let add = "ip link add spare type veth peer spare-peer && ethtool -K spare-peer gro on && \
                   ip link set spare up";
        lab.router().run(add);
        let shuntd = daemon_with(&lab, engine, "ports = [\"r0\", \"r1\", \"spare\"]");
        stage.teach(&shuntd, &packet);
        let attached = |status: &Status| status.ports.iter().any(|port| port.name == "spare");
        for (change, comes) in [("ip link del spare", false), (add, true)] {
            let mut held = HeldRtnl::prepared(lab.router(), HOLD);
            // The daemon hears of the device only while the lock is held, so that it has to wait for the lock.
            shuntd.signal(Signal::SIGSTOP);
            lab.router().run(change);
            held.hold();
            shuntd.signal(Signal::SIGCONT);
            let before = shuntd.status();
            let passed = pass_while(&stage, &packet, || held.since.elapsed() < HOLD * 4 / 5);
            let status = shuntd.status();
            assert!(held.is_held(), "the lock was not held long enough to tell");
            assert_eq!(attached(&status), comes, "{engine}: {:#?}", status.ports);
            let fast = status.packets.fast - before.packets.fast;
            eprintln!("{engine}: {fast} of {passed} packets fast");
            wait_until("the lock is free", || !held.is_held());
            assert_awake(&shuntd.status());
            stage.teach(&shuntd, &packet);
        }
        shuntd.stop();
    }
}

/// Devices that come and go at once.
const DEVICES: u32 = 1000;

#[test]
fn a_storm_of_devices_that_go_at_once_stops_neither_the_heartbeat_nor_answers() {
    if !require_root() {
        return;
    }
    let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
    let shuntd = daemon(&lab, Engine::Tc);
    stage.teach(&shuntd, &packet);
    ip_batch(lab.router(), DEVICES, |n| format!("link add storm{n} group 77 type dummy"));
    let mut storm = lab.router().spawn("ip link del group 77");
    pass_while(&stage, &packet, || storm.ended().is_none());
    stage.teach(&shuntd, &packet);
    assert_awake(&shuntd.status());
    shuntd.stop();
}
