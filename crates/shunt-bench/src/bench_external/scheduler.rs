//! The scheduler in simulated time: a link takes each packet when the scheduler lets it go.

use shunt_xsk::{
    Error,
    sched::{ClassConfig, Next, SchedConfig, Scheduler},
};

const FRAME_BYTES: u32 = 1514;
/// 100 Mbit/s.
const BYTES_PER_S: u64 = 12_500_000;
const WIRE_NS: u64 = FRAME_BYTES as u64 * 1_000_000_000 / BYTES_PER_S;
const LIMIT_BYTES: u32 = 1 << 20;
const HIGH_PKTS: usize = 20_000;

/// The largest error of the shaped rate, for rates from 1 Mbit/s to 10 Gbit/s.
pub fn shaper_error_percent() -> Result<f64, Error> {
    let mut worst = 0.0;
    for bytes_per_s in [125_000, 12_500_000, 123_456_789, 1_250_000_000] {
        let config = SchedConfig { bytes_per_s, ..SchedConfig::best_effort(LIMIT_BYTES) };
        let mut scheduler = Scheduler::new(&config, 16)?;
        let (mut now_ns, mut sent_bytes) = (0, 0);
        for size in [64, 577, FRAME_BYTES].into_iter().cycle().take(30_000) {
            scheduler.enqueue(0, size, 0, 0, now_ns);
            while let Next::Wait(until_ns) = scheduler.dequeue(now_ns) {
                now_ns = until_ns;
            }
            sent_bytes += u64::from(size);
        }
        // The last packet left at the end of the time, and takes none of it.
        let rate = (sent_bytes - u64::from(FRAME_BYTES)) as f64 * 1e9 / now_ns as f64;
        worst = f64::max(worst, (rate / bytes_per_s as f64 - 1.0).abs() * 100.0);
    }
    Ok(worst)
}

/// The 99th percentile of the high class's time to the end of its packets, with the low class's queue full, by that
/// with the high class alone. High packets arrive at random and take a fifth of the link.
pub fn priority_p99_ratio() -> Result<f64, Error> {
    Ok(high_p99_ns(true)? as f64 / high_p99_ns(false)? as f64)
}

fn high_p99_ns(overloaded: bool) -> Result<u64, Error> {
    let mut config = SchedConfig {
        classes: 2,
        default_class: 1,
        bytes_per_s: BYTES_PER_S,
        ..SchedConfig::best_effort(LIMIT_BYTES)
    };
    config.class_config[1] = ClassConfig { priority: 1, ..config.class_config[0] };
    config.dscp_class[46] = 1;
    let mut scheduler = Scheduler::new(&config, 4096)?;
    let mut random = fastrand::Rng::with_seed(1);
    let (mut now_ns, mut next_ns, mut took) = (0, 0, Vec::new());
    while took.len() < HIGH_PKTS {
        while next_ns <= now_ns {
            scheduler.enqueue(1, FRAME_BYTES, 46, 0, next_ns);
            next_ns += (-random.f64().max(1e-12).ln() * 5.0 * WIRE_NS as f64) as u64;
        }
        while overloaded && scheduler.enqueue(0, FRAME_BYTES, 0, 0, now_ns) {}
        match scheduler.dequeue(now_ns) {
            Next::Send(item) if item.handle == 1 => took.push(now_ns + WIRE_NS - item.since_ns),
            Next::Wait(until_ns) => now_ns = until_ns.min(next_ns),
            Next::Empty => now_ns = next_ns,
            Next::Send(_) | Next::Dropped(_) => {}
        }
    }
    took.sort_unstable();
    Ok(took[took.len() * 99 / 100])
}
