//! Tests of the policy without a kernel.

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
        digest: 0,
    }
}

pub(crate) fn address(ifindex: u32, addr: &str) -> Event {
    Event::Address { ifindex, addr: addr.parse().unwrap(), prefix: 24 }
}

fn native(ifindex: u32) -> Event {
    Event::XdpFeatures { ifindex, native: true, target: true, target_frags: true }
}

fn qdisc(ifindex: u32, kind: &str, handle: u32) -> Qdisc {
    Qdisc { ifindex, kind: kind.to_owned(), handle, parent: 0xffff_ffff }
}

/// A router with two ports that have addresses and native XDP.
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

#[expect(clippy::disallowed_methods, reason = "any instant will do, and std has no other constructor")]
fn fixed_time() -> Instant {
    Instant::now()
}

/// The actions of an event without the search for captures, which every change of a link requires.
fn changes(core: &mut Core, now: Instant, event: Event) -> Vec<Action> {
    let mut actions = core.handle(now, event);
    actions.retain(|action| *action != Action::FindCaptures);
    actions
}

fn engines(core: &Core) -> Vec<(String, Engine)> {
    core.ports().map(|(link, view)| (link.name.clone(), view.setting.engine)).collect()
}

#[test]
fn ports_are_the_devices_without_lower_devices_that_forward_traffic() {
    let mut state = router();
    state.push(Event::Link(link(3, "idle0"))); // has no address
    let bridge = Link { kind: Some("bridge".to_owned()), ..link(4, "br0") };
    state.extend([Event::Link(bridge), address(4, "10.0.0.1")]);
    state.push(Event::Link(Link { master: Some(4), ..link(5, "lan0") })); // its bridge has an address
    let vlan = Link { kind: Some("vlan".to_owned()), lower: Some(7), ..link(6, "lan1.10") };
    state.extend([Event::Link(vlan), Event::Link(link(7, "lan1")), address(6, "10.0.10.1")]);
    state.extend([Event::Link(link(8, "ll0")), address(8, "fe80::1")]); // every device has a link-local address
    let (core, _) = started(Choice::default(), state);
    let names: Vec<_> = core.ports().map(|(link, _)| link.name.as_str()).collect();
    assert_eq!(names, ["r0", "r1", "lan0", "lan1"]);
}

#[test]
fn only_named_ports_are_ports_if_any_are_named() {
    let choice = Choice { ports: vec!["r1".to_owned()], engine: EngineChoice::Tc, ..Choice::default() };
    let (core, _) = started(choice, router());
    assert_eq!(engines(&core), [("r1".to_owned(), Engine::Tc)]);
}

#[test]
fn an_upper_device_is_not_a_port_even_if_it_takes_the_name_of_one() {
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
    assert_eq!(why(vlan("lan")), "a VLAN device cannot be a port; name the devices below it: --port r0");
    assert_eq!(why(bridge("lan")), "a bridge cannot be a port; name the devices below it: --port lan");
    assert_eq!(core.unfit(&link(9, "lan")), None);
}

#[test]
fn a_named_port_stays_one_when_it_is_renamed() {
    let choice = Choice { ports: vec!["r1".to_owned()], ..Choice::default() };
    let (mut core, now) = started(choice, router());
    let moved = [Action::MoveEpoch(Cause::Link), Action::AwaitKernel(Cause::Link, Scope::Everything)];
    assert_eq!(
        changes(&mut core, now, Event::Link(link(2, "wan"))),
        moved,
        "the epoch moves because rules match names"
    );
    assert_eq!(core.ports().count(), 1);
}

#[test]
fn named_ports_that_swap_their_names_stay_ports() {
    let choice = Choice { ports: vec!["r0".to_owned(), "r1".to_owned()], ..Choice::default() };
    let (mut core, now) = started(choice, router());
    for (ifindex, name) in [(1, "swap"), (2, "r0"), (1, "r1")] {
        let actions = changes(&mut core, now, Event::Link(link(ifindex, name)));
        assert_eq!(
            actions,
            [Action::MoveEpoch(Cause::Link), Action::AwaitKernel(Cause::Link, Scope::Everything)]
        );
    }
    let ports: Vec<_> = core.ports().map(|(link, _)| (link.ifindex, link.name.as_str())).collect();
    assert_eq!(ports, [(1, "r1"), (2, "r0")]);
    // Another device that takes a name from the list becomes a port too.
    changes(&mut core, now, Event::Link(link(1, "old")));
    let actions = changes(&mut core, now, Event::Link(link(3, "r1")));
    assert!(matches!(actions.as_slice(), [Action::Attach(new)] if new.ifindex == 3), "{actions:?}");
    assert_eq!(core.ports().count(), 3);
}

