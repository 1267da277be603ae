use super::*;
use crate::abi::{LATENCY_BUCKETS, TrafficEnds, latency_bounds};
use shunt_gen::{Shape, Sizes};
use shunt_wire::{Checksum, Mac, Packet, Tag, Tcp};
use std::{collections::BTreeSet, time::Duration};

const LABEL: u8 = 0xa7;

fn shape(v6: bool, sizes: &str) -> Shape {
    let (from, to) = match v6 {
        false => ("192.0.2.250:1024", "198.51.100.1:9"),
        true => ("[fd00::fffe]:1024", "[fd01::1]:9"),
    };
    Shape::udp(from.parse().unwrap(), to.parse().unwrap(), sizes.parse().unwrap())
}

fn traffic(shape: Shape) -> Traffic {
    shape.traffic(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])).unwrap()
}

fn unpaced(packets: u64) -> Schedule {
    Schedule { pps: None, burst: 1, packets: Some(packets), duration: None }
}

fn packets(traffic: &Traffic, count: u64) -> Vec<Packet> {
    let mut maker = FrameMaker::new(traffic);
    maker.schedule(&unpaced(count), 0, LABEL);
    let mut all = Vec::new();
    while let Some(frame) = maker.next(1_000_000_000_007 + all.len() as u64) {
        all.push(Packet::parse(frame).unwrap());
    }
    all
}

#[test]
fn packets_of_every_form_are_valid() {
    let qinq = vec![Tag::service(100), Tag { priority: 5, ..Tag::vlan(7) }];
    for v6 in [false, true] {
        for tcp in [None, Some(Tcp::ACK), Some(Tcp::SYN)] {
            for tags in [vec![], vec![Tag::vlan(4094)], qinq.clone()] {
                for size in ["98", "99", "9018", "imix"] {
                    if size == "imix" && (v6 || tcp.is_some() || tags.len() > 1) {
                        continue;
                    }
                    let mut shape = Shape { tcp, tags: tags.clone(), ..shape(v6, size) };
                    let name = format!("{} {size}", shape.encapsulation());
                    shape.source.count = 5;
                    shape.source_ports = "65530-65535".parse().unwrap();
                    let traffic = traffic(shape);
                    let seen = packets(&traffic, 60);
                    assert_eq!(seen.len(), 60, "{name}");
                    let ends: BTreeSet<_> = seen.iter().map(|p| (p.source(), p.destination())).collect();
                    assert_eq!(ends.len(), 30, "{name}");
                    for (n, packet) in seen.iter().enumerate() {
                        let bytes = traffic.frame_bytes();
                        let want = usize::from(bytes[n % bytes.len()]);
                        assert_eq!(packet.to_bytes().len(), want, "{name}");
                        assert_eq!(packet.l4_checksum(), Some(Checksum::Good), "{name}");
                        assert_eq!(packet.ipv4().map_or(Checksum::Good, |ip| ip.checksum), Checksum::Good);
                        assert_eq!((&packet.ethernet.tags, packet.hop_limit()), (&tags, Some(64)), "{name}");
                        assert_eq!(packet.ethernet, traffic.packet.ethernet, "{name}");
                        assert_eq!(packet.source().unwrap().port(), 65530 + n as u16 % 6, "{name}");
                    }
                }
            }
        }
    }
}

#[test]
fn the_stamp_has_label_flow_number_and_time() {
    let mut shape = shape(false, "64");
    shape.source_ports = "1-2".parse().unwrap();
    let seen = packets(&traffic(shape), 5);
    let word =
        |packet: &Packet, at: usize| u32::from_be_bytes(packet.payload[at..at + 4].try_into().unwrap());
    let stamps: Vec<_> = seen.iter().map(|p| (word(p, 0), word(p, 4), word(p, 8))).collect();
    let (first, now) = (u32::from(LABEL) << 24, 1_000_000_000_007u64 as u32);
    let want = [(first, 0, now), (first | 1, 0, now + 1), (first, 1, now + 2)];
    assert_eq!(stamps[..3], want);
    assert_eq!(stamps[4], (first, 2, now + 4));
    assert!(seen.iter().all(|packet| packet.payload[12..].iter().all(|byte| *byte == 0)));
}

#[test]
fn udp_over_ipv4_can_be_sent_without_a_checksum() {
    let seen = packets(&traffic(Shape { checksum: false, ..shape(false, "64") }), 3);
    assert!(seen.iter().all(|packet| packet.l4_checksum() == Some(Checksum::Zero)));
}

