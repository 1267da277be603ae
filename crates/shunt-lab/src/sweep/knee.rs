//! The rate at which a router begins to lose packets, its behaviour beyond, and the counters that rise with the loss.

use super::{Step, counters::Change};
use crate::{statistics::share_interval, traffic::Figures};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Loss up to this share of the packets does not count as loss.
const ACCEPTED: f64 = 0.001;
/// The generator is the limit if it sends less than this share of the offered rate.
const SENT: f64 = 0.99;
/// The router collapses if less than this share of its best rate arrives beyond the knee.
const COLLAPSED: f64 = 0.9;
/// Number of counters to name.
const NAMED: usize = 5;

/// The knee of one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Knee {
    /// Device that sends.
    pub from: String,
    /// Device that receives.
    pub to: String,
    /// Sent rate in bit/s of the highest step below the knee that loses at most 0.1 %, by the 95 % interval of its
    /// loss; None if there is no such step. Steps whose sender was held up do not count, here and in the other fields.
    pub passes_bps: Option<f64>,
    /// Sent rate in bit/s of the first step that loses more than 0.1 %, by the same interval, and after which steps go
    /// on losing; None if no step does.
    pub loses_bps: Option<f64>,
    /// Share of the packets lost in that step.
    pub loss_ratio: Option<f64>,
    /// Whether steps between these two, or up to the highest rate, had too few packets to tell.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undecided: bool,
    /// Highest rate in bit/s that arrived.
    pub most_bps: f64,
    /// Behaviour beyond the knee.
    pub beyond: Beyond,
    /// Counters of trouble that rise from the knee on and hardly rise before, with the largest increase first.
    pub suspects: Vec<Suspect>,
}

/// Behaviour beyond the knee.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Beyond {
    /// No step lost packets: the router can forward more than was offered.
    NotReached,
    /// No step lost packets, and the generator could not send more.
    GeneratorBound,
    /// No step surely lost packets, and the highest rates had too few packets to tell.
    TooFewPackets,
    /// No step lost packets, except perhaps those whose sender was held up, up to the highest rate.
    HeldUp,
    /// The rate that arrives stays the same or rises slowly.
    Flat,
    /// The rate that arrives falls as the offered rate rises.
    Collapse,
}

/// A counter that rises with the loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Suspect {
    /// The device of the counter.
    pub device: String,
    /// The counter's name.
    pub counter: String,
    /// Increase in the first step that loses; a lower bound if the counter wraps.
    pub rise: u64,
    /// The increase divided by the packets lost in that step in all directions: near 1, the counter accounts for the
    /// loss.
    pub of_lost: f64,
}

/// Whether a step loses more than is accepted, by the 95 % interval of its loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    Passes,
    Loses,
    /// The interval includes the limit.
    Undecided,
}

impl Loss {
    fn of(figures: &Figures) -> Self {
        match share_interval(figures.lost, figures.sent) {
            Some(share) if share.high <= ACCEPTED => Self::Passes,
            Some(share) if share.low > ACCEPTED => Self::Loses,
            _ => Self::Undecided,
        }
    }
}

impl Knee {
    /// Finds the knee of each direction.
    pub(super) fn find_all(steps: &[Step]) -> Vec<Self> {
        let directions = steps.first().map_or(0, |step| step.directions.len());
        (0..directions).map(|which| Self::in_direction(steps, which)).collect()
    }

    fn in_direction(steps: &[Step], which: usize) -> Self {
        let figures = |n: usize| &steps[n].directions[which].figures;
        let loss = |n: usize| Loss::of(figures(n));
        let sent = |n: usize| figures(n).achieved_l2_bps;
        let came = |n: usize| sent(n) * (1.0 - figures(n).loss_ratio);
        // Nothing follows from a step whose sender was held up.
        let used: Vec<usize> = (0..steps.len()).filter(|n| !steps[*n].is_held_up()).collect();
        // A single step that loses between steps that do not lose is an accident.
        let goes_on = |at: usize| used.get(at).is_none_or(|&n| loss(n) != Loss::Passes);
        let knee = (0..used.len()).find(|&at| loss(used[at]) == Loss::Loses && goes_on(at + 1));
        let below = &used[..knee.unwrap_or(used.len())];
        let passing = below.iter().rposition(|&n| loss(n) == Loss::Passes);
        let undecided = below[passing.map_or(0, |at| at + 1)..].iter().any(|&n| loss(n) == Loss::Undecided);
        let (passing, knee) = (passing.map(|at| used[at]), knee.map(|at| used[at]));
        let most_bps = used.iter().map(|&n| came(n)).fold(0.0, f64::max);
        let short = |n: usize| figures(n).offered_pps.is_some_and(|pps| figures(n).achieved_pps < pps * SENT);
        let beyond = match (knee, used.last()) {
            (None, _) if undecided => Beyond::TooFewPackets,
            (None, _) if used.iter().any(|&n| short(n)) => Beyond::GeneratorBound,
            (None, Some(&last)) if last + 1 == steps.len() => Beyond::NotReached,
            (None, _) | (_, None) => Beyond::HeldUp,
            (Some(_), Some(&last)) if came(last) < most_bps * COLLAPSED => Beyond::Collapse,
            (Some(_), Some(_)) => Beyond::Flat,
        };
        let ends = &steps[0].directions[which];
        Self {
            from: ends.from.clone(),
            to: ends.to.clone(),
            passes_bps: passing.map(sent),
            loses_bps: knee.map(sent),
            undecided,
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
