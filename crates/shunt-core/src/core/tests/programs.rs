//! Filters and programs of others.

use super::*;

/// The ports whose settings change, and why the epoch moves.
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
    let filter =
        |ifindex| Event::Filter { ifindex, egress: false, kind: Some("u32".to_owned()), change: None };
    let actions = core.handle(later, filter(2));
    // The epoch also moves after the setting: flows learned in between do not respect it.
    assert_eq!(changed(&actions), (vec![(2, true)], vec![Cause::Filter, Cause::Filter]));
    let moved_at = actions.iter().rposition(|action| matches!(action, Action::MoveEpoch(_)));
    assert!(moved_at > actions.iter().position(|action| matches!(action, Action::Set(_))), "{actions:?}");
    let filters =
        |core: &Core| -> Vec<_> { core.ports().flat_map(|(_, view)| view.filters.clone()).collect() };
    let (device, kind) = ("r1".to_owned(), "u32".to_owned());
    assert_eq!(filters(&core), [PortFilter { device, hook: FilterHook::Ingress, kind, program: None }]);
    assert!(
        engines(&core).iter().all(|(_, engine)| *engine == Engine::Xdp),
        "ingress filters do not change the engine"
    );

    let actions = core.handle(later, Event::Dump(router()));
    assert_eq!(changed(&actions), (vec![(2, false)], vec![]));
    assert_eq!(filters(&core), []);
}

#[test]
fn ingress_filters_of_an_upper_device_count_for_its_port() {
    let vlan = Link { kind: Some("vlan".to_owned()), lower: Some(1), ..link(6, "r0.10") };
    let state: Vec<_> = router().into_iter().chain([Event::Link(vlan)]).collect();
    let (mut core, t) = started(Choice::default(), state);
    let filter = Event::Filter { ifindex: 6, egress: false, kind: Some("flower".to_owned()), change: None };
    assert_eq!(changed(&core.handle(t, filter)).0, [(1, true)]);
    let other = Event::Filter { ifindex: 9, egress: false, kind: Some("flower".to_owned()), change: None };
    assert_eq!(changed(&core.handle(t, other)).0, []);
}

/// Reports TCX programs. Returns the ports whose settings change (ifindex, ingress blocked, egress blocked), and
/// whether the epoch moves.
fn blocked_by_programs(core: &mut Core, t: Instant, on: &[(u32, bool)]) -> (Vec<(u32, bool, bool)>, bool) {
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
fn programs_of_others_block_their_direction_until_they_are_gone() {
    let (mut core, t) = started(Choice::default(), router());
    let mut with = |on: &[(u32, bool)]| blocked_by_programs(&mut core, t, on);
    assert_eq!(with(&[(1, false)]), (vec![(1, true, false)], true));
    assert_eq!(with(&[(1, false)]), (vec![], false), "reported before");
    assert_eq!(with(&[(1, false), (1, true)]), (vec![(1, true, true)], true));
    assert_eq!(with(&[(2, true)]), (vec![(1, false, false), (2, false, true)], true));
    assert_eq!(with(&[]), (vec![(2, false, false)], false));
}

#[test]
fn programs_are_searched_for_on_ports_and_upper_devices() {
    let bridge = Link { kind: Some("bridge".to_owned()), ..link(6, "br0") };
    let vlan = Link { kind: Some("vlan".to_owned()), lower: Some(6), ..link(7, "br0.5") };
    let port = Link { master: Some(6), ..link(3, "lan0") };
    let links = [bridge, vlan, port, link(9, "idle0")].map(Event::Link);
    let state = router().into_iter().chain(links).chain([address(7, "10.0.0.1")]).collect();
    let (mut core, t) = started(Choice::default(), state);
    let look = Action::FindPrograms([1, 2, 3, 6, 7].into());
    assert!(core.handle(t, Event::Tick).contains(&look));
    assert_eq!(blocked_by_programs(&mut core, t, &[(7, true)]), (vec![(3, false, true)], true));
    let names: Vec<_> =
        core.ports().flat_map(|(_, view)| view.filters.iter().map(ToString::to_string)).collect();
    assert_eq!(names, ["tcx program x on br0.5 egress"]);
}
