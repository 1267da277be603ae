//! TCX programs of other owners see every packet of their port and direction, as without Shunt.

use crate::{filters::both_fast, filters::filters, filters::start};
use shunt_api::{FilterHook, PortFilter};
use shunt_bpf::attach::Hook;
use shunt_testkit::{ENGINES, Shuntd, Stage, Topology, require_root, rulesets, silent, stage::leaves_by};
use shunt_traffic::bystander::{Bystander, NAME};
use shunt_wire::Packet;

/// Number of packets that [`Stage::never_fast`] sends.
const SENT: u64 = 40;

#[track_caller]
pub(crate) fn attach(lab: &Topology, port: &str, hook: Hook) -> Bystander {
    let ifindex = lab.router().ifindex(port);
    lab.router().within(|| Bystander::attach(ifindex, hook)).unwrap()
}

fn known(hook: FilterHook) -> PortFilter {
    let [device, kind, program] = ["r0", "tcx", NAME].map(str::to_owned);
    PortFilter { device, hook, kind, program: Some(program) }
}

/// Asserts that the flow is slow and its packets pass the program. At ingress, the stage's echo requests pass the
/// program, too.
#[track_caller]
fn sees_all(program: &Bystander, hook: Hook, stage: &Stage, shuntd: &Shuntd, packet: &Packet) {
    let before = program.seen().unwrap();
    stage.never_fast(shuntd, packet, leaves_by(0));
    let seen = program.seen().unwrap() - before;
    let expected = if hook == Hook::Ingress { 2 * SENT } else { SENT };
    assert!(seen >= expected, "the program saw {seen} of {expected} packets");
}

/// Packets that pass a program on r0 are slow, those in the other direction fast. After it is detached, all are fast.
#[track_caller]
fn stays_slow_beside(hook: Hook) {
    if !require_root() {
        return;
    }
    for (tcx, engine) in [(true, ENGINES[0]), (true, ENGINES[1]), (false, ENGINES[0])] {
        let (lab, [(there, from_lan), (back, from_wan)]) = start();
        let shuntd = both_fast(&lab, tcx, engine, [(&there, &from_lan), (&back, &from_wan)]);

        let program = attach(&lab, "r0", hook);
        let status = shuntd.wait_until("the daemon knows the program", |s| !filters(s).is_empty());
        let (filter, way, name) = match hook {
            Hook::Egress => (known(FilterHook::Egress), "leaving through", "egress-filter"),
            _ => (known(FilterHook::Ingress), "arriving through", "ingress-filter"),
        };
        assert_eq!(filters(&status), [("r0", &filter)]);
        let [held, free] = match hook {
            Hook::Egress => [(&back, &from_wan), (&there, &from_lan)],
            _ => [(&there, &from_lan), (&back, &from_wan)],
        };
        sees_all(&program, hook, held.0, &shuntd, held.1);
        free.0.teach(&shuntd, free.1);
        let now = shuntd.status();
        assert!(now.reasons.contains_key(name) || now.refusals.contains_key(name), "{now:#?}");
        let output = |words: &[&str]| String::from_utf8(shuntd.shunt(words).stdout).unwrap();
        let text = output(&["status"]);
        assert!(text.contains(&format!("learning off for packets {way} r0: {filter}\n")), "{text}");
        let dport = held.1.ports().unwrap().1.to_string();
        let text = output(&["why", "--dport", &dport]);
        assert!(text.contains(name) && text.contains(&filter.to_string()), "{text}");

        drop(program);
        shuntd.wait_until("the program is gone", |s| filters(s).is_empty());
        held.0.teach(&shuntd, held.1);
        shuntd.stop();
    }
}

#[test]
fn packets_that_enter_through_a_tcx_program_stay_slow_until_it_is_detached() {
    stays_slow_beside(Hook::Ingress);
}

#[test]
fn packets_that_leave_through_a_tcx_program_stay_slow_until_it_is_detached() {
    stays_slow_beside(Hook::Egress);
}

/// A program from before the start runs before Shunt's own.
#[test]
fn a_program_from_before_the_start_sees_every_packet() {
    if !require_root() {
        return;
    }
    let (lab, [(there, from_lan), (back, from_wan)]) = start();
    let programs = [Hook::Ingress, Hook::Egress].map(|hook| attach(&lab, "r0", hook));
    let shuntd = Shuntd::on(lab.router()).start();
    let both = [known(FilterHook::Ingress), known(FilterHook::Egress)];
    shuntd.wait_until("the daemon knows both", |s| filters(s) == [("r0", &both[0]), ("r0", &both[1])]);
    sees_all(&programs[0], Hook::Ingress, &there, &shuntd, &from_lan);
    sees_all(&programs[1], Hook::Egress, &back, &shuntd, &from_wan);
    shuntd.stop();
}

/// Packets that are routed to and from a bridge pass the programs on the bridge.
#[test]
fn a_tcx_program_on_a_bridge_keeps_flows_of_its_ports_slow() {
    if !require_root() {
        return;
    }
    let lab = silent(Topology::bridged_lan(), rulesets::OPEN);
    let [lan, wan] = [lab.lan(), lab.wan()];
    let (stage, packet) = (Stage::new(lan, &[wan]), lan.udp_to(4000, wan.at(5000)).payload("from the lan"));
    let shuntd = Shuntd::on(lab.router()).start();
    stage.teach(&shuntd, &packet);
    let program = attach(&lab, "br0", Hook::Ingress);
    shuntd.wait_until("the daemon knows it", |s| {
        filters(s).iter().any(|(port, f)| *port == "r0" && f.device == "br0")
    });
    sees_all(&program, Hook::Ingress, &stage, &shuntd, &packet);
    shuntd.stop();
}
