//! The daemon stays awake: it beats, answers and reacts while others hold the kernel's RTNL lock, and no step of it takes long.

use shunt_api::{
    Hop, LongestStep, Proto, RouteChoice, StaticFlow, StaticKey, StaticRemoval, StaticRoute, StaticTable,
    Status,
};
use shunt_testkit::{
    ENGINES, NetNs, Process, Shuntd, Stage, Topology, daemon, daemon_with, ip_batch, require_root, rulesets,
    stage::nothing_leaves, wait_until,
};
use shunt_wire::Packet;
use std::{
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

const HOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/netns/reaction/hold_rtnl.py");
/// Longer than a heartbeat may be old.
const HOLD: Duration = Duration::from_secs(3);
/// The bound for a step is 5 ms. A machine that is busy with other tests adds to the time, but not to the CPU time, of which an
/// unoptimised daemon needs more.
const STEP_MAX: Duration = Duration::from_millis(100);
const STEP_CPU_MAX: Duration = Duration::from_millis(25);

/// Holds the RTNL lock for some time from now on.
struct HeldRtnl {
    holder: Process,
    since: Instant,
    _directory: tempfile::TempDir,
}

impl HeldRtnl {
    #[track_caller]
    fn new(router: &NetNs, time: Duration) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let held = directory.path().join("held");
        // A namespace of its own: the lock is one for all.
        let mut command = router.command("unshare");
        let line = format!(
            "ip link add h0 type veth peer h1 && exec python3 {HOLDER} {} h0 {}",
            time.as_secs_f64(),
            held.display()
        );
        command.args(["--net", "sh", "-c", &line]);
        command.stdout(Stdio::null());
        let mut holder = Process::start(command);
        wait_until("the lock is held", || {
            assert!(holder.ended().is_none(), "cannot hold the lock");
            held.exists()
        });
        Self { holder, since: Instant::now(), _directory: directory }
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
        pass_after(&mut held);
        assert_awake(&shuntd.status());
        stage.never_fast(&shuntd, &packet, nothing_leaves);
        shuntd.stop();
    }
}

fn pass_after(held: &mut HeldRtnl) {
    wait_until("the lock is free", || !held.is_held());
}
