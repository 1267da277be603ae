use super::*;

#[test]
fn a_direction_without_packets_is_idle_and_not_slow() {
    let tcp = tracked(TCP, Some("ESTABLISHED"), GOOD);
    let last = |ago_s| Some(LastUse { ago_s, fast: true });
    let silent = DirectionFacts { last_use: last(9), packets_seen: 3, window_age_s: 30, ..facts(&tcp) };
    let idle_for = |facts: &DirectionFacts| facts.verdict().idle.map(|idle| (idle.for_s, idle.was_fast));
    // In the table, and after it has left the table.
    for flow in [flow(FlowState::Stale), None] {
        let silent = DirectionFacts { flow, ..silent.clone() };
        assert_eq!(idle_for(&silent), Some((Some(9), Some(true))));
        assert_eq!((silent.verdict().slow, silent.verdict().since_s), (None, None));
        // A packet has come since, or was refused since, or the pause is short.
        assert_eq!(idle_for(&DirectionFacts { window_age_s: 3, ..silent.clone() }), None);
        assert_eq!(idle_for(&DirectionFacts { refused: Some("not-proved"), ..silent.clone() }), None);
        // The window began before, and conntrack has seen a packet since.
        let (window_age_s, later_ago_s) = (WINDOW_S - 1, Some(0));
        assert_eq!(idle_for(&DirectionFacts { window_age_s, later_ago_s, ..silent.clone() }), None);
        // One of either direction.
        let other = DirectionFacts { packets_seen: 0, later_ago_s, ..silent.clone() };
        assert_eq!(idle_for(&other), Some((None, Some(true))));
        assert_eq!(idle_for(&DirectionFacts { last_use: last(1), ..silent }), None);
    }
    let swept = FlowFacts { retired_why: Some("idle"), ..flow(FlowState::Retired).unwrap() };
    assert_eq!(
        idle_for(&DirectionFacts { flow: Some(swept), ..silent.clone() }),
        Some((Some(9), Some(true)))
    );
    // Ended; blocked: none of them is idle.
    for other in [
        DirectionFacts { flow: flow(FlowState::Retired), ..silent.clone() },
        DirectionFacts { off: by_rule(None), window_age_s: 3, ..silent.clone() },
    ] {
        assert_eq!(idle_for(&other), None);
    }
    // Its packets would be slow now.
    let off = DirectionFacts { off: by_rule(None), ..silent };
    assert_eq!((off.verdict().slow, idle_for(&off)), (Some("off"), Some((Some(9), Some(true)))));
}

#[test]
fn a_direction_that_was_refused_long_ago_is_idle_and_keeps_the_reason() {
    let tcp = tracked(TCP, Some("ESTABLISHED"), GOOD);
    let refused =
        DirectionFacts { refused: Some("not-liberal"), window_age_s: 30, packets_seen: 0, ..facts(&tcp) };
    let verdict = refused.verdict();
    assert_eq!(verdict.idle, Some(Idle { for_s: None, was_fast: Some(false), ..UNKNOWN }));
    assert_eq!((verdict.slow, verdict.since_s), (Some("not-liberal"), None));
    // A packet was refused after it had been fast.
    let fast_before = LastUse { ago_s: 90, fast: true };
    let again =
        DirectionFacts { last_use: Some(fast_before), flow: flow(FlowState::Stale), ..refused.clone() };
    assert_eq!(again.verdict().idle, Some(Idle { for_s: None, was_fast: Some(false), ..UNKNOWN }));
    let lately = DirectionFacts { window_age_s: 15, ..refused }.verdict();
    assert_eq!((lately.slow, lately.idle), (Some("not-liberal"), None));
    assert!(lately.remedy.is_some_and(|remedy| remedy.contains("when its last packet came")));
}