#[test]
fn shuffled_flows_come_in_an_order_given_by_the_seed_and_none_is_missing() {
    let ports = |seed| -> Vec<u16> {
        let mut shape = Shape { shuffled: Some(seed), ..shape(false, "64") };
        shape.source_ports = "1-50".parse().unwrap();
        packets(&traffic(shape), 1000).iter().map(|p| p.source().unwrap().port()).collect()
    };
    let first = ports(1);
    assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), 50);
    assert_eq!(first, ports(1));
    assert_ne!(first, ports(2));
    assert_ne!(first[..50], first[50..100]);
}

/// The time at which each packet is sent, by a clock that is read every `look_ns`.
fn departures(schedule: &Schedule, look_ns: u64, until_ns: u64) -> Vec<u64> {
    let mut maker = FrameMaker::new(&traffic(shape(false, "64")));
    maker.schedule(schedule, 500, LABEL);
    let mut all = Vec::new();
    for now in (0..until_ns).step_by(look_ns as usize) {
        while maker.next(now).is_some() {
            all.push(now);
        }
    }
    all
}

#[test]
fn packets_are_sent_when_they_are_due_and_not_before() {
    let second = Duration::from_secs(1);
    let paced = Schedule { pps: Some(3e6), burst: 1, packets: None, duration: Some(second / 100) };
    let times = departures(&paced, 10, 20_000_000);
    assert_eq!(times.len(), 30_000);
    for (n, time) in times.iter().enumerate() {
        let due = 500.0 + n as f64 * 1e9 / 3e6;
        assert!((due - 0.5..due + 11.0).contains(&(*time as f64)), "packet {n}: {time}, due {due}");
    }
    let bursts = Schedule { burst: 4, packets: Some(10), duration: None, ..paced };
    let times = departures(&bursts, 10, 20_000_000);
    assert_eq!(times.len(), 10);
    assert!(times[0] == times[3] && times[4] == times[7] && times[8] == times[9], "{times:?}");
    assert!((1330..=1350).contains(&(times[4] - times[0])), "{times:?}");
    // The duration gives the number of packets with any burst size: the last burst is shortened.
    for burst in [7, 4096] {
        let times = departures(&Schedule { burst, ..paced }, 10, 20_000_000);
        assert_eq!(times.len(), 30_000, "bursts of {burst}");
        assert!(*times.last().unwrap() < 10_000_500, "bursts of {burst}: {:?}", times.last());
    }
    assert_eq!(departures(&Schedule { pps: Some(1e-3), ..bursts }, 1000, 1_000_000).len(), 4);
    assert_eq!(departures(&unpaced(3), 10, 1000), [500; 3]);
}

/// Sends by a clock that stands still from `at_ns` for `stall_ns`, and is read every `look_ns` otherwise. Returns the
/// state at the end, and the largest number of packets that left at one time after the start.
fn stalled(schedule: &Schedule, look_ns: u64, at_ns: u64, stall_ns: u64) -> (TrafficState, usize) {
    let mut maker = FrameMaker::new(&traffic(shape(false, "64")));
    maker.schedule(schedule, 500, LABEL);
    let (mut now, mut bunch) = (500, 0);
    while !maker.state().is_over(now) {
        let mut sent = 0;
        while maker.next(now).is_some() {
            sent += 1;
        }
        bunch = bunch.max(sent);
        let stalls = (at_ns..at_ns + look_ns).contains(&(now - 500));
        now += if stalls { stall_ns } else { look_ns };
    }
    (maker.state().stopped(now), bunch)
}

#[test]
fn a_stalled_sender_leaves_packets_out_and_never_sends_more_than_a_burst_at_once() {
    let (ms, second) = (1_000_000, Duration::from_secs(1));
    for (pps, burst, most) in [
        (1_651.0, 1, 1),
        // 200 us of packets may catch up, up to 256 of them.
        (50_000.0, 1, 10),
        (500_000.0, 1, 100),
        (2_000_000.0, 1, 256),
        (50_000.0, 4, 8),
        (50_000.0, 32, 32),
    ] {
        let schedule = Schedule { pps: Some(pps), burst, packets: None, duration: Some(second / 10) };
        for stall_ms in [1, 5, 40] {
            let case = format!("{pps} pps, bursts of {burst}, {stall_ms} ms");
            let (state, bunch) = stalled(&schedule, 10_000, 20 * ms, stall_ms * ms);
            assert!(bunch <= most, "{case}: {bunch} at once");
            assert_eq!(state.sent + state.unsent, schedule.offered().unwrap(), "{case}");
            let missed = pps * (stall_ms * ms) as f64 / 1e9;
            let least = missed - f64::from(burst) - most as f64;
            assert!(
                (least..=missed + f64::from(burst)).contains(&(state.unsent as f64)),
                "{case}: {state:?}"
            );
            assert!(state.late_ns_max >= (stall_ms - 1) * ms && !state.is_too_slow(), "{case}: {state:?}");
        }
        // A short delay costs no packet.
        let (state, bunch) = stalled(&schedule, 10_000, 20 * ms, 100_000);
        assert_eq!((state.sent, state.unsent), (schedule.offered().unwrap(), 0), "{pps} pps");
        assert!(bunch <= most, "{pps} pps: {bunch} at once");
    }
}

