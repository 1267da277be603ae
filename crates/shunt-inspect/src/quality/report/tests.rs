use super::*;

const HOST: &str = "192.168.1.2";

/// A host with so many round trips without waiting and segments without loss, in both directions.
fn sound(count: u32) -> abi::QualityTally {
    let mut tally = abi::QualityTally::default();
    tally.prompt.count[100] = count;
    tally.excess.count[0] = count;
    (tally.in_segments, tally.out_segments) = (count.into(), count.into());
    tally
}

fn made(lan: abi::QualityTally, wan: abi::QualityTally, change: impl FnOnce(&mut Course)) -> Report {
    let host = Sender::Host(HOST.parse().unwrap());
    let mut router = abi::QualityTimes::default();
    router.count[20] = 1000;
    let counted = Counted {
        transit: [(Side::Wan, Histogram::from(&router))].into(),
        unseen: abi::QualityUnseen::default(),
    };
    let mut course = Course { seconds: 30.0, counted, own: BTreeSet::new() };
    change(&mut course);
    let tallies = vec![((host, Side::Lan), lan), ((host, Side::Wan), wan)];
    report(&tallies, &course, None, |_| true, |_| None)
}

fn found(report: &Report) -> Vec<(Part, Symptom)> {
    report.findings.iter().map(|finding| (finding.part, finding.symptom)).collect()
}

#[test]
fn enough_traffic_without_fault_is_sound() {
    let report = made(sound(1000), sound(1000), |_| ());
    assert_eq!((report.verdict, found(&report), report.unknown.len()), (Verdict::Sound, vec![], 0));
    let wan = &report.sides[&Side::Wan];
    assert!(!wan.may_be_delayed && wan.round_trip.is_some_and(|times| times.p95.is_some()), "{wan:?}");
}

#[test]
fn little_traffic_tells_nothing() {
    let report = made(sound(20), sound(20), |_| ());
    assert_eq!((report.verdict, report.unknown.len()), (Verdict::CannotTell, 6), "{report:#?}");
    // 20 losses of 20 tell enough.
    let lossy = abi::QualityTally { out_repeated: 20, ..sound(20) };
    let report = made(sound(20), lossy, |_| ());
    assert_eq!(report.verdict, Verdict::Fault);
    assert_eq!(found(&report), [(Part::WanSide, Symptom::LosesFromRouter)]);
}

#[test]
fn each_part_is_blamed_for_its_own_fault() {
    let lossy = abi::QualityTally { in_lost: 50, ..sound(1000) };
    let report = made(lossy, sound(1000), |_| ());
    assert_eq!(found(&report), [(Part::LanSide, Symptom::LosesTowardsRouter)]);
    // What was lost was sent, too.
    assert_eq!(report.sides[&Side::Lan].towards_router.segments, 1050);
    let mut waits = sound(1000);
    waits.excess.count[300] = 200;
    assert_eq!(found(&made(sound(1000), waits, |_| ())), [(Part::WanSide, Symptom::Waits)]);
    let report = made(sound(1000), sound(1000), |course| {
        let mut router = abi::QualityTimes::default();
        router.count[300] = 100;
        course.counted.transit = [(Side::Wan, Histogram::from(&router))].into();
    });
    assert_eq!(found(&report), [(Part::Router, Symptom::Waits)]);
}

/// Round trips of 100 ms; `waits` of them exceed the shortest one of their connection by 50 ms.
fn far(count: u32, waits: u32) -> abi::QualityTally {
    let mut tally = sound(count);
    let bucket = (0..).find(|bucket| Histogram::bucket_ms(*bucket) >= 100.0).unwrap();
    tally.prompt = abi::QualityTimes::default();
    tally.prompt.count[bucket] = count;
    let late = (0..).find(|bucket| Histogram::bucket_ms(*bucket) >= 50.0).unwrap();
    (tally.excess.count[0], tally.excess.count[late]) = (count - waits, waits);
    tally
}

