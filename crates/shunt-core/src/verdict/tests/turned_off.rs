use super::*;

#[test]
fn a_connection_that_is_off_tells_a_trouble_of_its_own_first() {
    let udp = tracked(UDP, None, GOOD);
    let look = Look { over_ms: 500, mtu: 1500, mean_bytes: 128, counted: Some(9), ..Look::default() };
    let silent = DirectionFacts {
        off: by_rule(Some(40)),
        refused: Some("off"),
        packets_seen: 0,
        window_age_s: 90,
        look: Some(look.clone()),
        ..facts(&udp)
    };
    let told = |facts: &DirectionFacts<'_>| {
        let verdict = facts.verdict();
        (verdict.slow.unwrap_or_default(), verdict.detail)
    };
    let plain = told(&silent);
    assert_eq!(plain, ("off", "by a rule".to_owned()));
    let stayed = Some(Stayed { port: "lan0".to_owned(), ago_s: 0 });
    let dropped = Look { arrived: 5, stayed, ..look.clone() };
    let dropped = DirectionFacts { look: Some(dropped), ..silent.clone() };
    assert_eq!(told(&dropped).0, "miss");
    assert!(told(&dropped).1.ends_with("; besides, it is off by a rule"), "{dropped:?}");
    let on_again = DirectionFacts { off: None, ..dropped.clone() };
    assert!(told(&on_again).1.contains("was not seen to leave"), "{:?}", told(&on_again));
    let by_mark = DirectionFacts { off: None, excluded: true, refused: Some("excluded"), ..dropped };
    assert!(told(&by_mark).1.ends_with("it is excluded by its mark"), "{:?}", told(&by_mark));
    let passed = Look { passed: vec![("ttl", 9)], ..look.clone() };
    let passed = DirectionFacts { look: Some(passed), ..silent.clone() };
    assert_eq!(told(&passed).0, "ttl");
    // Of packets that are refused, one a second is seen; the others of the moment may be of anybody.
    assert_eq!(told(&DirectionFacts { window_age_s: 9, ..passed }).0, "off");
    let fragments = Look { mean_bytes: 2800, passed: vec![("fragment", 18)], ..look };
    assert_eq!(told(&DirectionFacts { look: Some(fragments), ..silent.clone() }).0, "fragment");
    let down = DirectionFacts { obstacle: Some(Obstacle::Down("wan0".to_owned())), ..silent.clone() };
    assert_eq!(told(&down), ("miss", "wan0 is down; besides, it is off by a rule".to_owned()));
    let local = DirectionFacts { local: true, ..silent.clone() };
    assert!(told(&local).1.contains("the router itself"), "{:?}", told(&local));
    let opening = tracked(TCP, Some("SYN_SENT"), Tracked::CONFIRMED);
    let opening = DirectionFacts { off: by_rule(Some(40)), ..facts(&opening) };
    assert!(told(&opening).1.contains("has not answered; besides"), "{:?}", told(&opening));
}

#[test]
fn what_is_off_is_idle_only_if_nobody_counts_packets() {
    let udp = tracked(UDP, None, GOOD);
    let with = |counted| {
        let look = Some(Look { counted, ..Look::default() });
        let last_use = Some(LastUse { ago_s: 60, fast: true });
        DirectionFacts { off: by_rule(Some(40)), look, last_use, window_age_s: 90, ..facts(&udp) }.verdict()
    };
    assert_eq!(
        (with(Some(3)).slow, with(Some(3)).idle, with(Some(3)).since_s),
        (Some("off"), None, Some(40))
    );
    assert_eq!(with(Some(0)).idle, Some(Idle { for_s: Some(60), was_fast: Some(true), ..UNKNOWN }));
    assert_eq!(with(None).idle, with(Some(0)).idle);
}

#[test]
fn what_is_off_is_so_since_the_rule_or_the_last_fast_packet() {
    let udp = tracked(UDP, None, GOOD);
    let since = |rule_s, last_fast_s: Option<u64>| {
        let last_use = last_fast_s.map(|ago_s| LastUse { ago_s, fast: true });
        DirectionFacts { off: by_rule(Some(rule_s)), last_use, ..facts(&udp) }.verdict().since_s
    };
    assert_eq!(since(40, Some(6)), Some(6), "a proof holds for a while");
    assert_eq!(since(5, Some(50)), Some(5), "it was idle before");
    assert_eq!(since(40, None), Some(40));
    assert_eq!(since(400, None), Some(77), "the connection is younger than the rule");
}