#[test]
fn a_syn_that_nobody_answers_is_soon_idle() {
    let opening = tracked(TCP, Some("SYN_SENT"), Tracked::CONFIRMED);
    let sent = |ago_s| DirectionFacts { tracked_ago_s: Some(ago_s), ..facts(&opening) }.verdict();
    assert_eq!((sent(0).slow, sent(0).idle), (Some("not-established"), None));
    // It may have been sent again since then.
    assert_eq!(sent(90).idle.unwrap().for_s, None);
    assert_eq!(sent(90).since_s, None);
    assert!(sent(90).detail.ends_with("SYN_SENT: the other end has not answered"), "{}", sent(90).detail);
    assert!(sent(90).remedy.unwrap().contains("whether the other end is on"));
    let silent_hop = Some("192.0.2.7 on wan0".to_owned());
    let absent = DirectionFacts { silent_hop, tracked_ago_s: Some(90), ..facts(&opening) }.verdict();
    assert!(absent.detail.ends_with("the next hop, 192.0.2.7 on wan0, does not answer"), "{}", absent.detail);
    assert!(absent.remedy.unwrap().contains("`ip neigh`"));
}

#[test]
fn of_packets_that_conntrack_does_not_track_its_counters_tell_nothing() {
    let look = Some(Look { over_ms: 500, counted: Some(0), ..Look::default() });
    let refused = Some("no-conntrack");
    let last_use = Some(LastUse { ago_s: 7, fast: true });
    let idle = |udp: &Tracked, window_age_s| {
        let facts = DirectionFacts { refused, last_use, tracked_ago_s: Some(7), window_age_s, ..facts(udp) };
        let verdict = DirectionFacts { look: look.clone(), ..facts }.verdict();
        assert_eq!(verdict.slow, Some("no-conntrack"));
        (verdict.idle.map(|idle| idle.for_s), verdict.since_s)
    };
    let udp = tracked(UDP, None, GOOD);
    assert_eq!(idle(&udp, 3), (None, Some(7)));
    let in_zone = Tracked { zone: Some(5), ..udp };
    assert_eq!(idle(&in_zone, 3), (Some(Some(7)), None));
}

#[test]
fn an_active_flow_that_nothing_uses_is_not_fast() {
    let udp = tracked(UDP, None, GOOD);
    let last = |ago_s| Some(LastUse { ago_s, fast: true });
    let active = |ago_s, look| DirectionFacts {
        flow: flow(FlowState::Active),
        last_use: last(ago_s),
        look,
        ..facts(&udp)
    };
    assert_eq!((active(1, None).verdict().slow, active(1, None).verdict().idle), (None, None));
    assert_eq!(
        active(3, None).verdict().idle,
        Some(Idle { for_s: Some(3), was_fast: Some(true), ..UNKNOWN })
    );
    let none = Look { counted: Some(0), ..Look::default() };
    assert!(active(3, Some(none)).verdict().idle.is_some());
    let short_lived = Look { counted: Some(25), passed: vec![("ttl", 24)], ..Look::default() };
    assert_eq!(active(3, Some(short_lived)).verdict().slow, Some("ttl"));
    // A proof, by Linux.
    let proved = active(3, Some(Look { counted: Some(1), arrived: 1, ..Look::default() })).verdict();
    assert_eq!((proved.slow, proved.idle, proved.since_s), (None, None, Some(5)));
}

#[test]
fn a_stale_flow_whose_packets_do_not_leave_is_not_called_idle() {
    let tcp = tracked(TCP, Some("ESTABLISHED"), GOOD);
    let silent = DirectionFacts {
        flow: flow(FlowState::Stale),
        last_use: Some(LastUse { ago_s: 60, fast: true }),
        packets_seen: 0,
        window_age_s: 20,
        ..facts(&tcp)
    };
    assert!(silent.verdict().idle.is_some());
    let epoch_moved = |ago_s| Some((ago_s, "capture".to_owned()));
    let dropped = DirectionFacts { later_packets_s: Some(20), epoch_moved: epoch_moved(21), ..silent };
    // Nobody knows how packets fared before the last change.
    let before = DirectionFacts { epoch_moved: epoch_moved(12), tracked_ago_s: Some(14), ..dropped.clone() };
    let before = DirectionFacts { later_ago_s: Some(14), ..before };
    let at_least =
        |for_s, was_fast| Some(Idle { for_s: Some(for_s), at_least: true, was_fast: Some(was_fast) });
    // Conntrack tells whole seconds.
    assert_eq!(before.verdict().idle, at_least(13, true));
    let captured = DirectionFacts { unblocked_s: Some(9), ..dropped.clone() };
    assert!(captured.verdict().idle.is_some(), "its capture ended later");
    let verdict = dropped.verdict();
    assert_eq!((verdict.slow, verdict.idle), (Some("stale"), None));
    assert!(verdict.detail.starts_with("a packet arrived 20 s ago"), "{}", verdict.detail);
    assert!(verdict.remedy.unwrap().contains("a rule drops"));
    assert_eq!(DirectionFacts { refused: Some("class"), ..dropped }.verdict().slow, Some("class"));
}

