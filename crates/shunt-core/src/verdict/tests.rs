mod idle;
mod turned_off;

use super::*;
use shunt_api::{Counted, Family, FilterHook, PortFilter, TrackedDirection};

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

fn facts(tracked: &Tracked) -> DirectionFacts<'_> {
    DirectionFacts {
        protocol: tracked.protocol,
        dir: DirectionName::Orig,
        tracked: Some(tracked),
        flow: None,
        refused: None,
        refused_after_retirement: false,
        packets_seen: 1,
        window_age_s: 1,
        last_use: None,
        packets_needed: 2,
        learning_blocked: None,
        excluded: false,
        off: None,
        needs_reply: None,
        learns: true,
        local: false,
        to_group: false,
        beside_ports: Vec::new(),
        off_ports: [None, None],
        bridged_off_ports: [Vec::new(), Vec::new()],
        silent_hop: None,
        obstacle: None,
        down_ports: Vec::new(),
        look: None,
        tracked_ago_s: None,
        later_ago_s: None,
        up_s: 3600,
        reprove_s: 2,
        no_route_to: None,
        later_packets_s: None,
        epoch_moved: Some((3, "route".to_owned())),
        unblocked_s: None,
    }
}

fn flow(state: FlowState) -> Option<FlowFacts> {
    Some(FlowFacts { state, retired_why: Some("tcp-flags"), current: false, since_s: 5 })
}

fn by_rule(for_s: Option<u64>) -> Option<TurnedOff> {
    Some(TurnedOff { rule: "by a rule".to_owned(), for_s })
}

#[test]
fn a_flow_in_use_is_fast_whatever_else_is_known() {
    let udp = tracked(UDP, None, GOOD);
    for state in [FlowState::Active, FlowState::Static] {
        let in_use = DirectionFacts { flow: flow(state), refused: Some("not-liberal"), ..facts(&udp) };
        assert_eq!(in_use.verdict(), Verdict { since_s: Some(5), ..Verdict::default() });
    }
}

#[test]
fn the_conntrack_entry_gives_the_reason_if_it_keeps_a_connection_from_being_learned() {
    let with = |change: fn(&mut Tracked)| {
        let mut entry = tracked(UDP, None, GOOD);
        change(&mut entry);
        facts(&entry).verdict()
    };
    let reason = |change| with(change).slow;
    let helper = with(|t| t.helper = Some("sip".to_owned()));
    assert_eq!((helper.slow, helper.detail.as_str()), (Some("helper"), "the helper is sip"));
    assert_eq!(helper.since_s, Some(77), "slow since the connection began");
    assert_eq!(with(|t| t.zone = Some(9)).detail, "the connection is in zone 9");
    assert_eq!(reason(|t| t.orig.zone = Some(9)), Some("no-conntrack"));
    assert_eq!(
        reason(|t| t.reply.zone = Some(9)),
        Some("miss"),
        "the zone of the other direction does not matter"
    );
    assert_eq!(reason(|t| t.protocol = 1), Some("protocol"));
    assert_eq!(reason(|t| t.status = Tracked::SEEN_REPLY), Some("unconfirmed"));
    assert_eq!(reason(|t| t.status |= Tracked::DYING), Some("dying"));
    for (state, status, reason) in [
        ("SYN_SENT", GOOD, Some("not-established")),
        ("ESTABLISHED", GOOD & !Tracked::ASSURED, Some("not-established")),
        ("ESTABLISHED", GOOD, Some("miss")),
    ] {
        assert_eq!(facts(&tracked(TCP, Some(state), status)).verdict().slow, reason, "{state}");
    }
}

