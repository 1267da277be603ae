//! Whether the runs of two readings were made in turn.

use crate::Run;
use serde::Serialize;

/// How the runs of two readings form pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pairing {
    /// Made in turn: changes over time affect both runs of a pair.
    Interleaved,
    /// Not made in turn: changes over time look like a difference.
    InSequence,
}

impl Pairing {
    pub(super) fn from_runs(a: &[Run], b: &[Run]) -> Self {
        // RFC 3339 times in UTC sort as text. Runs were made in turn if both runs of a pair come before both of the
        // next.
        let pairs: Option<Vec<_>> = a.iter().zip(b).map(|(a, b)| a.at.as_ref().zip(b.at.as_ref())).collect();
        let in_turn = pairs.is_some_and(|pairs| {
            pairs.len() > 1 && pairs.windows(2).all(|two| two[0].0.max(two[0].1) < two[1].0.min(two[1].1))
        });
        if in_turn { Self::Interleaved } else { Self::InSequence }
    }
}
