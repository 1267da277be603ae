//! tc filters of other programs on ingress: packets that arrive on their port must pass them, so they stay slow.

use shunt_api::{Engine, FilterHook, PortFilter, Status};
use shunt_testkit::{
    ENGINES, Shuntd, Stage, Topology, require_root, rulesets, silent, silent_router, stage::leaves_by,
    stage::nothing_leaves,
};
use shunt_wire::Packet;

/// A router, and a flow from the LAN and one from the WAN.
pub(crate) fn start() -> (Topology, [(Stage, Packet); 2]) {
    let lab = silent_router(rulesets::OPEN);
    let there = lab.lan().udp_to(4000, lab.wan().at(5000)).payload("from the lan");
    let back = lab.wan().udp_to(6000, lab.lan().at(7000)).payload("from the wan");
    let ways = [(Stage::new(lab.lan(), &[lab.wan()]), there), (Stage::new(lab.wan(), &[lab.lan()]), back)];
    (lab, ways)
}

/// Starts a daemon and learns both flows, with TCX or without.
#[track_caller]
pub(crate) fn both_fast(lab: &Topology, tcx: bool, engine: Engine, ways: [(&Stage, &Packet); 2]) -> Shuntd {
    let without = if tcx { "" } else { "tcx" };
    let daemon = Shuntd::on(lab.router()).variable("SHUNT_PRETEND_MISSING", without);
    let shuntd = daemon.engine(&engine.to_string()).start();
    assert_eq!(filters(&shuntd.status()), [], "Shunt's own filters are not listed");
    for (stage, packet) in ways {
        stage.teach(&shuntd, packet);
    }
    shuntd
}

pub(crate) fn filters(status: &Status) -> Vec<(&str, &PortFilter)> {
    status.ports.iter().flat_map(|p| p.filters.iter().map(|f| (p.name.as_str(), f))).collect()
}

fn refused(status: &Status) -> u64 {
    status.reasons.get("ingress-filter").copied().unwrap_or(0)
}

/// Any filter makes packets that arrive on its port slow, whatever it matches. Packets that leave through the port stay
/// fast.
#[track_caller]
fn stays_slow_behind(add: &str, kind: &str, take_away: &str) {
    if !require_root() {
        return;
    }
    for tcx in [true, false] {
        for engine in ENGINES {
            let (lab, [(there, from_lan), (back, from_wan)]) = start();
            lab.router().run("tc qdisc add dev r0 clsact");
            let shuntd = both_fast(&lab, tcx, engine, [(&there, &from_lan), (&back, &from_wan)]);

            lab.router().run(add);
            let status = shuntd.wait_until("the daemon knows the filter", |s| !filters(s).is_empty());
            let (device, kind) = ("r0".to_owned(), kind.to_owned());
            let filter = PortFilter { device, hook: FilterHook::Ingress, kind: kind.clone(), program: None };
            assert_eq!(filters(&status), [("r0", &filter)]);
            there.never_fast(&shuntd, &from_lan, leaves_by(0));
            assert!(refused(&shuntd.status()) > 0, "{:#?}", shuntd.status());
            back.teach(&shuntd, &from_wan);
            let text = String::from_utf8(shuntd.shunt(&["status"]).stdout).unwrap();
            let line =
                format!("learning off for packets arriving through r0: tc {kind} filter on r0 ingress\n");
            assert!(text.contains(&line), "{text}");

            lab.router().run(take_away);
            shuntd.wait_until("the filter is gone", |s| filters(s).is_empty());
            there.teach(&shuntd, &from_lan);
            shuntd.stop();
        }
    }
}

#[test]
fn packets_that_enter_through_a_u32_filter_stay_slow_until_it_is_deleted() {
    stays_slow_behind(
        "tc filter add dev r0 ingress pref 9 protocol ip u32 match ip dport 9 0xffff \
         action mirred egress redirect dev r1",
        "u32",
        "tc filter del dev r0 ingress pref 9",
    );
}