#[test]
fn a_stale_flow_without_packets_is_idle_from_the_first_second() {
    let tcp = tracked(TCP, Some("ESTABLISHED"), GOOD);
    let last = |ago_s| Some(LastUse { ago_s, fast: true });
    let look = |counted| Some(Look { over_ms: 500, counted, ..Look::default() });
    let silent = DirectionFacts {
        flow: flow(FlowState::Stale),
        last_use: last(1),
        window_age_s: 0,
        look: look(Some(0)),
        ..facts(&tcp)
    };
    // A packet has come after the last fast one.
    assert_eq!(silent.verdict().idle, Some(Idle { for_s: None, was_fast: Some(true), ..UNKNOWN }));
    let none_later = DirectionFacts { packets_seen: 0, ..silent.clone() };
    assert_eq!(none_later.verdict().idle, Some(Idle { for_s: Some(1), was_fast: Some(true), ..UNKNOWN }));
    let comes = DirectionFacts { look: look(Some(3)), ..silent };
    assert_eq!((comes.verdict().slow, comes.verdict().idle), (Some("stale"), None));
}

#[test]
fn behind_a_rule_only_conntrack_tells_whether_packets_come() {
    let udp = tracked(UDP, None, GOOD);
    let behind = |counted: Option<Option<u64>>| {
        let look = counted.map(|counted| Look { counted, ..Look::default() });
        let rule = LearningBlocked { reason: "ruleset", place: "`queue` in a chain".to_owned() };
        let last_use = Some(LastUse { ago_s: 6, fast: true });
        DirectionFacts { learning_blocked: Some(rule), packets_seen: 0, last_use, look, ..facts(&udp) }
            .verdict()
    };
    for counted in [None, Some(None), Some(Some(90))] {
        assert_eq!((behind(counted).slow, behind(counted).idle), (Some("ruleset"), None), "{counted:?}");
    }
    assert_eq!(behind(Some(Some(0))).idle, Some(Idle { for_s: Some(6), was_fast: Some(true), ..UNKNOWN }));
}

#[test]
fn a_connection_whose_last_packets_were_dropped_is_idle_after_a_while() {
    let udp = tracked(17, None, GOOD);
    let dropped = |ago_s: u64, arrived: u64| {
        let stayed = Some(Stayed { port: "lan0".to_owned(), ago_s });
        let last_use = Some(LastUse { ago_s: ago_s + 5, fast: true });
        let look = Some(Look { arrived, stayed, ..Look::default() });
        let epoch_moved = Some((ago_s + 5, "a change of rules".to_owned()));
        DirectionFacts { tracked: None, packets_seen: 0, look, last_use, epoch_moved, ..facts(&udp) }
            .verdict()
    };
    let now = dropped(1, 3);
    assert_eq!((now.slow, now.idle, now.since_s), (Some("miss"), None, Some(6)));
    let then = dropped(13, 0);
    assert_eq!(then.idle, Some(Idle { for_s: Some(13), was_fast: Some(true), ..UNKNOWN }));
    assert!(
        then.since_s.is_none()
            && then.remedy.unwrap().starts_with("nothing to do if the exchange is over; else see")
    );
}

#[test]
fn behind_a_capture_only_conntrack_tells_that_no_packets_come() {
    let udp = tracked(17, None, GOOD);
    let idle = |counted: Option<u64>, is_captured: bool| {
        let stayed = Some(Stayed { port: "lan0".to_owned(), ago_s: 15 });
        let look = Some(Look { counted, stayed, ..Look::default() });
        let capture = LearningBlocked { reason: "capture", place: "on lan0".to_owned() };
        let learning_blocked = is_captured.then_some(capture);
        DirectionFacts { look, learning_blocked, ..facts(&udp) }.verdict().idle.is_some()
    };
    assert!(!idle(Some(10), true) && !idle(None, true), "packets come, or nobody knows");
    assert!(idle(Some(0), true) && idle(None, false) && idle(Some(0), false));
}