#[test]
fn a_sender_that_was_asked_for_a_number_of_packets_sends_all_of_them() {
    let schedule = Schedule { pps: Some(1e4), burst: 1, packets: Some(500), duration: None };
    let (state, bunch) = stalled(&schedule, 10_000, 20_000_000, 30_000_000);
    assert_eq!((state.sent, bunch), (500, 2));
    assert!((298..=300).contains(&state.unsent), "{state:?}");
}

#[test]
fn a_sender_that_is_always_behind_is_too_slow() {
    let schedule =
        Schedule { pps: Some(1e6), burst: 1, packets: None, duration: Some(Duration::from_millis(20)) };
    let mut maker = FrameMaker::new(&traffic(shape(false, "64")));
    maker.schedule(&schedule, 0, LABEL);
    // Each packet takes 2 us.
    for now in (0..20_000_000).step_by(2_000) {
        maker.next(now);
    }
    let state = maker.state();
    assert!(state.is_too_slow() && (9_900..10_200).contains(&state.sent), "{state:?}");
    assert!((9_600..10_100).contains(&state.unsent) && state.late_ns_max <= 210_000, "{state:?}");
}

#[test]
fn a_sender_delayed_at_the_end_leaves_out_what_it_missed() {
    let three = Schedule { pps: Some(1e6), burst: 1, packets: None, duration: Some(Duration::from_secs(3)) };
    // The state of a sender that pauses from 10 ms before the end until `after_ns` after it.
    let held_up_until = |after_ns: u64| {
        let (state, _) = stalled(&three, 1_000, 2_990_000_000, 10_000_000 + after_ns);
        state
    };
    let state = held_up_until(1_000_000);
    assert_eq!((state.sent + state.unsent, state.is_over(0)), (3_000_000, true));
    assert!((9_700..=10_100).contains(&state.unsent), "{state:?}");
    // Nothing is sent from a thousandth of the duration after the end on.
    let state = held_up_until(3_000_000);
    assert_eq!((state.sent, state.unsent), (2_990_001, 9_999));
    assert!((12_900_000..=13_000_000).contains(&state.late_ns_max), "{state:?}");
}

#[test]
fn a_stalled_replay_sends_every_frame_with_its_interval() {
    let frame = |at_ms: u64| shunt_gen::Captured { at: Duration::from_millis(at_ms), bytes: vec![0; 60] };
    let capture = Arc::new(Capture { frames: [0, 1, 2, 3, 4, 5].map(frame).to_vec() });
    let round = capture.round(shunt_gen::Pace::Multiplier(1.0));
    let schedule = Schedule { pps: round.pps(), burst: 1, packets: Some(12), duration: None };
    let mut replayer = Replayer::new(capture, round);
    replayer.schedule(&schedule, 0, LABEL);
    let (mut times, mut now) = (Vec::new(), 0);
    while times.len() < 12 {
        while replayer.next(now).is_some() {
            times.push(now);
        }
        // A stall of 7 ms.
        now += if now == 2_500_000 { 7_000_000 } else { 100_000 };
    }
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 500_000), "{times:?}");
    assert_eq!((replayer.state().put_off_ns, replayer.state().unsent), (6_500_000, 0));
}

#[derive(Default)]
struct Naive {
    seen: BTreeSet<u64>,
    highest: Option<u64>,
    duplicated: u32,
    reordered: u32,
    displaced_max: u64,
}

impl Naive {
    fn note(&mut self, number: u64) {
        let highest = *self.highest.get_or_insert(number);
        if !self.seen.insert(number) {
            self.duplicated += 1;
        } else if number < highest {
            self.reordered += 1;
            self.displaced_max = self.displaced_max.max(highest - number);
        }
        self.highest = Some(highest.max(number));
    }
}

#[test]
fn arrivals_within_the_window_are_accounted_for_as_with_unlimited_memory() {
    for (seed, first) in [(1, 100_000), (2, u64::from(u32::MAX) - 300), (3, 7 << 32)] {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut arrival, mut naive) = (Arrival::default(), Naive::default());
        let mut next = first;
        for _ in 0..20_000 {
            let number = match random.u32(..20) {
                0 => next.saturating_sub(random.u64(1..250)).max(first),
                1 => next + random.u64(..2),
                2 => next + random.u64(..70),
                3 => next + random.u64(..300),
                _ => next,
            };
            next = next.max(number + 1);
            // The window holds 255 numbers behind the highest.
            if next - 1 - number < 255 {
                arrival.note(9, number as u32, 0);
                naive.note(number);
            }
        }
        assert_eq!(
            (arrival.duplicated, arrival.reordered, u64::from(arrival.displaced_max), arrival.beyond),
            (naive.duplicated, naive.reordered, naive.displaced_max, 0),
            "seed {seed}"
        );
        assert_eq!(arrival.packets - u64::from(arrival.duplicated), naive.seen.len() as u64);
        assert_eq!(arrival.next, next as u32);
        assert!(naive.duplicated > 100 && naive.reordered > 100);
    }
}

