//! ppp ports whose sessions of PPPoE XDP serves.

use super::*;
use crate::Sessions;

/// A LAN port, a device with a session, and its ppp device.
fn dialled() -> Vec<Event> {
    let ppp = Link { kind: Some("ppp".to_owned()), bus: None, layer: LinkLayer::Absent, ..link(3, "ppp0") };
    let links = [link(1, "lan0"), link(2, "wan0"), ppp].map(Event::Link).into_iter();
    links.chain([address(1, "192.168.1.1"), address(3, "198.18.0.1"), native(1), native(2)]).collect()
}

fn sessions(devices: &[&str], below: &[(u32, u32)]) -> Event {
    let devices = devices.iter().map(|name| (*name).to_owned()).collect();
    Event::Sessions(Sessions { devices, below: below.iter().copied().collect() })
}

fn named(ports: &[(&str, Engine)]) -> Vec<(String, Engine)> {
    ports.iter().map(|(name, engine)| ((*name).to_owned(), *engine)).collect()
}

/// A core that has seen packets of the session.
fn served(choice: Choice) -> (Core, Instant) {
    let (mut core, now) = started(choice, dialled());
    core.handle(now, sessions(&["wan0"], &[(3, 2)]));
    (core, now)
}

fn ppp_engine(core: &Core) -> Engine {
    core.ports().find(|(link, _)| link.name == "ppp0").unwrap().1.setting.engine
}

#[test]
fn the_device_with_a_session_becomes_a_port_and_its_ppp_port_is_served_once_packets_were_seen() {
    let (mut core, now) = started(Choice::default(), dialled());
    assert_eq!(
        engines(&core),
        named(&[("lan0", Engine::Tc), ("ppp0", Engine::Tc)]),
        "no port for XDP to send to"
    );
    assert!(core.handle(now, Event::Tick).contains(&Action::FindSessions));
    core.handle(now, sessions(&["wan0"], &[]));
    let before = [("lan0", Engine::Xdp), ("wan0", Engine::Xdp), ("ppp0", Engine::Tc)];
    assert_eq!(engines(&core), named(&before));
    let actions = core.handle(now, sessions(&["wan0"], &[(3, 2)]));
    assert!(actions.contains(&Action::MoveEpoch(Cause::Engine)), "{actions:?}");
    assert_eq!(ppp_engine(&core), Engine::Xdp);
    let (_, view) = core.ports().find(|(link, _)| link.name == "ppp0").unwrap();
    assert_eq!(view.reason, "XDP on wan0 adds and removes the headers of its session");
    assert!(!view.setting.xdp_in, "no program can run on a ppp device");
    // A new dump says nothing about sessions.
    core.handle(now, Event::Dump(dialled()));
    assert_eq!(ppp_engine(&core), Engine::Xdp);
}

#[test]
fn the_session_of_a_vlan_device_makes_the_device_below_a_port() {
    let vlan = Link { kind: Some("vlan".to_owned()), bus: None, lower: Some(2), ..link(4, "wan0.7") };
    let told = Event::XdpFeatures {
        ifindex: 2,
        native: true,
        target: true,
        target_frags: true,
        vlan_tags: true,
        zero_copy: false,
    };
    let state = dialled().into_iter().chain([Event::Link(vlan), told]).collect();
    let (mut core, now) = started(Choice::default(), state);
    core.handle(now, sessions(&["wan0.7"], &[(3, 2)]));
    assert_eq!(ppp_engine(&core), Engine::Xdp, "{:?}", engines(&core));
}

#[test]
fn nothing_on_either_device_is_bypassed() {
    let (mut core, now) = served(Choice::default());
    for (ifindex, name) in [(2, "wan0"), (3, "ppp0")] {
        core.handle(now, Event::Captures([ifindex].into()));
        assert_eq!(
            ppp_engine(&core),
            if ifindex == 2 { Engine::Tc } else { Engine::Xdp },
            "capture on {name}"
        );
        core.handle(now, Event::Captures(BTreeSet::new()));
        let shaper = qdisc(ifindex, "cake", 1);
        core.handle(now, Event::Qdisc(shaper.clone()));
        assert_eq!(ppp_engine(&core), Engine::Tc, "shaper on {name}");
        core.handle(now, Event::QdiscGone(shaper));
        assert_eq!(ppp_engine(&core), Engine::Xdp);
    }
    let program = Program { ifindex: 2, egress: false, name: "foreign".to_owned() };
    core.handle(now, Event::Programs([program].into()));
    assert_eq!(ppp_engine(&core), Engine::Tc, "a program on wan0");
    core.handle(now, Event::Programs(BTreeSet::new()));
    core.handle(now, Event::Link(Link { master: Some(9), ..link(2, "wan0") }));
    assert_eq!(ppp_engine(&core), Engine::Tc, "wan0 in a bridge");
}

#[test]
fn without_xdp_the_device_with_a_session_is_no_port() {
    for engine in [EngineChoice::Tc, EngineChoice::External] {
        let (core, _) = served(Choice { engine, ..Choice::default() });
        assert!(core.ports().all(|(link, _)| link.name != "wan0"), "{engine:?}");
        assert_eq!(ppp_engine(&core), Engine::Tc);
    }
    let (core, _) = served(Choice { ports: vec!["lan0".to_owned(), "ppp0".to_owned()], ..Choice::default() });
    assert_eq!(ppp_engine(&core), Engine::Tc, "wan0 is not named");
}