#[test]
fn the_configuration_and_blocked_ports_give_the_reason_for_every_connection() {
    let udp = tracked(UDP, None, Tracked::CONFIRMED);
    let reason = |facts: DirectionFacts| facts.verdict().slow;
    assert_eq!(reason(facts(&udp)), Some("miss"));
    let needs =
        |udp| DirectionFacts { needs_reply: Some("`limit` in a chain".to_owned()), ..facts(udp) }.verdict();
    assert_eq!((needs(&udp).slow, needs(&udp).detail.as_str()), (Some("unreplied"), "`limit` in a chain"));
    assert_eq!(needs(&tracked(UDP, None, GOOD)).slow, Some("miss"));
    assert_eq!(reason(DirectionFacts { excluded: true, ..facts(&udp) }), Some("excluded"));
    let off = DirectionFacts { off: by_rule(Some(4)), excluded: true, ..facts(&udp) }.verdict();
    assert_eq!((off.slow, off.detail.as_str()), (Some("off"), "by a rule"));
    let group = DirectionFacts { to_group: true, local: true, ..facts(&udp) }.verdict();
    assert!(group.slow == Some("not-ours") && group.detail.contains("broadcast"), "{group:?}");
    let local = DirectionFacts { local: true, ..facts(&udp) }.verdict();
    assert!(local.detail.contains("the router itself"), "{local:?}");
    let off = DirectionFacts { learns: false, ..facts(&udp) }.verdict();
    assert!(off.detail.contains("learn = false"), "{off:?}");
    let blocked = LearningBlocked { reason: "capture", place: "on r1".to_owned() };
    let captured =
        DirectionFacts { learning_blocked: Some(blocked), refused: Some("capture"), ..facts(&udp) };
    let verdict = captured.verdict();
    assert_eq!((verdict.slow, verdict.detail.as_str()), (Some("capture"), "on r1"));
    // The capture has made the flow stale and keeps it stale.
    assert_eq!(reason(DirectionFacts { flow: flow(FlowState::Stale), ..captured }), Some("capture"));
}

#[test]
fn a_flow_that_is_not_in_use_gives_the_reason() {
    let udp = tracked(UDP, None, GOOD);
    let in_state = |state| DirectionFacts { flow: flow(state), ..facts(&udp) };
    let stale = in_state(FlowState::Stale).verdict();
    assert_eq!((stale.slow, stale.since_s), (Some("stale"), Some(3)));
    assert!(stale.detail.contains("route"), "{stale:?}");
    assert_eq!(in_state(FlowState::Pending).verdict().slow, Some("pending"));
    let last = |ago_s| Some(LastUse { ago_s, fast: false });
    let pending =
        |ago_s| DirectionFacts { last_use: last(ago_s), packets_seen: 0, ..in_state(FlowState::Pending) };
    let over = pending(60).verdict();
    assert_eq!(over.idle, Some(Idle { for_s: Some(60), was_fast: Some(false), ..UNKNOWN }));
    assert!(over.remedy.unwrap().contains("if the exchange is over"));
    assert_eq!((pending(1).verdict().idle, pending(1).verdict().remedy), (None, None));
    let retired = DirectionFacts { refused: Some("not-proved"), ..in_state(FlowState::Retired) };
    let verdict = retired.verdict();
    assert_eq!((verdict.slow, verdict.since_s), (Some("tcp-flags"), Some(5)));
    let later = DirectionFacts { refused_after_retirement: true, ..retired }.verdict();
    assert_eq!(later.slow, Some("not-proved"));
    assert!(later.detail.contains("until 5 s ago: tcp-flags"), "{later:?}");
    // The rule that has ended the flow still holds.
    let blocked = LearningBlocked { reason: "tcp-flags", place: "`limit` in a chain".to_owned() };
    let held = DirectionFacts { learning_blocked: Some(blocked), ..in_state(FlowState::Retired) }.verdict();
    assert_eq!((held.slow, held.detail.as_str()), (Some("tcp-flags"), "`limit` in a chain"));
}

#[test]
fn a_refused_or_rarely_seen_direction_gives_the_reason() {
    let udp = tracked(UDP, None, GOOD);
    let refused = DirectionFacts { refused: Some("left-twice"), ..facts(&udp) };
    assert_eq!(refused.verdict().slow, Some("left-twice"));
    let seen = |packets_seen| DirectionFacts { packets_seen, ..facts(&udp) }.verdict();
    assert_eq!(seen(1).slow, Some("miss"));
    let few = "packets seen in the last 10 s: 1; the flow is learned from packet 2";
    assert_eq!(seen(1).detail, few);
    assert_eq!(seen(0).detail, "no packet of this flow was seen on any port in the last 10 s");
    assert_eq!(seen(9).detail, "packets seen in the last 10 s: 9; none of them left through a port");
}

