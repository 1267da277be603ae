//! What the fast path saves: the costs of both paths, measured by samples, and the packets of a week by kind of
//! traffic.

mod estimate;
mod file;
mod hours;
mod machine;
mod outliers;
mod round;
mod sampling;
mod traffic;

pub(crate) use file::FILE_BYTES_MAX;
pub(crate) use hours::OwnTime;
pub(crate) use machine::machine;
pub(crate) use round::{Counted, Round};
pub(crate) use sampling::Spent;
pub(crate) use traffic::Traffic;

use crate::kept_file::{KeptFile, Replacement};
use estimate::Estimate;
use hours::Hours;
use sampling::SamplingLog;
use shunt_api::{Bounds, CannotTell, PathCosts, Savings, WeekCosts};
use shunt_bpf::abi::Counters;
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

/// The rounds that an estimate needs.
const ROUNDS_MIN: usize = 6;
/// The rounds that are kept of a kind of traffic: the last ones.
const ROUNDS_MAX: usize = 64;
/// The kinds of traffic whose rounds are kept: those measured last.
const KINDS_MAX: usize = 24;
/// Time between two rounds, once there is a figure. Rounds that take more than their share of a core come less often.
const ROUND_GAP: Duration = Duration::from_secs(60);
/// The same while there are enough rounds for a figure, but they differ too much.
const DOUBT_GAP: Duration = Duration::from_secs(15);
/// The same before that, and while somebody watches.
const FIRST_GAP: Duration = Duration::from_secs(10);
const WATCHED_GAP: Duration = Duration::from_secs(4);
/// How many times more Linux takes than the fast path, until it has been measured.
const RATIO: f64 = 10.0;
/// The share of a core up to which Linux can carry the traffic for a few milliseconds.
const BUSY_MAX: f64 = 0.8;
/// The least share of a week's packets whose costs are known.
const KNOWN_SHARE_MIN: f64 = 0.5;

/// A round, and when it was, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DatedRound {
    pub(crate) at: u64,
    pub(crate) round: Round,
}

/// What is known of what the fast path saves.
#[derive(Debug)]
pub(crate) struct SavingsBook {
    file: KeptFile,
    machine: String,
    /// `savings = false`.
    off: bool,
    rounds: BTreeMap<Traffic, VecDeque<DatedRound>>,
    hours: Hours,
    /// The traffic of the last interval, and its fast packets in a second.
    now: Result<(Traffic, f64), CannotTell>,
    /// Why the last attempt to measure the present traffic failed.
    obstacle: Option<CannotTell>,
    /// When the last attempt was, since the boot.
    tried: Option<Duration>,
    sampling: SamplingLog,
}

impl SavingsBook {
    /// Reads what an earlier daemon has kept. Costs of another machine, kernel or version are not used.
    pub(crate) fn load(file: KeptFile, machine: String, on: bool) -> Self {
        let loss = "what the fast path saves is measured again";
        let kept = file.load(loss, file::decode).filter(|kept| kept.machine == machine).unwrap_or_default();
        Self {
            file,
            machine,
            off: !on,
            rounds: kept.rounds,
            hours: kept.hours,
            now: Err(CannotTell::TooEarly),
            obstacle: None,
            tried: None,
            sampling: SamplingLog::default(),
        }
    }

    /// Counts the packets of some seconds that end at `at`, in seconds since 1970. Returns the core seconds that they
    /// saved, if that is known.
    pub(crate) fn add_interval(&mut self, at: u64, counted: &Counters, seconds: f64) -> Option<f64> {
        let now = Traffic::of(counted, seconds);
        let kind = now.as_ref().ok().map(|(traffic, _)| *traffic);
        if kind != self.now.as_ref().ok().map(|(traffic, _)| *traffic) {
            self.obstacle = None;
        }
        self.now = now;
        self.hours.add(at, kind, Traffic::fast_packets(counted), seconds);
        let (traffic, pps) = self.now.as_ref().ok()?;
        let estimate = self.estimate(*traffic).filter(|estimate| !estimate.at_most)?;
        Some(estimate.saved.value * pps * seconds * 1e-9)
    }

    /// The traffic to measure now, if it is time for that. `watched` if somebody waits for the result.
    pub(crate) fn due(&mut self, since_boot: Duration, watched: bool) -> Option<(Traffic, f64)> {
        self.sampling.begin(since_boot);
        let (traffic, pps) = self.now.as_ref().ok().filter(|_| !self.off)?;
        let gap = self.gap(*traffic, watched);
        if self.tried.is_some_and(|tried| since_boot.saturating_sub(tried) < gap) {
            return None;
        }
        self.tried = Some(since_boot);
        Some((*traffic, *pps))
    }

