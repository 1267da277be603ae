//! Which devices are ports, under which names.

use super::*;

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
    assert_eq!(names(&core), ["r0", "r1", "lan0", "lan1"]);
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
    for upper in [vlan("lan"), bridge("lan"), Link { layer: LinkLayer::Other, ..link(8, "lan") }] {
        core.handle(now, Event::Link(upper));
        assert_eq!(core.ports().count(), 1);
    }
    core.handle(now, Event::Link(Link { master: Some(7), ..link(9, "lan") }));
    assert_eq!(core.ports().count(), 2);
    let why = |link| core.unfit(&link).unwrap();
    assert_eq!(why(vlan("lan")), "a VLAN device cannot be a port; name the devices below it as ports: r0");
    assert_eq!(why(bridge("lan")), "a bridge cannot be a port; name the devices below it as ports: lan");
    assert_eq!(core.unfit(&link(9, "lan")), None);
}

/// A device without an Ethernet header.
fn without_ethernet(ifindex: u32, name: &str, kind: &str) -> Link {
    Link { layer: LinkLayer::Absent, ..of_kind(kind, link(ifindex, name)) }
}

#[test]
fn tunnels_with_an_address_are_ports_of_the_engine_tc() {
    let mut state = router();
    for (ifindex, kind) in [(3, "wireguard"), (4, "tun"), (5, "ppp"), (6, "gre"), (7, "sit")] {
        state.push(Event::Link(without_ethernet(ifindex, kind, kind)));
        state.push(address(ifindex, "10.8.0.1"));
    }
    state.push(Event::Link(without_ethernet(8, "idle", "wireguard")));
    for engine in [EngineChoice::Auto, EngineChoice::Xdp, EngineChoice::External] {
        let (core, _) = started(Choice { engine, ..Choice::default() }, state.clone());
        let ports: Vec<_> = core.ports().filter(|(_, view)| view.setting.no_l2).collect();
        let names: Vec<_> = ports.iter().map(|(link, _)| link.name.as_str()).collect();
        assert_eq!(names, ["wireguard", "tun", "ppp", "gre", "sit"]);
        for (link, PortView { setting, reason, .. }) in ports {
            assert_eq!((setting.engine, setting.xdp_in), (Engine::Tc, false), "{link:?}");
            assert!(reason.contains("no Ethernet header"), "{reason}");
            assert!(core.lacks_xdp(link).is_some());
        }
    }
}

#[test]
fn tunnels_that_linux_treats_by_route_or_policy_are_no_ports() {
    let (core, _) = started(Choice::default(), router());
    let why = |link: &Link| core.unfit(link).unwrap();
    for kind in ["xfrm", "vti", "vti6"] {
        assert!(why(&without_ethernet(8, "t0", kind)).contains("IPsec must see each packet"), "{kind}");
    }
    let of_many = Link { layer: LinkLayer::WithoutRemote, ..without_ethernet(8, "t0", "gre") };
    assert!(why(&of_many).contains("`remote`"), "{}", why(&of_many));
    assert_eq!(why(&without_ethernet(8, "t0", "netkit")), "not an Ethernet device");
    assert_eq!(core.unfit(&without_ethernet(8, "t0", "ip6tnl")), None);
}

fn of_kind(kind: &str, link: Link) -> Link {
    Link { kind: Some(kind.to_owned()), bus: None, ..link }
}

fn names(core: &Core) -> Vec<&str> {
    core.ports().map(|(link, _)| link.name.as_str()).collect()
}

#[test]
fn tunnels_of_ethernet_frames_with_an_address_are_ports() {
    let kinds = ["vxlan", "geneve", "gretap", "ip6gretap", "netkit"];
    let mut state = router();
    for (ifindex, kind) in (3..).zip(kinds) {
        state.extend([Event::Link(of_kind(kind, link(ifindex, kind))), address(ifindex, "10.8.0.1")]);
    }
    let of_many = Link { layer: LinkLayer::WithoutRemote, ..of_kind("vxlan", link(20, "external")) };
    state.extend([
        Event::Link(of_many),
        address(20, "10.9.0.1"),
        Event::Link(of_kind("vxlan", link(21, "idle"))),
    ]);
    let (core, _) = started(Choice::default(), state);
    assert_eq!(names(&core), [&["r0", "r1"][..], &kinds].concat());
    assert!(core.ports().skip(2).all(|(_, view)| !view.setting.no_l2));
}