#[test]
fn a_blocking_rule_port_or_filter_is_named() {
    let filter = PortFilter {
        device: "r1".to_owned(),
        hook: FilterHook::Egress,
        kind: "u32".to_owned(),
        program: None,
    };
    let port = |captured, filter| PortFacts { name: "r1", captured, filter, leaves: false };
    let find = |held: bool, port| {
        LearningBlocked::find(held.then(|| "`queue` in a chain".to_owned()), [port].into_iter())
    };
    assert_eq!(find(false, port(false, None)), None);
    let reason = |blocked: Option<LearningBlocked>| blocked.map(|blocked| blocked.reason);
    assert_eq!(reason(find(false, port(false, Some(&filter)))), Some("egress-filter"));
    assert_eq!(reason(find(false, port(true, Some(&filter)))), Some("capture"));
    let held = find(true, port(true, None)).unwrap();
    assert_eq!((held.reason, held.place.as_str()), ("ruleset", "`queue` in a chain"));
}

#[test]
fn advice_about_what_is_over_does_not_wait_for_packets() {
    let remedy = |facts: DirectionFacts<'_>| facts.verdict().remedy.unwrap_or_default();
    let udp = tracked(UDP, None, GOOD);
    let few = remedy(DirectionFacts { packets_seen: 1, packets_needed: 2, ..facts(&udp) });
    assert!(few.contains("nothing to do for a short exchange, such as DNS"), "{few}");
    let none = remedy(DirectionFacts { packets_seen: 0, ..facts(&udp) });
    assert!(none.contains("after a DNS answer"), "{none}");

    let closed = tracked(TCP, Some("FIN_WAIT"), GOOD);
    let off = DirectionFacts { off: by_rule(None), refused: Some("off"), ..facts(&closed) };
    assert!(remedy(off.clone()).contains("if the connection has ended"), "{}", remedy(off));
    let on_again = DirectionFacts { refused: Some("off"), ..facts(&closed) };
    assert_eq!(remedy(on_again), "nothing to do: the connection ends or has ended");

    let silent =
        DirectionFacts { off: by_rule(None), packets_seen: 0, window_age_s: 2 * WINDOW_S, ..facts(&udp) };
    let verdict = silent.verdict();
    assert_eq!(
        (verdict.slow, verdict.idle),
        (Some("off"), Some(Idle { for_s: None, was_fast: None, ..UNKNOWN }))
    );
    let lively = DirectionFacts { window_age_s: 1, ..silent };
    assert_eq!((lively.verdict().idle, lively.verdict().remedy), (None, None));
    let rule_ended = remedy(DirectionFacts { off: None, refused: Some("off"), ..lively });
    assert!(rule_ended.contains("the rule has ended"), "{rule_ended}");
}

