//! Streams whose rate changes, by a clock of the test.

use super::*;
use shunt_gen::{Course, Ramp, Shape};
use shunt_wire::{Mac, Packet};
use std::time::Duration;

const MS: u64 = 1_000_000;
const START: u64 = 5 * MS;
const FIRST_FLOW: u32 = 100;
const PACING: Pacing = Pacing { burst: 1, packets: None };

fn maker() -> FrameMaker {
    let ends = ("192.0.2.1:1".parse().unwrap(), "198.51.100.1:9".parse().unwrap());
    let shape = Shape::udp(ends.0, ends.1, "64".parse().unwrap());
    let traffic = shape.traffic(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])).unwrap();
    FrameMaker::stream(&traffic, FIRST_FLOW)
}

fn course(pps: f64, ms: u64) -> Course {
    let none = Duration::ZERO;
    Course {
        delay: none,
        warm_up: none,
        ramp: None,
        pps: Some(pps),
        duration: Some(Duration::from_millis(ms)),
    }
}

fn start(maker: &mut FrameMaker, course: &Course, pacing: Pacing) {
    maker.start(&course.timetable().unwrap(), pacing, START, 7);
}

/// Sends until this time. Returns the flow and the number in each stamp, with the time of sending since the start.
fn sent(maker: &mut FrameMaker, from_ms: u64, until_ms: u64) -> Vec<(u64, u32, u32)> {
    let mut all = Vec::new();
    for now in (START + from_ms * MS..START + until_ms * MS).step_by(10_000) {
        while let Some(frame) = maker.next(now) {
            let packet = Packet::parse(frame).unwrap();
            let word = |at: usize| u32::from_be_bytes(packet.payload[at..at + 4].try_into().unwrap());
            assert_eq!(word(0) >> 24, 7);
            all.push((now - START, word(0) & 0xff_ffff, word(4)));
        }
    }
    all
}

fn in_slice(all: &[(u64, u32, u32)], from_ms: u64, until_ms: u64) -> usize {
    all.iter().filter(|(at, ..)| (from_ms * MS..until_ms * MS).contains(at)).count()
}

#[test]
fn packets_follow_a_ramp_in_each_slice() {
    let mut maker = maker();
    let ramp = Ramp { from: 1_000.0, to: 11_000.0, time: Duration::from_secs(1), steps: None };
    start(&mut maker, &Course { ramp: Some(ramp), ..course(11_000.0, 1_500) }, PACING);
    let all = sent(&mut maker, 0, 2_000);
    for n in 0..10 {
        // The rate rises by 1,000 packets/s in a slice of 100 ms.
        let (got, want) = (in_slice(&all, n * 100, n * 100 + 100) as i64, 150 + 100 * n as i64);
        assert!((got - want).abs() <= 3, "slice {n}: {got}, not {want}");
    }
    assert_eq!((in_slice(&all, 0, 1_000), in_slice(&all, 1_000, 1_500), all.len()), (6_000, 5_500, 11_500));
    assert!(maker.state().is_over(START + 2_000 * MS) && maker.look_at_ns() == u64::MAX);
    assert!(all.iter().enumerate().all(|(n, &(_, flow, number))| (flow, number) == (FIRST_FLOW, n as u32)));
}

#[test]
fn a_warm_up_has_a_flow_of_its_own_and_is_not_counted() {
    let mut maker = maker();
    let warm_up = Duration::from_millis(200);
    start(&mut maker, &Course { warm_up, delay: warm_up / 2, ..course(5_000.0, 400) }, PACING);
    let all = sent(&mut maker, 0, 1_000);
    let warm = all.iter().filter(|(_, flow, _)| *flow == crate::abi::TRAFFIC_WARM_UP_FLOW).count();
    assert_eq!((all.len(), warm, in_slice(&all, 100, 300), in_slice(&all, 0, 100)), (3_000, 1_000, 1_000, 0));
    let counted = maker.state().counted();
    assert_eq!((counted.sent, counted.unsent, counted.bytes), (2_000, 0, 2_000 * 60));
    assert_eq!(counted.start_ns, START + 300 * MS);
    // The first packet that counts has the number 0.
    assert_eq!((all[999].2, all[1_000].1, all[1_000].2, all[2_999].2), (0, FIRST_FLOW, 0, 1_999));
}

#[test]
fn a_number_of_packets_does_not_include_the_warm_up() {
    let mut maker = maker();
    let warm_up = Duration::from_millis(100);
    start(&mut maker, &Course { warm_up, ..course(5_000.0, 900) }, Pacing { packets: Some(70), ..PACING });
    assert_eq!(sent(&mut maker, 0, 1_000).len(), 570);
    assert_eq!(maker.state().counted().sent, 70);
}

#[test]
fn a_stream_changes_its_rate_at_the_given_time_and_stops() {
    let mut maker = maker();
    // A packet each 500 ms: the change does not wait for the next one.
    start(&mut maker, &Course { duration: None, ..course(2.0, 0) }, PACING);
    assert_eq!(sent(&mut maker, 0, 100).len(), 1);
    let at = (150 * MS) << 16;
    assert!(maker.change(at, &Course::change(at, None, Some(1_000.0), u64::MAX / 2).unwrap()));
    let all = sent(&mut maker, 100, 400);
    assert_eq!((in_slice(&all, 100, 150), in_slice(&all, 150, 400)), (0, 250));
    // 100 ms of pauses of 1 ms, then no packet any more.
    let stop = (500 * MS) << 16;
    assert!(maker.change(stop, &[]));
    assert_eq!(sent(&mut maker, 400, 900).len(), 100);
    assert!(maker.state().is_over(START + 900 * MS));
    assert!(!maker.change((950 * MS) << 16, &[]), "a stream that is over cannot change");
}

#[test]
fn a_held_up_sender_leaves_out_packets_of_each_step_and_loses_no_count() {
    let mut maker = maker();
    let ramp = Ramp { from: 1_000.0, to: 9_000.0, time: Duration::from_millis(800), steps: Some(8) };
    let course = Course { ramp: Some(ramp), warm_up: Duration::from_millis(100), ..course(9_000.0, 1_000) };
    start(&mut maker, &course, PACING);
    // From the warm-up into the third step.
    assert_eq!(sent(&mut maker, 0, 50).len(), 50);
    let late = sent(&mut maker, 350, 351);
    assert!(late.len() <= 3, "{} packets in a bunch", late.len());
    sent(&mut maker, 351, 1_200);
    let state = maker.state();
    let counted = state.counted();
    assert_eq!(counted.sent + counted.unsent, course.timetable().unwrap().offered().unwrap());
    assert_eq!(state.warm_sent + state.warm_unsent, 100);
    assert!((445..=450).contains(&counted.unsent), "{counted:?}");
}

#[test]
fn bursts_and_unpaced_steps_end_with_their_step() {
    let mut maker = maker();
    start(&mut maker, &course(4_000.0, 100), Pacing { burst: 8, ..PACING });
    let all = sent(&mut maker, 0, 200);
    assert_eq!((all.len(), in_slice(&all, 0, 1), in_slice(&all, 2, 3)), (400, 8, 8));
    start(&mut maker, &Course { pps: None, ..course(1.0, 100) }, PACING);
    let mut count = 0;
    for now in (START..START + 200 * MS).step_by(10_000) {
        count += usize::from(maker.next(now).is_some());
    }
    assert_eq!(count, 100 * 100);
}