#[test]
fn devices_beyond_the_most_ports_wait_for_a_place_and_are_named() {
    let last = Config::PORTS_MAX as u32;
    let device = |ifindex| [Event::Link(link(ifindex, &format!("v{ifindex}"))), address(ifindex, "10.8.0.1")];
    let mut state = router();
    state.extend((3..=last + 7).flat_map(device));
    let (mut core, now) = started(Choice::default(), state);
    assert_eq!(names(&core).len(), Config::PORTS_MAX);
    assert_eq!(core.beyond, (last + 1..=last + 7).collect());
    let causes = core.slow_causes(crate::TrackedCounts::default());
    assert_eq!(causes.len(), 1, "{causes:?}");
    assert_eq!(
        causes[0].what,
        "packets through v1025, v1026, v1027, v1028, v1029 and 2 more stay slow: this instance has at most 1024 ports"
    );
    // The oldest of those that wait gets the place. A port stays one.
    let actions = core.handle(now, Event::LinkGone { ifindex: 3 });
    assert!(names(&core).contains(&"v1025") && !names(&core).contains(&"v1026"), "{actions:?}");
    let actions = core.handle_all(now, device(3));
    assert_eq!(core.beyond, [3].into_iter().chain(last + 2..=last + 7).collect());
    assert!(!actions.iter().any(|action| matches!(action, Action::Attach(_) | Action::Detach { .. })));
}

/// A qdisc or an address of a tunnel says nothing of the device that carries it.
#[test]
fn the_device_that_carries_a_tunnel_is_not_below_it() {
    let mut state = router();
    let tunnel = Link { lower: Some(2), ..of_kind("vxlan", link(3, "vx0")) };
    let over_idle = Link { lower: Some(5), ..of_kind("vxlan", link(4, "vx1")) };
    state.extend([Event::Link(tunnel), Event::Link(over_idle), Event::Link(link(5, "idle0"))]);
    state.extend([address(3, "10.8.0.1"), address(4, "10.9.0.1"), Event::Qdisc(qdisc(3, "htb", 0x1_0000))]);
    let (core, _) = started(Choice::default(), state);
    assert_eq!(names(&core), ["r0", "r1", "vx0", "vx1"]);
    assert!(core.ports().all(|(_, view)| view.filters.is_empty()));
}

#[test]
fn the_ports_of_a_switch_are_ports_and_the_device_that_leads_there_never_is() {
    let user = |ifindex, name: &str| Link { lower: Some(3), ..of_kind("dsa", link(ifindex, name)) };
    let mut state = router();
    state.extend([Event::Link(link(3, "eth0")), address(3, "10.1.0.1")]);
    state.extend([Event::Link(user(4, "lan1")), address(4, "10.2.0.1")]);
    state.extend([Event::Link(user(5, "lan2")), address(5, "10.3.0.1")]);
    let (mut core, now) = started(Choice::default(), state);
    assert_eq!(names(&core), ["r0", "r1", "lan1", "lan2"]);
    let conduit =
        "the device that leads to a switch (DSA) cannot be a port; name the ports of the switch: lan1, lan2";
    assert_eq!(core.unfit(&link(3, "eth0")).as_deref(), Some(conduit));
    let causes = core.slow_causes(crate::TrackedCounts { untracked: 0, learned: 0 });
    let of_eth0: Vec<_> = causes.iter().filter(|cause| cause.what.contains("eth0")).collect();
    assert!(
        of_eth0.iter().all(|cause| cause.what.contains(conduit) && !cause.remedy.contains("--port")),
        "{of_eth0:?}"
    );
    let named = Choice { ports: vec!["eth0".to_owned(), "lan1".to_owned()], ..Choice::default() };
    core.handle(now, Event::Chosen(named.clone()));
    assert_eq!(names(&core), ["lan1"]);

    // The switch is found later.
    let state = [router(), vec![Event::Link(link(3, "eth0")), address(3, "10.1.0.1")]].concat();
    let (mut core, now) = started(named, state);
    assert_eq!(names(&core), ["eth0"]);
    core.handle(now, Event::Link(user(4, "lan1")));
    assert_eq!(names(&core), ["lan1"]);
}

/// The packets of a tunnel are not those of the port that carries it.
#[test]
fn a_qdisc_or_a_capture_on_a_tunnel_does_not_concern_the_port_below() {
    let mut state = router();
    let tunnel = Link { lower: Some(2), ..without_ethernet(3, "t0", "gre") };
    state.extend([Event::Link(tunnel), address(3, "10.8.0.1"), Event::Qdisc(qdisc(3, "htb", 0x1_0000))]);
    let (mut core, now) = started(Choice::default(), state);
    core.handle(now, Event::Captures([3].into()));
    let settings: Vec<_> = core.ports().map(|(_, view)| view.setting).collect();
    assert_eq!(settings.iter().map(|port| port.captured).collect::<Vec<_>>(), [false, false, true]);
    assert!(settings.iter().all(|port| !port.filtered_out), "{settings:?}");
}