#[test]
fn a_second_look_tells_dropped_packets_fragments_and_other_devices_from_silence() {
    let udp = tracked(UDP, None, GOOD);
    let with = |look: Look| DirectionFacts { packets_seen: 0, look: Some(look), ..facts(&udp) };
    let look = || Look { over_ms: 500, mtu: 1500, mean_bytes: 128, ..Look::default() };
    let stayed = |ago_s| Some(Stayed { port: "lan0".to_owned(), ago_s });

    let refused =
        DirectionFacts { refused: Some("not-liberal"), ..with(Look { counted: Some(0), ..look() }) };
    let refused = refused.verdict();
    assert!(
        refused.idle.is_some() && refused.remedy.unwrap().contains("no packets come"),
        "{}",
        refused.detail
    );
    let silent = with(Look { counted: Some(0), ..look() }).verdict();
    assert!(silent.idle.is_some() && silent.remedy.unwrap().contains("no packets come"), "{}", silent.detail);

    let dropped = with(Look { counted: Some(50), arrived: 40, stayed: stayed(0), ..look() }).verdict();
    assert_eq!((dropped.slow, dropped.idle), (Some("miss"), None));
    assert!(
        dropped.detail.starts_with("packets arrive on lan0")
            && dropped.remedy.unwrap().contains("a rule drops")
    );
    let once = with(Look { counted: Some(0), stayed: stayed(3), ..look() });
    assert!(once.verdict().detail.starts_with("a packet arrived on lan0 3 s ago, and was not seen to leave"));
    let of_flow = DirectionFacts { flow: flow(FlowState::Stale), ..once.clone() };
    assert_eq!(of_flow.verdict().slow, Some("stale"));
    let unanswered =
        DirectionFacts { silent_hop: Some("192.0.2.2 on wan0".to_owned()), ..once.clone() }.verdict();
    assert!(unanswered.detail.ends_with("; the next hop, 192.0.2.2 on wan0, does not answer"));
    assert!(unanswered.remedy.unwrap().contains("whether it is on"));
    let no_route_to = Some("192.0.2.9".parse().unwrap());
    let no_route = DirectionFacts { no_route_to, ..once.clone() }.verdict();
    assert!(no_route.detail.ends_with("; Linux has no route to 192.0.2.9"), "{}", no_route.detail);
    let beside = DirectionFacts { off_ports: [None, Some("wan1".to_owned())], ..once.clone() }.verdict();
    assert!(beside.detail.ends_with("left by wan1, which is not a port"), "{}", beside.detail);
    assert_eq!(DirectionFacts { refused: Some("unreplied"), ..once }.verdict().slow, Some("unreplied"));

    let unseen = Look { counted: Some(50), passed: vec![("ttl", 9), ("fragment", 100)], ..look() };
    let fragments = with(Look { mean_bytes: 3028, ..unseen.clone() }).verdict();
    assert_eq!(fragments.slow, Some("fragment"));
    assert!(fragments.detail.contains("3028 bytes"), "{}", fragments.detail);
    let elsewhere = with(unseen.clone());
    assert!(elsewhere.verdict().detail.ends_with("no port has seen one of them"));
    let members = [vec!["lan1".to_owned()], Vec::new()];
    let bridged = DirectionFacts { bridged_off_ports: members, ..elsewhere.clone() }.verdict();
    assert!(
        bridged.detail.ends_with("not ports: lan1")
            && bridged.remedy.unwrap().starts_with("make lan1 a port")
    );
    let routed = DirectionFacts { off_ports: [Some("lan1".to_owned()), None], ..elsewhere }.verdict();
    assert_eq!(
        (routed.detail.as_str(), routed.idle),
        ("its packets arrive by lan1, which is not a port", None)
    );
}

#[test]
fn what_conntrack_has_forgotten_does_not_wait_to_become_liberal() {
    let tcp = tracked(TCP, Some("ESTABLISHED"), GOOD);
    let stayed = Some(Stayed { port: "lan0".to_owned(), ago_s: 0 });
    let look = Some(Look { over_ms: 500, arrived: 2, stayed, ..Look::default() });
    let known = DirectionFacts { refused: Some("not-liberal"), look, ..facts(&tcp) };
    assert_eq!(known.verdict().slow, Some("not-liberal"));
    let forgotten = DirectionFacts { tracked: None, ..known };
    assert_eq!(forgotten.verdict().slow, Some("miss"));
    assert!(forgotten.verdict().detail.contains("was not seen to leave"));
}

#[test]
fn since_when_is_told_only_if_it_is_known() {
    let udp = tracked(UDP, None, GOOD);
    let since = |facts: DirectionFacts<'_>| facts.verdict().since_s;
    assert_eq!(since(facts(&udp)), Some(77));
    assert_eq!(since(DirectionFacts { up_s: 5, ..facts(&udp) }), None);
    assert_eq!(since(DirectionFacts { off: by_rule(None), ..facts(&udp) }), None);
    let last_use = Some(LastUse { ago_s: 20, fast: true });
    assert_eq!(since(DirectionFacts { last_use, window_age_s: 1, ..facts(&udp) }), None);
}

