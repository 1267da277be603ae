//! The policy, without a kernel.

use super::*;
use crate::{Bridged, Connection, Link, PortSetting, Program, Qdisc, Source};
use shunt_api::{Engine, EngineChoice, FilterHook, PortFilter};
use shunt_wire::Mac;
use std::net::IpAddr;

pub(crate) fn link(ifindex: u32, name: &str) -> Link {
    Link {
        ifindex,
        name: name.to_owned(),
        kind: None,
        bus: Some("pci".to_owned()),
        ethernet: true,
        up: true,
        carrier: true,
        mtu: 1500,
        mac: Mac([2, 0, 0, 0, 0, ifindex as u8]),
        master: None,
        lower: None,
        xdp_prog: None,
        bridge: None,
    }
}

fn address(ifindex: u32, addr: &str) -> Event {
    Event::Address { ifindex, addr: addr.parse().unwrap(), prefix: 24 }
}

fn native(ifindex: u32) -> Event {
    Event::XdpFeatures { ifindex, native: true, target: true }
}

fn qdisc(ifindex: u32, kind: &str, handle: u32) -> Qdisc {
    Qdisc { ifindex, kind: kind.to_owned(), handle, parent: 0xffff_ffff }
}

/// A router with two addressed ports that can do XDP.
pub(crate) fn router() -> Vec<Event> {
    let links = [link(1, "r0"), link(2, "r1")].map(Event::Link);
    links
        .into_iter()
        .chain([address(1, "192.168.1.1"), address(2, "198.18.0.1"), native(1), native(2)])
        .collect()
}

pub(crate) fn started(choice: Choice, state: Vec<Event>) -> (Core, Instant) {
    let mut core = Core::new(choice, [77]);
    let now = fixed_time();
    core.handle(now, Event::Dump(state));
    core.handle(now, Event::LegacyRead(Vec::new()));
    (core, now)
}

#[expect(clippy::disallowed_methods, reason = "any instant will do, and there is no other way to get one")]
fn fixed_time() -> Instant {
    Instant::now()
}

/// What is to be done, but for a look at captures, which every change of a link asks for.
fn changes(core: &mut Core, now: Instant, event: Event) -> Vec<Action> {
    let mut actions = core.handle(now, event);
    actions.retain(|action| *action != Action::FindCaptures);
    actions
}

fn engines(core: &Core) -> Vec<(String, Engine)> {
    core.ports().map(|(link, view)| (link.name.clone(), view.setting.engine)).collect()
}

#[test]
fn ports_are_the_leaf_devices_that_forwarding_uses() {
    let mut state = router();
    state.push(Event::Link(link(3, "idle0"))); // no address
    let bridge = Link { kind: Some("bridge".to_owned()), ..link(4, "br0") };
    state.extend([Event::Link(bridge), address(4, "10.0.0.1")]);
    state.push(Event::Link(Link { master: Some(4), ..link(5, "lan0") })); // its bridge has one
    let vlan = Link { kind: Some("vlan".to_owned()), lower: Some(7), ..link(6, "lan1.10") };
    state.extend([Event::Link(vlan), Event::Link(link(7, "lan1")), address(6, "10.0.10.1")]);
    state.extend([Event::Link(link(8, "ll0")), address(8, "fe80::1")]); // every device has one of these
    let (core, _) = started(Choice::default(), state);
    let names: Vec<_> = core.ports().map(|(link, _)| link.name.as_str()).collect();
    assert_eq!(names, ["r0", "r1", "lan0", "lan1"]);
}

#[test]
fn named_ports_are_taken_whatever_they_are() {
    let choice = Choice { ports: vec!["r1".to_owned()], engine: EngineChoice::Tc, ..Choice::default() };
    let (core, _) = started(choice, router());
    assert_eq!(engines(&core), [("r1".to_owned(), Engine::Tc)]);
}

