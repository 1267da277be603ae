use super::*;
use crate::{
    commands::{arguments::parse_args, flows},
    golden::{JSON, TEXT, VERBOSE, assert_golden},
    render::{Answer, Text},
};
use shunt_inspect::verify::Verdict;

#[test]
fn texts_match_their_golden_files() {
    for (name, report, format) in [
        ("golden/equal.txt", sample::equal(), TEXT),
        ("golden/equal.json", sample::equal(), JSON),
        ("golden/broken.txt", sample::broken(), VERBOSE),
        ("golden/broken.json", sample::broken(), JSON),
    ] {
        assert_golden(name, &report, format);
    }
}

#[test]
fn none_lost_is_said_only_if_nothing_was() {
    let first_line = |change: fn(&mut verify::Report)| {
        let mut report = sample::equal();
        change(&mut report);
        Text::text(&report, TEXT).lines().next().unwrap_or_default().to_owned()
    };
    let clean = first_line(|report| {
        report.paths.values_mut().for_each(|path| path.dropped_by_linux.clear());
    });
    assert!(clean.starts_with("all equal, in order, none lost: "), "{clean}");
    let unseen = first_line(|report| report.unseen = 133);
    assert!(unseen.starts_with("what was compared is equal, in order, none lost but 2 packets"), "{unseen}");
    let hidden = first_line(|report| {
        report.verdict = Verdict::CannotTell;
        report.unknown = vec!["Linux dropped 2677 packets on both paths".to_owned()];
    });
    assert!(hidden.starts_with("cannot tell: Linux dropped 2677") && !hidden.contains("lost"), "{hidden}");
}

#[test]
fn drops_of_the_fast_path_alone_are_not_called_lost() {
    let mut report = verify::Report { verdict: Verdict::Differs, ..sample::equal() };
    report.paths.get_mut(&verify::Way::Fast).unwrap().dropped_by_linux.insert("TC_EGRESS".to_owned(), 53);
    let why = Answer::failure(&report).unwrap().message;
    assert!(
        why.starts_with("Linux drops packets of the fast path alone: 53 of 24053; ") && !why.contains("lost"),
        "{why}"
    );
    let text = Text::text(&report, TEXT);
    assert!(text.contains("Linux dropped 53 packets of the fast path alone:"), "{text}");
    assert!(text.contains("Linux dropped 53 packets of the fast path: TC_EGRESS\n"), "{text}");
    assert!(text.contains("Linux dropped 2 packets of the slow path: QDISC_DROP\n"), "{text}");
}

#[test]
fn what_both_paths_do_is_not_blamed_on_the_fast_one() {
    let why = |fault: verify::Fault, fast: u64, slow: u64| {
        let mut report = verify::Report { verdict: Verdict::Differs, ..sample::equal() };
        for (way, packets) in [(verify::Way::Fast, fast), (verify::Way::Slow, slow)] {
            report.paths.get_mut(&way).unwrap().faults.insert(fault, packets);
        }
        Answer::failure(&report).unwrap().message
    };
    use verify::Fault::{Bytes, Order};
    assert!(why(Bytes, 4, 0).starts_with("packets differ from what Linux sends: Shunt changes them, or "));
    assert!(why(Bytes, 4, 4).starts_with("packets change on the slow path, too: something besides Shunt"));
    assert!(why(Bytes, 0, 4).starts_with("packets change on the slow path: something besides Shunt"));
    assert!(why(Order, 40, 0).starts_with("packets of the fast path leave out of order; `shunt off`"));
    assert!(
        why(Order, 40, 43).starts_with("packets leave out of order on the slow path, too: something besides")
    );
    assert!(why(Order, 0, 43).starts_with("packets leave out of order on the slow path: something besides"));
    let mut both = verify::Report { verdict: Verdict::Differs, ..sample::equal() };
    both.paths
        .get_mut(&verify::Way::Fast)
        .unwrap()
        .faults
        .extend([(Order, 135), (verify::Fault::Lost, 1650)]);
    assert!(
        Answer::failure(&both).unwrap().message.starts_with("packets of the fast path are lost, and some")
    );
    assert!(why(Order, 400, 3).contains("on the fast path more often than on the slow one; `shunt off`"));
}

#[test]
fn the_exit_code_is_the_verdict() {
    let code = |verdict: Verdict| {
        let report = verify::Report { verdict, ..sample::equal() };
        Answer::failure(&report).map(|failure| failure.code.exit_code())
    };
    let verdicts = [Verdict::Equal, Verdict::Differs, Verdict::CannotTell];
    assert_eq!(verdicts.map(code), [None, Some(1), Some(2)]);
}