#[test]
fn a_flow_whose_packets_are_rare_is_not_told_to_wait_for_one_more() {
    let udp = tracked(UDP, None, GOOD);
    let last_use = Some(LastUse { ago_s: 1, fast: false });
    let pending = |since_s| {
        let flow = Some(FlowFacts { since_s, ..flow(FlowState::Pending).unwrap() });
        DirectionFacts { flow, last_use, ..facts(&udp) }.verdict().remedy
    };
    assert_eq!(pending(1), None);
    let fast_before = Some(LastUse { ago_s: 1, fast: true });
    let flow = flow(FlowState::Pending);
    assert_eq!(DirectionFacts { flow, last_use: fast_before, ..facts(&udp) }.verdict().since_s, None);
    assert!(pending(20).unwrap().contains("further apart than a proof holds (2 s)"));
}

#[test]
fn of_what_never_came_and_of_what_is_not_known_nothing_is_invented() {
    let silent = |tracked, dir| DirectionFacts { packets_seen: 0, dir, ..facts(tracked) }.verdict();
    let answered = tracked(UDP, None, GOOD);
    let unknown = silent(&answered, DirectionName::Reply);
    assert_eq!(unknown.idle, Some(Idle { for_s: None, was_fast: None, ..UNKNOWN }));
    let unanswered = tracked(UDP, None, Tracked::CONFIRMED);
    let never = silent(&unanswered, DirectionName::Reply);
    assert_eq!(never.idle, Some(Idle { for_s: None, was_fast: Some(false), ..UNKNOWN }));
    assert!(never.detail.starts_with("no packet has come in this direction"), "{}", never.detail);
    assert!(!silent(&unanswered, DirectionName::Orig).detail.contains("this direction"));
}

#[test]
fn a_tcp_connection_that_has_ended_is_not_slow() {
    for state in ["TIME_WAIT", "CLOSE"] {
        let closed = tracked(TCP, Some(state), GOOD);
        let last_use = Some(LastUse { ago_s: 4, fast: true });
        let tracked_ago_s = Some(3);
        let ended =
            DirectionFacts { flow: flow(FlowState::Retired), last_use, tracked_ago_s, ..facts(&closed) };
        let ended = ended.verdict();
        assert_eq!(ended.idle, Some(Idle { for_s: Some(3), was_fast: Some(true), ..UNKNOWN }));
        assert!(ended.detail.ends_with(state) && ended.remedy.unwrap().contains("has ended"));
    }
    // The other end may still send.
    let half = tracked(TCP, Some("CLOSE_WAIT"), GOOD);
    assert_eq!(facts(&half).verdict().idle, None);
}

#[test]
fn fragments_are_named_behind_a_capture_too() {
    let udp = tracked(UDP, None, GOOD);
    let blocked = LearningBlocked { reason: "egress-capture", place: "on wan0".to_owned() };
    let captured = DirectionFacts { learning_blocked: Some(blocked), packets_seen: 0, ..facts(&udp) };
    let look = |mean_bytes, fragments| Look {
        counted: Some(9),
        passed: vec![("fragment", fragments)],
        mtu: 1500,
        mean_bytes,
        ..Look::default()
    };
    let seen = |mean_bytes, fragments| {
        DirectionFacts { look: Some(look(mean_bytes, fragments)), ..captured.clone() }.verdict().slow
    };
    assert_eq!((seen(3028, 9), seen(1500, 9)), (Some("fragment"), Some("egress-capture")));
    // A link with a smaller MTU than the router's has made two of each.
    assert_eq!(seen(1500, 18), Some("fragment"));
}

