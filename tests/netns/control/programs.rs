//! TCX programs of somebody else see every packet of their port and way, as without Shunt.

use crate::{
    ENGINES, Stage,
    filters::{both_fast, filters, start},
    stage::by,
};
use shunt_api::{FilterHook, PortFilter};
use shunt_bpf::{
    attach::Hook,
    bystander::{Bystander, NAME},
};
use shunt_testkit::{Shuntd, Topology, require_root};
use shunt_wire::Packet;

/// Packets that [`Stage::never_fast`] sends.
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

/// All of the flow is slow and goes by the program. On the way in the stage's echo requests, one each, go by it as well.
#[track_caller]
fn sees_all(program: &Bystander, hook: Hook, stage: &Stage, shuntd: &Shuntd, packet: &Packet) {
    let before = program.seen().unwrap();
    stage.never_fast(shuntd, packet, by(0));
    let seen = program.seen().unwrap() - before;
    let wanted = if hook == Hook::Ingress { 2 * SENT } else { SENT };
    assert!(seen >= wanted, "it saw {seen} of {wanted}");
}

/// What goes by a program on r0 is slow, what goes the other way is not, and all is fast when it is gone.
#[track_caller]
fn stays_slow_beside(hook: Hook) {
    if !require_root() {
        return;
    }
    for (tcx, engine) in [(true, ENGINES[0]), (true, ENGINES[1]), (false, ENGINES[0])] {
        let (lab, [(there, from_lan), (back, from_wan)]) = start();
        let shuntd = both_fast(&lab, tcx, engine, [(&there, &from_lan), (&back, &from_wan)]);

        let program = attach(&lab, "r0", hook);
        let status = shuntd.wait_until("the program is seen", |s| !filters(s).is_empty());
        let (filter, way, name) = match hook {
            Hook::Egress => (known(FilterHook::Egress), "leaves", "egress-filter"),
            _ => (known(FilterHook::Ingress), "comes in", "ingress-filter"),
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
        let said = |words: &[&str]| String::from_utf8(shuntd.shunt(words).stdout).unwrap();
        let text = said(&["status"]);
        assert!(text.contains(&format!("learning off for what {way} by r0: {filter}\n")), "{text}");
        let dport = held.1.ports().unwrap().1.to_string();
        let text = said(&["why", "--dport", &dport]);
        assert!(text.contains(name) && text.contains(&filter.to_string()), "{text}");

        drop(program);
        shuntd.wait_until("it is gone", |s| filters(s).is_empty());
        held.0.teach(&shuntd, held.1);
        shuntd.stop();
    }
}

#[test]
fn what_comes_in_by_a_program_stays_slow_until_it_is_gone() {
    stays_slow_beside(Hook::Ingress);
}

#[test]
fn what_leaves_by_a_program_stays_slow_until_it_is_gone() {
    stays_slow_beside(Hook::Egress);
}

/// It runs before Shunt's own then, and is known all the same.
#[test]
fn a_program_from_before_the_start_sees_every_packet() {
    if !require_root() {
        return;
    }
    let (lab, [(there, from_lan), (back, from_wan)]) = start();
    let programs = [Hook::Ingress, Hook::Egress].map(|hook| attach(&lab, "r0", hook));
    let shuntd = Shuntd::on(lab.router()).start();
    let both = [known(FilterHook::Ingress), known(FilterHook::Egress)];
    shuntd.wait_until("they are seen", |s| filters(s) == [("r0", &both[0]), ("r0", &both[1])]);
    sees_all(&programs[0], Hook::Ingress, &there, &shuntd, &from_lan);
    sees_all(&programs[1], Hook::Egress, &back, &shuntd, &from_wan);
    shuntd.stop();
}

/// Packets that are routed to and from a bridge pass what is on it.
#[test]
fn a_program_on_a_bridge_counts_for_its_ports() {
    if !require_root() {
        return;
    }
    let lab = crate::silent(Topology::bridged_lan(), crate::OPEN);
    let [lan, wan] = [lab.lan(), lab.wan()];
    let (stage, packet) = (Stage::new(lan, &[wan]), lan.udp_to(4000, wan.at(5000)).payload("from the lan"));
    let shuntd = Shuntd::on(lab.router()).start();
    stage.teach(&shuntd, &packet);
    let program = attach(&lab, "br0", Hook::Ingress);
    shuntd
        .wait_until("it is seen", |s| filters(s).iter().any(|(port, f)| *port == "r0" && f.device == "br0"));
    sees_all(&program, Hook::Ingress, &stage, &shuntd, &packet);
    shuntd.stop();
}
