//! The figures of a run: of its phases, and over time.

use super::{
    clock::Clock,
    probe::{Counted, Probe, ProbedRun},
};
use crate::statistics::nearest_rank;
use std::{ops::Range, time::Duration};

/// The times of a run, since its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Phases {
    /// No traffic but the probes.
    pub(super) idle: Range<Duration>,
    /// When the load began.
    pub(super) began: Duration,
    /// The load has begun on all streams, and has not ended on any.
    pub(super) loaded: Range<Duration>,
}

/// The figures of a phase.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Figures {
    /// Round-trip times in ms; None if the clock has the time of no probe.
    pub(super) rtt_ms: Option<Rtt>,
    /// Number of probes.
    pub(super) probes: usize,
    /// Share of the probes that were not answered.
    pub(super) lost: f64,
}

/// Round-trip times in ms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rtt {
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

/// The figures of an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Interval {
    /// Start of the interval, in seconds since the load started; negative before that.
    pub(super) at_s: f64,
    pub(super) rtt_ms: Option<Rtt>,
    /// Mbit/s that the LAN host received, headers included; None for the last, unfinished interval.
    pub(super) lan_mbps: Option<f64>,
    /// Mbit/s that the WAN host received.
    pub(super) wan_mbps: Option<f64>,
}

impl Figures {
    pub(super) fn from_probes(probes: &[Probe], phase: &Range<Duration>, clock: Clock) -> Self {
        let within: Vec<&Probe> = probes.iter().filter(|probe| phase.contains(&probe.at)).collect();
        let lost = within.iter().filter(|probe| probe.rtt.is_none()).count();
        Self {
            rtt_ms: Rtt::from_times(within.iter().filter_map(|probe| clock.rtt(probe))),
            probes: within.len(),
            lost: lost as f64 / within.len().max(1) as f64,
        }
    }
}

impl Rtt {
    fn from_times(times: impl Iterator<Item = Duration>) -> Option<Self> {
        let mut sorted: Vec<f64> = times.map(|time| time.as_secs_f64() * 1e3).collect();
        sorted.sort_by(f64::total_cmp);
        Some(Self { p50: nearest_rank(&sorted, 50)?, p99: nearest_rank(&sorted, 99)?, max: *sorted.last()? })
    }
}

/// The intervals of a run. Their bounds are multiples of `interval` before and after the start of the load, so that
/// runs can be laid over each other.
pub(super) fn intervals(
    seen: &ProbedRun,
    phases: &Phases,
    interval: Duration,
    clock: Clock,
) -> Vec<Interval> {
    let Some(last) = seen.probes.last() else { return Vec::new() };
    let (width, began) = (interval.as_secs_f64(), phases.began.as_secs_f64());
    let number = |at: Duration| ((at.as_secs_f64() - began) / width).floor() as i64;
    // The first interval is complete, the last one need not be.
    let first = ((phases.idle.start.as_secs_f64() - began) / width).ceil() as i64;
    let one = |n: i64| {
        let begins = n as f64 * width + began;
        let within =
            seen.probes.iter().filter(|probe| number(probe.at) == n).filter_map(|probe| clock.rtt(probe));
        Interval {
            at_s: n as f64 * width,
            rtt_ms: Rtt::from_times(within),
            lan_mbps: rate_mbps(&seen.lan, begins..begins + width),
            wan_mbps: rate_mbps(&seen.wan, begins..begins + width),
        }
    };
    (first..=number(last.at)).map(one).collect()
}

/// Mbit/s from `from` to `to`, in seconds since the start. The counts were read at other times: between two of them,
/// the rate is taken to be constant.
pub(super) fn rate_mbps(counts: &[Counted], Range { start, end }: Range<f64>) -> Option<f64> {
    Some((bytes_at(counts, end)? - bytes_at(counts, start)?) * 8.0 / (end - start) / 1e6)
}

fn bytes_at(counts: &[Counted], at_s: f64) -> Option<f64> {
    let after = counts.iter().position(|count| count.at.as_secs_f64() >= at_s)?;
    let (before, after) = (counts.get(after.checked_sub(1)?)?, counts[after]);
    let share = (at_s - before.at.as_secs_f64()) / (after.at - before.at).as_secs_f64();
    Some(before.bytes as f64 + (after.bytes - before.bytes) as f64 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn probe(at: u32, rtt: impl Into<Option<u32>>) -> Probe {
        Probe { at: at * MS, rtt: rtt.into().map(|rtt: u32| rtt * MS), kernel_rtt: None, nic_rtt: None }
    }

    #[test]
    fn a_phase_counts_only_its_own_probes() {
        let probes = [probe(5, 1), probe(10, 90), probe(15, 3), probe(20, None), probe(25, 2), probe(30, 90)];
        let figures = Figures::from_probes(&probes, &(15 * MS..30 * MS), Clock::Program);
        assert_eq!(figures.rtt_ms, Some(Rtt { p50: 2.0, p99: 3.0, max: 3.0 }));
        assert_eq!((figures.probes, figures.lost), (3, 1.0 / 3.0));
        assert_eq!(Figures::from_probes(&probes, &(40 * MS..50 * MS), Clock::Program).rtt_ms, None);
    }

    #[test]
    fn the_99th_percentile_of_a_hundred_is_the_second_greatest() {
        let rtt = Rtt::from_times((1..=100).map(|n| n * MS)).unwrap();
        assert_eq!(rtt, Rtt { p50: 50.0, p99: 99.0, max: 100.0 });
    }

    #[test]
    fn intervals_are_numbered_from_the_begin_of_the_load() {
        let count = |at: u32, bytes| Counted { at: at * MS, bytes };
        let seen = ProbedRun {
            probes: vec![probe(10, 1), probe(120, 2), probe(260, 7), probe(360, 9)],
            lan: vec![count(0, 0), count(400, 0)],
            wan: vec![count(0, 0), count(150, 0), count(250, 100_000), count(350, 200_000)],
        };
        let phases = Phases { idle: Duration::ZERO..150 * MS, began: 150 * MS, loaded: 160 * MS..340 * MS };
        let all = intervals(&seen, &phases, 100 * MS, Clock::Program);
        let seen: Vec<_> =
            all.iter().map(|one| ((one.at_s * 10.0).round(), one.rtt_ms.map(|rtt| rtt.max))).collect();
        assert_eq!(seen, [(-1.0, Some(2.0)), (0.0, None), (1.0, Some(7.0)), (2.0, Some(9.0))]);
        let wan: Vec<_> = all.iter().map(|one| one.wan_mbps.map(f64::round)).collect();
        assert_eq!(wan, [Some(0.0), Some(8.0), Some(8.0), None]);
        assert_eq!(all[1].lan_mbps, Some(0.0));
    }
}