#[test]
fn a_full_buffer_and_a_far_server_look_alike() {
    let report = made(sound(1000), far(1000, 0), |_| ());
    assert_eq!((report.verdict, found(&report)), (Verdict::CannotTell, vec![]));
    let [open] = report.unknown.as_slice() else { panic!("{:#?}", report.unknown) };
    assert_eq!((open.part, open.symptom), (Part::WanSide, Symptom::Waits));
    let share = open.share.unwrap();
    assert!(share.low == 0.0 && share.value == 0.0 && share.high > 0.99, "{share:?}");
    // What exceeds the shortest has waited, wherever the server is; the others may have.
    let report = made(sound(1000), far(1000, 200), |_| ());
    assert_eq!(found(&report), [(Part::WanSide, Symptom::Waits)]);
    let share = report.sides[&Side::Wan].waiting_share.unwrap();
    assert!((0.15..0.2).contains(&share.low) && share.value == 0.2 && share.high > 0.99, "{share:?}");
}

#[test]
fn a_few_round_trips_blame_nobody() {
    let mut few = far(1000, 0);
    few.prompt.count.iter_mut().chain(&mut few.excess.count).for_each(|count| *count /= 20);
    few.excess.count.swap(0, 300);
    let report = made(sound(1000), few, |_| ());
    assert_eq!((report.verdict, found(&report)), (Verdict::CannotTell, vec![]));
}

#[test]
fn a_download_alone_can_be_sound() {
    let (lan, wan) = (
        abi::QualityTally { in_segments: 9, ..sound(1000) },
        abi::QualityTally { out_segments: 9, ..sound(1000) },
    );
    let report = made(lan, wan, |_| ());
    let open: Vec<_> = report.unknown.iter().map(|one| (one.part, one.symptom)).collect();
    let upload = [(Part::LanSide, Symptom::LosesTowardsRouter), (Part::WanSide, Symptom::LosesFromRouter)];
    assert_eq!((report.verdict, open), (Verdict::Sound, upload.to_vec()));
    // A few lost ones are no proof, and no proof of the contrary.
    let lossy = abi::QualityTally { out_segments: 100, out_repeated: 2, ..sound(1000) };
    assert_eq!(made(lan, lossy, |_| ()).verdict, Verdict::CannotTell);
    // Nor without round trips.
    let blind = abi::QualityTally {
        prompt: abi::QualityTimes::default(),
        excess: abi::QualityTimes::default(),
        ..sound(1000)
    };
    assert_eq!(made(sound(1000), blind, |_| ()).verdict, Verdict::CannotTell);
}

#[test]
fn what_the_receiver_had_already_was_not_lost() {
    let spurious = abi::QualityTally { out_repeated: 80, out_duplicate: 80, ..sound(1000) };
    assert_eq!(made(sound(1000), spurious, |_| ()).verdict, Verdict::Sound);
}

#[test]
fn unclear_losses_widen_the_interval_and_blame_nobody() {
    let unclear = abi::QualityTally { in_unclear: 100, ..sound(1000) };
    let report = made(unclear, sound(1000), |_| ());
    assert_eq!(found(&report), []);
    let share = report.sides[&Side::Lan].towards_router.share.unwrap();
    assert!(share.low == 0.0 && share.value == 0.0 && share.high > 0.1, "{share:?}");
    assert_eq!(report.unknown.len(), 1);
}

#[test]
fn too_many_late_segments_are_neither_loss_nor_nothing() {
    let late = |in_reordered| {
        let tally = abi::QualityTally { in_reordered, in_segments: 10_000, ..sound(1000) };
        made(tally, sound(1000), |_| ())
    };
    let many = late(300);
    assert_eq!((many.verdict, found(&many)), (Verdict::CannotTell, vec![]));
    assert!(many.sides[&Side::Lan].towards_router.is_undecided());
    assert_eq!(late(50).verdict, Verdict::Sound);
}

#[test]
fn with_unseen_or_unread_packets_there_is_no_answer() {
    let lossy = abi::QualityTally { in_lost: 50, ..sound(1000) };
    let report = made(lossy, sound(1000), |course| course.counted.unseen.unread = 500);
    assert_eq!(report.verdict, Verdict::CannotTell);
    let course = Course { seconds: 1.0, counted: Counted::default(), own: BTreeSet::new() };
    let tallies = vec![((Sender::NoRoom, Side::Lan), lossy)];
    let with = |packets| report_of(&tallies, &course, packets);
    assert_eq!((with(1).verdict, with(1).sides.len(), with(1).hosts.len()), (Verdict::CannotTell, 0, 0));
    assert_eq!((with(0).verdict, with(0).unseen), (Verdict::Fault, None));
}

