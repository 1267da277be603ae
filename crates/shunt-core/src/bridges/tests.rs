//! Tests of which bridged traffic may be learned.

use super::*;
use crate::{
    Action, Cause, Choice, Core, Statement,
    core::tests::{address, link, native, started},
};
use std::time::Instant;

const ALL: Bridged = Bridged { learned: true, untracked4: true, untracked6: true };
const TRACKED: Bridged = Bridged { learned: true, untracked4: false, untracked6: false };
const NONE: Bridged = Bridged { learned: false, untracked4: false, untracked6: false };

fn plain() -> Bridge {
    Bridge {
        ageing: Duration::from_secs(300),
        vlan_filtering: false,
        vlan_protocol: 0x8100,
        options: 0,
        calls: BridgeCalls::default(),
        promiscuous: false,
    }
}

fn bridge(bridge: Bridge) -> Event {
    Event::Link(Link { kind: Some("bridge".to_owned()), bridge: Some(bridge), ..link(9, "br0") })
}

fn port(ifindex: u32) -> Event {
    Event::Link(Link { master: Some(9), ..link(ifindex, &format!("r{ifindex}")) })
}

/// A switch: a bridge with two ports and no addresses.
fn switch(settings: Bridge) -> Vec<Event> {
    vec![bridge(settings), port(1), port(2)]
}

/// A policy that has read an empty ruleset and knows that br_netfilter is not loaded.
fn running(state: Vec<Event>) -> (Core, Instant) {
    let (mut core, t) = started(Choice::default(), state);
    core.handle(t, Event::RulesetRead(Vec::new()));
    core.handle(t, Event::BridgeCalls(None));
    (core, t)
}

fn bridged(core: &Core) -> Vec<Bridged> {
    core.ports().map(|(_, view)| view.setting.bridged).collect()
}

#[test]
fn members_of_a_bridge_are_ports_without_any_address() {
    let (core, _) = running(switch(plain()));
    assert_eq!(bridged(&core), [ALL, ALL]);
    let alone = vec![bridge(plain()), port(1)];
    assert!(has_bridge_with_two_ports(&switch(plain())) && !has_bridge_with_two_ports(&alone));
    assert_eq!(running(alone).0.ports().count(), 0, "a bridge with one member forwards nothing");
}

#[test]
fn a_port_that_cannot_be_attached_to_stops_learning_on_its_bridge() {
    let (mut core, t) = running(switch(plain()));
    core.handle(t, port(3));
    assert_eq!(bridged(&core), [ALL, ALL, ALL]);
    let actions = core.handle(t, Event::AttachFailed { ifindex: 3 });
    assert_eq!(bridged(&core), [NONE, NONE]);
    assert_eq!(actions.last(), Some(&Action::MoveEpoch(Cause::Bridge)), "{actions:?}");
}

#[test]
fn a_bridge_member_is_watched_if_the_port_below_it_is() {
    let member = |kind: &str, ifindex, name| {
        let kind = Some(kind.to_owned());
        Link { kind, master: Some(9), ..link(ifindex, name) }
    };
    let vlan = Link { lower: Some(3), ..member("vlan", 6, "r3.10") };
    let state = vec![bridge(plain()), port(1), Event::Link(link(3, "r3")), Event::Link(vlan)];
    assert_eq!(bridged(&running(state).0), [ALL, ALL]);
    let bond = Event::Link(member("bond", 7, "bond0"));
    let slaves = [3, 4].map(|n| Event::Link(Link { master: Some(7), ..link(n, &format!("r{n}")) }));
    let state = [vec![bridge(plain()), port(1), bond], slaves.to_vec()].concat();
    assert_eq!(bridged(&running(state).0), [ALL, ALL, ALL]);
}

/// A flooded packet would seem to leave only by the ports that Shunt watches.
#[test]
fn nothing_is_learned_if_bridged_packets_may_leave_unseen() {
    let unseen = Link { kind: Some("dummy".to_owned()), master: Some(9), ..link(5, "d0") };
    let on_top = |kind: &str| Link { kind: Some(kind.to_owned()), lower: Some(9), ..link(6, "top0") };
    let with = |more: Link| bridged(&running([switch(plain()), vec![Event::Link(more)]].concat()).0);
    assert_eq!(with(unseen), [NONE, NONE]);
    assert_eq!(with(on_top("macvlan")), [NONE, NONE]);
    assert_eq!(with(on_top("macvtap")), [NONE, NONE]);
    assert_eq!(with(on_top("vlan")), [ALL, ALL]);
    assert_eq!(bridged(&running(switch(Bridge { promiscuous: true, ..plain() })).0), [NONE, NONE]);

    let choice = Choice { ports: vec!["r1".to_owned()], ..Choice::default() };
    let (mut core, t) = started(choice, switch(plain()));
    core.handle(t, Event::BridgeCalls(None));
    assert_eq!(bridged(&core), [NONE], "the other member is not a port of Shunt");
}