#[test]
fn a_device_on_top_of_others_is_no_port_even_if_it_comes_by_the_name_of_one() {
    let choice = Choice { ports: vec!["r0".to_owned(), "lan".to_owned()], ..Choice::default() };
    let (mut core, now) = started(choice, router());
    let vlan = |name: &str| Link { kind: Some("vlan".to_owned()), lower: Some(1), ..link(6, name) };
    let bridge = |name: &str| Link { kind: Some("bridge".to_owned()), ..link(7, name) };
    for upper in [vlan("lan"), bridge("lan"), Link { ethernet: false, ..link(8, "lan") }] {
        core.handle(now, Event::Link(upper));
        assert_eq!(core.ports().count(), 1);
    }
    core.handle(now, Event::Link(Link { master: Some(7), ..link(9, "lan") }));
    assert_eq!(core.ports().count(), 2);
    let why = |link| core.unfit(&link).unwrap();
    assert_eq!(why(vlan("lan")), "a VLAN device is not a port; name what carries its packets: --port r0");
    assert_eq!(why(bridge("lan")), "a bridge is not a port; name what carries its packets: --port lan");
    assert_eq!(core.unfit(&link(9, "lan")), None);
}

#[test]
fn a_named_port_stays_one_when_it_is_renamed() {
    let choice = Choice { ports: vec!["r1".to_owned()], ..Choice::default() };
    let (mut core, now) = started(choice, router());
    let moved = [Action::MoveEpoch(Cause::Link)];
    assert_eq!(changes(&mut core, now, Event::Link(link(2, "wan"))), moved, "rules match names");
    assert_eq!(core.ports().count(), 1);
}

#[test]
fn named_ports_that_swap_their_names_stay_ports() {
    let choice = Choice { ports: vec!["r0".to_owned(), "r1".to_owned()], ..Choice::default() };
    let (mut core, now) = started(choice, router());
    for (ifindex, name) in [(1, "swap"), (2, "r0"), (1, "r1")] {
        let actions = changes(&mut core, now, Event::Link(link(ifindex, name)));
        assert_eq!(actions, [Action::MoveEpoch(Cause::Link)]);
    }
    let ports: Vec<_> = core.ports().map(|(link, _)| (link.ifindex, link.name.as_str())).collect();
    assert_eq!(ports, [(1, "r1"), (2, "r0")]);
    // Another device that takes a name from the list is one as well.
    changes(&mut core, now, Event::Link(link(1, "old")));
    let actions = changes(&mut core, now, Event::Link(link(3, "r1")));
    assert!(matches!(actions.as_slice(), [Action::Attach(new)] if new.ifindex == 3), "{actions:?}");
    assert_eq!(core.ports().count(), 3);
}

#[test]
fn what_never_was_on_a_wire_may_have_unfinished_checksums() {
    let (mut core, now) = started(Choice::default(), router());
    let buses = [Some("pci"), Some("virtio"), Some("xen"), None];
    for (ifindex, bus) in (3..).zip(buses) {
        let later = Link { bus: bus.map(str::to_owned), ..link(ifindex, &format!("r{ifindex}")) };
        changes(&mut core, now, Event::Link(later));
        changes(&mut core, now, address(ifindex, &format!("10.0.{ifindex}.1")));
    }
    let partial: Vec<_> = core.ports().skip(2).map(|(_, view)| view.setting.partial).collect();
    assert_eq!(partial, [false, true, true, true]);
}

#[test]
fn a_qdisc_in_use_moves_its_port_to_tc_and_back() {
    let (mut core, now) = started(Choice::default(), router());
    assert_eq!(engines(&core), [("r0".to_owned(), Engine::Xdp), ("r1".to_owned(), Engine::Xdp)]);
    let htb = qdisc(2, "htb", 0x1_0000);
    let setting = |engine| PortSetting {
        ifindex: 2,
        engine,
        xdp_in: true,
        partial: false,
        up: true,
        captured: false,
        filtered: false,
        filtered_out: false,
        bridged: Bridged::default(),
    };
    assert_eq!(
        core.handle(now, Event::Qdisc(htb.clone())),
        [Action::Set(setting(Engine::Tc)), Action::MoveEpoch(Cause::Engine)]
    );
    assert_eq!(
        core.handle(now, Event::QdiscGone(htb)),
        [Action::Set(setting(Engine::Xdp)), Action::MoveEpoch(Cause::Engine)]
    );
}

#[test]
fn qdiscs_that_the_kernel_put_there_do_not_count() {
    let (mut core, now) = started(Choice::default(), router());
    for default in [qdisc(2, "fq_codel", 0), qdisc(2, "noqueue", 0), qdisc(2, "mq", 0x8001_0000)] {
        assert_eq!(core.handle(now, Event::Qdisc(default)), []);
    }
}

