use super::*;
use crate::{
    Action, Choice, DefaultRoute, NextHop, RouteChange, Sysctl, TcChange, TcObject,
    core::tests::{address, link, router, started},
};

/// What is told of a batch of changes: of links, then what the epoch moves for, then the rest.
fn told(core: &mut Core, now: Instant, events: impl IntoIterator<Item = Event>) -> Vec<String> {
    let actions = core.handle_all(now, events);
    let mut all: Vec<String> = core.take_links().into_iter().map(|told| words(&told)).collect();
    for action in actions {
        let (cause, scope) = match action {
            // A device that is no port any more.
            Action::MoveEpoch(Cause::Engine) => continue,
            Action::MoveEpoch(cause) => (cause, Scope::Everything),
            Action::MoveEpochFor(cause, scope) => (cause, scope),
            _ => continue,
        };
        let changes = core.take_changes(cause, scope);
        all.extend(changes.iter().map(|change| format!("{cause}: {}", about(change))));
    }
    all.extend(core.take_told().iter().map(words));
    all
}

fn words(told: &Told) -> String {
    match told {
        Told::Link { port, up } => format!("{port} {}", if *up { "up" } else { "down" }),
        Told::DefaultRoute(change) => about(change),
        Told::CaptureEnded { ports } => format!("no capture on {}", ports.join(", ")),
        Told::Tc(news) => news.words.clone(),
        Told::Neighbour { device, addr, mac, was } => format!("{addr} dev {device} has {mac} (was {was})"),
    }
}

fn about(change: &ChangeDetails) -> String {
    let ChangeDetails { device, object } = change;
    [object, device].into_iter().flatten().cloned().collect::<Vec<_>>().join(" @ ")
}

const PORT: BridgePort = BridgePort {
    settings: 1,
    state: 3,
    derived: 1,
    switches: 0b1_0000,
    cost: 2,
    priority: 32,
    mcast_router: 1,
};

fn bridged(link: Link, port: BridgePort) -> Link {
    Link { master: Some(9), bridge_port: Some(port), ..link }
}

fn bridge() -> Link {
    Link { kind: Some("bridge".to_owned()), bus: None, ..link(9, "br0") }
}

/// A bridge of r0 and r2, and r1.
fn bridged_router() -> Vec<Event> {
    let links = [bridged(link(1, "r0"), PORT), bridged(link(3, "r2"), PORT), bridge()].map(Event::Link);
    router().into_iter().chain(links).chain([address(9, "192.168.9.1")]).collect()
}

fn down(link: Link) -> Event {
    Event::Link(Link { up: false, carrier: false, ..link })
}

fn no_carrier(link: Link) -> Event {
    Event::Link(Link { carrier: false, ..link })
}

fn prefix(addr: &str, len: u8) -> Scope {
    Scope::Prefix { addr: addr.parse().unwrap(), len }
}

/// The messages are those of a real bridge (Linux 6.12), in their order.
#[test]
fn a_link_that_goes_down_and_up_is_one_line_each() {
    let (mut core, now) = started(Choice::default(), bridged_router());
    let port = |state, runs| Event::BridgePort { ifindex: 1, port: Some(BridgePort { state, ..PORT }), runs };
    let link_local: IpAddr = "fe80::1".parse().unwrap();
    let route = RouteDetails { device: Some(1), by_kernel: true, default: None };
    let goes_down = [
        down(bridged(link(1, "r0"), PORT)),
        Event::RouteGone(prefix("ff00::", 8), route.clone()),
        port(0, false),
        Event::AddressGone { ifindex: 1, addr: link_local, prefix: 64 },
        no_carrier(bridge()),
    ];
    assert_eq!(told(&mut core, now, goes_down), ["r0 down"]);
    let finished = Event::Finished(Cause::Link, Scope::Everything);
    assert_eq!(told(&mut core, now, [finished]), Vec::<String>::new());
    let later = now + Duration::from_secs(60);
    let disabled = BridgePort { state: 0, ..PORT };
    let comes_up = [
        no_carrier(bridged(link(1, "r0"), disabled)),
        port(0, false),
        Event::Route(prefix("ff00::", 8), route.clone()),
        port(3, true),
        Event::Link(bridged(link(1, "r0"), PORT)),
        Event::Link(bridge()),
    ];
    assert_eq!(told(&mut core, later, comes_up), ["r0 up"]);
    let soon = later + Duration::from_secs(2);
    let addresses = [
        Event::Address { ifindex: 1, addr: link_local, prefix: 64 },
        Event::Route(prefix("fe80::", 64), route),
    ];
    assert_eq!(told(&mut core, soon, addresses), Vec::<String>::new());
}

