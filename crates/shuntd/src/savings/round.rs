//! A round: the fast path and the slow path in turn, some milliseconds each.

use super::{outliers, traffic::Traffic};
use serde::{Deserialize, Serialize};
use shunt_api::CannotTell;
use shunt_bpf::{
    NetReading,
    abi::{Counters, reason::COST_SAMPLE},
};

/// The packets that each path needs in a round.
const PACKETS_MIN: f64 = 20.0;
/// One turn in this number may fail.
const FAILED: usize = 4;
/// How much the rates of both paths may differ: traffic that changes so much belongs to no kind.
const STEADY: f64 = 2.0;
/// The share of packets that may take the fast path while the slow path is sampled.
const FAST_SHARE_MAX: f64 = 0.05;

/// What was counted between two readings.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counted {
    pub(crate) seconds: f64,
    /// CPU time for packets, of all CPUs.
    pub(crate) net_ns: f64,
    /// The share of the CPU that spent most time for packets.
    pub(crate) busiest: f64,
    /// By port.
    pub(crate) ports: Vec<Counters>,
}

/// CPU time and packets of both paths. Packets are those that the fast path would count: frames with XDP, aggregates
/// with tc.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Round {
    pub(crate) fast_ns: f64,
    pub(crate) fast_pkts: f64,
    pub(crate) slow_ns: f64,
    pub(crate) slow_pkts: f64,
    /// CPU time of Shunt's own programs for a packet of the slow path.
    pub(crate) hooks_ns: f64,
    /// The doubt of that: the clock that measures it takes time, too.
    pub(crate) hooks_doubt_ns: f64,
    /// Whether a driver has merged packets until XDP kept it from that.
    #[serde(default)]
    pub(crate) merging: bool,
}

impl Counted {
    /// The difference of two readings.
    pub(crate) fn between(before: &NetReading, after: &NetReading) -> Self {
        let seconds = after.at.saturating_sub(before.at).as_secs_f64();
        let cpus = before.cpus.iter().zip(&after.cpus);
        let times: Vec<f64> =
            cpus.map(|(before, after)| after.saturating_sub(*before).as_nanos() as f64).collect();
        let ports = before.ports.iter().zip(&after.ports).map(|(before, after)| {
            let mut counted = *after;
            counted.subtract(before);
            counted
        });
        let busiest = times.iter().copied().fold(0.0, f64::max);
        Self {
            seconds,
            net_ns: times.iter().sum(),
            busiest: busiest * 1e-9 / seconds.max(f64::MIN_POSITIVE),
            ports: ports.collect(),
        }
    }

    /// Packets of known flows, on either path.
    pub(crate) fn packets(&self) -> f64 {
        let sampled: u64 = self.ports.iter().map(|port| port.reasons[COST_SAMPLE]).sum();
        self.fast_packets() + sampled as f64
    }

    fn fast_packets(&self) -> f64 {
        self.ports.iter().map(|port| Traffic::fast_packets(port) as f64).sum()
    }
}

/// All windows of a path together.
fn sum(windows: &[Counted]) -> Counted {
    let mut sum = Counted::default();
    for window in windows {
        sum.seconds += window.seconds;
        sum.net_ns += window.net_ns;
        sum.ports.resize(window.ports.len(), Counters::default());
        for (port, counted) in sum.ports.iter_mut().zip(&window.ports) {
            port.add(counted);
        }
    }
    sum
}

/// The packets of a port that took the slow path for the sample, as the fast path would have counted them. XDP counts
/// frames, and Linux merges some of them later. tc counts what was merged; more may be merged when packets wait longer,
/// so bytes tell.
fn sampled(fast: &Counters, slow: &Counters) -> f64 {
    if fast.xdp_pkts > fast.tc_pkts {
        return slow.sampled_frames as f64;
    }
    if fast.tc_pkts == 0 {
        return slow.reasons[COST_SAMPLE] as f64;
    }
    slow.sampled_bytes as f64 * fast.tc_pkts as f64 / fast.tc_bytes.max(1) as f64
}

impl Round {
    /// A round of turns, each with a window of both paths, without the time of Shunt's own programs. Turns that
    /// something else disturbed are left out.
    ///
    /// # Errors
    /// If the windows cannot be compared.
    pub(crate) fn of_turns(fast: &[Counted], slow: &[Counted]) -> Result<Self, CannotTell> {
        let all = Self::new(fast, slow)?;
        let turns = fast.iter().zip(slow);
        let turns: Vec<Self> = turns.filter_map(|(fast, slow)| Self::compare(fast, slow).ok()).collect();
        if turns.len() < fast.len() - fast.len() / FAILED {
            return Ok(all);
        }
        let turns = outliers::without(&turns, Self::difference_ns);
        let sum = |part: fn(&Self) -> f64| turns.iter().map(part).sum();
        Ok(Self {
            fast_ns: sum(|turn| turn.fast_ns),
            fast_pkts: sum(|turn| turn.fast_pkts),
            slow_ns: sum(|turn| turn.slow_ns),
            slow_pkts: sum(|turn| turn.slow_pkts),
            ..Self::default()
        })
    }

    /// A round of all windows together.
    ///
    /// # Errors
    /// If the windows cannot be compared.
    pub(crate) fn new(fast: &[Counted], slow: &[Counted]) -> Result<Self, CannotTell> {
        let (fast, slow) = (sum(fast), sum(slow));
        let round = Self::compare(&fast, &slow)?;
        let rates = (round.slow_pkts / slow.seconds) / (round.fast_pkts / fast.seconds);
        if !(1.0 / STEADY..=STEADY).contains(&rates) {
            return Err(CannotTell::Unsteady);
        }
        Ok(round)
    }

    fn compare(fast: &Counted, slow: &Counted) -> Result<Self, CannotTell> {
        let fast_pkts = fast.fast_packets();
        let slow_pkts: f64 = fast.ports.iter().zip(&slow.ports).map(|(fast, slow)| sampled(fast, slow)).sum();
        if fast_pkts < PACKETS_MIN || slow_pkts < PACKETS_MIN {
            return Err(CannotTell::Unsteady);
        }
        if slow.fast_packets() > slow_pkts * FAST_SHARE_MAX {
            return Err(CannotTell::Interrupted);
        }
        Ok(Self { fast_ns: fast.net_ns, fast_pkts, slow_ns: slow.net_ns, slow_pkts, ..Self::default() })
    }

    /// Sets the time of Shunt's own programs for a packet of the slow path; reading the clock took about `clock_ns` of
    /// it.
    pub(crate) fn set_hooks(&mut self, ns: f64, clock_ns: f64) {
        let clock_ns = clock_ns.min(ns / 2.0);
        (self.hooks_ns, self.hooks_doubt_ns) = (ns - clock_ns, clock_ns);
    }

    /// How many times more the slow path took than the fast path.
    pub(crate) fn ratio(&self) -> f64 {
        (self.slow_ns / self.slow_pkts) / (self.fast_ns / self.fast_pkts).max(1.0)
    }

    /// What a packet of the slow path took more.
    pub(super) fn difference_ns(&self) -> f64 {
        self.slow_ns / self.slow_pkts - self.fast_ns / self.fast_pkts
    }
}
