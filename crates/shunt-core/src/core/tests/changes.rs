//! Changes of the kernel's state: when the epoch moves, ports come and go, and messages were lost.

use super::*;

#[test]
fn every_change_of_how_packets_are_treated_moves_the_epoch() {
    let (mut core, now) = started(Choice::default(), router());
    for (event, cause) in [
        (Event::Route(Scope::Everything, RouteDetails::default()), Cause::Route),
        (Event::Rule, Cause::Rule),
        (Event::Nexthop, Cause::Nexthop),
        (Event::Ruleset, Cause::Ruleset),
        (Event::IpsecPolicy, Cause::Ipsec),
        (Event::Netconf(Netconf::Unknown), Cause::Netconf),
        (Event::BridgeVlans { ifindex: 1 }, Cause::Netconf),
        (Event::BridgePort { ifindex: 1, port: None, runs: true }, Cause::Netconf),
        (Event::Filter { ifindex: 9, egress: true, kind: None, change: None }, Cause::Filter),
        (address(2, "198.18.0.9"), Cause::Address),
        (Event::Flush, Cause::Flush),
        (Event::Off, Cause::Off),
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
    assert_eq!(changes(&mut core, now, native(9)), []);
    let added = changes(&mut core, now, address(9, "10.9.0.1"));
    assert!(matches!(added.as_slice(), [Action::MoveEpoch(_), Action::Attach(s)] if s.ifindex == 9));
}

#[test]
fn a_device_that_could_not_be_attached_to_is_tried_again_when_it_changes() {
    let (mut core, now) = started(Choice::default(), router());
    assert_eq!(changes(&mut core, now, Event::AttachFailed { ifindex: 2 }), []);
    assert_eq!(
        changes(&mut core, now, Event::Route(Scope::Everything, RouteDetails::default())),
        [Action::MoveEpoch(Cause::Route)]
    );
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
    assert_eq!(core.handle(later, Event::Overrun(EventSource::Route)), [moved.clone(), Action::Resync]);
    for _ in 0..100 {
        assert_eq!(core.handle(later, Event::Overrun(EventSource::Route)), std::slice::from_ref(&moved));
    }
    assert!(!core.handle(later, Event::Tick).contains(&Action::Resync));
    assert!(core.handle(later + RESYNC_GAP, Event::Tick).contains(&Action::Resync));
    assert!(!core.handle(later + RESYNC_GAP * 2, Event::Tick).contains(&Action::Resync));
}

#[test]
fn a_filter_that_was_removed_is_forgotten_after_the_next_resync() {
    let (mut core, t) = started(Choice::default(), router());
    let later = t + RESYNC_GAP;
    let filter = || Event::Filter { ifindex: 2, egress: true, kind: None, change: None };
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
        (Event::RouteGone(Scope::Everything, RouteDetails::default()), Cause::Route),
        (Event::Link(Link { up: false, ..link(1, "r0") }), Cause::Link),
    ] {
        let actions = core.handle(now, event.clone());
        assert_eq!(actions.first(), Some(&Action::MoveEpoch(cause)), "{event:?}");
        assert!(actions.contains(&Action::AwaitKernel(cause, Scope::Everything)), "{event:?}");
        assert_eq!(core.handle(now, Event::Finished(cause, Scope::Everything)), [Action::MoveEpoch(cause)]);
    }
    assert_eq!(
        core.handle(now, Event::Route(Scope::Everything, RouteDetails::default())),
        [Action::MoveEpoch(Cause::Route)]
    );
    // Once for each cause in a batch.
    let batch =
        core.handle_all(now, vec![Event::RouteGone(Scope::Everything, RouteDetails::default()); 1000]);
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
    assert_eq!(core.handle(now, Event::Route(prefix(1), RouteDetails::default())), [moved(1)]);
    let batch = [
        Event::RouteGone(prefix(1), RouteDetails::default()),
        Event::RouteGone(prefix(2), RouteDetails::default()),
        Event::RouteGone(prefix(1), RouteDetails::default()),
    ];
    let awaited = |n| Action::AwaitKernel(Cause::Route, prefix(n));
    assert_eq!(core.handle_all(now, batch), [moved(1), moved(2), awaited(1), awaited(2)]);
    assert_eq!(core.handle(now, Event::Finished(Cause::Route, prefix(2))), [moved(2)]);
    // A move for everything is enough.
    let batch = [
        Event::Route(Scope::Everything, RouteDetails::default()),
        Event::Route(prefix(1), RouteDetails::default()),
    ];
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
        Event::Route(Scope::Everything, RouteDetails::default()),
        Event::RouteGone(Scope::Everything, RouteDetails::default()),
        Event::Rule,
        Event::Nexthop,
        Event::Netconf(Netconf::Unknown),
        Event::BridgeVlans { ifindex: 1 },
        Event::BridgePort { ifindex: 1, port: None, runs: true },
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