    /// Time between two rounds of this traffic.
    fn gap(&self, traffic: Traffic, watched: bool) -> Duration {
        let Some(estimate) = self.estimate(traffic) else {
            return if watched { WATCHED_GAP } else { FIRST_GAP };
        };
        let rounds = self.rounds.get(&traffic).map_or(0, VecDeque::len);
        let is_told = estimate.at_most || is_certain(&estimate.saved) || rounds >= ROUNDS_MAX;
        let gap = if is_told { ROUND_GAP } else { DOUBT_GAP };
        gap.max(self.pause())
    }

    /// How long to wait after the last round for what it has cost.
    fn pause(&self) -> Duration {
        let last = self.sampling.last();
        last.and_then(|(traffic, spent)| Some(spent.pause(self.more_ns(traffic)?))).unwrap_or_default()
    }

    /// What a packet of the slow path takes more than one of the fast path, at most.
    fn more_ns(&self, traffic: Traffic) -> Option<f64> {
        if let Some(estimate) = self.estimate(traffic) {
            return Some(estimate.saved.high);
        }
        self.rounds.get(&traffic)?.iter().map(|dated| dated.round.difference_ns()).max_by(f64::total_cmp)
    }

    /// Takes what the last attempt to make a round has cost.
    pub(crate) fn add_spent(&mut self, since_boot: Duration, traffic: Traffic, spent: Spent) {
        self.sampling.add(since_boot, traffic, spent);
    }

    /// Takes what Shunt itself has cost in the last interval.
    pub(crate) fn add_own(&mut self, own: &OwnTime) {
        self.hours.add_own(own);
    }

    /// What Shunt itself has cost in the week before `now`, in seconds since 1970.
    pub(crate) fn week_costs(&self, now: u64) -> WeekCosts {
        let own = self.hours.packets_since(now.saturating_sub(Savings::WEEK_S)).own;
        WeekCosts {
            daemon_core_hours: own.daemon_s / 3600.0,
            programs_core_hours: own.programs_s / 3600.0,
            counted_hours: own.counted_s / 3600.0,
            programs_hours: own.programs_known_s / 3600.0,
        }
    }

    /// How many times more the slow path takes than the fast path: the most that was measured.
    pub(crate) fn ratio(&self) -> f64 {
        let latest = self.rounds.values().filter_map(|rounds| rounds.back());
        latest.map(|dated| dated.round.ratio()).max_by(f64::total_cmp).unwrap_or(RATIO)
    }

    /// Takes the result of a round.
    pub(crate) fn add_round(&mut self, at: u64, traffic: Traffic, result: Result<Round, CannotTell>) {
        match result {
            Ok(round) => {
                self.obstacle = None;
                let rounds = self.rounds.entry(traffic).or_default();
                rounds.push_back(DatedRound { at, round });
                if rounds.len() > ROUNDS_MAX {
                    rounds.pop_front();
                }
                self.forget_rounds(at);
            }
            Err(why) => self.obstacle = Some(why),
        }
    }

    /// Forgets rounds of more than a week ago, and the kinds of traffic that were measured longest ago.
    fn forget_rounds(&mut self, now: u64) {
        let week = now.saturating_sub(Savings::WEEK_S);
        for rounds in self.rounds.values_mut() {
            rounds.retain(|dated| dated.at >= week);
        }
        self.rounds.retain(|_, rounds| !rounds.is_empty());
        let last = |rounds: &VecDeque<DatedRound>| rounds.back().map_or(0, |dated| dated.at);
        while self.rounds.len() > KINDS_MAX {
            let oldest =
                self.rounds.iter().min_by_key(|(_, rounds)| last(rounds)).map(|(traffic, _)| *traffic);
            let Some(oldest) = oldest else { break };
            self.rounds.remove(&oldest);
        }
    }

    /// `None` with too few rounds.
    fn estimate(&self, traffic: Traffic) -> Option<Estimate> {
        let rounds: Vec<Round> = self.rounds.get(&traffic)?.iter().map(|dated| dated.round).collect();
        (rounds.len() >= ROUNDS_MIN).then(|| Estimate::of(&rounds, traffic.by_xdp()))?
    }

    /// For `shunt status`, at `now`, in seconds since 1970 and since the boot.
    pub(crate) fn view(&self, now: u64, since_boot: Duration) -> Savings {
        let mut view = self.week(now);
        view.sampling = self.sampling.view(since_boot, |traffic| self.more_ns(traffic));
        match self.now_cores() {
            Ok((traffic, pps)) => {
                if let Some(estimate) = self.estimate(traffic) {
                    view.now_cores = Some(estimate.saved.times(pps * 1e-9));
                    view.costs = Some(self.path_costs(traffic, &estimate, now));
                }
            }
            Err(why) => view.now_unknown = Some(why),
        }
        if let Ok((traffic, _)) = self.now
            && let Some(estimate) = self.estimate(traffic).filter(|estimate| estimate.at_most && !self.off)
        {
            view.costs = Some(self.path_costs(traffic, &estimate, now));
        }
        view
    }

