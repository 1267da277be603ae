//! The engine of each port.

use super::*;

#[test]
fn without_an_xdp_egress_no_port_runs_xdp() {
    let (mut core, now) = started(Choice::default(), router());
    let no_target = |ifindex| Event::XdpFeatures {
        ifindex,
        native: true,
        target: false,
        target_frags: false,
        vlan_tags: false,
        zero_copy: false,
    };
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
    let features = |ifindex, target| Event::XdpFeatures {
        ifindex,
        native: true,
        target,
        target_frags: false,
        vlan_tags: false,
        zero_copy: false,
    };
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
            Event::XdpFeatures {
                ifindex: 2,
                native: true,
                target: true,
                target_frags: false,
                vlan_tags: false,
                zero_copy: false,
            },
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
fn xdp_runs_below_a_vlan_device_where_the_driver_shows_it_the_tags() {
    let vlan = || Link { kind: Some("vlan".to_owned()), lower: Some(1), ..link(6, "r0.10") };
    let setting = |device: Link, vlan_tags| {
        let features = Event::XdpFeatures {
            ifindex: 1,
            native: true,
            target: true,
            target_frags: true,
            vlan_tags,
            zero_copy: false,
        };
        let choice = Choice { engine: EngineChoice::Xdp, ..Choice::default() };
        let (mut core, now) = started(choice, router());
        changes(&mut core, now, Event::Link(device));
        changes(&mut core, now, features);
        let before = core.ports().next().unwrap().1.setting;
        assert!(before.xdp_in && !before.xdp_tags, "nothing is asked where Linux uses no VLANs");
        changes(&mut core, now, Event::Link(vlan()));
        let setting = core.ports().next().unwrap().1.setting;
        (setting.xdp_in, setting.xdp_tags)
    };
    let on = |bus: Option<&str>, kind: Option<&str>| Link {
        bus: bus.map(str::to_owned),
        kind: kind.map(str::to_owned),
        ..link(1, "r0")
    };
    assert_eq!(setting(on(Some("pci"), None), false), (false, false));
    assert_eq!(setting(on(Some("pci"), None), true), (true, true));
    assert_eq!(setting(on(None, Some("veth")), true), (true, true));
    assert_eq!(setting(on(Some("virtio"), None), false), (true, false));
    assert_eq!(setting(on(None, Some("tun")), false), (true, false));

    let (mut core, now) = started(Choice::default(), router());
    changes(&mut core, now, Event::Link(vlan()));
    for (strips_tags, runs) in [(false, true), (true, false), (false, true)] {
        changes(&mut core, now, Event::Offloads { ifindex: 1, merges: false, strips_tags });
        assert_eq!(core.ports().next().unwrap().1.setting.xdp_in, runs, "ethtool -K r0 rxvlan");
    }
}

#[test]
fn the_offloads_of_a_nic_that_appears_later_are_read_once() {
    let (mut core, now) = started(Choice::default(), router());
    let nic = Event::Link(Link { bus: Some("pci".to_owned()), ..link(8, "eth2") });
    let reads = |core: &mut Core| core.handle(now, nic.clone()).contains(&Action::FindOffloads(8));
    assert!(reads(&mut core));
    assert!(reads(&mut core), "they were not found");
    core.handle(now, Event::Offloads { ifindex: 8, merges: false, strips_tags: true });
    assert!(!reads(&mut core));
    core.handle(now, Event::LinkGone { ifindex: 8 });
    assert!(reads(&mut core), "another NIC has this ifindex");
    let veth = Link { bus: None, ..link(9, "veth0") };
    assert!(!core.handle(now, Event::Link(veth)).contains(&Action::FindOffloads(9)));
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
fn the_program_is_not_attached_where_it_has_nowhere_to_redirect_to() {
    let (mut core, now) = started(Choice::default(), router());
    changes(&mut core, now, Event::Qdisc(qdisc(2, "cake", 1)));
    assert!(core.ports().all(|(_, view)| view.setting.xdp_in), "r1 redirects to r0");
    let without = Event::XdpFeatures {
        ifindex: 2,
        native: false,
        target: false,
        target_frags: false,
        vlan_tags: false,
        zero_copy: false,
    };
    changes(&mut core, now, without);
    let left_alone = |view: &PortView| !view.setting.xdp_in && view.setting.engine == Engine::Tc;
    assert!(core.ports().all(|(_, view)| left_alone(view)));
    assert_eq!(core.ports().next().unwrap().1.reason, "no other port uses XDP");
    let (core, _) = started(
        Choice { engine: EngineChoice::Xdp, ..Choice::default() },
        router().into_iter().take(5).collect(),
    );
    assert!(core.ports().next().unwrap().1.setting.xdp_in, "chosen by configuration");
}

/// A router whose drivers have buffers of their own and accept redirected frames only while a program is attached.
struct Guest {
    core: Core,
    now: Instant,
    counts: BTreeMap<u32, SurveyCounts>,
}

impl Guest {
    fn new() -> Self {
        let on_virtio = |event| match event {
            Event::Link(link) => Event::Link(Link { bus: Some("virtio".to_owned()), ..link }),
            Event::XdpFeatures { ifindex, .. } => Self::features(ifindex, false),
            event => event,
        };
        let (core, now) = started(Choice::default(), router().into_iter().map(on_virtio).collect());
        Self { core, now, counts: BTreeMap::new() }
    }

    fn features(ifindex: u32, target: bool) -> Event {
        Event::XdpFeatures {
            ifindex,
            native: true,
            target,
            target_frags: true,
            vlan_tags: false,
            zero_copy: false,
        }
    }

    /// Handles an event; drivers accept redirected frames once the program is attached. Returns whether surveys are to
    /// be read.
    fn handle(&mut self, event: Event) -> bool {
        let actions = self.core.handle(self.now, event);
        for action in &actions {
            if let Action::Set(setting) = action {
                self.core.handle(self.now, Self::features(setting.ifindex, setting.xdp_in));
            }
        }
        actions.contains(&Action::FindSurveyed)
    }

    /// Half a second, in which each port receives 100 packets, `aggregated` of them in aggregates.
    fn tick(&mut self, aggregated: [u64; 2]) -> [(Engine, bool); 2] {
        self.now += Duration::from_millis(500);
        if self.handle(Event::Tick) {
            self.handle(Event::Surveyed(self.counts.clone()));
        }
        for (ifindex, aggregated) in [1, 2].into_iter().zip(aggregated) {
            let counts = self.counts.entry(ifindex).or_default();
            counts.packets += 100;
            counts.aggregated += aggregated;
            counts.copied += 100;
        }
        let mut settings = self.core.ports().map(|(_, view)| (view.setting.engine, view.setting.xdp_in));
        [settings.next().unwrap(), settings.next().unwrap()]
    }

    fn ticks(&mut self, count: usize, aggregated: [u64; 2]) -> Vec<[(Engine, bool); 2]> {
        let mut seen: Vec<_> = (0..count).map(|_| self.tick(aggregated)).collect();
        seen.dedup();
        seen
    }
}

#[test]
fn a_guest_whose_nics_merge_nothing_uses_xdp_at_once() {
    let mut guest = Guest::new();
    for ifindex in [1, 2] {
        guest.handle(Event::Offloads { ifindex, merges: false, strips_tags: true });
    }
    // The aggregates are those of GRO in Linux, which costs more than XDP.
    assert_eq!(guest.ticks(300, [100, 100]), [[BY_XDP; 2]]);
}

const BY_XDP: (Engine, bool) = (Engine::Xdp, true);
const BY_TC: (Engine, bool) = (Engine::Tc, false);

#[test]
fn a_guest_uses_xdp_while_its_ports_receive_frames() {
    let mut guest = Guest::new();
    assert_eq!(guest.ticks(20, [0, 0]), [[BY_TC; 2], [BY_XDP; 2]]);
    // No frame may be redirected to a port whose program is about to go.
    let review = [[BY_XDP; 2], [(Engine::Tc, true); 2], [BY_TC; 2], [BY_XDP; 2]];
    assert_eq!(guest.ticks(140, [0, 0]), review);
    let mut ends = guest.ticks(300, [100, 0]);
    assert_eq!(ends.pop(), Some([BY_TC; 2]), "one port alone has nowhere to redirect to");
    assert_eq!(ends, [[BY_XDP; 2], [(Engine::Tc, true); 2]]);
    assert_eq!(guest.ticks(30, [0, 0]), [[BY_TC; 2], [BY_XDP; 2]]);
}

#[test]
fn a_nic_that_merges_packets_uses_xdp_only_if_it_receives_frames() {
    for (aggregated, expected) in [(0, BY_XDP), (100, BY_TC)] {
        let merging = [1, 2].map(|ifindex| Event::Offloads { ifindex, merges: true, strips_tags: true });
        let state = router().into_iter().chain(merging).collect();
        let (core, now) = started(Choice::default(), state);
        let mut router_of_nics = Guest { core, now, counts: BTreeMap::new() };
        let seen = router_of_nics.ticks(100, [aggregated; 2]);
        assert_eq!((seen[0], seen.last()), ([BY_TC; 2], Some(&[expected; 2])));
        // With a program, the NIC no longer merges.
        let attached = |event| match event {
            Event::Link(link) => Event::Link(Link { xdp_prog: Some(77), ..link }),
            event => event,
        };
        let merging = [1, 2].map(|ifindex| Event::Offloads { ifindex, merges: false, strips_tags: true });
        let Guest { core, now, .. } = &mut router_of_nics;
        core.handle(*now, Event::Dump(router().into_iter().map(attached).chain(merging).collect()));
        assert_eq!(router_of_nics.ticks(10, [aggregated; 2]), [[expected; 2]]);
    }
}

#[test]
fn while_the_data_plane_rests_virtual_links_have_no_program_and_nics_keep_theirs() {
    let choice = Choice { engine: EngineChoice::Xdp, ..Choice::default() };
    let (mut core, now) = started(choice, router());
    core.handle(now, Event::Link(Link { kind: Some("veth".to_owned()), ..link(1, "r0") }));
    let programs = |core: &Core| core.ports().map(|(_, view)| view.setting.xdp_in).collect::<Vec<_>>();
    let by_xdp = engines(&core);
    let usual = programs(&core);
    let actions = changes(&mut core, now, Event::Rests(true));
    assert!(matches!(actions[..], [Action::Set(s)] if s.ifindex == 1 && !s.xdp_in), "{actions:?}");
    assert_eq!((engines(&core), programs(&core)), (by_xdp.clone(), vec![false, true]));
    assert_eq!(changes(&mut core, now, Event::Rests(true)), []);
    let actions = changes(&mut core, now, Event::Rests(false));
    assert!(matches!(actions[..], [Action::Set(s)] if s.ifindex == 1 && s.xdp_in), "{actions:?}");
    assert_eq!((engines(&core), programs(&core)), (by_xdp, usual));
}
