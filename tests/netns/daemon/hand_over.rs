//! `shunt restart`: the next daemon takes over without a gap. It, or the daemon before it, dies at any step.

use crate::{
    left_behind::Settings,
    ports::add_pairs,
    restarts::{LASTING_FLOWS, arrivals, stream, teach},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use shunt_api::{Attach, Engine, RestartKind, Status};
use shunt_testkit::{
    ENGINES, KernelObjects, Shunt, Stage, Stop, Topology, backlog, require_root, rulesets, silent_router,
    wait_for, wait_until,
};
use shunt_wire::Packet;
use std::{fs, thread, time::Duration};

/// All packets must be on the slow path by then, whatever has happened to a daemon; with a second for a busy machine.
pub(crate) const DEAD_MAN: Duration = Duration::from_secs(4);
/// Shorter than the verifier takes for a program.
const BETWEEN_SIGNALS: Duration = Duration::from_micros(200);
/// Packets of one flow that may take the slow path for one hand-over: those that a proof takes.
pub(crate) const SLOW_PER_RESTART: u64 = 2;

/// A router between two hosts, with an instance that is not running yet.
pub(crate) struct Rig {
    pub(crate) lab: Topology,
    pub(crate) shunt: Shunt,
    pub(crate) stage: Stage,
    pub(crate) packet: Packet,
    pub(crate) before: Settings,
}

impl Rig {
    #[track_caller]
    fn new(variables: &[(&str, &str)]) -> Self {
        Self::behind(rulesets::OPEN, variables)
    }

    /// A router with this ruleset.
    #[track_caller]
    pub(crate) fn behind(ruleset: &str, variables: &[(&str, &str)]) -> Self {
        let lab = silent_router(ruleset);
        let (stage, packet) = Stage::from_lan(&lab);
        let shunt = Shunt::on(lab.router());
        let shunt = variables.iter().fold(shunt, |shunt, (name, value)| shunt.variable(name, value));
        stage.pass(&packet);
        let before = Settings::read(lab.router());
        shunt.file("shunt.toml", LASTING_FLOWS);
        Self { lab, shunt, stage, packet, before }
    }

    #[track_caller]
    pub(crate) fn up(&self, engine: Engine) -> Status {
        let config = self.shunt.directory().join("shunt.toml");
        let words = format!("up --engine {engine} --config {} --json", config.display());
        serde_json::from_str(&self.shunt.done(&words)).unwrap()
    }

    #[track_caller]
    pub(crate) fn status(&self) -> Status {
        self.shunt.status()
    }

    /// Sends packets until one is fast.
    #[track_caller]
    fn teach(&self) {
        teach(&self.shunt, &self.stage, &self.packet);
    }

    #[track_caller]
    pub(crate) fn restart(&self) -> (u32, RestartKind) {
        restart(&self.shunt)
    }

    pub(crate) fn log(&self) -> String {
        let log = self.shunt.directory().join(format!("{}.log", self.shunt.instance()));
        fs::read_to_string(log).unwrap_or_default()
    }

    /// A flow is fast, and `shunt down` leaves nothing behind.
    #[track_caller]
    fn works_and_ends(&self) {
        self.teach();
        let held = KernelObjects::held_by(self.status().pid);
        self.shunt.done("down");
        assert_eq!(held.not_freed(), None, "{}", self.log());
        assert_eq!(Settings::read(self.lab.router()), self.before);
    }
}

/// Restarts the daemon; returns its process ID, and what became of the flows.
#[track_caller]
fn restart(shunt: &Shunt) -> (u32, RestartKind) {
    let value: serde_json::Value = serde_json::from_str(&shunt.done("restart --json")).unwrap();
    let pid = value["pid"].as_u64().unwrap() as u32;
    (pid, serde_json::from_value(value).unwrap())
}

/// Restarts the daemon again and again during a stream.
#[track_caller]
fn restart_during_a_stream(engine: Engine, variables: &[(&str, &str)], times: u64) {
    let rig = Rig::new(variables);
    let (from, to) = (rig.lab.lan().tap(), rig.lab.wan().tap());
    let packet = rig.lab.lan().udp_to(4001, rig.lab.wan().at(5001));
    let mut held = KernelObjects::default();
    let stop = Stop::default();
    // The first attachment may cost packets: a driver restarts its rings for XDP, and Linux stops a device for a moment
    // to give it a clsact qdisc.
    let mut pid = rig.up(engine).pid;
    let full_before = backlog::dropped();
    let (sent, seen) = thread::scope(|scope| {
        let receiver = scope.spawn(|| arrivals(&to, &stop));
        let sender = scope.spawn(|| stream(&from, &packet, &stop));
        let end = stop.on_drop();
        wait_until("the stream is fast", || rig.status().packets.fast > 50);
        wait_until("packets are counted for a while", || rig.status().counted_s >= Some(3));
        let begin = rig.status();
        assert!(begin.ports.iter().all(|port| port.engine == engine), "{begin:#?}");
        for _ in 0..times {
            held.extend(KernelObjects::held_by(pid));
            let (next, kind) = rig.restart();
            assert!(matches!(kind, RestartKind::TakenOver { .. }), "{kind:?}: {}", rig.log());
            assert_ne!(next, pid);
            pid = next;
            let fast = rig.status().packets.fast;
            wait_until("the stream is fast", || rig.status().packets.fast > fast + 50);
        }
        held.extend(KernelObjects::held_by(pid));
        let status = rig.status();
        assert_eq!(status.pid, pid);
        assert_eq!(status.epoch, begin.epoch, "{:?}: {}", status.epoch_moves, rig.log());
        let slow = status.packets.slow - begin.packets.slow;
        eprintln!("{times} hand-overs with {engine}: {slow} packets slow, {} fast", status.packets.fast);
        assert!(slow <= SLOW_PER_RESTART * times, "{slow} packets were slow: {:?}", status.reasons);
        assert!(status.packets.fast > begin.packets.fast, "the counters go on");
        assert!(status.counted_s >= Some(status.uptime_s + 2), "and so does their time: {status:#?}");
        assert_eq!(status.flows.active, 1, "the flow is in the table");
        drop(end);
        (sender.join().unwrap(), receiver.join().unwrap())
    });
    assert!(seen.values().all(|times| *times == 1), "packets came twice: {seen:?}");
    let elsewhere = (backlog::dropped() - full_before) as usize;
    let lost = sent as usize - seen.len();
    eprintln!("{times} hand-overs with {engine}: {sent} packets, {lost} lost, {elsewhere} in shared queues");
    assert!(lost <= elsewhere, "{lost} packets were lost");
    rig.shunt.done("down");
    assert_eq!(held.not_freed(), None, "BPF objects are left in the kernel: {}", rig.log());
    assert_eq!(Settings::read(rig.lab.router()), rig.before);
}

#[test]
fn restarts_by_hand_over_lose_no_packet_and_slow_no_flow() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        restart_during_a_stream(engine, &[], 5);
    }
}

