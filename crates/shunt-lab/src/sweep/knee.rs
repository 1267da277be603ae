//! From which rate on a router loses, what becomes of it beyond, and which counters rise with it.

use super::{Step, counters::Change};
use serde::Serialize;
use std::collections::BTreeMap;

/// Loss up to this share of what was sent is not yet the knee.
const ACCEPTED: f64 = 0.001;
/// A generator that does not send this share of what was asked is the limit.
const SENT: f64 = 0.99;
/// Beyond the knee less than this share of the most that came: the router collapses.
const COLLAPSED: f64 = 0.9;
/// How many counters are named.
const NAMED: usize = 5;

/// Of one direction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Knee {
    /// Where packets went in.
    pub from: String,
    /// Where they came out.
    pub to: String,
    /// The highest rate up to which all steps lost less than 0.1 %, as it was sent, in bit/s; none: not even the lowest.
    pub passes_bps: Option<f64>,
    /// The next step's, from which on they lose; none: there is none.
    pub loses_bps: Option<f64>,
    /// What is lost there.
    pub loss_ratio: Option<f64>,
    /// The most that arrived, in bit/s.
    pub most_bps: f64,
    /// What becomes of it.
    pub beyond: Beyond,
    /// Counters of trouble that rise from the knee on and hardly before, those that rise most first.
    pub suspects: Vec<Suspect>,
}

/// What lies beyond the knee.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Beyond {
    /// No step lost: the router can do more than was asked of it.
    NotReached,
    /// No step lost, and the generator could not send more.
    GeneratorBound,
    /// As much arrives as at the knee, or somewhat more.
    Flat,
    /// Less arrives, the more is sent.
    Collapse,
}

/// A counter that rises with the loss.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Suspect {
    /// Whose.
    pub device: String,
    /// Its name.
    pub counter: String,
    /// In the first step that loses; at least, where it wraps.
    pub rise: u64,
    /// Against what is lost in that step, in all directions: near 1, it accounts for the loss.
    pub of_lost: f64,
}

impl Knee {
    /// One for each direction.
    pub(super) fn of_all(steps: &[Step]) -> Vec<Self> {
        let directions = steps.first().map_or(0, |step| step.directions.len());
        (0..directions).map(|which| Self::of(steps, which)).collect()
    }

    fn of(steps: &[Step], which: usize) -> Self {
        let figures = |n: usize| &steps[n].directions[which].figures;
        let loses = |n: usize| figures(n).loss_ratio > ACCEPTED;
        let sent = |n: usize| figures(n).achieved_l2_bps;
        let came = |n: usize| sent(n) * (1.0 - figures(n).loss_ratio);
        // A single step that loses, with all well behind it, is an accident.
        let knee = (0..steps.len()).find(|&n| loses(n) && (n + 1 == steps.len() || loses(n + 1)));
        let last = steps.len() - 1;
        let passing = knee.unwrap_or(steps.len()).checked_sub(1);
        let most_bps = (0..steps.len()).map(came).fold(0.0, f64::max);
        let short = |n: usize| figures(n).offered_pps.is_some_and(|pps| figures(n).achieved_pps < pps * SENT);
        let beyond = match knee {
            None if (0..steps.len()).any(short) => Beyond::GeneratorBound,
            None => Beyond::NotReached,
            Some(_) if came(last) < most_bps * COLLAPSED => Beyond::Collapse,
            Some(_) => Beyond::Flat,
        };
        let ends = &steps[0].directions[which];
        Self {
            from: ends.from.clone(),
            to: ends.to.clone(),
            passes_bps: passing.map(sent),
            loses_bps: knee.map(sent),
            loss_ratio: knee.map(|n| figures(n).loss_ratio),
            most_bps,
            beyond,
            suspects: knee.map_or(Vec::new(), |n| suspects(steps, n)),
        }
    }
}

/// Counters that rise at the knee more than ten times as fast as in any step before.
fn suspects(steps: &[Step], knee: usize) -> Vec<Suspect> {
    fn by_name(changes: &[Change]) -> BTreeMap<(&str, &str), u64> {
        let trouble = changes.iter().filter(|change| change.trouble);
        trouble.map(|change| ((change.device.as_str(), change.counter.as_str()), change.rise)).collect()
    }
    let mut before: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for step in &steps[..knee] {
        for (name, rise) in by_name(&step.changes) {
            let most = before.entry(name).or_default();
            *most = rise.max(*most);
        }
    }
    let lost: u64 = steps[knee].directions.iter().map(|one| one.figures.lost).sum();
    let mut found: Vec<Suspect> = by_name(&steps[knee].changes)
        .into_iter()
        .filter(|(name, rise)| before.get(name).is_none_or(|most| *rise > most.saturating_mul(10)))
        .map(|((device, counter), rise)| Suspect {
            device: device.to_owned(),
            counter: counter.to_owned(),
            rise,
            of_lost: rise as f64 / lost.max(1) as f64,
        })
        .collect();
    found.sort_by_key(|suspect| std::cmp::Reverse(suspect.rise));
    found.truncate(NAMED);
    found
}