#[test]
fn a_queue_of_mq_counts_while_its_mq_is_there() {
    let (mut core, now) = started(Choice::default(), router());
    let engine = |core: &Core| engines(core)[1].1;
    let mq = qdisc(2, "mq", 0x8001_0000);
    let queue = |kind: &str, handle| Qdisc { parent: 0x8001_0002, ..qdisc(2, kind, handle) };
    for _ in 0..2 {
        core.handle(now, Event::Qdisc(mq.clone()));
        core.handle(now, Event::Qdisc(queue("fq_codel", 0)));
        core.handle(now, Event::Qdisc(queue("pfifo", 0x8_0000)));
        assert_eq!(engine(&core), Engine::Xdp);
        core.handle(now, Event::Qdisc(queue("fq_codel", 0x9_0000)));
        assert_eq!(engine(&core), Engine::Tc);
        // Nothing is told of its queues.
        core.handle(now, Event::QdiscGone(mq.clone()));
        assert_eq!(engine(&core), Engine::Xdp);
    }
}

#[test]
fn what_is_on_egress_of_a_device_on_top_of_a_port_holds_what_leaves_by_it() {
    let vlan = Link { kind: Some("vlan".to_owned()), lower: Some(1), ..link(6, "r0.10") };
    let state: Vec<_> = router().into_iter().chain([Event::Link(vlan)]).collect();
    let (mut core, t) = started(Choice::default(), state);
    let held_out = |actions: &[Action]| -> Vec<_> {
        let set = actions.iter().filter_map(|action| match action {
            Action::Set(setting) => Some((setting.ifindex, setting.filtered, setting.filtered_out)),
            _ => None,
        });
        set.collect()
    };
    assert_eq!(core.handle(t, Event::Qdisc(qdisc(6, "noqueue", 0))), []);
    let actions = core.handle(t, Event::Qdisc(qdisc(6, "cake", 0x8001_0000)));
    assert_eq!(held_out(&actions), [(1, false, true)]);
    assert!(actions.contains(&Action::MoveEpoch(Cause::Filter)), "what was learned before ends");
    let view = core.ports().next().unwrap().1;
    assert_eq!(view.filters[0].to_string(), "qdisc cake of r0.10");
    assert_eq!(view.setting.engine, Engine::Xdp, "r0 itself has none");
    let actions = core.handle(t, Event::QdiscGone(qdisc(6, "cake", 0x8001_0000)));
    assert_eq!(held_out(&actions), [(1, false, false)]);

    let filter = |ifindex| Event::Filter { ifindex, egress: true, kind: Some("flower".to_owned()) };
    assert_eq!(held_out(&core.handle(t, filter(6))), [(1, false, true)]);
    assert_eq!(
        held_out(&core.handle(t, filter(2))),
        [(2, false, false)],
        "those of the port are its engine's matter"
    );
}

#[test]
fn a_qdisc_does_not_overrule_a_chosen_engine() {
    let (mut core, now) = started(Choice { engine: EngineChoice::Xdp, ..Choice::default() }, router());
    assert_eq!(core.handle(now, Event::Qdisc(qdisc(2, "htb", 0x1_0000))), []);
}

#[test]
fn without_an_xdp_egress_no_port_runs_xdp() {
    let (mut core, now) = started(Choice::default(), router());
    let no_target = |ifindex| Event::XdpFeatures { ifindex, native: true, target: false };
    core.handle(now, no_target(1));
    assert!(core.ports().all(|(_, view)| view.setting.xdp_in));
    core.handle(now, no_target(2));
    assert!(core.ports().all(|(_, view)| !view.setting.xdp_in && view.setting.engine == Engine::Tc));
}

#[test]
fn xdp_does_not_run_where_vlans_come_in() {
    let (mut core, now) = started(Choice::default(), router());
    let vlan = Link { kind: Some("vlan".to_owned()), lower: Some(1), ..link(6, "r0.10") };
    let actions = changes(&mut core, now, Event::Link(vlan));
    assert!(matches!(actions.as_slice(), [Action::Set(s)] if s.ifindex == 1 && !s.xdp_in));
}

