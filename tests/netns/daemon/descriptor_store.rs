//! The service manager restarts the daemon, or starts it again after a crash: the next one goes on with what the former
//! one has left in the descriptor store.

use crate::{
    left_behind::Settings,
    restarts::{LASTING_FLOWS, arrivals, stream, teach},
    service_manager::ServiceManager,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use shunt_api::{Attach, Engine, RestartKind, Status};
use shunt_testkit::{
    ENGINES, KernelObjects, Shunt, Stage, Stop, Topology, backlog, require_root, rulesets, silent_router,
    stage::nothing_leaves, wait_until,
};
use shunt_wire::Packet;
use std::{os::unix::fs::FileExt, thread};

struct Rig {
    lab: Topology,
    shunt: Shunt,
    manager: ServiceManager,
    stage: Stage,
    packet: Packet,
    before: Settings,
}

impl Rig {
    #[track_caller]
    fn new(engine: Engine) -> Self {
        let lab = silent_router(rulesets::OPEN);
        let (stage, packet) = Stage::from_lan(&lab);
        stage.pass(&packet);
        let before = Settings::read(lab.router());
        let shunt = Shunt::on(lab.router());
        let config = shunt.file("shunt.toml", LASTING_FLOWS);
        let arguments = format!("--engine {engine} --config {}", config.display());
        let manager = ServiceManager::of(&shunt, lab.router(), &arguments);
        Self { lab, shunt, manager, stage, packet, before }
    }

    #[track_caller]
    fn status(&self) -> Status {
        self.shunt.status()
    }

    /// Starts the daemon, and waits until a crash would lose nothing.
    #[track_caller]
    fn start(&mut self) -> Status {
        self.start_with(&[])
    }

    #[track_caller]
    fn start_with(&mut self, variables: &[(&str, &str)]) -> Status {
        self.manager.start_with(variables);
        self.manager.wait_for_links(&self.shunt);
        self.status()
    }

    /// Sends packets until one is fast.
    #[track_caller]
    fn teach(&self) {
        teach(&self.shunt, &self.stage, &self.packet);
    }

    /// The service stops, and nothing is left.
    #[track_caller]
    fn stop(mut self, mut held: KernelObjects) {
        held.extend(KernelObjects::held_by(self.status().pid));
        let ended = self.manager.end_daemon(Signal::SIGTERM);
        assert!(ended.success(), "{ended}: {}", self.manager.log());
        self.manager.release();
        assert_eq!(held.not_freed(), None, "{}", self.manager.log());
        assert_eq!(Settings::read(self.lab.router()), self.before);
        assert_eq!(self.shunt.run("status").code, Some(21));
    }

    /// The next daemon has begun without flows, says why, and works.
    #[track_caller]
    fn began_clean(self, why: &str, held: KernelObjects) {
        let status = self.status();
        let Some(RestartKind::Clean { why: said }) = &status.start else { panic!("{:?}", status.start) };
        assert!(said.contains(why), "{said}");
        assert!(self.shunt.done("status").contains(why));
        assert!(self.manager.log().contains(said.as_str()), "{}", self.manager.log());
        assert_eq!(held.not_freed(), None, "what the former daemon has left: {}", self.manager.log());
        self.teach();
        self.stop(KernelObjects::default());
    }
}

fn is_taken_over(status: &Status) -> bool {
    matches!(status.start, Some(RestartKind::TakenOver { .. }))
}

/// Ends the daemon by these signals during a stream, and starts the next one each time.
#[track_caller]
fn restart_during_a_stream(engine: Engine, signals: &[Signal], variables: &[(&str, &str)]) {
    let mut rig = Rig::new(engine);
    let (from, to) = (rig.lab.lan().tap(), rig.lab.wan().tap());
    let packet = rig.lab.lan().udp_to(4001, rig.lab.wan().at(5001));
    let stop = Stop::default();
    // The first attachment may cost packets.
    let begin = rig.start_with(variables);
    assert_eq!(begin.start, None);
    let mut held = KernelObjects::held_by(begin.pid);
    let full_before = backlog::dropped();
    let (sent, seen) = thread::scope(|scope| {
        let receiver = scope.spawn(|| arrivals(&to, &stop));
        let sender = scope.spawn(|| stream(&from, &packet, &stop));
        let end = stop.on_drop();
        wait_until("the stream is fast", || rig.status().packets.fast > 50);
        for signal in signals {
            let before = rig.status();
            let links = rig.manager.links();
            rig.manager.end_daemon(*signal);
            let status = rig.start_with(variables);
            assert!(is_taken_over(&status), "{signal}: {:?}: {}", status.start, rig.manager.log());
            assert_ne!(status.pid, before.pid);
            wait_until("the stream is fast", || rig.status().packets.fast > status.packets.fast + 50);
            let after = rig.status();
            let proved = after.proved - before.proved;
            eprintln!("{engine}, {signal}: {:?}, {proved} proofs", status.start);
            let same = after.learned == before.learned;
            assert!(same, "the flow is not in the table any more: {after:#?}\n{}", rig.manager.log());
            assert!(proved > 0, "the flow was proved once more");
            assert_eq!(after.flows.active, 1);
            assert!(after.packets.fast > before.packets.fast, "the counters go on");
            assert_eq!(rig.manager.links(), links, "something was attached again");
            held.extend(KernelObjects::held_by(after.pid));
        }
        drop(end);
        (sender.join().unwrap(), receiver.join().unwrap())
    });
    assert!(seen.values().all(|times| *times == 1), "packets came twice: {seen:?}");
    let elsewhere = (backlog::dropped() - full_before) as usize;
    let lost = sent as usize - seen.len();
    eprintln!(
        "{} restarts with {engine}: {sent} packets, {lost} lost, {elsewhere} in shared queues",
        signals.len()
    );
    assert!(lost <= elsewhere, "{lost} packets were lost");
    let names = rig.manager.names();
    let mut once = names.clone();
    once.dedup();
    assert_eq!(names, once, "descriptors of daemons before are left");
    rig.stop(held);
}

#[test]
fn restarts_and_crashes_lose_no_packet_and_no_flow() {
    if require_root() {
        for engine in ENGINES {
            restart_during_a_stream(engine, &[Signal::SIGKILL, Signal::SIGTERM, Signal::SIGTERM], &[]);
        }
    }
}

#[test]
fn clsact_filters_are_taken_over_after_a_crash_and_removed_by_a_stop() {
    if !require_root() {
        return;
    }
    let variables = [("SHUNT_PRETEND_MISSING", "tcx")];
    restart_during_a_stream(Engine::Tc, &[Signal::SIGKILL], &variables);
    let mut rig = Rig::new(Engine::Tc);
    let status = rig.start_with(&variables);
    assert!(status.ports.iter().all(|port| port.attach == Attach::Clsact), "{status:#?}");
    rig.manager.end_daemon(Signal::SIGTERM);
    assert_eq!(rig.manager.names(), Vec::<String>::new());
    assert_eq!(Settings::read(rig.lab.router()), rig.before);
}

#[test]
fn a_rule_that_comes_while_no_daemon_runs_is_met() {
    if !require_root() {
        return;
    }
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut rig = Rig::new(Engine::Tc);
        let held = KernelObjects::held_by(rig.start().pid);
        rig.teach();
        rig.manager.end_daemon(signal);
        rig.lab.router().run("nft insert rule inet filter forward udp dport 5000 drop");
        // The filters of the stored sockets have ended the use of all actions.
        assert!(nothing_leaves(&rig.stage.send(&rig.packet)), "{signal}");
        assert!(is_taken_over(&rig.start()), "{}", rig.manager.log());
        assert!(nothing_leaves(&rig.stage.send(&rig.packet)), "{signal}");
        let accept = "nft add rule inet filter forward ct state new,established accept";
        rig.lab.router().run(&format!("nft flush chain inet filter forward; {accept}"));
        rig.teach();
        rig.stop(held);
    }
}

