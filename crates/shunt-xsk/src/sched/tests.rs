//! In simulated time: a link takes each packet that the scheduler sends.

use super::*;

const SECOND: u64 = 1_000_000_000;
const NO_MARK: u32 = 0;

type Change = fn(&mut SchedConfig);

/// Classes with these priorities and weights, chosen by the DSCPs 0, 1, 2, ...
fn classes(priorities_and_quanta: &[(u32, u32)]) -> SchedConfig {
    let mut config =
        SchedConfig { classes: priorities_and_quanta.len() as u32, ..SchedConfig::best_effort(1 << 20) };
    for (number, (priority, quantum)) in priorities_and_quanta.iter().enumerate() {
        let class = &mut config.class_config[number];
        *class = ClassConfig {
            priority: *priority,
            quantum: *quantum,
            limit_bytes: 1 << 20,
            ..ClassConfig::default()
        };
        config.dscp_class[number] = number as u8 + 1;
    }
    config
}

/// Asks until a packet is sent; returns it, and when. The clock stands still unless the shaper waits.
fn send(scheduler: &mut Scheduler, now_ns: &mut u64) -> Option<Queued> {
    loop {
        match scheduler.dequeue(*now_ns) {
            Next::Empty => return None,
            Next::Wait(until_ns) => {
                assert!(until_ns > *now_ns, "a wait that is over");
                *now_ns = until_ns;
            }
            Next::Send(item) => return Some(item),
            Next::Dropped(_) => {}
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes too long in Miri")]
fn the_shaped_rate_is_exact_for_any_rate_size_and_overhead() {
    for bytes_per_s in [8_000, 1_000_003, 12_500_000, 1_250_000_000, 12_500_000_000] {
        for bytes in [64, 577, 1514] {
            for overhead_bytes in [0, 24, -14] {
                let config = SchedConfig { bytes_per_s, overhead_bytes, ..SchedConfig::best_effort(1 << 20) };
                let mut scheduler = Scheduler::new(&config, 10).unwrap();
                let mut now_ns = 0;
                let packets = 20_000;
                for handle in 0..packets {
                    assert!(scheduler.enqueue(handle, bytes, 0, NO_MARK, now_ns));
                    assert_eq!(send(&mut scheduler, &mut now_ns).unwrap().handle, handle);
                }
                let charged = (packets - 1) * u64::from(bytes.wrapping_add_signed(overhead_bytes));
                let rate = charged as f64 * 1e9 / now_ns as f64;
                let error = rate / bytes_per_s as f64 - 1.0;
                assert!(error.abs() < 1e-4, "{bytes_per_s} {bytes} {overhead_bytes}: {rate}");
            }
        }
    }
}

#[test]
fn a_burst_leaves_at_once_after_a_pause_and_the_rate_holds_after_it() {
    let config =
        SchedConfig { bytes_per_s: 1_000_000, burst_bytes: 20_000, ..SchedConfig::best_effort(1 << 20) };
    let mut scheduler = Scheduler::new(&config, 1000).unwrap();
    for begin_ns in [SECOND, 5 * SECOND] {
        for handle in 0..100 {
            assert!(scheduler.enqueue(handle, 1000, 0, NO_MARK, begin_ns));
        }
        let mut now_ns = begin_ns;
        let mut at_once = 0;
        while send(&mut scheduler, &mut now_ns).is_some() {
            at_once += u32::from(now_ns == begin_ns);
        }
        // The packet with which the burst is exceeded still leaves.
        assert_eq!(at_once, 21);
        assert_eq!(now_ns, begin_ns + (100 - 21) * 1_000_000);
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes too long in Miri")]
fn classes_of_one_priority_share_by_weight_whatever_their_packet_sizes() {
    let weights = [1500, 3000, 6000];
    let mut scheduler = Scheduler::new(&classes(&weights.map(|quantum| (0, quantum))), 1000).unwrap();
    let sizes = [1514, 64, 700];
    for _ in 0..20_000 {
        for (class, size) in sizes.into_iter().enumerate() {
            while scheduler.counters(class).backlog_pkts < 100 {
                assert!(scheduler.enqueue(0, size, class as u8, NO_MARK, 0));
            }
        }
        assert!(send(&mut scheduler, &mut 0).is_some());
    }
    let sent = [0, 1, 2].map(|class| scheduler.counters(class).sent_bytes as f64);
    let total: f64 = sent.iter().sum();
    for (sent, weight) in sent.iter().zip(weights) {
        let share = sent / total / (f64::from(weight) / 10_500.0);
        assert!((0.99..1.01).contains(&share), "{sent} of {total} by weight {weight}");
    }
}

/// The 99th percentile of the time that high packets need to be sent over a link of 100 Mbit/s: they arrive at random,
/// and take a fifth of it.
fn high_p99_ns(low_pkts: u64) -> u64 {
    let mut config = classes(&[(0, 1514), (1, 1514)]);
    config.bytes_per_s = 12_500_000;
    let mut scheduler = Scheduler::new(&config, 10_000).unwrap();
    let mut rng = fastrand::Rng::with_seed(3);
    let wire_ns = 1514 * SECOND / config.bytes_per_s;
    let (mut now_ns, mut next_high_ns, mut delays) = (0, 0, Vec::new());
    while delays.len() < 10_000 {
        while next_high_ns <= now_ns {
            assert!(scheduler.enqueue(0, 1514, 0, NO_MARK, next_high_ns));
            next_high_ns += (-rng.f64().max(1e-12).ln() * 5.0 * wire_ns as f64) as u64;
        }
        while scheduler.counters(1).backlog_pkts < low_pkts {
            assert!(scheduler.enqueue(0, 1514, 1, NO_MARK, now_ns));
        }
        match scheduler.dequeue(now_ns) {
            Next::Send(item)
                if item.since_ns <= now_ns && scheduler.counters(0).sent_pkts as usize > delays.len() =>
            {
                delays.push(now_ns + wire_ns - item.since_ns);
            }
            Next::Send(_) | Next::Dropped(_) => {}
            Next::Wait(until_ns) => now_ns = until_ns.min(next_high_ns.max(now_ns + 1)),
            Next::Empty => now_ns = next_high_ns,
        }
    }
    delays.sort_unstable();
    delays[delays.len() * 99 / 100]
}

#[test]
#[cfg_attr(miri, ignore = "takes too long in Miri")]
fn under_overload_the_high_class_needs_at_most_twice_its_unloaded_time() {
    let (alone, beside) = (high_p99_ns(0), high_p99_ns(500));
    assert!(alone < beside, "the low class must take part: {alone} ns, {beside} ns");
    assert!(beside <= 2 * alone, "{beside} ns together, {alone} ns");
}

#[test]
fn a_lower_priority_gets_what_the_higher_leaves() {
    let mut scheduler = Scheduler::new(&classes(&[(3, 1514), (0, 1514), (0, 3028)]), 100).unwrap();
    for (class, handles) in [(0, 0..3), (1, 10..13), (2, 20..23)] {
        for handle in handles {
            assert!(scheduler.enqueue(handle, 1514, class, NO_MARK, 0));
        }
    }
    let order: Vec<_> = std::iter::from_fn(|| send(&mut scheduler, &mut 0)).map(|item| item.handle).collect();
    assert_eq!(order, [10, 20, 21, 11, 22, 12, 0, 1, 2]);
}

#[test]
fn queues_are_limited_in_bytes_and_in_packets_of_all_together() {
    let mut config = classes(&[(0, 1514), (1, 1514)]);
    config.class_config[0].limit_bytes = 3000;
    let mut scheduler = Scheduler::new(&config, 50).unwrap();
    let accepted = |scheduler: &mut Scheduler, class, bytes| {
        (0..100).filter(|_| scheduler.enqueue(0, bytes, class, NO_MARK, 0)).count()
    };
    assert_eq!(accepted(&mut scheduler, 0, 1500), 2);
    // A quarter of its own, and the half for all.
    assert_eq!(accepted(&mut scheduler, 1, 64), 12 + 26);
    let counters = [0, 1].map(|class| scheduler.counters(class));
    assert_eq!(counters.map(|class| class.dropped_full), [98, 62]);
    assert_eq!(counters.map(|class| class.backlog_bytes), [3000, 38 * 64]);
    for _ in 0..40 {
        assert!(send(&mut scheduler, &mut 0).is_some());
    }
    assert_eq!(scheduler.dequeue(0), Next::Empty);
    assert_eq!(accepted(&mut scheduler, 1, 64), 38);
}

#[test]
fn a_class_that_fills_its_queue_leaves_the_others_their_share_of_the_room() {
    let mut scheduler = Scheduler::new(&classes(&[(0, 1514), (1, 1514)]), 16).unwrap();
    let queued = |scheduler: &mut Scheduler, dscp| {
        (0..16).filter(|_| scheduler.enqueue(0, 64, dscp, NO_MARK, 0)).count()
    };
    assert_eq!(queued(&mut scheduler, 1), 12, "a quarter of its own, and the half for all");
    assert_eq!(queued(&mut scheduler, 0), 4);
    assert_eq!(scheduler.counters(1).dropped_full, 4);
    assert!(matches!(scheduler.dequeue(0), Next::Send(_)));
    assert!(scheduler.enqueue(0, 64, 0, NO_MARK, 0));
}

#[test]
fn codel_drops_nothing_from_a_class_that_holds_one_packet_of_any_size() {
    let mut config = SchedConfig { bytes_per_s: 12_500, ..SchedConfig::best_effort(1 << 20) };
    config.class_config[0] = ClassConfig { target_us: 5000, interval_us: 100_000, ..config.class_config[0] };
    let mut scheduler = Scheduler::new(&config, 16).unwrap();
    let mut now_ns = 0;
    for _ in 0..100 {
        // Takes 720 ms at this rate, far above the target.
        scheduler.enqueue(0, 9000, 0, NO_MARK, now_ns);
        send(&mut scheduler, &mut now_ns);
    }
    assert_eq!(scheduler.counters(0).dropped_codel, 0);
}

/// Mean delay in ms over the last ten of thirty seconds of a TCP-like sender with 20 ms of round trip, at 10 Mbit/s.
fn mean_delay_ms(target_us: u32) -> f64 {
    const ROUND_TRIP: u64 = 20_000_000;
    let mut config = SchedConfig { bytes_per_s: 1_250_000, ..SchedConfig::best_effort(1 << 20) };
    (config.class_config[0].target_us, config.class_config[0].interval_us) = (target_us, 100_000);
    let mut scheduler = Scheduler::new(&config, 2000).unwrap();
    let (mut now_ns, mut window, mut held_until_ns) = (0, 10.0, 0);
    let mut in_flight = std::collections::VecDeque::new();
    let (mut early, mut outstanding) = (None, 0.0);
    while now_ns < 30 * SECOND {
        while in_flight.front().is_some_and(|back_ns| *back_ns <= now_ns) {
            in_flight.pop_front();
            outstanding -= 1.0;
            window = f64::min(window + 1.0 / window, 600.0);
        }
        while outstanding < window {
            outstanding += 1.0;
            assert!(scheduler.enqueue(0, 1500, 0, NO_MARK, now_ns));
        }
        match scheduler.dequeue(now_ns) {
            Next::Send(_) => in_flight.push_back(now_ns + ROUND_TRIP),
            Next::Dropped(_) => {
                outstanding -= 1.0;
                if now_ns >= held_until_ns {
                    window = f64::max(window / 2.0, 2.0);
                    held_until_ns = now_ns + ROUND_TRIP;
                }
            }
            Next::Wait(until_ns) => now_ns = until_ns,
            Next::Empty => now_ns += 100_000,
        }
        if now_ns >= 20 * SECOND && early.is_none() {
            early = Some(scheduler.counters(0));
        }
    }
    let (early, late) = (early.unwrap(), scheduler.counters(0));
    assert!(late.sent_bytes > 30 * 1_250_000 * 9 / 10, "the link must stay busy: {late:?}");
    (late.delay_sum_ns - early.delay_sum_ns) as f64 / (late.sent_pkts - early.sent_pkts) as f64 / 1e6
}

#[test]
#[cfg_attr(miri, ignore = "takes too long in Miri")]
fn codel_keeps_the_delay_of_a_sender_that_reacts_to_losses_near_its_target() {
    let (with, without) = (mean_delay_ms(5_000), mean_delay_ms(0));
    assert!(with < 20.0, "{with} ms with CoDel");
    assert!(without > 5.0 * with, "{without} ms without CoDel, {with} ms with it");
}

#[test]
#[cfg_attr(miri, ignore = "takes too long in Miri")]
fn codel_drops_at_growing_rate_while_a_queue_stands() {
    let mut config = SchedConfig { bytes_per_s: 1_000_000, ..SchedConfig::best_effort(1 << 20) };
    (config.class_config[0].target_us, config.class_config[0].interval_us) = (5_000, 100_000);
    let mut scheduler = Scheduler::new(&config, 1000).unwrap();
    let (mut now_ns, mut dropped_at) = (0, Vec::new());
    while dropped_at.len() < 12 {
        while scheduler.counters(0).backlog_pkts < 100 {
            assert!(scheduler.enqueue(0, 1000, 0, NO_MARK, now_ns));
        }
        match scheduler.dequeue(now_ns) {
            Next::Dropped(_) => dropped_at.push(now_ns),
            Next::Wait(until_ns) => now_ns = until_ns,
            Next::Send(_) | Next::Empty => {}
        }
    }
    // RFC 8289: the n-th drop is followed by the next after interval / sqrt(n). A packet of 1 ms may be in between.
    for (n, pair) in dropped_at.windows(2).enumerate().skip(1) {
        let (gap, expected) = ((pair[1] - pair[0]) as f64, 100e6 / ((n + 1) as f64).sqrt());
        assert!((gap - expected).abs() <= 1.1e6, "gap {n}: {gap} ns, expected {expected} ns");
    }
}

#[test]
fn marks_decide_before_dscps_and_the_default_class_takes_the_rest() {
    let mut config = classes(&[(0, 1514), (0, 1514), (0, 1514), (0, 1514)]);
    config.dscp_class = [0; DSCPS];
    config.dscp_class[46] = 1;
    config.default_class = 3;
    config.mark_rules[0] = MarkRule { mark: 0x10, mask: 0xf0, class_id: 1 };
    config.mark_rules[1] = MarkRule { mark: 0x12, mask: 0xff, class_id: 2 };
    let mut scheduler = Scheduler::new(&config, 10).unwrap();
    for (dscp, mark, class) in [(46, 0, 0), (46, 0x12, 1), (0, 0x1f, 1), (0, 0x22, 3), (8, 0, 3)] {
        let before = scheduler.counters(class).backlog_pkts;
        assert!(scheduler.enqueue(0, 100, dscp, mark, 0));
        assert_eq!(scheduler.counters(class).backlog_pkts, before + 1, "{dscp} {mark:#x}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes too long in Miri")]
fn a_change_keeps_what_is_queued_and_holds_at_once() {
    let mut config = classes(&[(0, 1514), (1, 1514), (2, 1514)]);
    config.bytes_per_s = 1_000_000;
    let mut scheduler = Scheduler::new(&config, 1000).unwrap();
    for handle in 0..300 {
        assert!(scheduler.enqueue(handle, 1000, (handle % 3) as u8, NO_MARK, 0));
    }
    let mut now_ns = 0;
    let mut seen: Vec<_> = (0..50).map(|_| send(&mut scheduler, &mut now_ns).unwrap().handle).collect();
    let changed = SchedConfig { bytes_per_s: 2_000_000, ..SchedConfig::best_effort(1 << 20) };
    scheduler.configure(&changed).unwrap();
    let begin_ns = now_ns;
    while let Some(item) = send(&mut scheduler, &mut now_ns) {
        seen.push(item.handle);
    }
    assert_eq!(now_ns - begin_ns, 1_000_000 + 249 * 500_000);
    assert_eq!(scheduler.counters(0).sent_pkts, 300);
    seen.sort_unstable();
    assert_eq!(seen, (0..300).collect::<Vec<_>>());
}

#[test]
fn an_invalid_configuration_is_named_and_changes_nothing() {
    let good = classes(&[(0, 1514), (1, 1514)]);
    let mut scheduler = Scheduler::new(&good, 10).unwrap();
    let cases: [(&str, Change); 7] = [
        ("1 to 16 classes", |config| config.classes = 17),
        ("1 to 16 classes", |config| config.classes = 0),
        ("default class", |config| config.default_class = 2),
        ("priority", |config| config.class_config[1].priority = 16),
        ("quantum", |config| config.class_config[0].quantum = 255),
        ("mark", |config| config.mark_rules[0] = MarkRule { mark: 1, mask: 1, class_id: 2 }),
        ("DSCP", |config| config.dscp_class[63] = 3),
    ];
    for (what, change) in cases {
        let mut bad = good;
        change(&mut bad);
        let error = scheduler.configure(&bad).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        // SAFETY: the scheduler is initialised.
        assert_eq!(unsafe { shunt_sched_configure(scheduler.inner(), &raw const bad) }, -1, "{what}");
    }
    assert!(scheduler.enqueue(1, 100, 1, NO_MARK, 0));
    assert_eq!(scheduler.counters(1).backlog_pkts, 1);
}

#[test]
#[cfg_attr(miri, ignore = "takes too long in Miri")]
fn a_policer_passes_its_rate_and_its_burst() {
    let mut policer = Policer::new(1_000_000, 5_000);
    let passed = |policer: &mut Policer, begin_ns: u64, every_ns: u64, packets: u64| {
        (0..packets).filter(|n| policer.passes(1000, begin_ns + n * every_ns)).count()
    };
    assert_eq!(passed(&mut policer, 0, 0, 100), 5);
    // Ten seconds at four times the rate.
    assert_eq!(passed(&mut policer, SECOND, 250_000, 40_000), 10_000 + 4);
    // Below the rate.
    assert_eq!(passed(&mut policer, 20 * SECOND, 1_000_000, 100), 100);
    let (passed, dropped) = policer.counts();
    assert_eq!(passed + dropped, 100 + 40_000 + 100);
}
