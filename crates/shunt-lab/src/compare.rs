//! One file of results against another: what became better, what worse, and what cannot be told apart.

use crate::{Doubt, Reading, Results, Run, Spread, statistics};
use serde::Serialize;
use std::collections::BTreeMap;

/// With fewer pairs no interval has 95 % of confidence: that all five are on one side happens by chance in one of sixteen.
pub const PAIRS_WANTED: usize = 6;

/// The unit of shares.
const SHARES: &str = "%";

/// What the readings of B are, as seen from A.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// What it is compared with.
    pub a: Side,
    /// What is compared.
    pub b: Side,
    /// In what else they differ.
    pub conditions: Vec<Differing>,
    /// What both have, by name.
    pub readings: Vec<Compared>,
    /// What only one of them has, or both in different units.
    pub alone: Vec<String>,
}

/// One of the two.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Side {
    /// Its file.
    pub file: String,
    /// What was measured.
    pub what: String,
    /// When, in UTC.
    pub began: String,
    /// It was not interrupted.
    pub complete: bool,
}

/// A condition that is not the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Differing {
    /// Its name, such as `cpus.governor`.
    pub name: String,
    /// In A.
    pub a: String,
    /// In B.
    pub b: String,
}

/// One reading of both.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// Its name.
    pub name: String,
    /// Of both.
    pub unit: String,
    /// The median of A.
    pub a: f64,
    /// The median of B.
    pub b: f64,
    /// How many runs there are of each.
    pub runs: (usize, usize),
    /// How they belong together.
    pub pairing: Pairing,
    /// B to A; none where A is 0, and of shares in %.
    pub ratio: Option<f64>,
    /// B less A, of shares in %: they may be 0, and a ratio of shares says little.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<f64>,
    /// Where the true ratio lies, or the true difference.
    pub spread: Option<Spread>,
    /// What that means.
    pub verdict: Verdict,
    /// Of both.
    pub doubts: Vec<Doubt>,
}

/// How the runs of two readings belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pairing {
    /// Made in turn, so what changes with time is in both.
    Interleaved,
    /// Pairs by number, but one file after the other: what has changed meanwhile looks like a difference.
    InSequence,
    /// A different number of runs, so no pairs.
    Unpaired,
}

/// What can be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// B is better.
    Better,
    /// B is worse.
    Worse,
    /// They differ, and which is better the unit does not say.
    Differs,
    /// The interval has the ratio of 1 in it, or the difference of 0.
    NoDifference,
    /// Too few runs for an interval.
    TooFewRuns,
}

impl Comparison {
    /// Compares B with A, which came from these files. The seed is that of the bootstrap.
    pub fn of(a: (&str, &Results), b: (&str, &Results), seed: u64) -> Self {
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
                Some(other) if other.unit == one.unit => readings.push(Compared::of(name, one, other, seed)),
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
    /// B against A, which have this name. The seed is that of the bootstrap.
    pub fn of(name: &str, a: &Reading, b: &Reading, seed: u64) -> Self {
        let values = |reading: &Reading| reading.runs.iter().map(|run| run.value).collect::<Vec<_>>();
        let (of_a, of_b) = (values(a), values(b));
        let pairing = Pairing::of(&a.runs, &b.runs);
        let shares = a.unit == SHARES;
        let (value, spread) = match (shares, pairing) {
            (false, Pairing::Unpaired) => statistics::ratio_of_medians(&of_b, &of_a, seed),
            (false, _) => statistics::ratio_of_pairs(&of_b, &of_a, seed),
            (true, Pairing::Unpaired) => statistics::difference_of_medians(&of_b, &of_a, seed),
            (true, _) => statistics::difference_of_pairs(&of_b, &of_a, seed),
        }
        .unzip();
        let spread = spread.filter(|_| of_a.len().min(of_b.len()) >= PAIRS_WANTED);
        let same = if shares { 0.0 } else { 1.0 };
        let mut doubts = a.doubts.clone();
        doubts.extend(b.doubts.iter().filter(|doubt| !a.doubts.contains(doubt)).cloned());
        Self {
            name: name.to_owned(),
            unit: a.unit.clone(),
            a: a.value,
            b: b.value,
            runs: (of_a.len(), of_b.len()),
            pairing,
            ratio: value.filter(|_| !shares),
            difference: value.filter(|_| shares),
            spread,
            verdict: Verdict::of(spread, same, more_is_better(&a.unit)),
            doubts,
        }
    }
}

impl Pairing {
    fn of(a: &[Run], b: &[Run]) -> Self {
        if a.len() != b.len() {
            return Self::Unpaired;
        }
        // RFC 3339 in UTC sorts as text. Both of a pair come before both of the next.
        let pairs: Option<Vec<_>> = a.iter().zip(b).map(|(a, b)| a.at.as_ref().zip(b.at.as_ref())).collect();
        let in_turn = pairs
            .is_some_and(|pairs| pairs.windows(2).all(|two| two[0].0.max(two[0].1) < two[1].0.min(two[1].1)));
        if in_turn && a.len() > 1 { Self::Interleaved } else { Self::InSequence }
    }
}

impl Verdict {
    /// `same` is what B is to A where they do not differ.
    fn of(spread: Option<Spread>, same: f64, more_is_better: Option<bool>) -> Self {
        match (spread, more_is_better) {
            (None, _) => Self::TooFewRuns,
            (Some(spread), _) if (spread.low..=spread.high).contains(&same) => Self::NoDifference,
            (Some(_), None) => Self::Differs,
            (Some(spread), Some(more)) if (spread.low > same) == more => Self::Better,
            (Some(_), Some(_)) => Self::Worse,
        }
    }
}

/// By the unit: rates are to be high; times, loads and losses low.
fn more_is_better(unit: &str) -> Option<bool> {
    match unit {
        "pps" | "bit/s" | "kbit/s" | "Mbit/s" | "Gbit/s" | "1/s" | "connections" => Some(true),
        "s" | "ms" | "us" | "ns" | SHARES | "points" | "ns/packet" | "cycles/packet" => Some(false),
        _ => None,
    }
}

/// What differs, but for what always does: when, how busy the machine was then, and at which frequency a CPU just ran. Of a campaign's
/// text its hash says it.
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