#[test]
fn shunt_down_detaches_and_empties_the_store() {
    if !require_root() {
        return;
    }
    let mut rig = Rig::new(Engine::Xdp);
    let held = KernelObjects::held_by(rig.start().pid);
    rig.teach();
    rig.shunt.done("down");
    rig.manager.hear_all();
    assert_eq!(rig.manager.names(), Vec::<String>::new(), "{}", rig.manager.log());
    assert_eq!(held.not_freed(), None);
    assert_eq!(Settings::read(rig.lab.router()), rig.before);
}

#[test]
fn a_daemon_that_has_taken_over_fills_the_store_too() {
    if !require_root() {
        return;
    }
    let mut rig = Rig::new(Engine::Tc);
    let mut held = KernelObjects::held_by(rig.start().pid);
    rig.teach();
    let former = rig.manager.main_pid();
    let names = rig.manager.names();
    rig.shunt.done("restart");
    wait_until("the next daemon's record is stored", || {
        rig.manager.main_pid() != former && rig.manager.names() != names
    });
    rig.manager.wait_for_links(&rig.shunt);
    rig.teach();
    let next = Pid::from_raw(rig.manager.main_pid());
    held.extend(KernelObjects::held_by(rig.status().pid));
    kill(next, Signal::SIGKILL).unwrap();
    wait_until("the next daemon is gone", || kill(next, None::<Signal>).is_err());
    let status = rig.start();
    assert!(is_taken_over(&status), "{}", rig.manager.log());
    rig.teach();
    rig.stop(held);
}

/// A daemon that has taught a flow and was killed.
#[track_caller]
fn killed() -> (Rig, KernelObjects) {
    let mut rig = Rig::new(Engine::Tc);
    let held = KernelObjects::held_by(rig.start().pid);
    rig.teach();
    rig.manager.end_daemon(Signal::SIGKILL);
    (rig, held)
}

#[test]
fn a_damaged_store_begins_without_flows() {
    if !require_root() {
        return;
    }
    for (prefix, why) in
        [("shunt-record-", "missing or damaged"), ("shunt-map-", "map"), ("shunt-link-", "links")]
    {
        let (mut rig, held) = killed();
        rig.manager.lose(prefix);
        rig.start();
        rig.began_clean(why, held);
    }
    let (mut rig, held) = killed();
    rig.manager.record_file().unwrap().write_all_at(b"?", 40).unwrap();
    rig.start();
    rig.began_clean("missing or damaged", held);
}

#[test]
fn a_daemon_that_dies_just_after_it_has_taken_over_is_followed_by_a_clean_start() {
    if !require_root() {
        return;
    }
    let (mut rig, mut held) = killed();
    assert!(is_taken_over(&rig.start()), "{}", rig.manager.log());
    held.extend(KernelObjects::held_by(rig.status().pid));
    rig.manager.end_daemon(Signal::SIGKILL);
    rig.start();
    rig.began_clean("died just after", held);
}

#[test]
fn another_layout_or_configuration_begins_without_flows() {
    if !require_root() {
        return;
    }
    let (mut rig, held) = killed();
    rig.start_with(&[("SHUNT_PRETEND_MISSING", "same-layout")]);
    rig.began_clean("another layout", held);
    let (mut rig, held) = killed();
    rig.shunt.file("shunt.toml", &format!("{LASTING_FLOWS}udp_packets = 3\n"));
    rig.start();
    rig.began_clean("udp_packets", held);
}