/// The kernel sends the message of the bridge first.
#[test]
fn a_port_of_a_bridge_that_loses_its_carrier_is_one_line() {
    let (mut core, now) = started(Choice::default(), bridged_router());
    let disabled = BridgePort { state: 0, derived: 2, ..PORT };
    let messages = [
        Event::BridgePort { ifindex: 1, port: Some(disabled), runs: false },
        no_carrier(bridged(link(1, "r0"), disabled)),
    ];
    assert_eq!(told(&mut core, now, messages), ["r0 down"]);
    // Linux reports the carrier of the bridge a second later.
    let second = now + Duration::from_secs(1);
    assert_eq!(told(&mut core, second, [no_carrier(bridge())]), Vec::<String>::new());
}

#[test]
fn what_somebody_changes_by_hand_is_told_with_its_device() {
    let (mut core, now) = started(Choice::default(), bridged_router());
    let port = |port| Event::BridgePort { ifindex: 1, port: Some(port), runs: true };
    let at = "@ r0";
    for (event, wanted) in [
        (
            port(BridgePort { settings: 2, ..PORT }),
            format!("netconf: a setting of its port in the bridge {at}"),
        ),
        // A port that is blocked although its link is up.
        (
            port(BridgePort { settings: 2, state: 4, ..PORT }),
            format!("netconf: state blocking in its bridge {at}"),
        ),
        (
            port(BridgePort { settings: 3, state: 4, switches: 1 << 13, priority: 16, ..PORT }),
            format!("netconf: learning off, isolated on, priority 16 in its bridge {at}"),
        ),
        (
            port(BridgePort { settings: 4, state: 4, derived: 2, cost: 100, mcast_router: 2, ..PORT }),
            format!(
                "netconf: learning on, isolated off, priority 32, mcast_router 2, cost 100 in its bridge {at}"
            ),
        ),
        (
            port(BridgePort { settings: 4, state: 4, derived: 3, cost: 100, mcast_router: 2, ..PORT }),
            format!("netconf: spanning tree of its bridge {at}"),
        ),
        (Event::BridgeVlans { ifindex: 1 }, format!("netconf: VLANs of the bridge {at}")),
        (
            Event::Netconf(Netconf::Changed(Sysctl {
                family: "ipv4",
                of: SysctlOf::Device(1),
                name: "rp_filter",
                value: 1,
            })),
            format!("netconf: net.ipv4.conf.r0.rp_filter = 1 {at}"),
        ),
        (
            Event::Link(Link { mtu: 1400, master: None, ..link(1, "r0") }),
            format!("link: MTU 1400 instead of 1500, no longer in br0 {at}"),
        ),
        (Event::Link(Link { mtu: 1400, digest: 5, ..link(1, "r0") }), format!("link: a setting {at}")),
        (address(1, "192.0.2.77"), format!("address: address 192.0.2.77/24 added {at}")),
        (
            Event::AddressGone { ifindex: 1, addr: "192.0.2.77".parse().unwrap(), prefix: 24 },
            format!("address: address 192.0.2.77/24 removed {at}"),
        ),
        (down(bridge()), "link: link down @ br0".to_owned()),
        (Event::LinkGone { ifindex: 3 }, "link: removed @ r2".to_owned()),
    ] {
        assert_eq!(told(&mut core, now, [event.clone()]), [wanted], "{event:?}");
    }
    // A device that comes has messages of all its settings.
    assert_eq!(told(&mut core, now, [Event::Netconf(Netconf::OfDevice)]), Vec::<String>::new());
}

#[test]
fn a_change_by_hand_is_told_even_when_the_link_has_just_gone_down_or_up() {
    let (mut core, now) = started(Choice::default(), bridged_router());
    told(&mut core, now, [down(bridged(link(1, "r0"), PORT))]);
    let changed = BridgePort { settings: 2, state: 0, ..PORT };
    let by_hand = [
        Event::BridgePort { ifindex: 1, port: Some(changed), runs: false },
        down(bridge()),
        Event::AddressGone { ifindex: 2, addr: "198.18.0.1".parse().unwrap(), prefix: 24 },
    ];
    let wanted = [
        "netconf: a setting of its port in the bridge @ r0",
        "link: link down @ br0",
        "address: address 198.18.0.1/24 removed @ r1",
    ];
    assert_eq!(told(&mut core, now, by_hand), wanted);
    // Linux has removed these with the link, and an owner has to add them again.
    let addr = "2001:db8::1".parse().unwrap();
    let gone = Event::AddressGone { ifindex: 1, addr, prefix: 64 };
    told(&mut core, now, [Event::Address { ifindex: 1, addr, prefix: 64 }]);
    let wanted = ["address: an address of IPv6 removed: the link is down @ r0"];
    assert_eq!(told(&mut core, now, [gone]), wanted);
}