#[test]
fn clsact_filters_are_handed_over() {
    if require_root() {
        restart_during_a_stream(Engine::Tc, &[("SHUNT_PRETEND_MISSING", "tcx")], 2);
    }
}

/// A message takes 253 descriptors.
#[test]
fn more_links_than_a_message_takes_are_handed_over() {
    if !require_root() {
        return;
    }
    let rig = Rig::new(&[]);
    add_pairs(rig.lab.router(), 1..=64);
    let begin = rig.up(Engine::Tc);
    assert_eq!(begin.ports.len(), 130);
    rig.teach();
    let epoch = rig.status().epoch;
    let (_, kind) = rig.restart();
    assert!(matches!(kind, RestartKind::TakenOver { .. }), "{kind:?}: {}", rig.log());
    let status = rig.status();
    assert_eq!((status.ports.len(), status.epoch), (130, epoch), "{}", rig.log());
    rig.teach();
    let held = KernelObjects::held_by(status.pid);
    rig.shunt.done("down");
    assert_eq!(held.not_freed(), None, "{}", rig.log());
}

#[test]
fn what_may_not_be_the_same_starts_without_flows_and_says_why() {
    if !require_root() {
        return;
    }
    let rig = Rig::new(&[("SHUNT_PRETEND_MISSING", "same-layout")]);
    let pid = rig.up(Engine::Tc).pid;
    rig.teach();
    let (next, kind) = rig.restart();
    assert_eq!(kind, RestartKind::Clean { why: "the new version keeps flows in another layout".to_owned() });
    assert_ne!(next, pid);
    rig.works_and_ends();

    let rig = Rig::new(&[]);
    rig.up(Engine::Tc);
    rig.shunt.file("shunt.toml", &format!("{LASTING_FLOWS}udp_packets = 3\nlog = \"debug\"\n"));
    let text = rig.shunt.done("restart");
    assert!(
        text.contains("without flows") && text.contains("the configuration differs: udp_packets"),
        "{text}"
    );
    rig.works_and_ends();
}

