use super::*;
use crate::verify::segment::{Segment, Segments, Treated};
use shunt_api::{Proto, Tuple};
use std::net::Ipv4Addr;

fn segments(number: u16, mac: u8) -> Segments {
    let treated = Treated {
        l2: vec![mac; 14],
        src: Ipv4Addr::LOCALHOST.into(),
        dst: Ipv4Addr::LOCALHOST.into(),
        sport: 1,
        dport: 2,
        ttl: 64,
        dscp: 0,
        ecn: 0,
    };
    let one = Segment {
        treated,
        kept: [vec![0; 40], number.to_be_bytes().to_vec(), vec![0; 40]].concat(),
        exact: (0, 0),
        is_part: false,
        is_ip_sum_good: true,
        is_l4_sum_good: Some(true),
        stream: None,
    };
    Segments { whole: vec![one], cut: None }
}

/// A flow with this many fast packets, each sent to this MAC, and as many slow ones.
fn flow(fast: u16, slow: u16, mac: impl Fn(u16) -> u8) -> Follower {
    let mut follower = Follower::default();
    for number in 0..fast + slow {
        follower.enter(number.into(), segments(number, 9));
        let (way, mac) = if number < fast { (Way::Fast, mac(number)) } else { (Way::Slow, 1) };
        follower.leave(number.into(), way, segments(number, mac));
    }
    follower
}

fn report_of(follower: &Follower) -> Report {
    report(&[(&to_wan(Engine::Tc), follower)], Course::default())
}

fn to_wan(engine: Engine) -> Flow {
    let tuple =
        Tuple { src: Ipv4Addr::LOCALHOST.into(), dst: Ipv4Addr::LOCALHOST.into(), sport: 1, dport: 2 };
    let (in_port, out_port) = ("lan0".to_owned(), "wan0".to_owned());
    Flow { connection: 0, proto: Proto::Udp, in_port, out_port, enters: tuple, leaves: tuple, engine }
}

#[test]
fn enough_equal_packets_are_an_answer_with_its_bound() {
    let report = report_of(&flow(400, 10, |_| 1));
    assert_eq!((report.verdict, report.unknown.len()), (Verdict::Equal, 0));
    // 0 of 400: about 3.7 of 400.
    let most = report.faults_at_most.unwrap();
    assert!((0.009..0.0093).contains(&most), "{most}");
    assert_eq!(report.paths[&Way::Fast].packets, 400);
}

#[test]
fn little_traffic_or_none_to_compare_with_is_no_answer() {
    for follower in [flow(99, 10, |_| 1), flow(400, 0, |_| 1), flow(0, 400, |_| 1)] {
        let report = report_of(&follower);
        assert_eq!(report.verdict, Verdict::CannotTell);
        assert!(report.unknown[0].starts_with("too little traffic"), "{:?}", report.unknown);
    }
    let nothing = report(&[], Course::default());
    assert_eq!((nothing.verdict, nothing.faults_at_most), (Verdict::CannotTell, None));
    assert!(nothing.unknown[0].contains("no connection is on the fast path"));
    let mut blind = flow(400, 10, |_| 1);
    blind.unseen = 401;
    assert_eq!(report_of(&blind).verdict, Verdict::CannotTell);
}

#[test]
fn one_packet_with_other_headers_is_a_difference_that_names_the_field() {
    let report = report_of(&flow(400, 10, |number| if number == 7 { 3 } else { 1 }));
    assert_eq!(report.verdict, Verdict::Differs);
    assert_eq!(report.paths[&Way::Fast].faults, BTreeMap::from([(Fault::Headers, 1)]));
    let [difference] = &report.differences[..] else { panic!("{report:#?}") };
    assert_eq!(difference.what[0], "destination MAC: 03:03:03:03:03:03, with Linux 01:01:01:01:01:01");
}

#[test]
fn a_lost_packet_and_a_changed_one_are_shown_with_their_bytes() {
    let mut follower = flow(400, 10, |_| 1);
    for number in [1000, 1001, 1002] {
        follower.enter(2000, segments(number, 9));
    }
    let mut changed = segments(1000, 1);
    changed.whole[0].kept[60] = 0xff;
    follower.leave(2001, Way::Fast, changed);
    follower.leave(2002, Way::Fast, segments(1002, 1));
    follower.give_up(u64::MAX);
    let report = report_of(&follower);
    let faults: Vec<_> = report.differences.iter().map(|one| (one.fault, one.packets)).collect();
    assert_eq!(faults, [(Fault::Bytes, 1), (Fault::Lost, 1)]);
    let bytes = &report.differences[0];
    assert_eq!((bytes.at, &bytes.differing), (36, &vec![24]));
    assert_eq!(bytes.left.split(' ').nth(24), Some("ff"));
    assert_eq!(report.differences[1].left, "");
}

