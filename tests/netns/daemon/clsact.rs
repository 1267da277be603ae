//! Attaching by clsact filters, as on kernels without TCX; SHUNT_PRETEND_MISSING makes this kernel one.

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use shunt_api::{Attach, Engine, FailureCode, Status};
use shunt_testkit::{
    ENGINES, KernelObjects, Shunt, Shuntd, ShuntdBuilder, Stage, Topology, offer_xdp_frames, require_root,
    rulesets, stage::nothing_leaves, wait_until,
};

fn without_tcx(lab: &Topology) -> ShuntdBuilder<'_> {
    Shuntd::on(lab.router()).variable("SHUNT_PRETEND_MISSING", "tcx")
}

fn qdiscs(lab: &Topology) -> String {
    lab.router().run(
        "tc qdisc show; for d in r0 r1; do for h in ingress egress; do tc filter show dev $d $h; done; done",
    )
}

#[test]
fn flows_are_fast_with_clsact_filters_which_are_removed_at_the_end() {
    if !require_root() {
        return;
    }
    let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
    let before = qdiscs(&lab);
    for engine in ENGINES {
        let shuntd = without_tcx(&lab).engine(&engine.to_string()).start();
        let status = shuntd.status();
        assert!(status.ports.iter().all(|p| p.attach == Attach::Clsact && p.engine == engine), "{status:#?}");
        stage.teach(&shuntd, &packet);
        lab.router().run("nft insert rule inet filter forward udp dport 5000 drop");
        stage.settle("a rule that drops", &packet, nothing_leaves);
        lab.router().run("nft flush chain inet filter forward; nft add rule inet filter forward ct state new,established accept");
        stage.teach(&shuntd, &packet);
        let held = KernelObjects::held_by(shuntd.pid());
        shuntd.stop();
        assert_eq!(held.not_freed(), None);
        assert_eq!(qdiscs(&lab), before);
    }
}

/// An `ingress` qdisc has no egress hook: the kernel would put an egress filter on ingress.
#[test]
fn a_port_with_an_ingress_qdisc_is_refused() {
    if !require_root() {
        return;
    }
    let (lab, ..) = Stage::with_router(rulesets::OPEN);
    lab.router().run("tc qdisc add dev r1 ingress");
    let before = qdiscs(&lab);
    let output = Shunt::on(lab.router()).variable("SHUNT_PRETEND_MISSING", "tcx").run("up --engine tc");
    assert_eq!(output.code, Some(FailureCode::KernelTooOld.exit_code().into()), "{output:?}");
    assert!(["r1", "`ingress`", "clsact"].iter().all(|name| output.err.contains(name)), "{output:?}");
    assert_eq!(qdiscs(&lab), before);
}

/// XDP does not bypass Shunt's own egress filters.
#[test]
fn auto_takes_xdp_with_clsact_too() {
    if !require_root() {
        return;
    }
    let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
    let shuntd = without_tcx(&lab).engine("auto").start();
    offer_xdp_frames(&lab, &shuntd, "r1");
    stage.teach(&shuntd, &packet);
    // The change of r0's qdisc makes the daemon look at all qdiscs and filters again.
    lab.router().run("tc qdisc add dev r0 root handle 1: htb");
    shuntd.wait_until("the daemon knows htb", |s| s.ports[0].engine == Engine::Tc);
    let status = shuntd.status();
    assert_eq!(status.ports[1].engine, Engine::Xdp, "{status:#?}");
    assert!(!status.epoch_moves.contains_key("filter"), "{status:#?}");
    shuntd.stop();
}

#[test]
fn a_cleanup_removes_the_filters_of_a_killed_daemon() {
    if !require_root() {
        return;
    }
    let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
    let before = qdiscs(&lab);
    let mut shuntd = without_tcx(&lab).engine("xdp").start();
    stage.teach(&shuntd, &packet);
    let held = KernelObjects::held_by(shuntd.pid());
    shuntd.kill();
    // The filters stay attached, but without a heartbeat all packets are slow.
    for _ in 0..20 {
        stage.pass(&packet);
    }
    let output = shuntd.cleanup();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(held.not_freed(), None);
    assert_eq!(qdiscs(&lab), before);
}

/// The filters of both instances have the same handle.
#[test]
fn an_instance_leaves_the_filters_of_one_with_the_same_hash_alone() {
    if !require_root() {
        return;
    }
    let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
    let before = qdiscs(&lab);
    let named = |name| Shunt::on(lab.router()).named(name).variable("SHUNT_PRETEND_MISSING", "tcx");
    let (one, other) = (named("iflbvs"), named("ixacxa"));
    one.done("up");
    let attached = qdiscs(&lab);
    let taken = other.run("up");
    assert_eq!(taken.code, Some(FailureCode::PortTaken.exit_code().into()), "{taken:?}");
    other.run("down");
    assert_eq!(qdiscs(&lab), attached);
    stage.pass(&packet);
    one.done("down");
    assert_eq!(qdiscs(&lab), before);
}

#[test]
fn the_next_start_removes_the_filters_of_a_killed_daemon() {
    if !require_root() {
        return;
    }
    let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
    let before = qdiscs(&lab);
    let shunt = Shunt::on(lab.router()).variable("SHUNT_PRETEND_MISSING", "tcx");
    let output = shunt.done("up --json");
    let status: Status = serde_json::from_str(&output).unwrap();
    let held = KernelObjects::held_by(status.pid);
    kill(Pid::from_raw(i32::try_from(status.pid).unwrap()), Signal::SIGKILL).unwrap();
    wait_until("the daemon is dead", || shunt.run("status").code == Some(21));
    // Start again on one of the two ports only.
    shunt.done("up --port r0");
    assert!(!lab.router().run("tc qdisc show dev r1").contains("clsact"));
    assert_eq!(held.not_freed(), None);
    stage.pass(&packet);
    shunt.done("down");
    assert_eq!(qdiscs(&lab), before);
}

#[test]
fn a_clsact_qdisc_that_existed_before_stays() {
    if !require_root() {
        return;
    }
    let (lab, stage, packet) = Stage::with_router(rulesets::OPEN);
    lab.router().run("tc qdisc add dev r1 clsact");
    lab.router()
        .run("tc filter add dev r1 egress protocol ip pref 7 u32 match ip dport 9 0xffff classid 1:7");
    lab.router().run("tc qdisc add dev r0 clsact");
    let before = qdiscs(&lab);
    let shuntd = without_tcx(&lab).engine("tc").start();
    stage.teach(&shuntd, &packet);
    shuntd.stop();
    assert_eq!(qdiscs(&lab), before);
}
