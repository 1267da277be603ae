//! Parses messages written by netlink-packet-route, an implementation independent of the parser.

use super::*;
use crate::netlink_message::{AF_BRIDGE, AF_UNSPEC, Batch, Messages};
use netlink_packet_core::NetlinkMessage;
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage as Rt,
    address::{AddressAttribute, AddressMessage},
    link::{
        BridgePortState, InfoBridgePort, InfoKind, InfoPortData, InfoPortKind, LinkAttribute, LinkFlags,
        LinkInfo, LinkLayerType, LinkMessage, LinkXdp, State,
    },
    neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState},
    route::{RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteProtocol, RouteType},
    rule::RuleMessage,
    tc::{TcAttribute, TcHandle, TcMessage},
};
use shunt_core::{
    BridgePort, DefaultRoute, Link, LinkLayer, Netconf, NextHop, Qdisc, RouteChange, RouteDetails, Scope,
    TcChange, TcObject, TcTurn,
};
use shunt_wire::Mac;
use std::net::{IpAddr, Ipv4Addr};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

fn event_of(message: Rt) -> Option<Event> {
    let mut packet = NetlinkMessage::from(message);
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    event(&Messages(&bytes).next().unwrap().unwrap())
}

/// The event of a message that has only a fixed part.
fn event_of_bare(kind: u16, fixed: &[u8]) -> Option<Event> {
    let mut batch = Batch::default();
    batch.message(kind, 0, 0, fixed);
    event(&Messages(batch.bytes()).next().unwrap().unwrap())
}

fn link_message(kind: InfoKind, more: Vec<LinkAttribute>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = 7;
    message.header.link_layer_type = LinkLayerType::Ether;
    message.header.flags = LinkFlags::Up | LinkFlags::LowerUp;
    message.attributes = vec![
        LinkAttribute::IfName("e7".to_owned()),
        LinkAttribute::Mtu(1500),
        LinkAttribute::OperState(State::Up),
        LinkAttribute::Address(MAC.to_vec()),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)]),
    ];
    message.attributes.extend(more);
    message
}

