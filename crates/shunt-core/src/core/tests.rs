//! The policy, without a kernel.

use super::*;
use crate::{Connection, Link, PortSetting, Qdisc, Source};
use shunt_api::{Engine, EngineChoice};
use shunt_wire::Mac;
use std::net::IpAddr;

fn link(ifindex: u32, name: &str) -> Link {
    Link {
        ifindex,
        name: name.to_owned(),
        kind: None,
        ethernet: true,
        up: true,
        carrier: true,
        mtu: 1500,
        mac: Mac([2, 0, 0, 0, 0, ifindex as u8]),
        master: None,
        lower: None,
        xdp_prog: None,
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
fn router() -> Vec<Event> {
    let links = [link(1, "r0"), link(2, "r1")].map(Event::Link);
    links
        .into_iter()
        .chain([address(1, "192.168.1.1"), address(2, "198.18.0.1"), native(1), native(2)])
        .collect()
}

fn started(choice: Choice, state: Vec<Event>) -> (Core, Instant) {
    let mut core = Core::new(choice, [77]);
    let now = fixed_time();
    core.handle(now, Event::Dump(state));
    (core, now)
}

#[expect(clippy::disallowed_methods, reason = "any instant will do, and there is no other way to get one")]
fn fixed_time() -> Instant {
    Instant::now()
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
    let choice = Choice { ports: vec!["r1".to_owned()], engine: EngineChoice::Tc };
    let (core, _) = started(choice, router());
    assert_eq!(engines(&core), [("r1".to_owned(), Engine::Tc)]);
}

#[test]
fn a_named_port_stays_one_when_it_is_renamed() {
    let choice = Choice { ports: vec!["r1".to_owned()], ..Choice::default() };
    let (mut core, now) = started(choice, router());
    assert_eq!(core.handle(now, Event::Link(link(2, "wan"))), []);
    assert_eq!(core.ports().count(), 1);
}

#[test]
fn a_qdisc_in_use_moves_its_port_to_tc_and_back() {
    let (mut core, now) = started(Choice::default(), router());
    assert_eq!(engines(&core), [("r0".to_owned(), Engine::Xdp), ("r1".to_owned(), Engine::Xdp)]);
    let htb = qdisc(2, "htb", 0x1_0000);
    let setting = |engine| PortSetting { ifindex: 2, engine, xdp_in: true, partial: false, up: true };
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
    let actions = core.handle(now, Event::Link(vlan));
    assert!(matches!(actions.as_slice(), [Action::Set(s)] if s.ifindex == 1 && !s.xdp_in));
}

#[test]
fn a_foreign_xdp_program_is_left_alone() {
    let (mut core, now) = started(Choice::default(), router());
    core.handle(now, Event::Link(Link { xdp_prog: Some(5), ..link(1, "r0") }));
    let r0 = core.ports().find(|(link, _)| link.name == "r0").unwrap().1.clone();
    assert!(!r0.setting.xdp_in && r0.setting.engine == Engine::Tc);
    assert_eq!(core.handle(now, Event::Link(Link { xdp_prog: Some(77), ..link(2, "r1") })), []);
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
        (Event::Filter { ifindex: 9, egress: true }, Cause::Filter),
        (address(2, "198.18.0.9"), Cause::Address),
        (Event::Flush, Cause::Flush),
        (Event::Link(Link { mtu: 1400, ..link(1, "r0") }), Cause::Link),
    ] {
        assert!(core.handle(now, event.clone()).contains(&Action::MoveEpoch(cause)), "{event:?}");
    }
}

#[test]
fn what_is_only_repeated_or_renamed_moves_nothing() {
    let (mut core, now) = started(Choice::default(), router());
    assert_eq!(core.handle(now, address(2, "198.18.0.1")), []);
    assert_eq!(core.handle(now, Event::Link(link(1, "r0"))), []);
    assert_eq!(core.handle(now, Event::Link(link(1, "wan"))), []);
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
fn a_station_that_roams_moves_the_epoch_once() {
    let (mut core, now) = started(Choice::default(), router());
    let mac = Mac([2, 0, 0, 0, 2, 1]);
    let moved = [Action::MoveEpoch(Cause::Fdb)];
    assert_eq!(core.handle(now, Event::Fdb { ifindex: 1, vlan: 0, mac }), []);
    assert_eq!(core.handle(now, Event::Fdb { ifindex: 1, vlan: 0, mac }), []);
    assert_eq!(core.handle(now, Event::Fdb { ifindex: 2, vlan: 0, mac }), moved);
    assert_eq!(core.handle(now, Event::FdbGone { ifindex: 1, vlan: 0, mac }), []);
    assert_eq!(core.handle(now, Event::FdbGone { ifindex: 2, vlan: 0, mac }), moved);
}

#[test]
fn a_port_that_vanishes_is_detached_and_one_that_comes_is_attached() {
    let (mut core, now) = started(Choice::default(), router());
    let gone = core.handle(now, Event::LinkGone { ifindex: 2 });
    assert_eq!(gone[0], Action::MoveEpoch(Cause::Link));
    assert!(gone.contains(&Action::Detach { ifindex: 2 }));
    assert_eq!(core.handle(now, Event::Link(link(9, "r9"))), []);
    let come = core.handle(now, address(9, "10.9.0.1"));
    assert!(matches!(come.as_slice(), [Action::MoveEpoch(_), Action::Attach(s)] if s.ifindex == 9));
}

#[test]
fn a_device_that_refused_is_tried_again_when_it_changes() {
    let (mut core, now) = started(Choice::default(), router());
    assert_eq!(core.handle(now, Event::AttachFailed { ifindex: 2 }), []);
    assert_eq!(core.handle(now, Event::Route), [Action::MoveEpoch(Cause::Route)]);
    let again = core.handle(now, Event::Link(link(2, "r1")));
    assert!(matches!(again.as_slice(), [Action::Attach(s)] if s.ifindex == 2));
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
    let filter = || Event::Filter { ifindex: 2, egress: true };
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

#[test]
fn every_tick_beats_and_the_tables_are_swept_once_a_second() {
    let (mut core, t) = started(Choice::default(), router());
    assert_eq!(core.handle(t, Event::Tick), [Action::Beat, Action::Sweep]);
    assert_eq!(core.handle(t + Duration::from_millis(500), Event::Tick), [Action::Beat]);
    assert_eq!(core.handle(t + Duration::from_millis(1000), Event::Tick), [Action::Beat, Action::Sweep]);
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