#[test]
fn a_daemon_that_cannot_take_over_leaves_the_running_one_alone() {
    if !require_root() {
        return;
    }
    let rig = Rig::new(&[]);
    let pid = rig.up(Engine::Tc).pid;
    rig.teach();
    rig.shunt.file("shunt.toml", "max_flows = many\n");
    let output = rig.shunt.run("restart");
    assert_eq!(output.code, Some(18), "{output:?}");
    assert!(
        output.err.contains("max_flows") && output.err.contains("the running daemon goes on"),
        "{output:?}"
    );
    // What only a start finds, which would come after the running daemon has ended.
    for (line, named) in [
        ("ports = [\"r0\", \"nope0\"]", "nope0"),
        ("metrics = \"203.0.113.7:9000\"", "203.0.113.7:9000"),
        ("read_group = \"no-such-group\"", "no-such-group"),
    ] {
        rig.shunt.file("shunt.toml", &format!("{LASTING_FLOWS}{line}\n"));
        let output = rig.shunt.run("restart");
        assert_ne!(output.code, Some(0), "{output:?}");
        assert!(
            output.err.contains(named) && output.err.contains("the running daemon goes on"),
            "{output:?}"
        );
    }
    rig.shunt.file("shunt.toml", LASTING_FLOWS);
    assert_eq!(rig.status().pid, pid);
    // Only a daemon starts the next one.
    let output = rig.shunt.run_daemon("--successor");
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(output.err.contains("`shunt restart`"), "{output:?}");
    rig.works_and_ends();
    let output = rig.shunt.run("restart");
    assert_eq!(output.code, Some(21), "{output:?}");
}

#[test]
fn two_restarts_at_a_time_are_one() {
    if !require_root() {
        return;
    }
    let rig = Rig::new(&[]);
    rig.up(Engine::Tc);
    let shunt = &rig.shunt;
    let (one, other) = thread::scope(|scope| {
        let other = scope.spawn(|| restart(shunt));
        (rig.restart(), other.join().unwrap())
    });
    // The second request came while the first was in progress, or after it: then there is a third daemon.
    assert!(
        matches!(one.1, RestartKind::TakenOver { .. }) && matches!(other.1, RestartKind::TakenOver { .. })
    );
    assert!([one.0, other.0].contains(&rig.status().pid), "{one:?} {other:?}");
    rig.works_and_ends();
}

/// Dies at a step before the ownership has changed, or misses a descriptor: the running daemon goes on.
#[track_caller]
fn next_dies_before(variables: &[(&str, &str)]) {
    let rig = Rig::new(variables);
    let begin = rig.up(Engine::Tc);
    rig.teach();
    let before = rig.status();
    let output = rig.shunt.run("restart");
    assert_eq!(output.code, Some(70), "{variables:?}: {output:?}");
    assert!(output.err.contains("goes on"), "{variables:?}: {output:?}");
    let status = rig.status();
    assert_eq!((status.pid, status.epoch), (begin.pid, before.epoch), "{variables:?}");
    rig.stage.pass(&rig.packet);
    assert!(rig.status().packets.fast > before.packets.fast, "{variables:?}: the flow is not fast any more");
    rig.works_and_ends();
}

const FAULT: &str = "SHUNT_HANDOVER_FAULT";

#[test]
fn a_next_daemon_that_dies_before_it_owns_anything_changes_nothing() {
    if !require_root() {
        return;
    }
    for step in ["next-hello", "next-ready", "next-loaded", "next-state", "stop:next-state"] {
        next_dies_before(&[(FAULT, step)]);
    }
}

#[test]
fn a_missing_descriptor_changes_nothing() {
    if require_root() {
        next_dies_before(&[("SHUNT_PRETEND_MISSING", "hand-over-link")]);
    }
}

/// Linux forwards within three seconds, nothing that the daemons held is left, and the next start is clean.
#[track_caller]
fn linux_forwards(rig: &Rig, held: &KernelObjects, step: &str) {
    let gone = wait_for(DEAD_MAN, || {
        rig.stage.pass(&rig.packet);
        (rig.shunt.run("status").code == Some(21)).then_some(())
    });
    assert!(gone.is_some(), "{step}: a daemon answers: {}", rig.log());
    assert_eq!(held.not_freed(), None, "{step}: {}", rig.log());
    rig.shunt.done("down");
    rig.up(Engine::Tc);
    rig.works_and_ends();
}

#[test]
fn a_next_daemon_that_dies_when_it_owns_everything_leaves_all_to_linux() {
    if !require_root() {
        return;
    }
    for step in ["next-go", "next-done"] {
        let rig = Rig::new(&[(FAULT, step)]);
        let held = KernelObjects::held_by(rig.up(Engine::Tc).pid);
        rig.teach();
        let output = rig.shunt.run("restart");
        assert_eq!(output.code, Some(70), "{step}: {output:?}");
        assert!(output.err.contains("all packets take the slow path"), "{step}: {output:?}");
        linux_forwards(&rig, &held, step);
    }
}