/// The filter takes packets of a flow that was fast before.
#[test]
fn a_filter_that_drops_a_fast_flow_stops_it() {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let (lab, [(there, from_lan), (back, from_wan)]) = start();
        lab.router().run("tc qdisc add dev r0 clsact; ip link add sink type veth peer name drain");
        let shuntd = Shuntd::on(lab.router()).engine(&engine.to_string()).start();
        there.teach(&shuntd, &from_lan);
        back.teach(&shuntd, &from_wan);
        lab.router().run(
            "ip link set sink up; ip link set drain up; tc filter add dev r0 ingress protocol ip u32 match ip dport 5000 0xffff \
             action mirred egress redirect dev sink",
        );
        there.settle("a filter that takes packets away", &from_lan, nothing_leaves);
        there.never_fast(&shuntd, &from_lan, nothing_leaves);
        back.teach(&shuntd, &from_wan);
        shuntd.stop();
    }
}

/// Egress filters belong to the qdisc, which engine tc does not bypass.
#[test]
fn filters_on_egress_do_not_stop_learning() {
    if !require_root() {
        return;
    }
    let (lab, [(there, from_lan), (back, from_wan)]) = start();
    lab.router().run("tc qdisc add dev r1 clsact; tc filter add dev r1 egress u32 match u32 0 0 classid 1:1");
    let shuntd = Shuntd::on(lab.router()).start();
    assert_eq!(filters(&shuntd.status()), []);
    there.teach(&shuntd, &from_lan);
    back.teach(&shuntd, &from_wan);
    shuntd.stop();
}

/// A fast packet leaves through the port itself, and would bypass qdiscs and filters of a device on top of the port.
#[track_caller]
fn stays_slow_below(add: &str, named: &str, take_away: &str) {
    if !require_root() {
        return;
    }
    for engine in ENGINES {
        let lab = silent(Topology::bridged_lan(), rulesets::OPEN);
        let shuntd = Shuntd::on(lab.router()).engine(&engine.to_string()).start();
        let (lan, wan) = (lab.lan(), lab.wan());
        let (there, back) = (Stage::new(lan, &[wan]), Stage::new(wan, &[lan]));
        let from_lan = lan.udp_to(4000, wan.at(5000)).payload("from the lan");
        let from_wan = wan.udp_to(6000, lan.at(7000)).payload("from the wan");
        there.teach(&shuntd, &from_lan);
        back.teach(&shuntd, &from_wan);

        lab.router().run(add);
        shuntd.wait_until("the daemon knows it", |s| filters(s).iter().any(|(port, _)| *port == "r0"));
        back.settle(named, &from_wan, leaves_by(0));
        back.never_fast(&shuntd, &from_wan, leaves_by(0));
        let status = shuntd.status();
        assert!(status.refusals.get("egress-filter").copied().unwrap_or(0) > 0, "{status:#?}");
        there.teach(&shuntd, &from_lan);
        let text = String::from_utf8(shuntd.shunt(&["status"]).stdout).unwrap();
        assert!(text.contains(&format!("learning off for packets leaving through r0: {named}\n")), "{text}");

        lab.router().run(take_away);
        shuntd.wait_until("the qdisc or filter is gone", |s| filters(s).is_empty());
        back.teach(&shuntd, &from_wan);
        shuntd.stop();
    }
}

#[test]
fn flows_out_of_a_bridge_with_a_qdisc_stay_slow_until_it_is_deleted() {
    stays_slow_below(
        "tc qdisc add dev br0 root tbf rate 1gbit burst 1mb limit 1mb",
        "qdisc tbf of br0",
        "tc qdisc del dev br0 root",
    );
}

#[test]
fn flows_out_of_a_bridge_with_egress_filters_stay_slow_until_they_are_deleted() {
    stays_slow_below(
        "tc qdisc add dev br0 clsact; tc filter add dev br0 egress protocol all bpf bytecode '1,6 0 0 0'",
        "tc bpf filter on br0 egress",
        "tc qdisc del dev br0 clsact",
    );
}