#[test]
fn a_vlan_device_goes_down_with_the_device_that_carries_it() {
    let vlan = Link { kind: Some("vlan".to_owned()), bus: None, lower: Some(1), ..link(7, "r0.7") };
    let state = router().into_iter().chain([Event::Link(vlan.clone())]).collect();
    let (mut core, now) = started(Choice::default(), state);
    assert_eq!(told(&mut core, now, [down(link(1, "r0")), down(vlan.clone())]), ["r0 down"]);
    let later = now + Duration::from_secs(60);
    assert_eq!(told(&mut core, later, [Event::Link(vlan)]), ["link: link up @ r0.7"], "by hand");
}

#[test]
fn links_that_differ_after_messages_were_lost_are_told_the_same() {
    let (mut core, now) = started(Choice::default(), router());
    let mut state = router();
    state[0] = down(link(1, "r0"));
    state[1] = Event::Link(Link { mtu: 1400, ..link(2, "r1") });
    let wanted = ["r0 down", "link: MTU 1400 instead of 1500 @ r1"];
    assert_eq!(told(&mut core, now, [Event::Dump(state)]), wanted);
    let without = router().into_iter().skip(1).collect();
    assert_eq!(told(&mut core, now, [Event::Dump(without)])[0], "link: removed @ r0");
}

#[test]
fn a_change_has_its_device_and_is_not_told_again_when_the_kernel_has_finished() {
    let (mut core, now) = started(Choice::default(), router());
    let addr = "198.18.0.1".parse().unwrap();
    for (event, cause, wanted) in [
        (
            Event::AddressGone { ifindex: 2, addr, prefix: 24 },
            Cause::Address,
            "address: address 198.18.0.1/24 removed @ r1",
        ),
        (Event::RouteGone(Scope::Everything, Some(1).into()), Cause::Route, "route: r0"),
        (Event::RouteGone(Scope::Everything, None.into()), Cause::Route, "route: "),
        (Event::LinkGone { ifindex: 2 }, Cause::Link, "link: removed @ r1"),
        (Event::Ruleset, Cause::Ruleset, "ruleset: "),
    ] {
        assert_eq!(told(&mut core, now, [event.clone()]), [wanted], "{event:?}");
        let finished = Event::Finished(cause, Scope::Everything);
        assert_eq!(told(&mut core, now, [finished]), Vec::<String>::new(), "{event:?}");
    }
    // Two changes, one move.
    let two = [1, 2].map(|n| Event::Link(Link { mtu: 1400, ..link(n, if n == 1 { "r0" } else { "r1" }) }));
    core.handle_all(now, [Event::Link(link(2, "r1"))]);
    let said = told(&mut core, now, two);
    assert_eq!(said.len(), 2, "{said:?}");
}

/// The routes, and which of them a flow depends on.
#[test]
fn a_route_is_told_when_the_kernel_has_removed_it_if_a_flow_depends_on_it_only_then() {
    let (mut core, now) = started(Choice::default(), router());
    let scope = prefix("198.51.100.0", 24);
    core.handle(now, Event::RouteGone(scope, Some(2).into()));
    core.pass_changes(Cause::Route, scope);
    let said = told(&mut core, now, [Event::Finished(Cause::Route, scope)]);
    assert_eq!(said, ["route: route 198.51.100.0/24 removed @ r1"]);
    assert_eq!(told(&mut core, now, [Event::Finished(Cause::Route, scope)]), Vec::<String>::new());
}