#[test]
fn a_running_daemon_that_dies_during_the_hand_over_leaves_all_to_linux_or_to_the_next_one() {
    if !require_root() {
        return;
    }
    for step in ["former-offered", "former-settled", "former-frozen"] {
        let rig = Rig::new(&[(FAULT, step)]);
        let held = KernelObjects::held_by(rig.up(Engine::Tc).pid);
        rig.teach();
        let output = rig.shunt.run("restart");
        assert_eq!(output.code, Some(70), "{step}: {output:?}");
        linux_forwards(&rig, &held, step);
    }
    // The next one owns everything.
    let rig = Rig::new(&[(FAULT, "former-gone")]);
    let pid = rig.up(Engine::Tc).pid;
    rig.teach();
    let (next, kind) = rig.restart();
    assert!(matches!(kind, RestartKind::TakenOver { .. }) && next != pid, "{kind:?}");
    rig.works_and_ends();
}

#[test]
fn shunt_down_during_a_restart_ends_both_daemons() {
    if !require_root() {
        return;
    }
    let rig = Rig::new(&[(FAULT, "stop:next-hello")]);
    let running = rig.up(Engine::Tc).pid;
    let restart = rig.shunt.start("restart");
    let next = wait_for(Duration::from_secs(30), || next_daemon(rig.shunt.instance(), running)).unwrap();
    rig.shunt.done("down");
    wait_until("the next daemon is gone", || kill(Pid::from_raw(next), None::<Signal>).is_err());
    drop(restart);
    assert_eq!(Settings::read(rig.lab.router()), rig.before);
}

/// The daemon of this instance that is about to take over from the running one.
pub(crate) fn next_daemon(instance: &str, running: u32) -> Option<i32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = processes.filter_map(|process| process.file_name().to_str()?.parse::<i32>().ok());
    pids.find(|pid| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let has = |argument| line.split('\0').any(|other| other == argument);
        *pid as u32 != running && has("--successor") && has(instance)
    })
}

#[test]
fn signals_that_ask_the_next_daemon_for_a_reload_do_not_keep_it_from_taking_over() {
    if !require_root() {
        return;
    }
    let rig = Rig::new(&[]);
    let pid = rig.up(Engine::Tc).pid;
    rig.teach();
    let stop = Stop::default();
    let (sent, (next, kind)) = thread::scope(|scope| {
        // From its first moment on, and so often that no program is verified between two of them.
        let signals = scope.spawn(|| {
            let (mut sent, mut next) = (0_u64, None);
            while !stop.is_set() {
                next = next.or_else(|| next_daemon(rig.shunt.instance(), pid));
                if let Some(next) = next {
                    sent += u64::from(kill(Pid::from_raw(next), Signal::SIGHUP).is_ok());
                }
                thread::sleep(BETWEEN_SIGNALS);
            }
            sent
        });
        let end = stop.on_drop();
        let restarted = rig.restart();
        drop(end);
        (signals.join().unwrap(), restarted)
    });
    eprintln!("{sent} signals");
    assert!(matches!(kind, RestartKind::TakenOver { .. }) && next != pid, "{kind:?}");
    assert!(sent > 100, "{sent} signals while the programs were loaded");
    wait_until("the last signal has made it read the file", || {
        rig.status().config.is_some_and(|config| config.last_reload.is_some_and(|last| last.by == "SIGHUP"))
    });
    rig.works_and_ends();
}

#[test]
fn the_daemon_that_has_taken_over_meets_changes() {
    if !require_root() {
        return;
    }
    let rig = Rig::new(&[]);
    let status = rig.up(Engine::Tc);
    assert!(status.ports.iter().all(|port| port.attach == Attach::Tcx), "{status:#?}");
    rig.teach();
    let (_, kind) = rig.restart();
    assert!(matches!(kind, RestartKind::TakenOver { .. }), "{kind:?}");
    // A rule that refuses the flow is met at once by the daemon that has taken over.
    rig.lab.router().run("nft insert rule inet filter forward udp dport 5000 drop");
    rig.stage.settle("a rule that drops", &rig.packet, shunt_testkit::stage::nothing_leaves);
    let accept = "nft add rule inet filter forward ct state new,established accept";
    rig.lab.router().run(&format!("nft flush chain inet filter forward; {accept}"));
    rig.works_and_ends();
}