#[test]
fn a_foreign_xdp_program_is_left_alone() {
    let (mut core, now) = started(Choice::default(), router());
    changes(&mut core, now, Event::Link(Link { xdp_prog: Some(5), ..link(1, "r0") }));
    let r0 = core.ports().find(|(link, _)| link.name == "r0").unwrap().1.clone();
    assert!(!r0.setting.xdp_in && r0.setting.engine == Engine::Tc);
    assert_eq!(changes(&mut core, now, Event::Link(Link { xdp_prog: Some(77), ..link(2, "r1") })), []);
}

#[test]
fn what_a_packet_would_meet_differently_moves_the_epoch() {
    let (mut core, now) = started(Choice::default(), router());
    for (event, cause) in [
        (Event::Route, Cause::Route),
        (Event::Rule, Cause::Rule),
        (Event::Nexthop, Cause::Nexthop),
        (Event::Ruleset, Cause::Ruleset),
        (Event::IpsecPolicy, Cause::Ipsec),
        (Event::Netconf, Cause::Netconf),
        (Event::Filter { ifindex: 9, egress: true, kind: None }, Cause::Filter),
        (address(2, "198.18.0.9"), Cause::Address),
        (Event::Flush, Cause::Flush),
        (Event::Link(Link { mtu: 1400, ..link(1, "r0") }), Cause::Link),
    ] {
        assert!(core.handle(now, event.clone()).contains(&Action::MoveEpoch(cause)), "{event:?}");
    }
}

#[test]
fn what_is_only_repeated_moves_nothing() {
    let (mut core, now) = started(Choice::default(), router());
    assert_eq!(changes(&mut core, now, address(2, "198.18.0.1")), []);
    assert_eq!(changes(&mut core, now, Event::Link(link(1, "r0"))), []);
}

#[test]
fn a_neighbour_moves_the_epoch_by_its_mac_and_not_by_its_state() {
    let (mut core, now) = started(Choice::default(), router());
    let addr: IpAddr = "192.168.1.2".parse().unwrap();
    let mut tell = |mac: Option<u8>| {
        let mac = mac.map(|last| Mac([2, 0, 0, 0, 1, last]));
        core.handle(now, Event::Neighbour { ifindex: 1, addr, mac })
    };
    let moved = [Action::MoveEpoch(Cause::Neighbour)];
    assert_eq!(tell(None), []);
    assert_eq!(tell(Some(1)), []);
    assert_eq!(tell(Some(1)), []);
    assert_eq!(tell(Some(2)), moved);
    assert_eq!(tell(None), moved);
    assert_eq!(tell(None), []);
    assert_eq!(tell(Some(2)), []);
    assert_eq!(core.handle(now, Event::NeighbourGone { ifindex: 1, addr }), moved);
}

#[test]
fn a_station_that_comes_or_roams_moves_the_epoch_once() {
    let bridge = Link { kind: Some("bridge".to_owned()), ..link(9, "br0") };
    let ports = [1, 2].map(|port| Link { master: Some(9), ..link(port, &format!("r{port}")) });
    let links = ports.into_iter().chain([bridge]).map(Event::Link);
    let (mut core, now) = started(Choice::default(), links.collect());
    let mac = Mac([2, 0, 0, 0, 2, 1]);
    let moved = [Action::MoveEpoch(Cause::Fdb)];
    assert_eq!(core.handle(now, Event::Fdb { ifindex: 1, vlan: 0, mac }), moved, "what was flooded");
    assert_eq!(core.handle(now, Event::Fdb { ifindex: 1, vlan: 0, mac }), []);
    assert_eq!(core.handle(now, Event::Fdb { ifindex: 2, vlan: 0, mac }), moved);
    assert_eq!(core.handle(now, Event::FdbGone { ifindex: 1, vlan: 0, mac }), []);
    assert_eq!(core.handle(now, Event::FdbGone { ifindex: 2, vlan: 0, mac }), moved);
}

#[test]
fn a_port_that_vanishes_is_detached_and_one_that_comes_is_attached() {
    let (mut core, now) = started(Choice::default(), router());
    let gone = changes(&mut core, now, Event::LinkGone { ifindex: 2 });
    assert_eq!(gone[0], Action::MoveEpoch(Cause::Link));
    assert!(gone.contains(&Action::Detach { ifindex: 2 }));
    assert_eq!(changes(&mut core, now, Event::Link(link(9, "r9"))), []);
    let come = changes(&mut core, now, address(9, "10.9.0.1"));
    assert!(matches!(come.as_slice(), [Action::MoveEpoch(_), Action::Attach(s)] if s.ifindex == 9));
}

