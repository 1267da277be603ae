//! Kernels without TCX, as far as this one can pretend to be one.

use crate::{
    ENGINES, OPEN,
    stage::{nothing, start},
    undone::Held,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use shunt_api::{Attach, Engine, FailureCode, Status};
use shunt_testkit::{Shunt, Shuntd, ShuntdBuilder, Topology, require_root, wait_until};

fn without_tcx(lab: &Topology) -> ShuntdBuilder<'_> {
    Shuntd::on(lab.router()).variable("SHUNT_PRETEND_MISSING", "tcx")
}

fn qdiscs(lab: &Topology) -> String {
    lab.router().run(
        "tc qdisc show; for d in r0 r1; do for h in ingress egress; do tc filter show dev $d $h; done; done",
    )
}

#[test]
fn flows_are_fast_by_clsact_filters_and_nothing_of_them_stays() {
    if !require_root() {
        return;
    }
    let (lab, stage, packet) = start(OPEN);
    let before = qdiscs(&lab);
    for engine in ENGINES {
        let shuntd = without_tcx(&lab).engine(&engine.to_string()).start();
        let status = shuntd.status();
        assert!(status.ports.iter().all(|p| p.attach == Attach::Clsact && p.engine == engine), "{status:#?}");
        stage.teach(&shuntd, &packet);
        lab.router().run("nft insert rule inet filter forward udp dport 5000 drop");
        stage.react("a rule that drops", &packet, nothing);
        lab.router().run("nft flush chain inet filter forward; nft add rule inet filter forward ct state new,established accept");
        stage.teach(&shuntd, &packet);
        let held = Held::by(shuntd.pid());
        shuntd.stop();
        assert_eq!(held.left(), None);
        assert_eq!(qdiscs(&lab), before);
    }
}

/// The kernel would put a filter for the egress of `ingress` on ingress, in place of the other one.
#[test]
fn a_port_where_the_place_of_clsact_is_taken_is_refused() {
    if !require_root() {
        return;
    }
    let (lab, ..) = start(OPEN);
    lab.router().run("tc qdisc add dev r1 ingress");
    let before = qdiscs(&lab);
    let said = Shunt::on(lab.router()).variable("SHUNT_PRETEND_MISSING", "tcx").run("up --engine tc");
    assert_eq!(said.code, Some(FailureCode::KernelTooOld.exit_code().into()), "{said:?}");
    assert!(["r1", "`ingress`", "clsact"].iter().all(|name| said.err.contains(name)), "{said:?}");
    assert_eq!(qdiscs(&lab), before);
}

/// Its own filters on egress are none that XDP would bypass.
#[test]
fn auto_takes_xdp_with_clsact_too() {
    if !require_root() {
        return;
    }
    let (lab, stage, packet) = start(OPEN);
    let shuntd = without_tcx(&lab).engine("auto").start();
    stage.teach(&shuntd, &packet);
    // Whatever it is told late: it has looked at everything again.
    lab.router().run("tc qdisc add dev r0 root handle 1: htb");
    shuntd.wait_until("htb is seen", |s| s.ports[0].engine == Engine::Tc);
    let status = shuntd.status();
    assert_eq!(status.ports[1].engine, Engine::Xdp, "{status:#?}");
    assert!(!status.epoch_moves.contains_key("filter"), "{status:#?}");
    shuntd.stop();
}

#[test]
fn filters_of_a_killed_daemon_go_by_a_cleanup() {
    if !require_root() {
        return;
    }
    let (lab, stage, packet) = start(OPEN);
    let before = qdiscs(&lab);
    let mut shuntd = without_tcx(&lab).engine("xdp").start();
    stage.teach(&shuntd, &packet);
    let held = Held::by(shuntd.pid());
    shuntd.kill();
    // Filters stay, but their heartbeat does not: this is all slow, and goes on.
    for _ in 0..20 {
        stage.pass(&packet);
    }
    let said = shuntd.cleanup();
    assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
    assert_eq!(held.left(), None);
    assert_eq!(qdiscs(&lab), before);
}

#[test]
fn filters_of_a_killed_daemon_go_by_its_next_start() {
    if !require_root() {
        return;
    }
    let (lab, stage, packet) = start(OPEN);
    let before = qdiscs(&lab);
    let shunt = Shunt::on(lab.router()).variable("SHUNT_PRETEND_MISSING", "tcx");
    let said = shunt.done("up --json");
    let status: Status = serde_json::from_str(&said).unwrap();
    let held = Held::by(status.pid);
    kill(Pid::from_raw(i32::try_from(status.pid).unwrap()), Signal::SIGKILL).unwrap();
    wait_until("it is dead", || shunt.run("status").code == Some(21));
    // On one of the two ports only.
    shunt.done("up --port r0");
    assert!(!lab.router().run("tc qdisc show dev r1").contains("clsact"));
    assert_eq!(held.left(), None);
    stage.pass(&packet);
    shunt.done("down");
    assert_eq!(qdiscs(&lab), before);
}

#[test]
fn a_clsact_qdisc_of_somebody_else_stays() {
    if !require_root() {
        return;
    }
    let (lab, stage, packet) = start(OPEN);
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