fn link(message: LinkMessage) -> Link {
    match event_of(Rt::NewLink(message)) {
        Some(Event::Link(link)) => link,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_vlan_device_reports_its_lower_device_and_its_bridge() {
    let seen = link(link_message(
        InfoKind::Vlan,
        vec![
            LinkAttribute::Link(3),
            LinkAttribute::Controller(9),
            LinkAttribute::Xdp(vec![LinkXdp::ProgId(42)]),
        ],
    ));
    let expected = Link {
        digest: seen.digest,
        ifindex: 7,
        name: "e7".to_owned(),
        kind: Some("vlan".to_owned()),
        bus: None,
        layer: LinkLayer::Ethernet,
        up: true,
        carrier: true,
        mtu: 1500,
        mac: Mac(MAC),
        master: Some(9),
        lower: Some(3),
        xdp_prog: Some(42),
        bridge: None,
        bridge_port: None,
    };
    assert_eq!(seen, expected);
}

#[test]
fn peers_and_devices_of_other_namespaces_are_not_lower_devices() {
    assert_eq!(link(link_message(InfoKind::Veth, vec![LinkAttribute::Link(3)])).lower, None);
    assert_eq!(link(link_message(InfoKind::Netkit, vec![LinkAttribute::Link(3)])).lower, None);
    let other_namespace = vec![LinkAttribute::Link(3), LinkAttribute::LinkNetNsId(0)];
    assert_eq!(link(link_message(InfoKind::MacVlan, other_namespace)).lower, None);
    assert_eq!(link(link_message(InfoKind::IpIp, vec![LinkAttribute::Link(0)])).lower, None);
}

#[test]
fn carrier_needs_the_lower_layer_and_an_operstate_that_passes_packets() {
    let with = |flags, state| {
        let mut message = link_message(InfoKind::Dummy, vec![]);
        message.header.flags = flags;
        message.attributes[2] = LinkAttribute::OperState(state);
        link(message).carrier
    };
    let up = LinkFlags::Up | LinkFlags::LowerUp;
    assert!(with(up, State::Up));
    assert!(with(up, State::Unknown));
    assert!(!with(up, State::Dormant));
    assert!(!with(LinkFlags::Up, State::Up));
}

#[test]
fn a_loopback_is_not_ethernet_even_if_it_says_so() {
    let mut message = link_message(InfoKind::Dummy, vec![]);
    message.header.flags |= LinkFlags::Loopback;
    assert_eq!(link(message).layer, LinkLayer::Other);
}

#[test]
fn with_two_xdp_programs_the_one_in_the_driver_is_reported() {
    let both = vec![LinkAttribute::Xdp(vec![LinkXdp::SkbProgId(5), LinkXdp::DrvProgId(6)])];
    assert_eq!(link(link_message(InfoKind::Veth, both)).xdp_prog, Some(6));
    let none = vec![LinkAttribute::Xdp(vec![LinkXdp::ProgId(0)])];
    assert_eq!(link(link_message(InfoKind::Veth, none)).xdp_prog, None);
}

#[test]
fn a_port_that_leaves_its_bridge_is_not_a_link_that_is_gone() {
    let mut message = LinkMessage::default();
    message.header.index = 7;
    assert_eq!(event_of(Rt::DelLink(message.clone())), Some(Event::LinkGone { ifindex: 7 }));
    message.header.interface_family = AddressFamily::Bridge;
    let event = Event::BridgePort { ifindex: 7, port: None, runs: false };
    assert_eq!(event_of(Rt::DelLink(message.clone())), Some(event.clone()));
    assert_eq!(event_of(Rt::NewLink(message)), Some(event));
}

#[test]
fn a_port_of_a_bridge_has_settings_apart_from_what_the_bridge_derives() {
    let port = |state, cost, isolated: bool| {
        let data = vec![
            InfoBridgePort::State(state),
            InfoBridgePort::Cost(cost),
            InfoBridgePort::Isolated(isolated),
            InfoBridgePort::HoldTimer(cost.into()),
        ];
        let more = vec![
            LinkInfo::PortKind(InfoPortKind::Bridge),
            LinkInfo::PortData(InfoPortData::BridgePort(data)),
        ];
        let mut message = link_message(InfoKind::Dummy, vec![]);
        message.attributes.iter_mut().for_each(|attribute| {
            if let LinkAttribute::LinkInfo(info) = attribute {
                info.extend(more.clone());
            }
        });
        link(message)
    };
    let before = port(BridgePortState::Forwarding, 2, false);
    let of = |link: &Link| link.bridge_port.unwrap();
    assert_eq!(of(&before).state, 3);
    let disabled = port(BridgePortState::Disabled, 2, false);
    assert_eq!((of(&disabled).state, of(&disabled).settings), (0, of(&before).settings));
    let dearer = port(BridgePortState::Forwarding, 100, false);
    assert_eq!(of(&dearer).settings, of(&before).settings);
    assert_ne!(of(&dearer).derived, of(&before).derived);
    let isolated = port(BridgePortState::Forwarding, 2, true);
    assert_ne!(of(&isolated).settings, of(&before).settings);
    assert_eq!(of(&isolated).derived, of(&before).derived);
    let nth = BridgePort::SWITCHES.iter().position(|name| *name == "isolated").unwrap();
    assert_eq!((of(&before).switches, of(&isolated).switches), (0, 1 << nth));
    assert_eq!((of(&before).cost, of(&dearer).cost), (2, 100));
    for other in [&disabled, &dearer, &isolated] {
        assert_eq!(other.digest, before.digest, "the rest of the link is the same");
    }
    assert_eq!(link(link_message(InfoKind::Dummy, vec![])).bridge_port, None);
}

#[test]
fn a_link_that_is_set_down_has_the_same_settings() {
    let mut message = link_message(InfoKind::Dummy, vec![]);
    message.header.flags = LinkFlags::Up | LinkFlags::LowerUp;
    let up = link(message.clone());
    message.header.flags = LinkFlags::empty();
    let down = link(message);
    assert!(up.up && !down.up && up.digest == down.digest);
}

#[test]
fn a_wireless_scan_report_is_not_a_link() {
    let mut message = LinkMessage::default();
    message.attributes = vec![LinkAttribute::IfName("wlan0".to_owned())];
    assert_eq!(event_of(Rt::NewLink(message)), None);
}

#[test]
fn the_address_of_a_point_to_point_link_is_the_local_one() {
    let peer = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.prefix_len = 32;
    message.header.index = 7;
    message.attributes = vec![AddressAttribute::Address(peer), AddressAttribute::Local(HOST)];
    let (ifindex, addr, prefix) = (7, HOST, 32);
    assert_eq!(event_of(Rt::NewAddress(message.clone())), Some(Event::Address { ifindex, addr, prefix }));
    assert_eq!(event_of(Rt::DelAddress(message)), Some(Event::AddressGone { ifindex, addr, prefix }));
}

#[test]
fn a_cloned_route_is_ignored() {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet;
    assert!(event_of(Rt::NewRoute(message.clone())).is_some());
    message.header.flags = RouteFlags::Cloned;
    assert_eq!(event_of(Rt::NewRoute(message)), None);
}

#[test]
fn a_route_concerns_its_destination_and_one_of_another_family_concerns_everything() {
    let mut message = RouteMessage::default();
    let of = |message: &RouteMessage| match event_of(Rt::NewRoute(message.clone())) {
        Some(Event::Route(scope, details))
            if event_of(Rt::DelRoute(message.clone())) == Some(Event::RouteGone(scope, details.clone())) =>
        {
            scope
        }
        event => panic!("{event:?}"),
    };
    message.header.address_family = AddressFamily::Mpls;
    assert_eq!(of(&message), Scope::Everything);
    message.header.address_family = AddressFamily::Inet;
    assert_eq!(of(&message), Scope::Prefix { addr: Ipv4Addr::UNSPECIFIED.into(), len: 0 });
    message.header.destination_prefix_length = 24;
    assert_eq!(of(&message), Scope::Everything, "a destination that is not known");
    message.attributes = vec![
        RouteAttribute::Table(254),
        RouteAttribute::Destination(RouteAddress::Inet(Ipv4Addr::new(198, 51, 100, 0))),
    ];
    assert_eq!(of(&message), Scope::Prefix { addr: "198.51.100.0".parse().unwrap(), len: 24 });
    message.header.address_family = AddressFamily::Inet6;
    assert_eq!(of(&message), Scope::Everything, "an address of another family");
    message.attributes =
        vec![RouteAttribute::Destination(RouteAddress::Inet6("2001:db8::".parse().unwrap()))];
    message.header.destination_prefix_length = 32;
    assert_eq!(of(&message), Scope::Prefix { addr: "2001:db8::".parse().unwrap(), len: 32 });
}

#[test]
fn a_default_route_has_its_next_hops_and_what_became_of_it() {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet;
    message.header.kind = RouteType::Unicast;
    message.header.table = 254;
    message.attributes = vec![
        RouteAttribute::Table(254),
        RouteAttribute::Gateway(RouteAddress::Inet(Ipv4Addr::new(192, 0, 2, 1))),
        RouteAttribute::Oif(3),
        RouteAttribute::Priority(50),
    ];
    let details = |message: &RouteMessage, flags| {
        let mut message = NetlinkMessage::from(Rt::NewRoute(message.clone()));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes[6..8].copy_from_slice(&u16::to_ne_bytes(flags));
        match Messages(&bytes).next().unwrap().map(|message| event(&message)) {
            Ok(Some(Event::Route(_, details))) => details,
            other => panic!("{other:?}"),
        }
    };
    let hop = NextHop { gateway: Some("192.0.2.1".parse().unwrap()), device: Some(3) };
    let route = DefaultRoute { hops: vec![hop], metric: 50, ..DefaultRoute::default() };
    let is = |change| RouteDetails {
        device: Some(3),
        by_kernel: false,
        default: Some(Box::new(DefaultRoute { change, ..route.clone() })),
    };
    assert_eq!(details(&message, 0x400), is(RouteChange::Added));
    assert_eq!(details(&message, 0x500), is(RouteChange::Replaced));
    assert_eq!(details(&message, 0), is(RouteChange::Either));
    message.header.table = 100;
    message.header.kind = RouteType::Unreachable;
    message.attributes = vec![RouteAttribute::Table(100)];
    let unreachable = details(&message, 0x400).default.unwrap();
    let DefaultRoute { kind, hops, metric, table, .. } = *unreachable;
    assert_eq!((kind, hops, metric, table), (Some("unreachable"), vec![], 0, Some(100)));
    message.header.destination_prefix_length = 24;
    message.header.protocol = RouteProtocol::Kernel;
    let other = details(&message, 0x400);
    assert_eq!((other.by_kernel, other.default), (true, None));
}

fn neighbour_message(addr: IpAddr, state: NeighbourState) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = if addr.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    message.header.ifindex = 7;
    message.header.state = state;
    let dst = match addr {
        IpAddr::V4(v4) => NeighbourAddress::Inet(v4),
        IpAddr::V6(v6) => NeighbourAddress::Inet6(v6),
    };
    message.attributes =
        vec![NeighbourAttribute::Destination(dst), NeighbourAttribute::LinkLayerAddress(MAC.to_vec())];
    message
}

#[test]
fn a_neighbour_has_a_mac_only_while_the_kernel_would_use_it() {
    use NeighbourState as S;
    for state in [S::Reachable, S::Stale, S::Delay, S::Probe, S::Permanent, S::Noarp] {
        let expected = Event::Neighbour { ifindex: 7, addr: HOST, mac: Some(Mac(MAC)) };
        assert_eq!(event_of(Rt::NewNeighbour(neighbour_message(HOST, state))), Some(expected), "{state:?}");
    }
    for state in [S::Incomplete, S::Failed, S::None] {
        let expected = Event::Neighbour { ifindex: 7, addr: HOST, mac: None };
        assert_eq!(event_of(Rt::NewNeighbour(neighbour_message(HOST, state))), Some(expected), "{state:?}");
    }
    let gone = event_of(Rt::DelNeighbour(neighbour_message(HOST, S::Failed)));
    assert_eq!(gone, Some(Event::NeighbourGone { ifindex: 7, addr: HOST }));
}

#[test]
fn multicast_addresses_and_proxy_entries_are_not_neighbours() {
    for addr in ["224.0.0.1", "255.255.255.255", "ff02::1"] {
        let message = neighbour_message(addr.parse().unwrap(), NeighbourState::Noarp);
        assert_eq!(event_of(Rt::NewNeighbour(message.clone())), None, "{addr}");
        assert_eq!(event_of(Rt::DelNeighbour(message)), None, "{addr}");
    }
    let mut proxy = neighbour_message(HOST, NeighbourState::Permanent);
    proxy.header.flags = NeighbourFlags::Proxy;
    assert_eq!(event_of(Rt::NewNeighbour(proxy)), None);
}

#[test]
fn stations_are_reported_if_they_are_in_the_table_of_a_bridge() {
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Bridge;
    message.header.ifindex = 7;
    message.header.flags = NeighbourFlags::Own;
    message.attributes = vec![NeighbourAttribute::LinkLayerAddress(MAC.to_vec())];
    assert_eq!(event_of(Rt::NewNeighbour(message.clone())), None);
    message.header.flags = NeighbourFlags::empty();
    message.attributes.push(NeighbourAttribute::Controller(9));
    let mac = Mac(MAC);
    assert_eq!(event_of(Rt::NewNeighbour(message.clone())), Some(Event::Fdb { ifindex: 7, vlan: 0, mac }));
    message.attributes.push(NeighbourAttribute::Vlan(12));
    assert_eq!(event_of(Rt::DelNeighbour(message)), Some(Event::FdbGone { ifindex: 7, vlan: 12, mac }));
}

#[test]
fn a_qdisc_is_reported_with_its_parent() {
    let mut message = TcMessage::with_index(7);
    message.header.handle = TcHandle::from(0x10000);
    message.header.parent = TcHandle::ROOT;
    message.attributes = vec![TcAttribute::Kind("htb".to_owned())];
    let qdisc = Qdisc { ifindex: 7, kind: "htb".to_owned(), handle: 0x10000, parent: ROOT };
    assert_eq!(event_of(Rt::NewQueueDiscipline(message.clone())), Some(Event::Qdisc(qdisc.clone())));
    assert_eq!(event_of(Rt::DelQueueDiscipline(message)), Some(Event::QdiscGone(qdisc)));
}

#[test]
fn a_filter_is_reported_with_its_direction() {
    let filter = |ifindex, parent: u32| {
        let mut message = TcMessage::with_index(ifindex);
        message.header.parent = parent.into();
        message.attributes = vec![TcAttribute::Kind("u32".to_owned())];
        message
    };
    let filter_event = |parent| event_of(Rt::NewTrafficFilter(filter(7, parent)));
    let change = |turn| Some(TcChange { object: TcObject::Filter("u32".to_owned()), turn });
    let u32_filter = |egress| Event::Filter {
        ifindex: 7,
        egress,
        kind: Some("u32".to_owned()),
        change: change(TcTurn::Changed),
    };
    assert_eq!(filter_event(INGRESS), Some(u32_filter(false)));
    assert_eq!(filter_event(0xffff_0000), Some(u32_filter(false)));
    assert_eq!(filter_event(EGRESS), Some(u32_filter(true)));
    assert_eq!(filter_event(0x10000), Some(u32_filter(true)));
    assert_eq!(
        event_of(Rt::DelTrafficFilter(filter(-1, 1))),
        Some(tc::any_filter(change(TcTurn::Removed))),
        "a filter of a shared block"
    );
    let mut own = filter(7, EGRESS);
    own.header.info = tc::OWN_FILTER_PRIORITY << 16 | 3;
    assert_eq!(event_of(Rt::NewTrafficFilter(own)), None, "a filter of Shunt");
    let class = event_of(Rt::NewTrafficClass(filter(7, 0x10000)));
    let object = TcObject::Class { kind: "u32".to_owned(), handle: 0 };
    let change = Some(TcChange { object, turn: TcTurn::AddedOrChanged });
    assert_eq!(class, Some(Event::Filter { ifindex: 7, egress: true, kind: None, change }));
}

#[test]
fn other_messages_are_reported_without_details() {
    assert_eq!(event_of(Rt::NewRule(RuleMessage::default())), Some(Event::Rule));
    assert_eq!(event_of(Rt::DelRule(RuleMessage::default())), Some(Event::Rule));
    for (kind, expected) in [
        (RTM_NEWNETCONF, Event::Netconf(Netconf::Unknown)),
        (RTM_NEWVLAN, Event::BridgeVlans { ifindex: 0 }),
        (RTM_NEWNEXTHOP, Event::Nexthop),
        (RTM_DELNEXTHOPBUCKET, Event::Nexthop),
    ] {
        assert_eq!(event_of_bare(kind, &[0; 8]), Some(expected), "{kind}");
    }
    assert_eq!(event_of_bare(60000, &[0; 8]), None);
}

#[test]
fn a_message_that_is_too_short_is_ignored() {
    let kinds =
        [RTM_NEWLINK, RTM_DELLINK, RTM_NEWADDR, RTM_NEWROUTE, RTM_NEWNEIGH, RTM_NEWQDISC, RTM_NEWTFILTER];
    for kind in kinds {
        for family in [AF_UNSPEC, AF_INET, AF_INET6, AF_BRIDGE] {
            let _ = event_of_bare(kind, &[family]);
        }
        assert_eq!(event_of_bare(kind, &[]), None);
    }
}
