//! A reading of one file compared with a reading of the other.

use super::{
    pairing::Pairing,
    verdict::{Evidence, Obstacle, SHARES, Verdict},
};
use crate::{
    Doubt, MachineSample, MachineState, Reading, Results, Spread, card,
    spread::SpreadKind,
    statistics::{self, RUNS_WANTED},
};
use serde::Serialize;

/// A reading that both files have.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// Name of the reading.
    pub name: String,
    /// Unit of both readings.
    pub unit: String,
    /// Median of A.
    pub a: f64,
    /// Median of B.
    pub b: f64,
    /// Number of runs in A and in B.
    pub runs: (usize, usize),
    /// How runs of A and B form pairs.
    pub pairing: Pairing,
    /// B divided by A; None for shares in %, and if a run of A is 0.
    pub ratio: Option<f64>,
    /// B less A, for shares in % and if a run of A is 0, where a ratio says little or nothing. None otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<f64>,
    /// The confidence interval of the ratio or of the difference; None if there are too few runs.
    pub spread: Option<Spread>,
    /// Number of readings whose intervals hold together with 95 %: those of a card describe one router. 1 for a reading
    /// of its own.
    #[serde(skip_serializing_if = "is_one")]
    pub together: usize,
    /// The state of the machine during the runs of A and of B; absent if nothing recorded it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<[MachineState; 2]>,
    /// The conclusion.
    pub verdict: Verdict,
    /// Why nothing can be concluded; None if something can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<Obstacle>,
    /// Doubts of both readings.
    pub doubts: Vec<Doubt>,
}

impl Compared {
    /// Compares two readings of one file.
    pub fn within(name: &str, a: &Reading, b: &Reading, file: &Results) -> Self {
        Self::between(name, (a, file), (b, file))
    }

    /// Compares a reading of one file with a reading of another.
    pub fn between(name: &str, (a, of_a): (&Reading, &Results), (b, of_b): (&Reading, &Results)) -> Self {
        let (mut values_a, mut values_b) = (a.values(), b.values());
        let runs = (values_a.len(), values_b.len());
        let pairing = Pairing::from_runs(&a.runs, &b.runs);
        if pairing == Pairing::Interleaved {
            // After an interrupt, the last run has no counterpart.
            let pairs = runs.0.min(runs.1);
            values_a.truncate(pairs);
            values_b.truncate(pairs);
        }
        let together = held_together(of_a, of_b);
        let by_difference = a.unit == SHARES || values_a.contains(&0.0);
        let (value, spread) = match (by_difference, pairing) {
            (false, Pairing::InSequence) => statistics::ratio_of_samples(&values_b, &values_a, together),
            (false, Pairing::Interleaved) => statistics::ratio_of_pairs(&values_b, &values_a, together),
            (true, Pairing::InSequence) => statistics::difference_of_samples(&values_b, &values_a, together),
            (true, Pairing::Interleaved) => statistics::difference_of_pairs(&values_b, &values_a, together),
        }
        .unzip();
        let spread = spread.filter(|spread| {
            spread.kind == SpreadKind::Confidence95 && values_a.len().min(values_b.len()) >= RUNS_WANTED
        });
        let times = |reading: &'_ Reading| reading.runs.iter().map(|run| run.at.clone()).collect::<Vec<_>>();
        let state = |samples: &[MachineSample], reading| {
            MachineState::during(samples, times(reading).iter().map(|at| at.as_deref()))
        };
        let machine = state(&of_a.machine, a).zip(state(&of_b.machine, b)).map(|(a, b)| [a, b]);
        let same_cpus = have_same_cpus(of_a, of_b);
        let evidence = Evidence {
            unit: &a.unit,
            by_difference,
            medians: [a.value, b.value],
            pairing,
            machine,
            same_cpus,
        };
        let (verdict, obstacle) = match spread {
            Some(spread) => evidence.verdict(spread),
            None => (Verdict::CannotTell, Some(Obstacle::TooFewRuns)),
        };
        let mut doubts = a.doubts.clone();
        doubts.extend(b.doubts.iter().filter(|doubt| !a.doubts.contains(doubt)).cloned());
        Self {
            name: name.to_owned(),
            unit: a.unit.clone(),
            a: a.value,
            b: b.value,
            runs,
            pairing,
            ratio: value.filter(|_| !by_difference),
            difference: value.filter(|_| by_difference),
            spread,
            together,
            machine,
            verdict,
            obstacle,
            doubts,
        }
    }
}

/// The number of readings that are read as one answer: all of two cards, which are compared to find any difference.
fn held_together(a: &Results, b: &Results) -> usize {
    let are_cards = [a, b].iter().all(|results| results.what == card::WHAT);
    if are_cards { a.readings.len().min(b.readings.len()).max(1) } else { 1 }
}

fn is_one(number: &usize) -> bool {
    *number == 1
}

/// Whether both files come from CPUs of the same kind, so that fixed work takes equally long.
fn have_same_cpus(a: &Results, b: &Results) -> bool {
    let [a, b] = [a, b].map(|results| &results.conditions.cpus);
    (&a.architecture, &a.model, a.count) == (&b.architecture, &b.model, b.count)
}