/// Another program sees the packets of a device whose link type has changed.
#[test]
fn a_device_whose_link_type_changes_is_attached_again() {
    let mut state = router();
    let ethernet = Link { kind: Some("tun".to_owned()), bus: None, ..link(3, "tun0") };
    state.extend([Event::Link(ethernet.clone()), address(3, "10.8.0.1")]);
    let (mut core, now) = started(Choice::default(), state);
    let actions = changes(&mut core, now, Event::Link(Link { layer: LinkLayer::Absent, ..ethernet }));
    let of_port: Vec<_> =
        actions.iter().filter(|action| matches!(action, Action::Attach(_) | Action::Detach { .. })).collect();
    assert!(
        matches!(of_port[..], [Action::Detach { ifindex: 3 }, Action::Attach(new)] if new.no_l2),
        "{actions:?}"
    );
    assert!(actions.contains(&Action::MoveEpoch(Cause::Link)), "{actions:?}");
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

fn named(ports: &[&str]) -> Choice {
    Choice {
        ports: ports.iter().map(|port| (*port).to_owned()).collect(),
        engine: EngineChoice::Tc,
        ..Choice::default()
    }
}

#[test]
fn another_configuration_adds_and_removes_ports_and_other_flows_go_on() {
    let mut state = router();
    state.extend([Event::Link(link(3, "r2")), address(3, "10.0.0.1")]);
    let (mut core, now) = started(named(&["r0", "r1"]), state);
    let added = changes(&mut core, now, Event::Chosen(named(&["r0", "r1", "r2"])));
    assert!(matches!(&added[..], [Action::Attach(s)] if s.ifindex == 3), "{added:?}");
    assert_eq!(changes(&mut core, now, Event::Chosen(named(&["r0", "r1"]))), [Action::Detach { ifindex: 3 }]);
    assert_eq!(changes(&mut core, now, Event::Chosen(named(&["r0", "r1"]))), []);
    // All devices that forward.
    let all = changes(&mut core, now, Event::Chosen(named(&[])));
    assert!(matches!(&all[..], [Action::Attach(s)] if s.ifindex == 3), "{all:?}");
}

#[test]
fn a_port_that_was_renamed_is_one_until_the_configuration_names_others() {
    let (mut core, now) = started(named(&["r0", "r1"]), router());
    core.handle(now, Event::Link(link(2, "wan")));
    let same = Choice { captures: CaptureChoice::Ignore, ..named(&["r0", "r1"]) };
    assert_eq!(changes(&mut core, now, Event::Chosen(same)), []);
    assert_eq!(changes(&mut core, now, Event::Chosen(named(&["r0"]))), [Action::Detach { ifindex: 2 }]);
}

#[test]
fn a_port_that_xdp_used_takes_all_flows_with_it() {
    let choice = |ports: &[&str]| Choice { engine: EngineChoice::Xdp, ..named(ports) };
    let (mut core, now) = started(choice(&["r0", "r1"]), router());
    let gone = changes(&mut core, now, Event::Chosen(choice(&["r0"])));
    assert!(gone.contains(&Action::Detach { ifindex: 2 }), "{gone:?}");
    assert!(gone.contains(&Action::MoveEpoch(Cause::Engine)), "{gone:?}");
}

#[test]
fn another_engine_is_set_and_captures_are_forgotten_when_they_do_not_count() {
    let (mut core, now) = started(named(&[]), router());
    let set = changes(&mut core, now, Event::Chosen(Choice { engine: EngineChoice::Xdp, ..named(&[]) }));
    assert!(
        set.iter().filter(|action| matches!(action, Action::Set(s) if s.engine == Engine::Xdp)).count() == 2
    );
    assert!(set.contains(&Action::MoveEpoch(Cause::Engine)));
    core.handle(now, Event::Captures([2].into()));
    assert!(core.ports().any(|(_, view)| view.setting.captured));
    let ignored = Choice { engine: EngineChoice::Xdp, captures: CaptureChoice::Ignore, ..named(&[]) };
    core.handle(now, Event::Chosen(ignored));
    assert!(!core.ports().any(|(_, view)| view.setting.captured));
    assert!(!core.handle(now, Event::Tick).contains(&Action::FindCaptures));
}