fn owners_rule() -> OffRule {
    OffRule {
        which: Selection::default(),
        left_s: None,
        by: OffBy::Owner,
        names: shunt_api::EndNames::default(),
    }
}

#[test]
fn only_active_connections_of_the_engines_tc_and_xdp_are_followed() {
    let connection = |engine: Engine, state: FlowState, rate_pps: u64| {
        let mut one = flows::sample::tcp();
        (one.rate_pps, one.state) = (rate_pps, state);
        one.directions.iter_mut().for_each(|direction| {
            (direction.engine, direction.state) = (engine, state);
        });
        one
    };
    let all = vec![
        connection(Engine::Tc, FlowState::Active, 5),
        connection(Engine::Tc, FlowState::Active, 50),
        connection(Engine::External, FlowState::Active, 50_000),
        connection(Engine::Xdp, FlowState::Active, 500),
        connection(Engine::Tc, FlowState::Stale, 5000),
    ];
    let chosen = choose(all.clone(), &[Selection::default()], 8, &Held::default());
    assert_eq!(chosen.connections.iter().map(|one| one.rate_pps).collect::<Vec<_>>(), [500, 50, 5]);
    assert!(chosen.doubts[0].starts_with("2 flows forwarded by the engine external"));
    assert_eq!(choose(all.clone(), &[Selection::default()], 1, &Held::default()).connections.len(), 1);
    let stale = [connection(Engine::Tc, FlowState::Stale, 5000)];
    let waits = choose(stale.to_vec(), &[Selection::default()], 8, &Held::default());
    assert!(
        waits.connections.is_empty() && waits.doubts[0].starts_with("1 connection soon back"),
        "{:?}",
        waits.doubts
    );
    let mut silent = stale.to_vec();
    silent[0].idle_s = 60;
    assert_eq!(choose(silent, &[Selection::default()], 8, &Held::default()).doubts, Vec::<String>::new());
    let held = Held { captured: [stale[0].directions[0].in_port.clone()].into(), ..Held::default() };
    let said = |connections: &[Connection], held: &Held| {
        choose(connections.to_vec(), &[Selection::default()], 8, held).doubts
    };
    let doubts = said(&stale, &held);
    assert!(
        doubts.len() == 1 && doubts[0].starts_with("a packet socket (tcpdump, an IDS) captures on "),
        "{doubts:?}"
    );
    assert_eq!(said(&[], &held), doubts, "connections that began after the capture");
    let other_port = Held { captured: ["other".to_owned()].into(), ..Held::default() };
    assert!(said(&stale, &other_port)[0].starts_with("1 connection soon back"));
    let rule = |by: OffBy| OffRule { which: only(&stale[0]), by, ..owners_rule() };
    let off = |by: OffBy| Held { off: vec![rule(by)], ..Held::default() };
    assert!(said(&stale, &off(OffBy::Owner))[0].starts_with("1 connection off by `shunt off`"));
    assert!(off(OffBy::Verify).is_in_use() && said(&stale, &off(OffBy::Verify))[0].contains("soon back"));
    let other = Selection { dport: Some(9), ..Selection::default() };
    assert_eq!(choose(all.clone(), std::slice::from_ref(&other), 8, &Held::default()).connections.len(), 0);
    let tcp = Selection { src: Some(all[0].orig.src.into()), ..Selection::default() };
    assert_eq!(choose(all, &[other, tcp], 8, &Held::default()).connections.len(), 3, "any address of a host");

    let flows = flows(&chosen.connections);
    assert_eq!(flows.len(), 6);
    assert_eq!((flows[0].connection, flows[1].connection, flows[2].connection), (0, 0, 1));
    let tcp = &chosen.connections[0];
    assert!(only(tcp).has(tcp.proto, &[tcp.orig, tcp.reply]));
}

#[test]
fn the_time_is_three_seconds_to_an_hour() {
    let args = |words: &str| parse_args::<VerifyArgs>(words);
    for (words, time) in [("", Duration::from_secs(30)), ("--for 3", SHORTEST), ("--for 1h", LONGEST)] {
        assert_eq!(args(words).unwrap().time, time, "{words}");
    }
    for wrong in ["--for 0s", "--for 2", "--for 3601s", "--for soon", "--limit 17"] {
        assert!(args(wrong).is_err(), "{wrong}");
    }
}
