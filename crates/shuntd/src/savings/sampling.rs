//! What the measurement itself costs, and how long it pauses for that.

use super::traffic::Traffic;
use shunt_api::SamplingCosts;
use std::{collections::VecDeque, time::Duration};

/// The time that is told.
const PERIOD: Duration = Duration::from_secs(3600);
/// The largest part of a core that rounds may take, once there are enough.
const CORE_SHARE_MAX: f64 = 0.001;

/// What a round has cost.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Spent {
    /// CPU time of the thread that made it.
    pub(crate) thread: Duration,
    /// Packets that went through Linux.
    pub(crate) packets: u64,
}

/// The rounds of the last hour.
#[derive(Debug, Default)]
pub(super) struct SamplingLog {
    /// When the daemon began to count, since the boot.
    since: Option<Duration>,
    rounds: VecDeque<(Duration, Traffic, Spent)>,
}

impl Spent {
    /// CPU time, if a packet took so many nanoseconds more by Linux.
    fn seconds(&self, more_ns: f64) -> f64 {
        self.thread.as_secs_f64() + self.packets as f64 * more_ns * 1e-9
    }

    /// How long to wait after this round, so that rounds like it take no more than their share.
    pub(super) fn pause(&self, more_ns: f64) -> Duration {
        Duration::from_secs_f64(self.seconds(more_ns) / CORE_SHARE_MAX)
    }
}

impl SamplingLog {
    /// Begins to count, unless it has.
    pub(super) fn begin(&mut self, since_boot: Duration) {
        self.since.get_or_insert(since_boot);
    }

    pub(super) fn add(&mut self, since_boot: Duration, traffic: Traffic, spent: Spent) {
        self.rounds.push_back((since_boot, traffic, spent));
        self.forget(since_boot);
    }

    fn forget(&mut self, now: Duration) {
        while self.rounds.front().is_some_and(|(at, ..)| now.saturating_sub(*at) > PERIOD) {
            self.rounds.pop_front();
        }
    }

    /// The last round.
    pub(super) fn last(&self) -> Option<(Traffic, Spent)> {
        self.rounds.back().map(|(_, traffic, spent)| (*traffic, *spent))
    }

    /// What the rounds have cost until now. `more_ns` says what a packet of a kind of traffic takes more by Linux.
    pub(super) fn view(
        &self,
        now: Duration,
        more_ns: impl Fn(Traffic) -> Option<f64>,
    ) -> Option<SamplingCosts> {
        let counted = now.saturating_sub(self.since?).min(PERIOD);
        let rounds: Vec<_> =
            self.rounds.iter().filter(|(at, ..)| now.saturating_sub(*at) <= PERIOD).collect();
        if rounds.is_empty() || counted.is_zero() {
            return None;
        }
        let seconds = counted.as_secs_f64();
        let thread: Duration = rounds.iter().map(|(.., spent)| spent.thread).sum();
        // Packets of traffic whose cost is unknown may cost anything.
        let packets_s: Option<f64> = rounds
            .iter()
            .map(|(_, traffic, spent)| {
                if spent.packets == 0 {
                    return Some(0.0);
                }
                Some(spent.packets as f64 * more_ns(*traffic)?.max(0.0) * 1e-9)
            })
            .sum();
        Some(SamplingCosts {
            period_s: seconds,
            rounds: rounds.len() as u32,
            packets: rounds.iter().map(|(.., spent)| spent.packets).sum(),
            daemon_cores: thread.as_secs_f64() / seconds,
            packets_cores: packets_s.map(|packets_s| packets_s / seconds),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_bpf::abi::Counters;

    fn kind() -> Traffic {
        let counted = Counters { tc_pkts: 100_000, tc_bytes: 10_000_000, ..Counters::default() };
        Traffic::of(&counted, 1.0).unwrap().0
    }

    #[test]
    fn the_cost_of_rounds_is_that_of_their_thread_and_of_packets_by_linux_within_an_hour() {
        let s = Duration::from_secs;
        let mut log = SamplingLog::default();
        assert_eq!(log.view(s(10), |_| Some(1000.0)), None);
        log.begin(s(100));
        let spent = Spent { thread: Duration::from_millis(2), packets: 4000 };
        for minute in 1..=10 {
            log.add(s(100 + 60 * minute), kind(), spent);
        }
        // 10 rounds in 600 s: 20 ms of the thread, and 40,000 packets that took 1 us more.
        let costs = log.view(s(700), |_| Some(1000.0)).unwrap();
        assert_eq!((costs.rounds, costs.packets), (10, 40_000));
        assert!((costs.period_s - 600.0).abs() < 1e-9, "{costs:?}");
        assert!((costs.daemon_cores - 0.02 / 600.0).abs() < 1e-12, "{costs:?}");
        assert!((costs.packets_cores.unwrap() - 0.04 / 600.0).abs() < 1e-12, "{costs:?}");
        assert_eq!(log.view(s(700), |_| None).unwrap().packets_cores, None);
        // The first five rounds were more than an hour ago.
        let later = log.view(s(4000 + 20), |_| Some(1000.0)).unwrap();
        assert_eq!((later.rounds, later.period_s), (5, 3600.0));
        log.add(s(9000), kind(), spent);
        assert_eq!(log.rounds.len(), 1);
    }

    #[test]
    fn rounds_that_take_more_come_less_often() {
        let spent = Spent { thread: Duration::from_millis(2), packets: 4000 };
        assert_eq!(spent.pause(1000.0), Duration::from_secs(6));
        assert_eq!(Spent { packets: 0, ..spent }.pause(1000.0), Duration::from_secs(2));
    }
}