/// Routed packets are flooded, too.
#[test]
fn ports_of_a_bridge_with_an_unseen_member_may_flood_unseen() {
    let floods = |core: &Core| core.ports().map(|(_, view)| view.setting.floods_unseen).collect::<Vec<_>>();
    let apart = [Event::Link(link(3, "r3")), address(3, "10.0.3.1")];
    let (mut core, t) = running([switch(plain()), apart.to_vec()].concat());
    assert_eq!(floods(&core), [false, false, false]);
    let unseen = Link { kind: Some("dummy".to_owned()), master: Some(9), ..link(5, "d0") };
    let actions = core.handle(t, Event::Link(unseen));
    assert_eq!(floods(&core), [true, true, false]);
    let settings_at = actions.iter().rposition(|action| matches!(action, Action::Set(_)));
    let moved_at = actions.iter().position(|action| *action == Action::MoveEpoch(Cause::Bridge));
    assert!(settings_at.is_some() && settings_at < moved_at, "the settings come first: {actions:?}");
    core.handle(t, Event::LinkGone { ifindex: 5 });
    assert_eq!(floods(&core), [false, false, false]);
}

#[test]
fn traffic_is_not_learned_with_an_ageing_time_below_a_second_unless_it_is_zero() {
    let aged = |ms| running(switch(Bridge { ageing: Duration::from_millis(ms), ..plain() })).0;
    for (ms, expected, shortest) in
        [(0, ALL, None), (10, NONE, None), (999, NONE, None), (1000, ALL, Some(1))]
    {
        let core = aged(ms);
        assert_eq!(bridged(&core), [expected, expected], "{ms} ms");
        assert_eq!(core.shortest_memory(), shortest.map(Duration::from_secs), "{ms} ms");
    }
}

#[test]
fn bridged_traffic_counts_as_tracked_until_br_netfilter_is_known_to_be_off() {
    let (mut core, t) = started(Choice::default(), switch(plain()));
    assert!(core.handle(t, Event::Tick).contains(&Action::FindBridgeCalls));
    assert_eq!(bridged(&core), [TRACKED, TRACKED], "the sysctls have not been read yet");
    let moved = Action::MoveEpoch(Cause::Bridge);
    assert!(core.handle(t, Event::BridgeCalls(None)).contains(&moved));
    assert_eq!(bridged(&core), [ALL, ALL]);
    assert!(!core.handle(t, Event::BridgeCalls(None)).contains(&moved));
    let actions = core.handle(t, Event::BridgeCalls(Some(BridgeCalls { v4: true, v6: false })));
    // The epoch moves after the settings, so that flows learned in between are not used either.
    assert!(matches!(actions[..], [Action::Set(_), Action::Set(_), Action::MoveEpoch(Cause::Bridge)]));
    assert_eq!(bridged(&core)[0], Bridged { untracked4: false, ..ALL });
}

#[test]
fn the_setting_of_a_bridge_counts_only_with_br_netfilter() {
    let (mut core, t) = running(switch(plain()));
    let calls = BridgeCalls { v4: false, v6: true };
    let event = bridge(Bridge { calls, ..plain() });
    assert!(core.handle(t, event).contains(&Action::MoveEpoch(Cause::Link)));
    assert_eq!(bridged(&core), [ALL, ALL], "br_netfilter is not loaded");
    core.handle(t, Event::BridgeCalls(Some(BridgeCalls::default())));
    assert_eq!(bridged(&core)[1], Bridged { untracked6: false, ..ALL });
}

#[test]
fn bridge_rules_that_use_conntrack_make_bridged_traffic_tracked() {
    let rule = |family: &str, name: &str| {
        let [family, table, chain, name] = [family, "t", "c", name].map(str::to_owned);
        Statement { family, table, chain, handle: 1, name, ..Statement::default() }
    };
    for (family, name, expected) in [("bridge", "ct", TRACKED), ("bridge", "limit", ALL), ("inet", "ct", ALL)]
    {
        let (mut core, t) = running(switch(plain()));
        core.handle(t, Event::Rules);
        core.handle(t + Duration::from_secs(9), Event::RulesetRead(vec![rule(family, name)]));
        assert_eq!(bridged(&core), [expected, expected], "{family} {name}");
        core.handle(t, Event::Rules);
        assert_eq!(
            bridged(&core),
            [expected, expected],
            "the former rules count until the new ones are read"
        );
    }
}

#[test]
fn a_change_of_a_bridges_settings_moves_the_epoch() {
    let changes: [fn(&mut Bridge); 4] = [
        |bridge| bridge.vlan_filtering = true,
        |bridge| bridge.vlan_protocol = 0x88a8,
        |bridge| bridge.options = 4,
        |bridge| bridge.ageing = Duration::from_secs(5),
    ];
    for change in changes {
        let (mut core, t) = running(switch(plain()));
        let mut changed = plain();
        change(&mut changed);
        assert!(
            core.handle(t, bridge(changed.clone())).contains(&Action::MoveEpoch(Cause::Link)),
            "{changed:?}"
        );
    }
}

#[test]
fn xdp_does_not_run_with_vlan_filtering_on_the_bridge() {
    let native = [1, 2].map(native);
    for vlan_filtering in [false, true] {
        let state = [switch(Bridge { vlan_filtering, ..plain() }), native.to_vec()].concat();
        let (core, _) = running(state);
        assert!(core.ports().all(|(_, view)| view.setting.xdp_in != vlan_filtering));
    }
}