#[test]
fn of_a_fast_direction_it_is_told_why_some_packets_are_slow() {
    let udp = tracked(UDP, None, GOOD);
    let beside = |(counted, mean_bytes), passed: &[_]| {
        let passed = passed.to_vec();
        let look = Look { over_ms: 500, counted: Some(counted), mean_bytes, passed, ..Look::default() };
        let fast =
            DirectionFacts { flow: flow(FlowState::Active), look: Some(look), ..facts(&udp) }.verdict();
        assert_eq!((fast.slow, fast.idle, fast.since_s), (None, None, Some(5)));
        fast.partly
    };
    assert_eq!(beside((20, 1400), &[("fragment", 40), ("class", 9)]), Some("fragment"));
    assert_eq!(beside((20, 128), &[("fragment", 40), ("class", 19)]), Some("class"));
    // Those of another connection, and proofs.
    assert_eq!(beside((20, 1400), &[("fragment", 20)]), None);
    assert_eq!(beside((20, 128), &[("fragment", 40)]), None);
    assert_eq!(beside((2, 128), &[("class", 19)]), None);
    // It can be either.
    assert_eq!(beside((20, 1400), &[("fragment", 40), ("class", 19)]), None);
}

#[test]
fn what_blocked_learning_and_is_gone_is_told_as_over() {
    let udp = tracked(UDP, None, GOOD);
    let look = Some(Look { over_ms: 500, counted: Some(0), ..Look::default() });
    let silent = DirectionFacts {
        refused: Some("egress-capture"),
        packets_seen: 0,
        window_age_s: 13,
        tracked_ago_s: Some(11),
        look,
        ..facts(&udp)
    };
    let verdict = silent.verdict();
    let pause = Idle { for_s: Some(10), at_least: true, was_fast: Some(false) };
    assert_eq!(verdict.idle, Some(pause));
    assert_eq!(verdict.slow, Some("egress-capture"));
    assert!(verdict.detail.ends_with("and is over"), "{}", verdict.detail);
    assert!(verdict.remedy.unwrap().starts_with("nothing to do"));
    let later = DirectionFacts { window_age_s: 3 * WINDOW_S, ..silent.clone() }.verdict();
    assert!(later.detail.ends_with("and is over") && later.idle.is_some(), "{later:?}");
    let capture = LearningBlocked { reason: "egress-capture", place: "on wan0".to_owned() };
    let still = DirectionFacts { learning_blocked: Some(capture), ..silent }.verdict();
    assert_eq!(still.detail, "on wan0");
}

#[test]
fn a_packet_that_did_not_leave_before_the_last_fast_one_says_nothing() {
    let udp = tracked(UDP, None, GOOD);
    let told = |stayed_s, last_s| {
        let stayed = Some(Stayed { port: "lan0".to_owned(), ago_s: stayed_s });
        let look = Some(Look { over_ms: 500, counted: Some(0), stayed, ..Look::default() });
        let last_use = Some(LastUse { ago_s: last_s, fast: true });
        DirectionFacts { look, last_use, packets_seen: 0, window_age_s: 99, ..facts(&udp) }.verdict()
    };
    assert_eq!((told(88, 39).slow, told(88, 39).idle.unwrap().for_s), (None, Some(39)));
    assert_eq!(told(39, 88).slow, Some("miss"));
}

#[test]
fn what_lasts_is_so_since_the_last_fast_packet() {
    let udp = tracked(UDP, None, GOOD);
    let last_use = Some(LastUse { ago_s: 6, fast: true });
    let excluded = DirectionFacts { excluded: true, last_use, ..facts(&udp) };
    assert_eq!((excluded.verdict().slow, excluded.verdict().since_s), (Some("excluded"), Some(6)));
    let never = DirectionFacts { last_use: Some(LastUse { ago_s: 6, fast: false }), ..excluded };
    assert_eq!(never.verdict().since_s, None);
}

#[test]
fn of_what_conntrack_does_not_know_nobody_knows_whether_packets_come_behind_a_capture() {
    let udp = tracked(UDP, None, GOOD);
    let capture = LearningBlocked { reason: "capture", place: "on lan0".to_owned() };
    let facts = DirectionFacts { tracked: None, learning_blocked: Some(capture), ..facts(&udp) };
    let verdict = facts.verdict();
    assert_eq!((verdict.slow, verdict.idle), (Some("capture"), None));
    assert!(verdict.detail.contains("nobody knows whether packets come"), "{}", verdict.detail);
}

