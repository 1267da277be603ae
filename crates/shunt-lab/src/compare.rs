//! Comparison of two files of results: which readings became better or worse, which are equal, and which cannot be told
//! apart.

mod compared;
mod matching;
mod pairing;
mod verdict;

use crate::Results;
pub use compared::Compared;
use matching::Matching;
pub use pairing::Pairing;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
pub use verdict::{MARGIN, Obstacle, SHARES_MARGIN, Verdict};

/// The comparison of file B with file A.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The file that B is compared with.
    pub a: Side,
    /// The file that is compared with A.
    pub b: Side,
    /// Conditions that differ.
    pub conditions: Vec<Differing>,
    /// Readings that both files have: of the same name, or, if each file has one engine, of the same traffic.
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
    /// The engines or other routers of its readings.
    pub engines: BTreeSet<String>,
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

impl Comparison {
    /// Compares two files of results, given with their paths.
    pub fn new(a: (&str, &Results), b: (&str, &Results)) -> Self {
        let side = |(file, results): (&str, &Results)| Side {
            file: file.to_owned(),
            what: results.what.clone(),
            began: results.began.clone(),
            complete: results.complete,
            engines: matching::engines(results),
        };
        let Matching { pairs, alone } = Matching::of(a.1, b.1);
        let compared =
            pairs.into_iter().map(|(name, of_a, of_b)| Compared::between(&name, (of_a, a.1), (of_b, b.1)));
        let readings = compared.collect();
        Self { a: side(a), b: side(b), conditions: differing(a.1, b.1), readings, alone }
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
    let names: BTreeSet<_> = of_a.keys().chain(of_b.keys()).collect();
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