#[test]
fn a_device_that_refused_is_tried_again_when_it_changes() {
    let (mut core, now) = started(Choice::default(), router());
    assert_eq!(changes(&mut core, now, Event::AttachFailed { ifindex: 2 }), []);
    assert_eq!(changes(&mut core, now, Event::Route), [Action::MoveEpoch(Cause::Route)]);
    let again = changes(&mut core, now, Event::Link(link(2, "r1")));
    assert!(matches!(again.as_slice(), [Action::Attach(s)] if s.ifindex == 2));
}

#[test]
fn a_device_that_refused_is_tried_again_when_a_port_goes_and_makes_room() {
    let (mut core, now) = started(Choice::default(), router());
    assert_eq!(changes(&mut core, now, Event::AttachFailed { ifindex: 2 }), []);
    let again = changes(&mut core, now, Event::LinkGone { ifindex: 1 });
    assert!(
        matches!(again.as_slice(), [_, Action::Detach { ifindex: 1 }, Action::Attach(s), ..] if s.ifindex == 2),
        "{again:?}"
    );
}

#[test]
fn a_burst_of_overruns_costs_two_resyncs() {
    let (mut core, t) = started(Choice::default(), router());
    let moved = Action::MoveEpoch(Cause::Overrun);
    let later = t + RESYNC_GAP;
    assert_eq!(core.handle(later, Event::Overrun(Source::Route)), [moved.clone(), Action::Resync]);
    for _ in 0..100 {
        assert_eq!(core.handle(later, Event::Overrun(Source::Route)), std::slice::from_ref(&moved));
    }
    assert!(!core.handle(later, Event::Tick).contains(&Action::Resync));
    assert!(core.handle(later + RESYNC_GAP, Event::Tick).contains(&Action::Resync));
    assert!(!core.handle(later + RESYNC_GAP * 2, Event::Tick).contains(&Action::Resync));
}

#[test]
fn a_filter_that_went_is_forgotten_by_the_next_resync() {
    let (mut core, t) = started(Choice::default(), router());
    let later = t + RESYNC_GAP;
    let filter = || Event::Filter { ifindex: 2, egress: true, kind: None };
    let actions = core.handle(later, filter());
    assert_eq!(actions.first(), Some(&Action::MoveEpoch(Cause::Filter)));
    assert_eq!(actions.last(), Some(&Action::Resync));
    assert_eq!(engines(&core)[1].1, Engine::Tc);
    // What the dump tells is no change, and asks for no other dump.
    let with_it = router().into_iter().chain([filter()]).collect();
    assert_eq!(core.handle(later, Event::Dump(with_it)), []);
    assert!(!core.handle(later + RESYNC_GAP, Event::Tick).contains(&Action::Resync));

    assert!(core.handle(later + RESYNC_GAP, filter()).contains(&Action::Resync));
    assert!(!core.handle(later + RESYNC_GAP, filter()).contains(&Action::Resync), "not again at once");
    core.handle(later + RESYNC_GAP, Event::Dump(router()));
    assert_eq!(engines(&core)[1].1, Engine::Xdp);
    assert!(core.handle(later + RESYNC_GAP * 2, Event::Tick).contains(&Action::Resync), "but later");
}

/// The settings of ports that were changed, and why the epoch moved.
fn changed(actions: &[Action]) -> (Vec<(u32, bool)>, Vec<Cause>) {
    let set = |action: &Action| match action {
        Action::Set(setting) => Some((setting.ifindex, setting.filtered)),
        _ => None,
    };
    let cause = |action: &Action| match action {
        Action::MoveEpoch(cause) => Some(*cause),
        _ => None,
    };
    (actions.iter().filter_map(set).collect(), actions.iter().filter_map(cause).collect())
}

