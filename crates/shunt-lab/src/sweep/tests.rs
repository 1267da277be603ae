use super::*;

const LOST: &str = "rx_fifo_errors";

/// One direction of 1000-byte frames: offered, sent and arrived rate in Mbit/s.
fn step(asked: u64, sent: f64, arrived: f64, rises: &[(&str, u64)]) -> Step {
    let count = |mbps: f64| (mbps * 1e6 / 8000.0).round() as u64;
    let one = json!({
        "from": "lan0", "to": "wan0", "traffic": "", "means": "socket", "offered_pps": asked as f64 * 1e6 / 8000.0,
        "achieved_pps": sent * 1e6 / 8000.0, "achieved_l2_bps": sent * 1e6, "achieved_l1_bps": sent * 1.02e6,
        "seconds": 1.0, "sent": count(sent), "received": count(arrived), "lost": count(sent) - count(arrived),
        "loss_ratio": 1.0 - arrived / sent, "duplicated": 0, "reordered": 0, "displaced_max": 0, "flows": 1,
        "latency_us": null, "jitter_us": 1.0,
    });
    let change = |(name, rise): &(&str, u64)| Change {
        device: "r0".to_owned(),
        counter: (*name).to_owned(),
        before: 0,
        after: *rise,
        rise: *rise,
        bits: None,
        reset: false,
        trouble: *name != "rx_packets",
    };
    let changes = rises.iter().map(change).collect();
    let changes = (changes, RegisterChanges::default());
    Step::new(asked * 1_000_000, (vec![serde_json::from_value(one).unwrap()], None), changes)
}

fn knee(steps: &[Step]) -> Knee {
    let [knee] = &Knee::find_all(steps)[..] else { panic!("one direction") };
    knee.clone()
}

#[test]
fn the_knee_is_the_last_rate_before_the_loss_stays() {
    let found = knee(&[
        step(100, 100.0, 100.0, &[("rx_packets", 12_500)]),
        // One lossy step that is not the knee.
        step(200, 200.0, 198.0, &[("rx_packets", 25_000)]),
        step(300, 300.0, 300.0, &[("time_squeeze", 90), ("rx_packets", 37_500)]),
        step(400, 400.0, 320.0, &[(LOST, 9_990), ("time_squeeze", 100), ("rx_packets", 50_000)]),
        step(500, 500.0, 318.0, &[(LOST, 30_000)]),
    ]);
    assert_eq!((found.passes_bps, found.loses_bps), (Some(300e6), Some(400e6)));
    assert!((found.loss_ratio.unwrap() - 0.2).abs() < 1e-9 && (found.most_bps - 320e6).abs() < 1.0);
    assert_eq!(found.beyond, Beyond::Flat);
    let [suspect] = &found.suspects[..] else { panic!("{:?}", found.suspects) };
    assert_eq!((suspect.counter.as_str(), suspect.rise), (LOST, 9_990));
    assert!((suspect.of_lost - 0.999).abs() < 1e-9);
}

/// Frames that were sent and lost in a step.
fn counted(asked: u64, sent: u64, lost: u64) -> Step {
    let mut step = step(asked, asked as f64, asked as f64, &[]);
    let figures = &mut step.directions[0].figures;
    (figures.sent, figures.lost, figures.received) = (sent, lost, sent - lost);
    figures.loss_ratio = lost as f64 / sent as f64;
    step
}

#[test]
fn a_loss_that_the_packets_cannot_tell_is_neither_kept_nor_exceeded() {
    // 0 of 12,500 is at most 0.03 %; 0 of 2000 may be 0.18 %; 4 of 2000 is 0.05 to 0.51 %; 9 of 2000 is above 0.2 %.
    let [few, some, many, sure] = [(200, 2000, 0), (300, 2000, 4), (400, 2000, 9), (100, 12_500, 0)]
        .map(|(asked, sent, lost)| counted(asked, sent, lost));
    let found = |steps: &[&Step]| {
        let found = knee(&steps.iter().map(|step| (*step).clone()).collect::<Vec<_>>());
        (found.passes_bps.map(|bps| bps / 1e6), found.loses_bps.map(|bps| bps / 1e6), found.undecided)
    };
    assert_eq!(found(&[&sure, &some, &many]), (Some(100.0), Some(400.0), true));
    assert_eq!(found(&[&few, &many]), (None, Some(400.0), true));
    assert_eq!(found(&[&sure, &many]), (Some(100.0), Some(400.0), false));
    // A step at a lower rate does not matter once a higher one passes.
    let higher = counted(300, 40_000, 3);
    assert_eq!(found(&[&few, &higher]), (Some(300.0), None, false));
    assert_eq!(found(&[&sure, &few]), (Some(100.0), None, true));
    assert_eq!(knee(&[sure, few]).beyond, Beyond::TooFewPackets);
}

#[test]
fn a_router_that_forwards_less_at_a_higher_load_collapses() {
    let steps = [step(100, 100.0, 100.0, &[]), step(200, 200.0, 120.0, &[]), step(300, 300.0, 90.0, &[])];
    assert_eq!(knee(&steps).beyond, Beyond::Collapse);
    assert_eq!(knee(&steps[1..]).passes_bps, None);
    // The highest rate alone can be the knee.
    assert_eq!(knee(&steps[..2]).loses_bps, Some(200e6));
}

#[test]
fn without_loss_there_is_no_knee() {
    let steps = [step(100, 100.0, 100.0, &[]), step(200, 150.0, 150.0, &[("rx_missed_errors", 7)])];
    let found = knee(&steps);
    assert_eq!((found.beyond, found.loses_bps), (Beyond::GeneratorBound, None));
    assert!(found.suspects.is_empty() && found.passes_bps == Some(150e6));
    assert_eq!(knee(&steps[..1]).beyond, Beyond::NotReached);
    assert_eq!(Knee::find_all(&[]), []);
}

#[test]
fn nothing_follows_from_a_step_whose_sender_was_held_up() {
    let held_up = |mut step: Step| {
        step.doubts.push(Doubt::SentLate { microseconds: 26_000.0 });
        step
    };
    let (passes, loses) = (step(100, 100.0, 100.0, &[]), step(300, 300.0, 240.0, &[]));
    // The loss before the knee and the small rates beyond the knee are those of the sender.
    let steps = [
        held_up(step(50, 20.0, 10.0, &[])),
        passes.clone(),
        held_up(step(200, 30.0, 12.0, &[])),
        loses,
        held_up(step(400, 80.0, 20.0, &[])),
    ];
    let found = knee(&steps);
    assert_eq!((found.passes_bps, found.loses_bps), (Some(100e6), Some(300e6)));
    assert_eq!((found.beyond, found.most_bps), (Beyond::Flat, 240e6));
    // Without a step that loses, the highest rate decides whether there is a knee.
    assert_eq!(knee(&steps[..3]).beyond, Beyond::HeldUp);
    assert_eq!(knee(&steps[..2]).beyond, Beyond::NotReached);
    let found = knee(&steps[..1]);
    assert_eq!((found.beyond, found.passes_bps, found.loses_bps), (Beyond::HeldUp, None, None));
}