fn report_of(tallies: &[HostTally], course: &Course, packets: u64) -> Report {
    report(tallies, course, Some(Unseen { packets, of: 100 }), |_| true, |_| None)
}

#[test]
fn only_the_hosts_that_are_wanted_count() {
    let host = |text: &str| Some(text.parse().unwrap());
    let sender = |text: &str| Sender::Host(text.parse().unwrap());
    let tallies = vec![
        ((sender(HOST), Side::Lan), sound(1000)),
        ((sender("192.168.1.3"), Side::Lan), abi::QualityTally { in_lost: 500, ..sound(10) }),
        ((sender("192.168.1.1"), Side::Lan), sound(10)),
        ((Sender::NoRoom, Side::Lan), sound(5)),
    ];
    let own = ["192.168.1.1".parse().unwrap()].into();
    let course = Course { seconds: 1.0, counted: Counted::default(), own };
    let all = report(&tallies, &course, None, |_| true, |_| None);
    let shown: Vec<_> = all.hosts.iter().map(|one| (one.host, one.is_router)).collect();
    let expected = [(HOST, false), ("192.168.1.3", false), ("192.168.1.1", true)];
    assert_eq!(shown[..3], expected.map(|(text, is_router)| (host(text), is_router)));
    assert_eq!(shown[3], (None, false));
    assert_eq!(found(&all), [(Part::LanSide, Symptom::LosesTowardsRouter)]);
    let one = report(&tallies, &course, None, |one| one == host(HOST), |_| Some("laptop".to_owned()));
    assert_eq!((one.hosts.len(), one.hosts[0].name.as_deref()), (1, Some("laptop")));
    assert_eq!(found(&one), []);
}

#[test]
fn round_trips_that_the_other_end_may_have_held_back_are_upper_bounds() {
    let mut thin = sound(1000);
    thin.prompt = abi::QualityTimes::default();
    thin.delayed.count[200] = 50;
    let report = made(thin, sound(1000), |_| ());
    let lan = &report.sides[&Side::Lan];
    assert!(lan.may_be_delayed, "{lan:?}");
    let times = lan.round_trip.unwrap();
    assert_eq!((times.samples, times.p50), (50, None));
    // Upper bounds that are short prove that nothing waits.
    thin.excess = abi::QualityTimes::default();
    thin.delayed.count.swap(100, 200);
    thin.delayed.count[100] *= 10;
    assert_eq!(made(thin, sound(1000), |_| ()).verdict, Verdict::Sound);
}

#[test]
fn the_routers_address_is_the_router_only_if_that_is_known() {
    let (router, lan): (IpAddr, IpAddr) = ("203.0.113.1".parse().unwrap(), HOST.parse().unwrap());
    let tallies = vec![
        ((Sender::Host(lan), Side::Wan), sound(1000)),
        // Without NAT, the address of a packet is that of its host.
        ((Sender::Assumed(lan), Side::Wan), sound(200)),
        ((Sender::Assumed(router), Side::Wan), sound(100)),
        ((Sender::Host(router), Side::Wan), sound(50)),
    ];
    let course = Course { seconds: 1.0, counted: Counted::default(), own: [router].into() };
    let all = report(&tallies, &course, None, |_| true, |_| None);
    let lines: Vec<_> = all
        .hosts
        .iter()
        .map(|one| {
            let segments = one.sides[&Side::Wan].towards_router.segments;
            (one.host, one.is_router, one.is_not_attributed, segments)
        })
        .collect();
    let expected =
        [(Some(lan), false, false, 1200), (None, false, true, 100), (Some(router), true, false, 50)];
    assert_eq!(lines, expected);
    assert_eq!(all.sides[&Side::Wan].towards_router.segments, 1350);
}