#[test]
fn nothing_is_learned_from_a_port_with_ingress_filters_until_they_are_gone() {
    let (mut core, t) = started(Choice::default(), router());
    let later = t + RESYNC_GAP;
    let filter = |ifindex| Event::Filter { ifindex, egress: false, kind: Some("u32".to_owned()) };
    let actions = core.handle(later, filter(2));
    // The epoch moves after the setting, too: what was learned in between knows nothing of it.
    assert_eq!(changed(&actions), (vec![(2, true)], vec![Cause::Filter, Cause::Filter]));
    let moved_at = actions.iter().rposition(|action| matches!(action, Action::MoveEpoch(_)));
    assert!(moved_at > actions.iter().position(|action| matches!(action, Action::Set(_))), "{actions:?}");
    let filters =
        |core: &Core| -> Vec<_> { core.ports().flat_map(|(_, view)| view.filters.clone()).collect() };
    let (device, kind) = ("r1".to_owned(), "u32".to_owned());
    assert_eq!(filters(&core), [PortFilter { device, hook: FilterHook::Ingress, kind, program: None }]);
    assert!(engines(&core).iter().all(|(_, engine)| *engine == Engine::Xdp), "that is no matter of egress");

    let actions = core.handle(later, Event::Dump(router()));
    assert_eq!(changed(&actions), (vec![(2, false)], vec![]));
    assert_eq!(filters(&core), []);
}

#[test]
fn filters_of_a_device_on_top_of_a_port_count_for_it() {
    let vlan = Link { kind: Some("vlan".to_owned()), lower: Some(1), ..link(6, "r0.10") };
    let state: Vec<_> = router().into_iter().chain([Event::Link(vlan)]).collect();
    let (mut core, t) = started(Choice::default(), state);
    let filter = Event::Filter { ifindex: 6, egress: false, kind: Some("flower".to_owned()) };
    assert_eq!(changed(&core.handle(t, filter)).0, [(1, true)]);
    let other = Event::Filter { ifindex: 9, egress: false, kind: Some("flower".to_owned()) };
    assert_eq!(changed(&core.handle(t, other)).0, []);
}

/// The ports that are set anew, with what is held by them: in, out.
fn held_by_programs(core: &mut Core, t: Instant, on: &[(u32, bool)]) -> (Vec<(u32, bool, bool)>, bool) {
    let program = |(ifindex, egress): &(u32, bool)| Program {
        ifindex: *ifindex,
        egress: *egress,
        name: "x".to_owned(),
    };
    let actions = core.handle(t, Event::Programs(on.iter().map(program).collect()));
    let set = |action: &Action| match action {
        Action::Set(setting) => Some((setting.ifindex, setting.filtered, setting.filtered_out)),
        _ => None,
    };
    let moved = actions.contains(&Action::MoveEpoch(Cause::Filter));
    (actions.iter().filter_map(set).collect(), moved)
}

#[test]
fn programs_of_others_hold_the_way_that_they_are_on_until_they_are_gone() {
    let (mut core, t) = started(Choice::default(), router());
    let mut with = |on: &[(u32, bool)]| held_by_programs(&mut core, t, on);
    assert_eq!(with(&[(1, false)]), (vec![(1, true, false)], true));
    assert_eq!(with(&[(1, false)]), (vec![], false), "it is known");
    assert_eq!(with(&[(1, false), (1, true)]), (vec![(1, true, true)], true));
    assert_eq!(with(&[(2, true)]), (vec![(1, false, false), (2, false, true)], true));
    assert_eq!(with(&[]), (vec![(2, false, false)], false));
}

#[test]
fn programs_are_looked_for_on_ports_and_what_is_on_top_of_them() {
    let bridge = Link { kind: Some("bridge".to_owned()), ..link(6, "br0") };
    let vlan = Link { kind: Some("vlan".to_owned()), lower: Some(6), ..link(7, "br0.5") };
    let port = Link { master: Some(6), ..link(3, "lan0") };
    let links = [bridge, vlan, port, link(9, "idle0")].map(Event::Link);
    let state = router().into_iter().chain(links).chain([address(7, "10.0.0.1")]).collect();
    let (mut core, t) = started(Choice::default(), state);
    let look = Action::FindPrograms([1, 2, 3, 6, 7].into());
    assert!(core.handle(t, Event::Tick).contains(&look));
    assert_eq!(held_by_programs(&mut core, t, &[(7, true)]), (vec![(3, false, true)], true));
    let names: Vec<_> =
        core.ports().flat_map(|(_, view)| view.filters.iter().map(ToString::to_string)).collect();
    assert_eq!(names, ["tcx program x on br0.5 egress"]);
}

