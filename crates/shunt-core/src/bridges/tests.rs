//! Which bridges let bridged traffic be learned.

use super::*;
use crate::{
    Action, Cause, Choice, Core, Statement,
    core::tests::{link, started},
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

/// A box that only bridges: no address anywhere.
fn switch(of: Bridge) -> Vec<Event> {
    vec![bridge(of), port(1), port(2)]
}

/// Its policy, once it knows that there is no br_netfilter, and what rules say.
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
fn the_ports_of_a_bridge_are_ports_without_any_address() {
    let (core, _) = running(switch(plain()));
    assert_eq!(bridged(&core), [ALL, ALL]);
    let alone = vec![bridge(plain()), port(1)];
    assert!(bridges(&switch(plain())) && !bridges(&alone));
    assert_eq!(running(alone).0.ports().count(), 0, "nothing is bridged there");
}

#[test]
fn a_port_that_cannot_be_attached_to_ends_learning_on_its_bridge() {
    let (mut core, t) = running(switch(plain()));
    core.handle(t, port(3));
    assert_eq!(bridged(&core), [ALL, ALL, ALL]);
    let actions = core.handle(t, Event::AttachFailed { ifindex: 3 });
    assert_eq!(bridged(&core), [NONE, NONE]);
    assert_eq!(actions.last(), Some(&Action::MoveEpoch(Cause::Bridge)), "{actions:?}");
}

#[test]
fn a_port_below_a_vlan_device_or_a_bond_counts_for_what_is_on_top_of_it() {
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

/// What is sent to all ports of a bridge would seem to leave by the ones that are seen only.
#[test]
fn nothing_is_learned_where_packets_may_go_unseen() {
    let unseen = Link { kind: Some("vxlan".to_owned()), master: Some(9), ..link(5, "vx0") };
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
    assert_eq!(bridged(&core), [NONE], "the other port is not ours");
}

#[test]
fn a_bridge_that_forgets_at_once_is_not_learned_from_and_one_that_never_remembers_is() {
    let aged = |ms| running(switch(Bridge { ageing: Duration::from_millis(ms), ..plain() })).0;
    for (ms, wanted, shortest) in [(0, ALL, None), (10, NONE, None), (999, NONE, None), (1000, ALL, Some(1))]
    {
        let core = aged(ms);
        assert_eq!(bridged(&core), [wanted, wanted], "{ms} ms");
        assert_eq!(core.ageing(), shortest.map(Duration::from_secs), "{ms} ms");
    }
}

#[test]
fn conntrack_is_asked_until_nobody_has_it_look_at_what_is_bridged() {
    let (mut core, t) = started(Choice::default(), switch(plain()));
    assert!(core.handle(t, Event::Tick).contains(&Action::FindBridgeCalls));
    assert_eq!(bridged(&core), [TRACKED, TRACKED], "nobody has looked yet");
    let moved = Action::MoveEpoch(Cause::Bridge);
    assert!(core.handle(t, Event::BridgeCalls(None)).contains(&moved));
    assert_eq!(bridged(&core), [ALL, ALL]);
    assert!(!core.handle(t, Event::BridgeCalls(None)).contains(&moved));
    let actions = core.handle(t, Event::BridgeCalls(Some(BridgeCalls { v4: true, v6: false })));
    // After the settings, so that what was learned in between ends, too.
    assert!(matches!(actions[..], [Action::Set(_), Action::Set(_), Action::MoveEpoch(Cause::Bridge)]));
    assert_eq!(bridged(&core)[0], Bridged { untracked4: false, ..ALL });
}

#[test]
fn the_setting_of_a_bridge_counts_where_there_is_br_netfilter() {
    let (mut core, t) = running(switch(plain()));
    let calls = BridgeCalls { v4: false, v6: true };
    let event = bridge(Bridge { calls, ..plain() });
    assert!(core.handle(t, event).contains(&Action::MoveEpoch(Cause::Link)));
    assert_eq!(bridged(&core), [ALL, ALL], "there is none");
    core.handle(t, Event::BridgeCalls(Some(BridgeCalls::default())));
    assert_eq!(bridged(&core)[1], Bridged { untracked6: false, ..ALL });
}

#[test]
fn rules_of_a_bridge_that_use_conntrack_have_it_asked() {
    let rule = |family: &str, name: &str| {
        let [family, table, chain, name] = [family, "t", "c", name].map(str::to_owned);
        Statement { family, table, chain, handle: 1, legacy: false, name, devices: Vec::new() }
    };
    for (family, name, wanted) in [
        ("bridge", "ct", TRACKED),
        ("bridge", "connlimit", TRACKED),
        ("bridge", "limit", ALL),
        ("inet", "ct", ALL),
    ] {
        let (mut core, t) = running(switch(plain()));
        core.handle(t, Event::Rules);
        core.handle(t + Duration::from_secs(9), Event::RulesetRead(vec![rule(family, name)]));
        assert_eq!(bridged(&core), [wanted, wanted], "{family} {name}");
        core.handle(t, Event::Rules);
        assert_eq!(bridged(&core), [wanted, wanted], "until they are read");
    }
}

#[test]
fn a_change_of_a_bridge_s_own_settings_moves_the_epoch() {
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
fn xdp_does_not_run_where_a_bridge_tells_vlans_apart() {
    let native = [1, 2].map(|ifindex| Event::XdpFeatures { ifindex, native: true, target: true });
    for vlan_filtering in [false, true] {
        let state = [switch(Bridge { vlan_filtering, ..plain() }), native.to_vec()].concat();
        let (core, _) = running(state);
        assert!(core.ports().all(|(_, view)| view.setting.xdp_in != vlan_filtering));
    }
}

/// Two bridges may know the same MAC.
#[test]
fn a_station_of_another_bridge_does_not_hide_one_that_is_forgotten() {
    let other = Link { kind: Some("bridge".to_owned()), bridge: Some(plain()), ..link(8, "br1") };
    let far = Link { master: Some(8), ..link(5, "r5") };
    let (mut core, t) = running([switch(plain()), vec![Event::Link(other), Event::Link(far)]].concat());
    let mac = shunt_wire::Mac([2, 0, 0, 0, 0, 7]);
    core.handle(t, Event::Fdb { ifindex: 1, vlan: 0, mac });
    core.handle(t, Event::Fdb { ifindex: 5, vlan: 0, mac });
    let moved = [Action::MoveEpoch(Cause::Fdb)];
    assert_eq!(core.handle(t, Event::FdbGone { ifindex: 1, vlan: 0, mac }), moved);
    assert_eq!(core.handle(t, Event::FdbGone { ifindex: 5, vlan: 0, mac }), moved);
}