#[test]
fn a_default_route_is_told_in_words_of_ip_route_although_no_epoch_moves_for_it() {
    let (mut core, now) = started(Choice::default(), router());
    let (v4, v6) = (prefix("0.0.0.0", 0), prefix("::", 0));
    let details = |gateway: &str, change| RouteDetails {
        default: Some(Box::new(DefaultRoute {
            hops: vec![NextHop { gateway: gateway.parse().ok(), device: Some(2) }],
            change,
            ..DefaultRoute::default()
        })),
        ..Some(2).into()
    };
    let comes = |scope| Event::Route(scope, details("192.0.2.1", RouteChange::Added));
    let goes = |scope| Event::RouteGone(scope, details("192.0.2.1", RouteChange::Either));
    let (added, removed) =
        ("default via 192.0.2.1 dev r1 added @ r1", "default via 192.0.2.1 dev r1 removed @ r1");
    assert_eq!(told(&mut core, now, [goes(v4)]), [format!("route: {removed}")]);
    assert_eq!(told(&mut core, now, [Event::Finished(Cause::Route, v4)]), Vec::<String>::new());
    // No flow depends on it.
    core.handle(now, comes(v4));
    core.pass_changes(Cause::Route, v4);
    assert_eq!(core.take_told().iter().map(words).collect::<Vec<_>>(), [added]);
    assert_eq!(core.take_told(), []);
    // One move for two changes.
    assert_eq!(told(&mut core, now, [goes(v4), comes(v4)]), [format!("route: {removed}"), added.to_owned()]);
    let last = told(&mut core, now, [goes(v4), comes(v4), goes(v4)]).pop();
    assert_eq!(last.as_deref(), Some(removed));
    // However often, and not for other routes.
    let changes = |gateway| Event::Route(v6, details(gateway, RouteChange::Replaced));
    let other = || Event::Route(prefix("198.18.0.0", 16), Some(2).into());
    core.handle_all(now, (0..100).flat_map(|_| [changes("fe80::1"), other(), changes("fe80::2")]));
    core.pass_changes(Cause::Route, v6);
    let said: Vec<String> = core.take_told().iter().map(words).collect();
    let wanted = ["fe80::1", "fe80::2"].map(|gateway| format!("default via {gateway} dev r1 changed @ r1"));
    assert_eq!(said, wanted);
    let with_link = [down(link(2, "r1")), goes(v4)];
    let wanted = ["r1 down", "route: default via 192.0.2.1 dev r1 removed: the link is down @ r1"];
    assert_eq!(told(&mut core, now, with_link), wanted);
}

fn qdisc(ifindex: u32, kind: &str, handle: u32) -> Qdisc {
    Qdisc { ifindex, kind: kind.to_owned(), handle, parent: 0xffff_ffff }
}

#[test]
fn qdiscs_are_told_whatever_the_engine_is_and_those_of_the_kernel_are_not() {
    let (mut core, now) = started(Choice::default(), router());
    let tbf = qdisc(2, "tbf", 0x8001_0000);
    for (event, wanted) in [
        (Event::QdiscGone(qdisc(2, "noqueue", 0)), vec![]),
        (Event::Qdisc(tbf.clone()), vec!["qdisc tbf 8001: added on r1"]),
        (Event::Qdisc(tbf.clone()), vec!["qdisc tbf 8001: changed on r1"]),
        (Event::QdiscGone(tbf.clone()), vec!["qdisc tbf 8001: removed on r1"]),
        (Event::QdiscGone(tbf.clone()), vec![]),
        (Event::Qdisc(qdisc(2, "fq_codel", 0)), vec![]),
    ] {
        assert_eq!(told(&mut core, now, [event.clone()]), wanted, "{event:?}");
    }
    // One in the place of another.
    let htb = qdisc(1, "htb", 0x1_0000);
    told(&mut core, now, [Event::Qdisc(htb.clone())]);
    let replaced = [Event::QdiscGone(htb.clone()), Event::Qdisc(qdisc(1, "prio", 0x2_0000))];
    assert_eq!(told(&mut core, now, replaced), ["qdisc htb 1: removed on r0", "qdisc prio 2: added on r0"]);
    // Those of a device go with it.
    let gone = told(&mut core, now, [Event::LinkGone { ifindex: 1 }]);
    assert_eq!(gone, ["link: removed @ r0"]);
}

/// A dump follows every change of a filter, and the changes during the dump are handed to the policy a second time.
#[test]
fn what_a_dump_repeats_is_told_once_and_what_messages_had_told_that_were_lost_is_told_by_the_dump() {
    let (mut core, now) = started(Choice::default(), router());
    let [tbf, prio] = [qdisc(2, "tbf", 0x8001_0000), qdisc(1, "prio", 0x2_0000)];
    let with = |qdiscs: &[&Qdisc]| {
        let qdiscs = qdiscs.iter().map(|qdisc| Event::Qdisc((*qdisc).clone()));
        Event::Dump(router().into_iter().chain(qdiscs).collect())
    };
    assert_eq!(told(&mut core, now, [Event::Qdisc(tbf.clone())]).len(), 1);
    // The dump was made before the change, or after it.
    let none: [&str; 0] = [];
    assert_eq!(told(&mut core, now, [with(&[]), Event::Qdisc(tbf.clone())]), none);
    assert_eq!(told(&mut core, now, [with(&[&tbf]), Event::Qdisc(tbf.clone())]), none);
    let wanted = ["qdisc tbf 8001: removed on r1", "qdisc prio 2: added on r0"];
    assert_eq!(told(&mut core, now, [with(&[&prio])]), wanted);
    assert_eq!(told(&mut core, now, [with(&[&prio])]), none);
}

