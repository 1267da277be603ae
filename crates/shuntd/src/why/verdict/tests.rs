use super::*;
use shunt_api::{Counted, Family, TrackedDirection};

fn tracked(protocol: u8, state: Option<&str>, status: u32) -> Tracked {
    let direction = |src: [u8; 4], dst: [u8; 4]| TrackedDirection {
        src: src.into(),
        dst: dst.into(),
        sport: Some(1),
        dport: Some(2),
        icmp: None,
        zone: None,
        count: None,
        fast: Counted::default(),
    };
    Tracked {
        family: Family::V4,
        protocol,
        orig: direction([192, 0, 2, 1], [192, 0, 2, 2]),
        reply: direction([192, 0, 2, 2], [192, 0, 2, 1]),
        timeout_s: Some(9),
        state: state.map(str::to_owned),
        status,
        mark: Some(0),
        secctx: None,
        zone: None,
        age_s: Some(77),
        helper: None,
        used: 1,
    }
}

const GOOD: u32 = Tracked::SEEN_REPLY | Tracked::ASSURED | Tracked::CONFIRMED;

fn case(tracked: &Tracked) -> Case<'_> {
    Case {
        protocol: tracked.protocol,
        dir: DirectionName::Orig,
        tracked: Some(tracked),
        flow: None,
        refused: None,
        refused_since: false,
        seen: (1, 2),
        held: None,
        excluded: false,
        udp_unreplied: true,
        learns: true,
        local: false,
        epoch_moved: Some((3, "route".to_owned())),
    }
}

fn flow(state: FlowState) -> Option<FlowFacts> {
    Some(FlowFacts { state, retired_why: Some("tcp-flags"), current: false, since_s: 5 })
}

#[test]
fn a_flow_in_use_is_fast_whatever_else_is_known() {
    let udp = tracked(UDP, None, GOOD);
    for state in [FlowState::Active, FlowState::Static] {
        let known = Case { flow: flow(state), refused: Some("not-liberal"), ..case(&udp) };
        assert_eq!(of(&known), Verdict { since_s: Some(5), ..Verdict::default() });
    }
}

#[test]
fn what_conntrack_says_is_why_a_connection_is_not_learned() {
    let with = |change: fn(&mut Tracked)| {
        let mut entry = tracked(UDP, None, GOOD);
        change(&mut entry);
        of(&case(&entry))
    };
    let reason = |change| with(change).slow;
    let helper = with(|t| t.helper = Some("sip".to_owned()));
    assert_eq!((helper.slow, helper.detail.as_str()), (Some("helper"), "the helper is sip"));
    assert_eq!(helper.since_s, Some(77), "it was never fast");
    assert_eq!(with(|t| t.zone = Some(9)).detail, "it is in zone 9");
    assert_eq!(reason(|t| t.orig.zone = Some(9)), Some("no-conntrack"));
    assert_eq!(reason(|t| t.reply.zone = Some(9)), Some("miss"), "that is the other direction");
    assert_eq!(reason(|t| t.protocol = 1), Some("protocol"));
    assert_eq!(reason(|t| t.status = Tracked::SEEN_REPLY), Some("unconfirmed"));
    assert_eq!(reason(|t| t.status |= Tracked::DYING), Some("dying"));
    for (state, status, reason) in [
        ("SYN_SENT", GOOD, Some("not-established")),
        ("ESTABLISHED", GOOD & !Tracked::ASSURED, Some("not-established")),
        ("ESTABLISHED", GOOD, Some("miss")),
    ] {
        assert_eq!(of(&case(&tracked(TCP, Some(state), status))).slow, reason, "{state}");
    }
}

#[test]
fn what_the_configuration_and_the_ports_say_holds_for_every_connection() {
    let udp = tracked(UDP, None, Tracked::CONFIRMED);
    let reason = |case: Case| of(&case).slow;
    assert_eq!(reason(case(&udp)), Some("miss"));
    assert_eq!(reason(Case { udp_unreplied: false, ..case(&udp) }), Some("unreplied"));
    assert_eq!(reason(Case { excluded: true, ..case(&udp) }), Some("excluded"));
    assert_eq!(of(&Case { local: true, ..case(&udp) }).detail.split(' ').next_back(), Some("Linux"));
    assert!(of(&Case { learns: false, ..case(&udp) }).detail.contains("learn = false"));
    let held = Case { held: Some(("capture", "on r1".to_owned())), refused: Some("capture"), ..case(&udp) };
    assert_eq!((of(&held).slow, of(&held).detail), (Some("capture"), "on r1".to_owned()));
    // The capture has made it stale, and keeps it so.
    assert_eq!(reason(Case { flow: flow(FlowState::Stale), ..held }), Some("capture"));
}

#[test]
fn a_flow_that_is_not_in_use_says_why() {
    let udp = tracked(UDP, None, GOOD);
    let stale = of(&Case { flow: flow(FlowState::Stale), ..case(&udp) });
    assert_eq!((stale.slow, stale.since_s), (Some("stale"), Some(3)));
    assert!(stale.detail.contains("route"), "{stale:?}");
    assert_eq!(of(&Case { flow: flow(FlowState::Pending), ..case(&udp) }).slow, Some("pending"));
    let retired = Case { flow: flow(FlowState::Retired), refused: Some("not-proved"), ..case(&udp) };
    assert_eq!((of(&retired).slow, of(&retired).since_s), (Some("tcp-flags"), Some(5)));
    let later = of(&Case { refused_since: true, ..retired });
    assert_eq!(later.slow, Some("not-proved"));
    assert!(later.detail.contains("until 5 s ago: tcp-flags"), "{later:?}");
}

#[test]
fn what_taught_nothing_or_was_not_seen_often_enough_says_so() {
    let udp = tracked(UDP, None, GOOD);
    assert_eq!(of(&Case { refused: Some("left-twice"), ..case(&udp) }).slow, Some("left-twice"));
    let few = of(&case(&udp));
    assert_eq!(few.slow, Some("miss"));
    assert!(few.detail.starts_with("1 packets") && few.detail.ends_with("number 2"), "{few:?}");
    let none = of(&Case { seen: (0, 2), ..case(&udp) });
    assert!(none.detail.contains("came in by a port"), "{none:?}");
    let enough = of(&Case { seen: (9, 2), ..case(&udp) });
    assert!(
        enough.detail.starts_with("9 packets") && enough.detail.ends_with("left by a port"),
        "{enough:?}"
    );
}