#[test]
fn losses_on_both_paths_are_no_fault_of_the_fast_path() {
    let lose = |ways: &[Way]| {
        let mut follower = flow(400, 10, |_| 1);
        for way in ways {
            follower.tallies.get_mut(way).unwrap().faults.insert(Fault::Lost, 3);
        }
        report_of(&follower)
    };
    let both = lose(&[Way::Fast, Way::Slow]);
    assert_eq!(both.verdict, Verdict::CannotTell);
    assert!(both.unknown[0].starts_with("packets were lost on both paths"), "{:?}", both.unknown);
    assert_eq!(lose(&[Way::Fast]).verdict, Verdict::Differs);
    // Few on the slow path do not hide many on the fast one.
    let mut follower = flow(1893, 18_613, |_| 1);
    for (way, packets) in Way::ALL.into_iter().zip([93, 19]) {
        follower.tallies.get_mut(&way).unwrap().faults.insert(Fault::Lost, packets);
    }
    assert_eq!(report_of(&follower).verdict, Verdict::Differs);
}

#[test]
fn drops_by_linux_that_could_hide_loss_are_no_answer() {
    let drop = |fast: u64, slow: u64| {
        let mut follower = flow(2000, 2000, |_| 1);
        follower.by_linux = [((Way::Fast, 2), fast), ((Way::Slow, 2), slow)].into();
        report_of(&follower)
    };
    for (fast, slow, why) in [
        (
            1670,
            1007,
            "Linux dropped 2677 packets on both paths (reason 2), so loss by Shunt cannot be told; bytes and \
             order were equal; ask again when",
        ),
        (300, 0, "Linux dropped 300 packets of the fast path and none of the slow one (reason 2), so loss"),
    ] {
        let report = drop(fast, slow);
        assert_eq!((report.verdict, report.unknown.len()), (Verdict::CannotTell, 1), "{report:#?}");
        assert!(report.unknown[0].starts_with(why), "{:?}", report.unknown);
    }
    // Too few to hide anything, or only what Linux does by itself.
    for (fast, slow) in [(4, 4), (0, 1007)] {
        assert_eq!(drop(fast, slow).verdict, Verdict::Equal);
    }
}

#[test]
fn drops_that_meet_the_fast_path_alone_are_a_difference_unless_a_queue_makes_them() {
    let drop = |reason: &str, fast: u64, slow: u64| {
        let mut follower = flow(9500, 16_000, |_| 1);
        follower.by_linux = [((Way::Fast, 2), fast), ((Way::Slow, 2), slow)].into();
        let flow = to_wan(Engine::Tc);
        let flows = [(&flow, &follower)];
        let drop_reasons = [(2, reason.to_owned())].into();
        report(&flows, Course { drop_reasons, ..Course::default() })
    };
    let filtered = drop("TC_EGRESS", 165, 0);
    assert_eq!(filtered.verdict, Verdict::Differs);
    assert!(filtered.unknown[0].contains("tc filter show dev wan0 egress"), "{:?}", filtered.unknown);
    for (reason, fast, slow) in [("QDISC_DROP", 165, 0), ("TC_EGRESS", 165, 280)] {
        assert_eq!(drop(reason, fast, slow).verdict, Verdict::CannotTell, "{reason}");
    }
    // Such as packets whose TTL ends here.
    assert_eq!(drop("IP_INHDR", 165, 0).verdict, Verdict::Equal);
    let full = drop("QDISC_OVERLIMIT", 165, 280);
    let said = full.unknown.join("; ");
    assert!(
        said.starts_with(
            "the queue of wan0 was full: it dropped 445 packets on both paths (QDISC_OVERLIMIT)"
        ) && said.ends_with("told; bytes and order were equal; ask again when it drops none: `tc -s qdisc show dev wan0` counts its drops"),
        "{said}"
    );
}

#[test]
fn loss_where_linux_drops_or_on_the_slow_path_alone_is_not_that_of_the_fast_path() {
    let lose = |way: Way, dropped: u64| {
        let mut follower = flow(5000, 5000, |_| 1);
        follower.tallies.get_mut(&way).unwrap().faults.insert(Fault::Lost, 10);
        follower.by_linux = [((Way::Fast, 2), dropped)].into();
        report_of(&follower).verdict
    };
    assert_eq!(lose(Way::Fast, 40), Verdict::CannotTell);
    assert_eq!((lose(Way::Fast, 0), lose(Way::Slow, 0)), (Verdict::Differs, Verdict::Equal));
}

#[test]
fn the_difference_of_round_trips_is_that_of_the_periods() {
    let medians: Vec<PeriodMedians> = [30.0, 20.0, 31.0, 21.0, 32.0, 22.0]
        .into_iter()
        .zip(Way::ALL.into_iter().cycle())
        .map(|(us, way)| (way, us * 1000.0))
        .collect();
    let interval = difference(&medians).unwrap();
    assert_eq!((interval.value, interval.low, interval.high), (10.0, 8.0, 12.0));
    assert_eq!(difference(&medians[..1]), None);
}

#[test]
fn packets_that_xdp_lost_or_the_observer_missed_are_no_answer() {
    let follower = flow(400, 10, |_| 1);
    let report = report(&[(&to_wan(Engine::Xdp), &follower)], Course { undecided: 2, ..Course::default() });
    assert_eq!(report.verdict, Verdict::CannotTell);
    assert!(report.unknown[0].starts_with("2 packets were seen before XDP"), "{:?}", report.unknown);
}
