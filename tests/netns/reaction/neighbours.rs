//! How soon changes of neighbour entries take effect.

use shunt_testkit::{
    ENGINES, Stage, daemon, epoch_moves, require_root, rulesets, silent_router, stage::leaves_as,
};
use shunt_wire::Mac;

#[test]
fn a_new_mac_of_a_neighbour_takes_effect_at_once() {
    if !require_root() {
        return;
    }
    let other = Mac([2, 0, 0, 0, 2, 0x99]);
    for engine in ENGINES {
        let lab = silent_router(rulesets::HOME_GATEWAY);
        let stage = Stage::new(lab.lan(), &[lab.wan()]);
        let shuntd = daemon(&lab, engine);
        for to in [lab.wan().at(5000), lab.wan().at6(5000)] {
            let packet = lab.lan().udp_to(4000, to).payload("from the lan");
            stage.teach(&shuntd, &packet);
            let before = epoch_moves(&shuntd.status(), "neighbour");
            let ip = to.ip();
            lab.router().run(&format!("ip neigh replace {ip} lladdr {other} dev r1 nud permanent"));
            let to_other = || leaves_as(0, |packet| packet.ethernet.destination == other);
            stage.react("another MAC of a neighbour", &packet, to_other());
            assert!(epoch_moves(&shuntd.status(), "neighbour") > before, "{:#?}", shuntd.status());
            stage.teach(&shuntd, &packet);
            stage.react("nothing", &packet, to_other());
        }
        shuntd.stop();
    }
}

/// The NUD state of a neighbour changes all the time, which must not move the epoch.
#[test]
fn a_new_nud_state_of_a_neighbour_leaves_flows_fast() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::HOME_GATEWAY);
    let stage = Stage::new(lab.lan(), &[lab.wan()]);
    let shuntd = daemon(&lab, ENGINES[0]);
    let packet = lab.lan().udp_to(4000, lab.wan().at(5000)).payload("from the lan");
    stage.teach(&shuntd, &packet);
    let before = shuntd.status().epoch;
    for state in ["reachable", "stale", "permanent"] {
        let (ip, mac) = (lab.wan().v4, lab.wan().mac);
        lab.router().run(&format!("ip neigh replace {ip} lladdr {mac} dev r1 nud {state}"));
        stage.pass(&packet);
    }
    assert_eq!(shuntd.status().epoch, before, "{:#?}", shuntd.status());
}