#[test]
fn packets_of_virtual_devices_may_have_unfinished_checksums() {
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
fn a_shaping_qdisc_moves_its_port_to_tc_and_back() {
    let (mut core, now) = started(Choice::default(), router());
    assert_eq!(engines(&core), [("r0".to_owned(), Engine::Xdp), ("r1".to_owned(), Engine::Xdp)]);
    let htb = qdisc(2, "htb", 0x1_0000);
    let setting = |engine| PortSetting {
        ifindex: 2,
        engine,
        xdp_in: true,
        xdp_frags: true,
        partial: false,
        up: true,
        captured: false,
        filtered: false,
        filtered_out: false,
        bridged: Bridged::default(),
        floods_unseen: false,
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
fn default_qdiscs_of_the_kernel_do_not_count() {
    let (mut core, now) = started(Choice::default(), router());
    for default in [qdisc(2, "fq_codel", 0), qdisc(2, "noqueue", 0), qdisc(2, "mq", 0x8001_0000)] {
        assert_eq!(core.handle(now, Event::Qdisc(default)), []);
    }
}

#[test]
fn the_qdisc_of_an_mq_queue_counts_until_the_mq_is_removed() {
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
        // The kernel does not report the removal of its queues.
        core.handle(now, Event::QdiscGone(mq.clone()));
        assert_eq!(engine(&core), Engine::Xdp);
    }
}

#[test]
fn egress_qdiscs_and_filters_of_an_upper_device_stop_learning_on_egress() {
    let vlan = Link { kind: Some("vlan".to_owned()), lower: Some(1), ..link(6, "r0.10") };
    let state: Vec<_> = router().into_iter().chain([Event::Link(vlan)]).collect();
    let (mut core, t) = started(Choice::default(), state);
    let settings = |actions: &[Action]| -> Vec<_> {
        let set = actions.iter().filter_map(|action| match action {
            Action::Set(setting) => Some((setting.ifindex, setting.filtered, setting.filtered_out)),
            _ => None,
        });
        set.collect()
    };
    assert_eq!(core.handle(t, Event::Qdisc(qdisc(6, "noqueue", 0))), []);
    let actions = core.handle(t, Event::Qdisc(qdisc(6, "cake", 0x8001_0000)));
    assert_eq!(settings(&actions), [(1, false, true)]);
    assert!(actions.contains(&Action::MoveEpoch(Cause::Filter)), "flows learned before must not be used");
    let view = core.ports().next().unwrap().1;
    assert_eq!(view.filters[0].to_string(), "qdisc cake of r0.10");
    assert_eq!(view.setting.engine, Engine::Xdp, "r0 itself has no qdisc");
    let actions = core.handle(t, Event::QdiscGone(qdisc(6, "cake", 0x8001_0000)));
    assert_eq!(settings(&actions), [(1, false, false)]);

    let filter = |ifindex| Event::Filter { ifindex, egress: true, kind: Some("flower".to_owned()) };
    assert_eq!(settings(&core.handle(t, filter(6))), [(1, false, true)]);
    assert_eq!(
        settings(&core.handle(t, filter(2))),
        [(2, false, false)],
        "an egress filter of the port itself only changes its engine"
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
    let no_target =
        |ifindex| Event::XdpFeatures { ifindex, native: true, target: false, target_frags: false };
    core.handle(now, no_target(1));
    assert!(core.ports().all(|(_, view)| view.setting.xdp_in));
    assert_eq!(engines(&core)[0].1, Engine::Tc);
    core.handle(now, no_target(2));
    assert!(core.ports().all(|(_, view)| view.setting.xdp_in), "a driver may need the program first");
    for link in [link(1, "r0"), link(2, "r1")] {
        core.handle(now, Event::Link(Link { xdp_prog: Some(77), ..link }));
    }
    core.handle(now, Event::Tick);
    core.handle(now + TARGET_TIME, Event::Tick);
    let accepts_none = |view: &PortView| view.reason == "its driver accepts no redirected frames";
    assert!(core.ports().all(|(_, view)| !view.setting.xdp_in && accepts_none(view)));
    // Nothing has changed, so the program is not attached again.
    core.handle(now + TARGET_TIME, Event::Link(link(1, "r0")));
    assert!(core.ports().all(|(_, view)| !view.setting.xdp_in));
    core.handle(now + TARGET_TIME, Event::Link(Link { mtu: 1400, ..link(1, "r0") }));
    assert!(core.ports().all(|(_, view)| view.setting.xdp_in));
}

#[test]
fn a_driver_that_accepts_frames_only_with_a_program_attached_is_reached_by_xdp() {
    let features =
        |ifindex, target| Event::XdpFeatures { ifindex, native: true, target, target_frags: false };
    let state = router().into_iter().chain([features(1, false), features(2, false)]).collect();
    let (mut core, now) = started(Choice::default(), state);
    assert!(core.ports().all(|(_, view)| view.setting.xdp_in && view.setting.engine == Engine::Tc));
    let actions = core.handle(now, features(2, true));
    assert!(actions.contains(&Action::MoveEpoch(Cause::Engine)), "{actions:?}");
    assert_eq!(engines(&core), [("r0".to_owned(), Engine::Tc), ("r1".to_owned(), Engine::Xdp)]);
}

#[test]
fn a_driver_that_refuses_the_program_is_left_to_tc_until_its_device_changes() {
    let (mut core, now) = started(Choice::default(), router());
    core.handle(now, Event::XdpRefused { ifindex: 2, error: "Invalid argument".to_owned() });
    let r1 = |core: &Core| core.ports().nth(1).unwrap().1.clone();
    assert_eq!(r1(&core).reason, "its driver refuses the XDP program (Invalid argument)");
    assert!(r1(&core).setting.engine == Engine::Tc && !r1(&core).setting.xdp_in);
    core.handle(now, Event::Dump(router()));
    assert!(!r1(&core).setting.xdp_in, "nothing has changed");
    core.handle(now, Event::Link(Link { mtu: 1400, ..link(2, "r1") }));
    assert!(r1(&core).setting.engine == Engine::Xdp && r1(&core).setting.xdp_in);
}

#[test]
fn a_driver_that_refuses_redirected_frames_is_left_to_tc_until_its_device_changes() {
    for engine in [EngineChoice::Auto, EngineChoice::Xdp] {
        let refused = || Event::TxError { ifindex: 2, error: "Operation not supported".to_owned() };
        let r1 = |core: &Core| core.ports().find(|(link, _)| link.name == "r1").unwrap().1.clone();
        let (mut core, now) = started(Choice { engine, ..Choice::default() }, router());
        let actions = changes(&mut core, now, refused());
        assert!(matches!(actions[..], [Action::Set(s), Action::MoveEpoch(Cause::Engine)] if s.ifindex == 2));
        assert_eq!(r1(&core).setting.engine, Engine::Tc);
        assert_eq!(r1(&core).reason, "its driver refuses redirected frames (Operation not supported)");
        assert_eq!(changes(&mut core, now, refused()), []);
        // Repeated events, a new dump and Shunt's own XDP program change nothing.
        changes(&mut core, now, Event::Link(link(2, "r1")));
        changes(&mut core, now, native(2));
        changes(&mut core, now, Event::Link(Link { xdp_prog: Some(77), ..link(2, "r1") }));
        core.handle(now, Event::Dump(router()));
        assert_eq!(r1(&core).setting.engine, Engine::Tc);
        for changed in [
            Event::Link(Link { mtu: 1400, ..link(2, "r1") }),
            Event::XdpFeatures { ifindex: 2, native: true, target: true, target_frags: false },
        ] {
            changes(&mut core, now, refused());
            assert_eq!(r1(&core).setting.engine, Engine::Tc);
            changes(&mut core, now, changed);
            assert_eq!(r1(&core).setting.engine, Engine::Xdp);
        }
        // An error that arrives after the device has gone.
        core.handle(now, Event::LinkGone { ifindex: 2 });
        assert_eq!(changes(&mut core, now, refused()), []);
    }
}

#[test]
fn xdp_does_not_run_below_a_vlan_device() {
    let (mut core, now) = started(Choice::default(), router());
    let vlan = Link { kind: Some("vlan".to_owned()), lower: Some(1), ..link(6, "r0.10") };
    let actions = changes(&mut core, now, Event::Link(vlan));
    assert!(
        matches!(actions.as_slice(), [Action::Set(s), Action::SetUppers(_)] if s.ifindex == 1 && !s.xdp_in)
    );
}

#[test]
fn xdp_does_not_run_below_a_vlan_device_on_a_bond_or_bridge() {
    for kind in ["bond", "bridge"] {
        let (mut core, now) = started(Choice::default(), router());
        changes(&mut core, now, Event::Link(Link { kind: Some(kind.to_owned()), ..link(6, "upper") }));
        changes(&mut core, now, Event::Link(Link { master: Some(6), ..link(1, "r0") }));
        let vlan = Link { kind: Some("vlan".to_owned()), lower: Some(6), ..link(7, "upper.10") };
        changes(&mut core, now, Event::Link(vlan));
        let ports: Vec<(&str, bool)> =
            core.ports().map(|(link, view)| (link.name.as_str(), view.setting.xdp_in)).collect();
        assert_eq!(ports, [("r0", false), ("r1", true)], "{kind}");
    }
}

#[test]
fn nothing_is_learned_on_a_port_below_macsec() {
    let (mut core, now) = started(Choice::default(), router());
    let macsec = Link { kind: Some("macsec".to_owned()), lower: Some(1), ..link(6, "macsec0") };
    changes(&mut core, now, Event::Link(macsec));
    let held = |core: &Core| -> Vec<(bool, bool)> {
        core.ports().map(|(_, view)| (view.setting.filtered, view.setting.filtered_out)).collect()
    };
    assert_eq!(held(&core), [(true, true), (false, false)]);
    core.handle(now, Event::LinkGone { ifindex: 6 });
    assert_eq!(held(&core), [(false, false), (false, false)]);
}

#[test]
fn the_data_plane_is_told_which_devices_are_on_top_of_which_ports() {
    let (mut core, now) = started(Choice::default(), router());
    let uppers = |devices: &[(u32, &[u32])]| {
        let all = devices.iter().map(|(upper, ports)| (*upper, ports.iter().copied().collect()));
        Action::SetUppers(all.collect())
    };
    let vlan = Link { kind: Some("vlan".to_owned()), lower: Some(1), ..link(6, "r0.10") };
    let bridge = Link { kind: Some("bridge".to_owned()), ..link(7, "br0") };
    assert!(changes(&mut core, now, Event::Link(vlan.clone())).contains(&uppers(&[(6, &[1])])));
    changes(&mut core, now, Event::Link(bridge));
    let port_of_bridge = Event::Link(Link { master: Some(7), ..vlan });
    assert!(changes(&mut core, now, port_of_bridge).contains(&uppers(&[(6, &[1]), (7, &[1])])));
    let other = Event::Link(Link { master: Some(7), ..link(2, "r1") });
    assert!(changes(&mut core, now, other).contains(&uppers(&[(6, &[1]), (7, &[1, 2])])));
    assert!(core.handle(now, Event::LinkGone { ifindex: 6 }).contains(&uppers(&[(7, &[2])])));
}

#[test]
fn a_port_with_another_xdp_program_uses_tc() {
    let (mut core, now) = started(Choice::default(), router());
    changes(&mut core, now, Event::Link(Link { xdp_prog: Some(5), ..link(1, "r0") }));
    let r0 = core.ports().find(|(link, _)| link.name == "r0").unwrap().1.clone();
    assert!(!r0.setting.xdp_in && r0.setting.engine == Engine::Tc);
    assert_eq!(changes(&mut core, now, Event::Link(Link { xdp_prog: Some(77), ..link(2, "r1") })), []);
}

#[test]
fn every_change_of_how_packets_are_treated_moves_the_epoch() {
    let (mut core, now) = started(Choice::default(), router());
    for (event, cause) in [
        (Event::Route(Scope::Everything), Cause::Route),
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
fn repeated_events_do_not_move_the_epoch() {
    let (mut core, now) = started(Choice::default(), router());
    assert_eq!(changes(&mut core, now, address(2, "198.18.0.1")), []);
    assert_eq!(changes(&mut core, now, Event::Link(link(1, "r0"))), []);
}

#[test]
fn a_change_of_a_neighbours_mac_moves_the_epoch_and_a_change_of_state_does_not() {
    let (mut core, now) = started(Choice::default(), router());
    let addr: IpAddr = "192.168.1.2".parse().unwrap();
    let mut neighbour = |mac: Option<u8>| {
        let mac = mac.map(|last| Mac([2, 0, 0, 0, 1, last]));
        core.handle(now, Event::Neighbour { ifindex: 1, addr, mac })
    };
    // Flows have been learned with the former MAC.
    let moved = |last| [Action::MoveEpochFor(Cause::Neighbour, Scope::Station(Mac([2, 0, 0, 0, 1, last])))];
    assert_eq!(neighbour(None), []);
    assert_eq!(neighbour(Some(1)), []);
    assert_eq!(neighbour(Some(1)), []);
    assert_eq!(neighbour(Some(2)), moved(1));
    assert_eq!(neighbour(None), moved(2));
    assert_eq!(neighbour(None), []);
    assert_eq!(neighbour(Some(2)), []);
    assert_eq!(core.handle(now, Event::NeighbourGone { ifindex: 1, addr }), moved(2));
}

#[test]
fn an_event_about_a_station_moves_the_epoch() {
    let (mut core, now) = started(Choice::default(), router());
    let mac = Mac([2, 0, 0, 0, 2, 1]);
    let moved = [Action::MoveEpoch(Cause::Fdb)];
    assert_eq!(core.handle(now, Event::Fdb { ifindex: 1, vlan: 0, mac }), moved);
    assert_eq!(core.handle(now, Event::FdbGone { ifindex: 1, vlan: 0, mac }), moved);
}

#[test]
fn a_port_that_is_removed_is_detached_and_a_new_one_is_attached() {
    let (mut core, now) = started(Choice::default(), router());
    let gone = changes(&mut core, now, Event::LinkGone { ifindex: 2 });
    assert_eq!(gone[0], Action::MoveEpoch(Cause::Link));
    assert!(gone.contains(&Action::Detach { ifindex: 2 }));
    assert_eq!(changes(&mut core, now, Event::Link(link(9, "r9"))), []);
    let added = changes(&mut core, now, address(9, "10.9.0.1"));
    assert!(matches!(added.as_slice(), [Action::MoveEpoch(_), Action::Attach(s)] if s.ifindex == 9));
}

#[test]
fn a_device_that_could_not_be_attached_to_is_tried_again_when_it_changes() {
    let (mut core, now) = started(Choice::default(), router());
    assert_eq!(changes(&mut core, now, Event::AttachFailed { ifindex: 2 }), []);
    assert_eq!(changes(&mut core, now, Event::Route(Scope::Everything)), [Action::MoveEpoch(Cause::Route)]);
    let again = changes(&mut core, now, Event::Link(link(2, "r1")));
    assert!(matches!(again.as_slice(), [Action::Attach(s)] if s.ifindex == 2));
}

#[test]
fn a_device_that_could_not_be_attached_to_is_tried_again_when_a_port_goes() {
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
fn a_filter_that_was_removed_is_forgotten_after_the_next_resync() {
    let (mut core, t) = started(Choice::default(), router());
    let later = t + RESYNC_GAP;
    let filter = || Event::Filter { ifindex: 2, egress: true, kind: None };
    let actions = core.handle(later, filter());
    assert_eq!(actions.first(), Some(&Action::MoveEpoch(Cause::Filter)));
    assert_eq!(actions.last(), Some(&Action::Resync));
    assert_eq!(engines(&core)[1].1, Engine::Tc);
    // A filter in the dump is not a change, and requires no other dump.
    let with_it = router().into_iter().chain([filter()]).collect();
    assert_eq!(core.handle(later, Event::Dump(with_it)), []);
    assert!(!core.handle(later + RESYNC_GAP, Event::Tick).contains(&Action::Resync));

    assert!(core.handle(later + RESYNC_GAP, filter()).contains(&Action::Resync));
    assert!(
        !core.handle(later + RESYNC_GAP, filter()).contains(&Action::Resync),
        "at most one resync a second"
    );
    core.handle(later + RESYNC_GAP, Event::Dump(router()));
    assert_eq!(engines(&core)[1].1, Engine::Xdp);
    assert!(
        core.handle(later + RESYNC_GAP * 2, Event::Tick).contains(&Action::Resync),
        "the second filter event is still due"
    );
}

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
    let filter = |ifindex| Event::Filter { ifindex, egress: false, kind: Some("u32".to_owned()) };
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
    let filter = Event::Filter { ifindex: 6, egress: false, kind: Some("flower".to_owned()) };
    assert_eq!(changed(&core.handle(t, filter)).0, [(1, true)]);
    let other = Event::Filter { ifindex: 9, egress: false, kind: Some("flower".to_owned()) };
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

#[test]
fn every_tick_updates_the_heartbeat_and_the_tables_are_swept_once_a_second() {
    let (mut core, t) = started(Choice::default(), router());
    let look = [Action::FindCaptures, Action::FindPrograms([1, 2].into())];
    let swept = [&[Action::Beat, Action::Sweep], &look[..]].concat();
    assert_eq!(core.handle(t, Event::Tick), swept);
    let not_swept = [&[Action::Beat], &look[..]].concat();
    assert_eq!(core.handle(t + Duration::from_millis(500), Event::Tick), not_swept);
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

/// The event of a change that the dump already has is still to come, and changes nothing.
#[test]
fn a_dump_that_differs_moves_the_epoch_and_the_event_that_follows_does_not() {
    let neighbour = |last| Event::Neighbour {
        ifindex: 1,
        addr: "192.168.1.2".parse().unwrap(),
        mac: Some(Mac([2, 0, 0, 0, 1, last])),
    };
    let with = |event: Event| -> Vec<Event> { router().into_iter().chain([event]).collect() };
    let without = |ifindex: u32| -> Vec<Event> {
        let is_it = |event: &Event| matches!(event, Event::Link(link) if link.ifindex == ifindex);
        router().into_iter().filter(|event| !is_it(event)).collect()
    };
    let moved = |mut actions: Vec<Action>| {
        actions.retain(|action| matches!(action, Action::MoveEpoch(_)));
        actions
    };
    for (before, event, cause) in [
        (router(), Event::Link(Link { mtu: 1280, ..link(1, "r0") }), Cause::Link),
        (router(), Event::Link(Link { digest: 5, ..link(1, "r0") }), Cause::Link),
        (router(), address(2, "198.18.0.9"), Cause::Address),
        (with(neighbour(1)), neighbour(2), Cause::Neighbour),
    ] {
        let (mut core, now) = started(Choice::default(), before);
        let dump = Event::Dump(with(event.clone()));
        assert_eq!(moved(core.handle(now, dump)), [Action::MoveEpoch(cause)], "{event:?}");
        assert_eq!(moved(core.handle(now, event.clone())), [], "{event:?}");
    }
    let (mut core, now) = started(Choice::default(), with(neighbour(1)));
    assert_eq!(moved(core.handle(now, Event::Dump(router()))), [Action::MoveEpoch(Cause::Neighbour)]);
    assert_eq!(
        moved(core.handle(now, Event::Dump(with(neighbour(1))))),
        [],
        "no action leads to a new neighbour"
    );
    let (mut core, now) = started(Choice::default(), router());
    assert!(moved(core.handle(now, Event::Dump(without(1)))).contains(&Action::MoveEpoch(Cause::Link)));
}

#[test]
fn a_change_that_is_reported_early_moves_the_epoch_again_when_the_kernel_has_finished() {
    let (mut core, now) = started(Choice::default(), router());
    for (event, cause) in [
        (Event::AddressGone { ifindex: 2, addr: "198.18.0.1".parse().unwrap(), prefix: 24 }, Cause::Address),
        (Event::Nexthop, Cause::Nexthop),
        (Event::RouteGone(Scope::Everything), Cause::Route),
        (Event::Link(Link { up: false, ..link(1, "r0") }), Cause::Link),
    ] {
        let actions = core.handle(now, event.clone());
        assert_eq!(actions.first(), Some(&Action::MoveEpoch(cause)), "{event:?}");
        assert!(actions.contains(&Action::AwaitKernel(cause, Scope::Everything)), "{event:?}");
        assert_eq!(core.handle(now, Event::Finished(cause, Scope::Everything)), [Action::MoveEpoch(cause)]);
    }
    assert_eq!(core.handle(now, Event::Route(Scope::Everything)), [Action::MoveEpoch(Cause::Route)]);
    // Once for each cause in a batch.
    let batch = core.handle_all(now, vec![Event::RouteGone(Scope::Everything); 1000]);
    assert_eq!(
        batch,
        [Action::MoveEpoch(Cause::Route), Action::AwaitKernel(Cause::Route, Scope::Everything)]
    );
}

#[test]
fn a_route_moves_the_epoch_for_its_prefix_and_again_when_it_is_gone() {
    let (mut core, now) = started(Choice::default(), router());
    let prefix = |n: u8| Scope::Prefix { addr: [198, 51, n, 0].into(), len: 24 };
    let moved = |n| Action::MoveEpochFor(Cause::Route, prefix(n));
    assert_eq!(core.handle(now, Event::Route(prefix(1))), [moved(1)]);
    let batch = [Event::RouteGone(prefix(1)), Event::RouteGone(prefix(2)), Event::RouteGone(prefix(1))];
    let awaited = |n| Action::AwaitKernel(Cause::Route, prefix(n));
    assert_eq!(core.handle_all(now, batch), [moved(1), moved(2), awaited(1), awaited(2)]);
    assert_eq!(core.handle(now, Event::Finished(Cause::Route, prefix(2))), [moved(2)]);
    // A move for everything is enough.
    let batch = [Event::Route(Scope::Everything), Event::Route(prefix(1))];
    assert_eq!(core.handle_all(now, batch), [Action::MoveEpoch(Cause::Route)]);
}

/// A router with a thousand VLAN devices, and many events of a routing protocol.
#[test]
fn ports_are_planned_once_for_a_batch_and_only_if_an_event_can_change_them() {
    let vlan =
        |n: u32| Link { kind: Some("vlan".to_owned()), lower: Some(1), ..link(100 + n, &format!("r0.{n}")) };
    let vlans = || (0..1000).map(|n| Event::Link(vlan(n)));
    let (mut core, now) = started(Choice::default(), router().into_iter().chain(vlans()).collect());
    let mut plans = |events: Vec<Event>| {
        let before = core.plans_made();
        core.handle_all(now, events);
        core.plans_made() - before
    };
    let addr = "192.168.1.2".parse().unwrap();
    let mac = Mac([2, 0, 0, 0, 2, 1]);
    for event in [
        Event::Route(Scope::Everything),
        Event::RouteGone(Scope::Everything),
        Event::Rule,
        Event::Nexthop,
        Event::Netconf,
        Event::Ruleset,
        Event::IpsecPolicy,
        Event::Neighbour { ifindex: 1, addr, mac: Some(mac) },
        Event::Fdb { ifindex: 1, vlan: 0, mac },
        address(1, "192.168.1.1"),
        Event::Link(vlan(1)),
        Event::BridgeCalls(None),
    ] {
        plans(vec![event.clone()]);
        assert_eq!((0..10_000).map(|_| plans(vec![event.clone()])).sum::<u64>(), 0, "{event:?}");
    }
    let longer = (0..1000).map(|n| Event::Link(Link { mtu: 1400, ..vlan(n) })).collect();
    assert_eq!(plans(longer), 1);
}

fn captured(core: &Core) -> Vec<u32> {
    core.ports().filter(|(_, view)| view.setting.captured).map(|(link, _)| link.ifindex).collect()
}

#[test]
fn a_capture_moves_the_epoch_after_the_setting_of_its_port() {
    let (mut core, now) = started(Choice::default(), router());
    let setting = |captured| PortSetting {
        ifindex: 2,
        engine: Engine::Xdp,
        xdp_in: true,
        xdp_frags: true,
        partial: false,
        up: true,
        captured,
        filtered: false,
        filtered_out: false,
        bridged: Bridged::default(),
        floods_unseen: false,
    };
    let on = core.handle(now, Event::Captures([2].into()));
    assert_eq!(on, [Action::Set(setting(true)), Action::MoveEpoch(Cause::Capture)]);
    assert_eq!(core.handle(now, Event::Captures([2].into())), [], "reported before");
    // A dump has no information about captures.
    assert_eq!(core.handle(now, Event::Dump(router())), []);
    assert_eq!(captured(&core), [2]);
    // Flows learned meanwhile stay valid, so the epoch does not move.
    assert_eq!(core.handle(now, Event::Captures(BTreeSet::new())), [Action::Set(setting(false))]);
}

#[test]
fn a_capture_on_all_devices_or_on_an_upper_device_counts_for_the_port() {
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
fn captures_are_searched_for_when_a_link_changes_unless_they_are_ignored() {
    let promiscuous = || Event::Link(link(2, "r1"));
    let (mut core, now) = started(Choice::default(), router());
    assert_eq!(core.handle(now, promiscuous()), [Action::FindCaptures]);
    let (mut core, now) = started(Choice { captures: CaptureChoice::Ignore, ..Choice::default() }, router());
    assert_eq!(core.handle(now, promiscuous()), []);
    assert!(!core.handle(now, Event::Tick).contains(&Action::FindCaptures));
}