#[test]
fn filters_are_told_by_their_own_messages_and_not_by_those_of_chains() {
    let (mut core, now) = started(Choice::default(), router());
    let filter = |kind: Option<&str>, change| Event::Filter {
        ifindex: 2,
        egress: false,
        kind: kind.map(str::to_owned),
        change,
    };
    let object = TcObject::Filter("u32".to_owned());
    let added = filter(Some("u32"), Some(TcChange { object, turn: TcTurn::Added }));
    let wanted = ["filter: filter u32 added on ingress of r1"];
    assert_eq!(told(&mut core, now, [added]), wanted);
    // A chain that was made for a filter which the kernel has refused.
    assert_eq!(told(&mut core, now, [filter(None, None)]), Vec::<String>::new());
}

#[test]
fn programs_are_told_unless_they_were_there_before_anybody_looked() {
    let (mut core, now) = started(Choice::default(), router());
    let program = |name: &str| Program { ifindex: 2, egress: false, name: name.to_owned() };
    let programs = |names: &[&str]| Event::Programs(names.iter().map(|name| program(name)).collect());
    for (names, wanted) in [
        (&["old"][..], vec![]),
        (&["old", "new"], vec!["TCX program new added on ingress of r1"]),
        (&["new"], vec!["TCX program old removed on ingress of r1"]),
        (&["new"], vec![]),
    ] {
        core.handle(now, Event::Tick);
        assert_eq!(told(&mut core, now, [programs(names)]), wanted, "{names:?}");
    }
}

#[test]
fn a_neighbour_is_told_if_it_has_another_mac_and_not_if_its_entry_ages() {
    let (mut core, now) = started(Choice::default(), router());
    let addr = "192.168.1.2".parse().unwrap();
    let mac = |last| Some(shunt_wire::Mac([2, 0, 0, 0, 1, last]));
    let neighbour = |mac| Event::Neighbour { ifindex: 1, addr, mac };
    let gone = || Event::NeighbourGone { ifindex: 1, addr };
    let words = |is: u8, was: u8| {
        format!("192.168.1.2 dev r0 has 02:00:00:00:01:{is:02x} (was 02:00:00:00:01:{was:02x})")
    };
    for (events, wanted) in [
        (vec![neighbour(mac(1))], vec![]),
        (vec![neighbour(mac(1)), neighbour(None), gone()], vec![]),
        (vec![neighbour(None), neighbour(mac(1))], vec![]),
        (vec![neighbour(mac(2))], vec![words(2, 1)]),
        (vec![gone()], vec![]),
        (vec![neighbour(mac(1))], vec![words(1, 2)]),
    ] {
        assert_eq!(told(&mut core, now, events.clone()), wanted, "{events:?}");
    }
    // After messages were lost.
    let state = || router().into_iter().chain([neighbour(mac(3))]).collect();
    assert_eq!(told(&mut core, now, [Event::Dump(state())]), [words(3, 1)]);
    assert_eq!(told(&mut core, now, [Event::Dump(state())]), Vec::<String>::new());
}

#[test]
fn captures_are_told_with_their_ports_when_they_begin_and_when_they_end() {
    let (mut core, now) = started(Choice::default(), router());
    let captures = |on: &[u32]| Event::Captures(on.iter().copied().collect());
    for (on, wanted) in [
        (&[1][..], vec!["capture: r0"]),
        (&[1, 2], vec!["capture: r1"]),
        (&[2], vec!["no capture on r0"]),
        (&[1], vec!["capture: r0", "no capture on r1"]),
        (&[], vec!["no capture on r0"]),
        (&[0], vec!["capture: r0, r1"]),
        (&[], vec!["no capture on r0, r1"]),
        (&[], vec![]),
    ] {
        assert_eq!(told(&mut core, now, [captures(on)]), wanted, "{on:?}");
    }
}
