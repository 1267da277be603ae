//! Packet captures on ports: their flows go slow while one runs.

use super::*;

fn captured(core: &Core) -> Vec<u32> {
    core.ports().filter(|(_, view)| view.setting.captured).map(|(link, _)| link.ifindex).collect()
}

#[test]
fn a_capture_moves_the_epoch_after_the_setting_of_its_port() {
    let (mut core, now) = started(Choice::default(), router());
    let setting = |captured| PortSetting {
        ifindex: 2,
        engine: Engine::Xdp,
        no_l2: false,
        xdp_in: true,
        xdp_external: false,
        xdp_tags: false,
        xdp_frags: true,
        partial: false,
        up: true,
        captured,
        filtered: false,
        filtered_out: false,
        bridged: Bridged::default(),
        floods_unseen: false,
        paced: false,
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
    assert!(core.handle(now, promiscuous()).contains(&Action::FindCaptures));
    let (mut core, now) = started(Choice { captures: CaptureChoice::Ignore, ..Choice::default() }, router());
    assert!(!core.handle(now, promiscuous()).contains(&Action::FindCaptures));
    assert!(!core.handle(now, Event::Tick).contains(&Action::FindCaptures));
}