/// Conntrack's timeout is of both directions.
#[test]
fn a_direction_is_idle_for_at_least_as_long_as_both() {
    let udp = tracked(UDP, None, GOOD);
    let look = Some(Look { over_ms: 500, counted: Some(0), ..Look::default() });
    let silent = DirectionFacts {
        refused: Some("not-proved"),
        look,
        tracked_ago_s: Some(6),
        window_age_s: 25,
        packets_seen: 0,
        ..facts(&udp)
    };
    let idle = |for_s, at_least| Some(Idle { for_s: Some(for_s), at_least, was_fast: Some(false) });
    assert_eq!(silent.verdict().idle, idle(5, true));
    // Its own packet began a window then.
    let own = DirectionFacts { window_age_s: 7, packets_seen: 1, ..silent.clone() };
    assert_eq!(own.verdict().idle, idle(6, false));
    // An unknown window tells nothing.
    let unknown = DirectionFacts { refused: None, packets_seen: 0, window_age_s: 0, ..silent };
    assert_eq!(unknown.verdict().idle.map(|idle| (idle.for_s, idle.at_least)), Some((Some(5), true)));
}

#[test]
fn what_can_never_be_fast_is_idle_without_packets() {
    let mut tcp = tracked(TCP, Some("ESTABLISHED"), GOOD);
    tcp.helper = Some("ftp".to_owned());
    let counted = |counted| Some(Look { over_ms: 500, counted, ..Look::default() });
    let told = |look, tracked_ago_s| {
        let verdict = DirectionFacts { look, tracked_ago_s, ..facts(&tcp) }.verdict();
        (verdict.slow, verdict.idle.map(|idle| idle.for_s))
    };
    assert_eq!(told(counted(Some(0)), Some(40)), (Some("helper"), Some(Some(40))));
    assert_eq!(told(counted(Some(3)), Some(0)), (Some("helper"), None));
    // If conntrack does not count, its timeout tells.
    assert_eq!(told(counted(None), Some(40)), (Some("helper"), Some(Some(40))));
    assert_eq!(told(counted(None), Some(1)), (Some("helper"), None));
    assert!(is_doubtful(Some("helper"), None) && is_doubtful(Some("no-conntrack"), None));

    tcp.state = Some("TIME_WAIT".to_owned());
    let ended = DirectionFacts { tracked_ago_s: Some(8), ..facts(&tcp) }.verdict();
    assert_eq!((ended.slow, ended.idle.and_then(|idle| idle.for_s)), (Some("not-established"), Some(8)));
}

#[test]
fn what_conntrack_does_not_count_is_not_told_as_idle() {
    let udp = tracked(UDP, None, GOOD);
    let look = |counted| Some(Look { over_ms: 500, counted, ..Look::default() });
    let told = |facts: DirectionFacts<'_>| {
        let verdict = facts.verdict();
        (verdict.slow, verdict.idle, verdict.detail.contains("does not count packets"))
    };
    // Fragments, which no port looks up.
    let unseen = DirectionFacts {
        look: look(None),
        tracked_ago_s: Some(0),
        packets_seen: 0,
        window_age_s: 99,
        ..facts(&udp)
    };
    assert_eq!(told(unseen.clone()), (Some("miss"), None, true));
    assert_eq!(told(DirectionFacts { look: look(Some(0)), ..unseen.clone() }).1.map(|_| ()), Some(()));
    let silent = DirectionFacts { tracked_ago_s: Some(20), ..unseen.clone() };
    assert_eq!(told(silent).1.map(|idle| idle.for_s), Some(Some(19)));
    // A TTL of 1, after fast packets.
    let last_use = Some(LastUse { ago_s: 5, fast: true });
    let later =
        DirectionFacts { flow: flow(FlowState::Active), last_use, later_ago_s: Some(0), ..unseen.clone() };
    assert_eq!(told(later.clone()), (Some("miss"), None, true));
    assert!(told(DirectionFacts { later_ago_s: None, ..later }).1.is_some());
}
