//! Comparison of two files of results: which readings became better or worse, and which cannot be told apart.

use crate::{Doubt, Reading, Results, Run, Spread, statistics};
use serde::Serialize;
use std::collections::BTreeMap;

/// Fewer pairs give no interval of 95 % confidence: five pairs fall on the same side by chance in one of sixteen cases.
pub const PAIRS_WANTED: usize = 6;

/// The unit of shares.
const SHARES: &str = "%";

/// The comparison of file B with file A.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The file that B is compared with.
    pub a: Side,
    /// The file that is compared with A.
    pub b: Side,
    /// Conditions that differ.
    pub conditions: Vec<Differing>,
    /// Readings that both files have, by name.
    pub readings: Vec<Compared>,
    /// Readings that only one file has, or whose units differ, with the reason.
    pub alone: Vec<String>,
}

/// One of the two files.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Side {
    /// Path of the file.
    pub file: String,
    /// Name of the measurement.
    pub what: String,
    /// Start of the measurement, in UTC.
    pub began: String,
    /// Whether the measurement ran to its end.
    pub complete: bool,
}

/// A condition that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Differing {
    /// The condition's name, such as `cpus.governor`.
    pub name: String,
    /// The value of the condition in A.
    pub a: String,
    /// The value of the condition in B.
    pub b: String,
}

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
    /// The conclusion from the interval.
    pub verdict: Verdict,
    /// Doubts of both readings.
    pub doubts: Vec<Doubt>,
}

/// How the runs of two readings form pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pairing {
    /// Made in turn: changes over time affect both runs of a pair.
    Interleaved,
    /// Paired by number, but one file was measured after the other: changes over time look like a difference.
    InSequence,
    /// The numbers of runs differ, so there are no pairs.
    Unpaired,
}

/// The conclusion from a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// B is better.
    Better,
    /// B is worse.
    Worse,
    /// B differs; the unit does not say which direction is better.
    Differs,
    /// The interval contains the ratio 1, or the difference 0.
    NoDifference,
    /// Too few runs for an interval.
    TooFewRuns,
}

impl Comparison {
    /// Compares two files of results, given with their paths. `seed` is that of the bootstrap.
    pub fn new(a: (&str, &Results), b: (&str, &Results), seed: u64) -> Self {
        let side = |(file, results): (&str, &Results)| Side {
            file: file.to_owned(),
            what: results.what.clone(),
            began: results.began.clone(),
            complete: results.complete,
        };
        let (of_a, of_b) = (&a.1.readings, &b.1.readings);
        let (mut readings, mut alone) = (Vec::new(), Vec::new());
        for (name, one) in of_a {
            match of_b.get(name) {
                Some(other) if other.unit == one.unit => readings.push(Compared::new(name, one, other, seed)),
                Some(other) => alone.push(format!("{name}: {} in A, {} in B", one.unit, other.unit)),
                None => alone.push(format!("{name}: only in A")),
            }
        }
        alone.extend(
            of_b.keys().filter(|name| !of_a.contains_key(*name)).map(|name| format!("{name}: only in B")),
        );
        Self { a: side(a), b: side(b), conditions: differing(a.1, b.1), readings, alone }
    }
}