#[test]
fn packets_reordered_by_more_than_the_window_are_counted_as_beyond() {
    let mut arrival = Arrival::default();
    for number in [0, 300, 44, 44] {
        arrival.note(1, number, 0);
    }
    // 300 - 44 = 256 numbers behind.
    assert_eq!((arrival.reordered, arrival.beyond, arrival.duplicated), (2, 2, 0));
    arrival.note(1, 45, 0);
    arrival.note(1, 45, 0);
    assert_eq!((arrival.reordered, arrival.beyond, arrival.duplicated), (3, 2, 1));
}

#[test]
fn another_label_restarts_the_accounting() {
    let mut arrival = Arrival::default();
    [5, 6, 6].into_iter().for_each(|number| arrival.note(1, number, 0));
    arrival.note(2, 4_000_000_000, 10);
    assert_eq!((arrival.packets, arrival.duplicated, arrival.reordered), (1, 0, 0));
}

#[test]
fn jitter_is_computed_as_in_rfc_3550() {
    let mut arrival = Arrival::default();
    let mut jitter = 0.0;
    let transits = [1000u32, 1500, 900, 900, 4_000_000_000, 20, 30];
    arrival.note(1, 0, 500);
    let mut before = 500u32;
    for (n, transit) in transits.into_iter().enumerate() {
        arrival.note(1, n as u32 + 1, transit);
        let change = f64::from(transit.wrapping_sub(before) as i32).abs();
        jitter += (change - jitter) / 16.0;
        before = transit;
        let got = f64::from(arrival.jitter) / 16.0;
        assert!((got - jitter).abs() <= 1.0 + jitter / 1e3, "{got} for {jitter} after {n}");
    }
}

#[test]
fn every_latency_is_within_the_bounds_of_its_bucket() {
    let powers = (0..32).flat_map(|bit| [1u32 << bit, (1 << bit) - 1, (1 << bit) + 1]);
    let mut random = fastrand::Rng::with_seed(4);
    let mut values: Vec<u32> = powers.chain([u32::MAX]).collect();
    values.extend((0..10_000).map(|_| random.u32(..) >> random.u32(..32)));
    for ns in values {
        let bucket = latency_bucket(ns) as usize;
        let (low, high) = latency_bounds(bucket);
        assert!((low..=high).contains(&u64::from(ns)), "{ns} in {bucket}: {low} to {high}");
        assert!(bucket < LATENCY_BUCKETS as usize);
    }
    let mut next = 0;
    for bucket in 0..LATENCY_BUCKETS as usize {
        let (low, high) = latency_bounds(bucket);
        assert_eq!(low, next, "bucket {bucket}");
        assert!((high - low) * 64 <= low, "bucket {bucket} is too wide");
        next = high + 1;
    }
}

#[test]
fn packets_of_listed_flows_have_the_ends_of_the_list_and_good_checksums() {
    let listed = Traffic { listed: true, flows: 3, ..traffic(shape(false, "64")) };
    let ends = |n: u16| TrafficEnds { src: 0xc000_0201, dst: 0xc633_6401, sport: 7 * n, dport: 65535 - n };
    let mut maker = FrameMaker::new(&listed);
    maker.list(&[ends(5), ends(1), ends(9), ends(2)]);
    maker.schedule(&unpaced(4), 0, LABEL);
    for n in [5, 1, 9, 5] {
        let packet = Packet::parse(maker.next(1_000).unwrap()).unwrap();
        let want = [format!("192.0.2.1:{}", 7 * n), format!("198.51.100.1:{}", 65535 - n)];
        assert_eq!([packet.source(), packet.destination()].map(|end| end.unwrap().to_string()), want);
        assert_eq!(packet.l4_checksum(), Some(Checksum::Good));
    }
}

#[test]
fn frame_sizes_repeat_in_the_order_of_the_plan() {
    let imix = traffic(shape(false, "imix"));
    let seen: Vec<u16> = packets(&imix, 24).iter().map(|p| p.to_bytes().len() as u16).collect();
    assert_eq!(seen, [imix.frame_bytes(), imix.frame_bytes()].concat());
    assert!(Sizes::fixed(64).is_ok());
}
