//! Several instances of Shunt side by side.

use shunt_api::{Engine, FailureCode};
use shunt_testkit::{
    Segment, Shuntd, ShuntdBuilder, Stage, Topology, offer_xdp_frames, require_root, rulesets, silent,
    silent_router,
};

/// lan 192.168.1.2 at r0 and wan 198.18.0.2 at r1; lan4 192.168.4.2 at r3 and wan2 198.18.1.2 at r2.
fn two_pairs() -> Topology {
    let lan4 = Segment { label: "lan4", port: "r3", subnet: 4, v4: [192, 168, 4], ..Segment::LAN };
    silent(Topology::new(&[Segment::LAN, Segment::WAN, Segment::SECOND_WAN, lan4]), rulesets::OPEN)
}

fn on<'a>(lab: &'a Topology, ports: [&str; 2], means: &str) -> ShuntdBuilder<'a> {
    let builder = ports.into_iter().fold(Shuntd::on(lab.router()), ShuntdBuilder::port);
    if means == "clsact" { builder.variable("SHUNT_PRETEND_MISSING", "tcx") } else { builder }
}

#[test]
fn instances_in_two_namespaces_are_independent() {
    if !require_root() {
        return;
    }
    let labs = [(); 2].map(|()| silent_router(rulesets::HOME_GATEWAY));
    let daemons = [0, 1].map(|n: usize| Shuntd::on(labs[n].router()).engine("xdp").start());
    for (lab, shuntd) in labs.iter().zip(&daemons) {
        let stage = Stage::new(lab.lan(), &[lab.wan()]);
        stage.teach(shuntd, &lab.lan().udp_to(4000, lab.wan().at(5000)).payload("from the lan"));
    }
    let [first, second] = daemons;
    let epoch = second.status().epoch;
    labs[0].router().run("nft flush ruleset");
    first.wait_until("the first instance knows the change", |s| s.epoch_moves.contains_key("ruleset"));
    assert_eq!(second.status().epoch, epoch);
    first.stop();
    assert_eq!(second.status().flows.active, 1);
    second.stop();
}

#[test]
fn instances_on_different_ports_of_one_router_are_independent() {
    if !require_root() {
        return;
    }
    for means in ["tcx", "clsact"] {
        let lab = two_pairs();
        let near = on(&lab, ["r0", "r1"], means).engine("tc").start();
        let mut far = on(&lab, ["r2", "r3"], means).engine("xdp").start();
        let (stage, packet) = Stage::from_lan(&lab);
        let (lan4, wan2) = (lab.host("lan4"), lab.host("wan2"));
        let far_stage = Stage::new(lan4, &[wan2]);
        let far_packet = lan4.udp_to(4000, wan2.at(5000)).payload("from the other lan");
        stage.teach(&near, &packet);
        far_stage.teach(&far, &far_packet);
        assert_eq!((near.flows().len(), far.flows().len()), (1, 1), "each instance has its own flow");

        // Only Linux forwards from a port of one instance to a port of the other.
        let across = lab.lan().udp_to(4001, wan2.at(5000)).payload("across");
        let across_stage = Stage::new(lab.lan(), &[wan2]);
        let fast = near.status().packets.fast;
        for _ in 0..20 {
            across_stage.pass(&across);
        }
        assert_eq!(near.status().packets.fast, fast);

        // Flush, kill and clean up one instance; the other must not notice.
        let proved = near.status().learned;
        assert!(far.flush() > 0);
        far.kill();
        assert!(far.cleanup().status.success());
        assert_eq!(far.left_behind(), None);
        let fast = near.status().packets.fast;
        for _ in 0..20 {
            stage.pass(&packet);
        }
        let status = near.status();
        assert!(status.packets.fast > fast + 10 && status.learned == proved, "{means}: {status:#?}");
        near.stop();
    }
}

#[test]
fn a_port_belongs_to_one_instance() {
    if !require_root() {
        return;
    }
    for means in ["tcx", "clsact"] {
        let lab = two_pairs();
        let first = on(&lab, ["r0", "r1"], means).start();
        let (status, output) = on(&lab, ["r1", "r2"], means).try_start().unwrap_err();
        assert_eq!(status.code(), Some(FailureCode::PortTaken.exit_code().into()), "{means}: {output}");
        assert!(output.starts_with("shuntd: port r1: another instance of Shunt is attached"), "{output}");
        assert_eq!(output.lines().count(), 1, "{output}");
        let (stage, packet) = Stage::from_lan(&lab);
        offer_xdp_frames(&lab, &first, "r1");
        stage.teach(&first, &packet);
        assert_eq!(first.status().ports.len(), 2);
        assert!(first.status().ports.iter().all(|port| port.engine == Engine::Xdp));
        first.stop();
    }
}