impl Compared {
    /// Compares two readings of this name. `seed` is that of the bootstrap.
    pub fn new(name: &str, a: &Reading, b: &Reading, seed: u64) -> Self {
        let values = |reading: &Reading| reading.runs.iter().map(|run| run.value).collect::<Vec<_>>();
        let (of_a, of_b) = (values(a), values(b));
        let pairing = Pairing::from_runs(&a.runs, &b.runs);
        let by_difference = a.unit == SHARES || of_a.contains(&0.0);
        let (value, spread) = match (by_difference, pairing) {
            (false, Pairing::Unpaired) => statistics::ratio_of_medians(&of_b, &of_a, seed),
            (false, _) => statistics::ratio_of_pairs(&of_b, &of_a, seed),
            (true, Pairing::Unpaired) => statistics::difference_of_medians(&of_b, &of_a, seed),
            (true, _) => statistics::difference_of_pairs(&of_b, &of_a, seed),
        }
        .unzip();
        let spread = spread.filter(|_| of_a.len().min(of_b.len()) >= PAIRS_WANTED);
        let same = if by_difference { 0.0 } else { 1.0 };
        let mut doubts = a.doubts.clone();
        doubts.extend(b.doubts.iter().filter(|doubt| !a.doubts.contains(doubt)).cloned());
        Self {
            name: name.to_owned(),
            unit: a.unit.clone(),
            a: a.value,
            b: b.value,
            runs: (of_a.len(), of_b.len()),
            pairing,
            ratio: value.filter(|_| !by_difference),
            difference: value.filter(|_| by_difference),
            spread,
            verdict: Verdict::from_spread(spread, same, more_is_better(&a.unit)),
            doubts,
        }
    }
}

impl Pairing {
    fn from_runs(a: &[Run], b: &[Run]) -> Self {
        if a.len() != b.len() {
            return Self::Unpaired;
        }
        // RFC 3339 times in UTC sort as text. Runs were made in turn if both runs of a pair come before both of the
        // next.
        let pairs: Option<Vec<_>> = a.iter().zip(b).map(|(a, b)| a.at.as_ref().zip(b.at.as_ref())).collect();
        let in_turn = pairs
            .is_some_and(|pairs| pairs.windows(2).all(|two| two[0].0.max(two[0].1) < two[1].0.min(two[1].1)));
        if in_turn && a.len() > 1 { Self::Interleaved } else { Self::InSequence }
    }
}

impl Verdict {
    /// `same` is the value of no difference: 1 for a ratio, 0 for a difference.
    fn from_spread(spread: Option<Spread>, same: f64, more_is_better: Option<bool>) -> Self {
        match (spread, more_is_better) {
            (None, _) => Self::TooFewRuns,
            (Some(spread), _) if (spread.low..=spread.high).contains(&same) => Self::NoDifference,
            (Some(_), None) => Self::Differs,
            (Some(spread), Some(more)) if (spread.low > same) == more => Self::Better,
            (Some(_), Some(_)) => Self::Worse,
        }
    }
}

/// Whether more is better, by the unit: for rates it is, for times, loads and losses it is not.
fn more_is_better(unit: &str) -> Option<bool> {
    match unit {
        "pps" | "bit/s" | "kbit/s" | "Mbit/s" | "Gbit/s" | "1/s" | "connections" => Some(true),
        "s"
        | "ms"
        | "us"
        | "ns"
        | SHARES
        | "points"
        | "ns/packet"
        | "cycles/packet"
        | "instructions/packet" => Some(false),
        _ => None,
    }
}

/// Conditions that differ, without those that always do: start, load and current CPU frequency. A campaign's text is
/// left out because its hash is compared.
fn differing(a: &Results, b: &Results) -> Vec<Differing> {
    const LEFT_OUT: [&str; 3] = ["load_at_start", "cpus.khz", "campaign.text"];
    let (mut of_a, mut of_b) = (BTreeMap::new(), BTreeMap::new());
    for (results, leaves) in [(a, &mut of_a), (b, &mut of_b)] {
        leaves.extend(results.conditions.by_name());
        leaves.insert("what".to_owned(), results.what.clone());
    }
    let names: std::collections::BTreeSet<_> = of_a.keys().chain(of_b.keys()).collect();
    let value = |leaves: &BTreeMap<String, String>, name| {
        leaves.get(name).map_or("unknown", String::as_str).to_owned()
    };
    names
        .into_iter()
        .map(|name| Differing { name: name.clone(), a: value(&of_a, name), b: value(&of_b, name) })
        .filter(|differing| differing.a != differing.b && !LEFT_OUT.contains(&differing.name.as_str()))
        .collect()
}

#[cfg(test)]
mod tests;