    /// The present traffic, if what it saves is known.
    fn now_cores(&self) -> Result<(Traffic, f64), CannotTell> {
        if self.off {
            return Err(CannotTell::Off);
        }
        let (traffic, pps) = self.now.clone()?;
        let Some(estimate) = self.estimate(traffic) else {
            let have = self.rounds.get(&traffic).map_or(0, VecDeque::len);
            return Err(self.obstacle.clone().unwrap_or_else(|| few_rounds(have)));
        };
        let cores = estimate.saved.times(pps * 1e-9);
        if estimate.at_most {
            return Err(CannotTell::Merging { high: cores.high });
        }
        if !is_certain(&cores) {
            let wait_s = self.wait_for_certainty(traffic, &estimate);
            return Err(CannotTell::Uncertain { low: cores.low, high: cores.high, wait_s });
        }
        Ok((traffic, pps))
    }

    /// How long the rounds take that the figure still lacks.
    fn wait_for_certainty(&self, traffic: Traffic, estimate: &Estimate) -> Option<u32> {
        let need = estimate.rounds_for_certainty().filter(|need| *need <= ROUNDS_MAX)?;
        let have = self.rounds.get(&traffic).map_or(0, VecDeque::len);
        let missing = need.saturating_sub(have).max(1) as u32;
        Some(missing * self.gap(traffic, false).as_secs() as u32)
    }

    fn path_costs(&self, traffic: Traffic, estimate: &Estimate, now: u64) -> PathCosts {
        let rounds = self.rounds.get(&traffic);
        let last = rounds.and_then(VecDeque::back).map_or(now, |dated| dated.at);
        PathCosts {
            slow_ns: estimate.slow_ns,
            fast_ns: estimate.fast_ns,
            saved_ns: estimate.saved,
            rounds: rounds.map_or(0, VecDeque::len) as u32,
            measured_ago_s: now.saturating_sub(last) as f64,
        }
    }

    /// What was saved in a week. The doubts of all kinds of traffic add up: they may all err in the same direction.
    fn week(&self, now: u64) -> Savings {
        let packets = self.hours.packets_since(now.saturating_sub(Savings::WEEK_S));
        let (mut sum, mut known) = (Bounds::default(), 0);
        for (traffic, count) in &packets.by_traffic {
            if let Some(estimate) = self.estimate(*traffic).filter(|estimate| !estimate.at_most) {
                sum = sum.plus(estimate.saved.times(*count as f64 * 1e-9 / 3600.0));
                known += count;
            }
        }
        let share = if packets.all == 0 { 0.0 } else { known as f64 / packets.all as f64 };
        let told = !self.off && share >= KNOWN_SHARE_MIN && is_certain(&sum);
        Savings {
            week_core_hours: told.then_some(sum),
            week_known_share: share,
            week_counted_hours: packets.seconds / 3600.0,
            ..Savings::default()
        }
    }

    /// What the file is to have now.
    pub(crate) fn replacement(&mut self) -> Replacement {
        let kept = file::Kept {
            machine: self.machine.clone(),
            rounds: self.rounds.clone(),
            hours: self.hours.clone(),
        };
        self.file.replace(move |out| file::encode(&kept, out))
    }
}

/// Why Linux could not carry the traffic for a few milliseconds: the fast path takes `busy` of the busiest core, and
/// the slow path `ratio` times as much.
pub(crate) fn overload(ratio: f64, busy: f64) -> Option<CannotTell> {
    (busy * ratio > BUSY_MAX).then_some(CannotTell::Loaded { busy })
}

/// Too few rounds, and how long the others take.
fn few_rounds(have: usize) -> CannotTell {
    let missing = ROUNDS_MIN.saturating_sub(have) as u32;
    let (have, need) = (have as u32, ROUNDS_MIN as u32);
    CannotTell::FewRounds { have, need, wait_s: missing * FIRST_GAP.as_secs() as u32 }
}

/// Whether a figure is worth printing: something is saved, and the doubt is less than the value.
fn is_certain(bounds: &Bounds) -> bool {
    bounds.low > 0.0 && bounds.relative() < 1.0
}

/// Arithmetic of intervals.
trait Scale {
    fn times(self, factor: f64) -> Self;
    fn plus(self, other: Self) -> Self;
}

impl Scale for Bounds {
    fn times(self, factor: f64) -> Self {
        Self { value: self.value * factor, low: self.low * factor, high: self.high * factor }
    }

    fn plus(self, other: Self) -> Self {
        Self { value: self.value + other.value, low: self.low + other.low, high: self.high + other.high }
    }
}

#[cfg(test)]
mod tests;