#[test]
fn every_tick_beats_and_the_tables_are_swept_once_a_second() {
    let (mut core, t) = started(Choice::default(), router());
    let look = [Action::FindCaptures, Action::FindPrograms([1, 2].into())];
    let swept = [&[Action::Beat, Action::Sweep], &look[..]].concat();
    assert_eq!(core.handle(t, Event::Tick), swept);
    let beaten = [&[Action::Beat], &look[..]].concat();
    assert_eq!(core.handle(t + Duration::from_millis(500), Event::Tick), beaten);
    assert_eq!(core.handle(t + Duration::from_millis(1000), Event::Tick), swept);
}

#[test]
fn only_tcp_is_made_liberal() {
    let (mut core, now) = started(Choice::default(), router());
    let connection = |proto| Connection {
        proto,
        src: "192.168.1.2:1000".parse().unwrap(),
        dst: "198.18.0.2:80".parse().unwrap(),
    };
    let tcp = connection(Proto::Tcp);
    assert_eq!(core.handle(now, Event::WantLiberal(tcp)), [Action::SetLiberal(tcp)]);
    assert_eq!(core.handle(now, Event::WantLiberal(connection(Proto::Udp))), []);
}

#[test]
fn reconciling_twice_changes_nothing() {
    let (mut core, now) = started(Choice::default(), router());
    assert_eq!(core.handle(now, Event::Dump(router())), []);
}

fn captured(core: &Core) -> Vec<u32> {
    core.ports().filter(|(_, view)| view.setting.captured).map(|(link, _)| link.ifindex).collect()
}

#[test]
fn a_capture_ends_the_flows_of_its_port_after_the_port_knows() {
    let (mut core, now) = started(Choice::default(), router());
    let setting = |captured| PortSetting {
        ifindex: 2,
        engine: Engine::Xdp,
        xdp_in: true,
        partial: false,
        up: true,
        captured,
        filtered: false,
        filtered_out: false,
        bridged: Bridged::default(),
    };
    let on = core.handle(now, Event::Captures([2].into()));
    assert_eq!(on, [Action::Set(setting(true)), Action::MoveEpoch(Cause::Capture)]);
    assert_eq!(core.handle(now, Event::Captures([2].into())), [], "nothing new");
    // What is read anew of the kernel says nothing of captures.
    assert_eq!(core.handle(now, Event::Dump(router())), []);
    assert_eq!(captured(&core), [2]);
    // Nothing that was learned meanwhile is wrong.
    assert_eq!(core.handle(now, Event::Captures(BTreeSet::new())), [Action::Set(setting(false))]);
}

#[test]
fn a_capture_on_all_devices_or_on_top_of_a_port_counts_for_the_port() {
    let mut state = router();
    state.extend([Event::Link(link(3, "lan0")), Event::Link(Link { master: Some(4), ..link(3, "lan0") })]);
    let bridge = Link { kind: Some("bridge".to_owned()), ..link(4, "br0") };
    let vlan = Link { kind: Some("vlan".to_owned()), lower: Some(2), ..link(5, "r1.5") };
    state.extend([Event::Link(bridge), address(4, "10.0.0.1"), Event::Link(vlan)]);
    let (mut core, now) = started(Choice::default(), state);
    for (on, ports) in [(0, &[1, 2, 3][..]), (4, &[3]), (5, &[2]), (1, &[1]), (99, &[])] {
        core.handle(now, Event::Captures([on].into()));
        assert_eq!(captured(&core), ports, "a capture on device {on}");
    }
}

#[test]
fn captures_are_looked_for_when_a_link_changes_unless_they_are_to_be_ignored() {
    let promiscuous = || Event::Link(link(2, "r1"));
    let (mut core, now) = started(Choice::default(), router());
    assert_eq!(core.handle(now, promiscuous()), [Action::FindCaptures]);
    let (mut core, now) = started(Choice { captures: CaptureChoice::Ignore, ..Choice::default() }, router());
    assert_eq!(core.handle(now, promiscuous()), []);
    assert!(!core.handle(now, Event::Tick).contains(&Action::FindCaptures));
}
