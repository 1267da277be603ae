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