#[test]
fn only_answers_that_silence_could_explain_are_doubtful() {
    let idle = Some(Idle { for_s: None, was_fast: Some(true), ..UNKNOWN });
    assert!(is_doubtful(None, idle) && is_doubtful(Some("miss"), None) && is_doubtful(Some("stale"), None));
    assert!(!is_doubtful(None, None) && !is_doubtful(Some("tcp-flags"), None));
    assert!(is_doubtful(Some("off"), None), "Linux may drop its packets");
}

#[test]
fn what_stops_every_packet_is_named() {
    let udp = tracked(17, None, GOOD);
    let down = Obstacle::Down("lan0".to_owned());
    let silent = DirectionFacts {
        flow: flow(FlowState::Stale),
        last_use: Some(LastUse { ago_s: 20, fast: true }),
        packets_seen: 0,
        look: Some(Look { counted: Some(0), ..Look::default() }),
        obstacle: Some(down),
        ..facts(&udp)
    };
    let verdict = silent.verdict();
    assert_eq!((verdict.slow, verdict.detail.as_str()), (Some("stale"), "lan0 is down"));
    assert_eq!(verdict.idle, Some(Idle { for_s: Some(20), was_fast: Some(true), ..UNKNOWN }));
    assert_eq!(verdict.remedy.as_deref(), Some("`ip link set lan0 up`"));

    let stayed = Stayed { port: "lan0".to_owned(), ago_s: 1 };
    let look = Look { counted: Some(0), arrived: 3, stayed: Some(stayed), ..Look::default() };
    let not_forwarding = Some(Obstacle::NotForwarding(Family::V4));
    let stopped = DirectionFacts { look: Some(look), obstacle: not_forwarding.clone(), ..silent.clone() };
    let verdict = stopped.verdict();
    assert!(
        verdict
            .detail
            .starts_with("Linux does not forward: net.ipv4.ip_forward is 0; packets arrive on lan0")
    );
    assert_eq!(verdict.remedy.as_deref(), Some("`sysctl -w net.ipv4.ip_forward=1`"));

    let fast = DirectionFacts {
        flow: flow(FlowState::Active),
        obstacle: not_forwarding,
        last_use: None,
        look: None,
        ..silent
    };
    assert_eq!(fast.verdict().slow, None, "packets are forwarded after all");
}

#[test]
fn a_missing_route_is_told_with_the_ports_that_are_down() {
    let udp = tracked(17, None, GOOD);
    let stayed = Stayed { port: "lan0".to_owned(), ago_s: 1 };
    let lost = DirectionFacts {
        look: Some(Look { arrived: 3, stayed: Some(stayed), ..Look::default() }),
        no_route_to: Some([198, 51, 100, 7].into()),
        down_ports: vec!["wan0".to_owned()],
        ..facts(&udp)
    };
    let detail = lost.verdict().detail;
    assert!(detail.ends_with("; Linux has no route to 198.51.100.7, and wan0 is down"), "{detail}");
    let up = DirectionFacts { down_ports: Vec::new(), ..lost };
    assert!(up.verdict().detail.ends_with("no route to 198.51.100.7"));
}

/// A port may have seen packets while nothing was there to see them leave.
#[test]
fn packets_that_taught_nothing_are_not_told_as_dropped() {
    let tcp = tracked(TCP, Some("ESTABLISHED"), GOOD);
    let look = Some(Look { over_ms: 500, counted: Some(0), ..Look::default() });
    let seen = DirectionFacts { packets_seen: 5, packets_needed: 4, look, ..facts(&tcp) };
    let verdict = seen.verdict();
    assert!(verdict.slow == Some("miss") && verdict.idle.is_some(), "{verdict:?}");
    assert!(!verdict.detail.contains("left"), "{verdict:?}");
    let stayed = Some(Stayed { port: "lan0".to_owned(), ago_s: 1 });
    let look = Some(Look { over_ms: 500, counted: Some(0), stayed, ..Look::default() });
    let dropped = DirectionFacts { look, ..seen }.verdict();
    assert!(dropped.detail.contains("was not seen to leave"), "{dropped:?}");
}
