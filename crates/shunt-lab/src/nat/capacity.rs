//! Search for the number of connections that a router holds at once.

use serde::{Deserialize, Serialize};

/// A search for the greatest number that is held, if smaller numbers are held, too.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CapacitySearch {
    /// The least number to try.
    pub min: u32,
    /// The greatest number to try.
    pub max: u32,
    /// A number that is probably the capacity: the first to try, followed by the next one.
    pub hint: Option<u32>,
    /// Distance of the bounds at the end, relative to the upper one; 0 for an exact result.
    pub width: f64,
    /// The greatest number that was held.
    #[serde(skip)]
    pub held: Option<u32>,
    /// The least number that was not held.
    #[serde(skip)]
    pub failed: Option<u32>,
}

impl CapacitySearch {
    /// The next number to try; None at the end.
    pub fn next_number(&self) -> Option<u32> {
        let Self { min, max, hint, .. } = *self;
        let open = |number: u32| {
            (min..=max).contains(&number)
                && self.held.is_none_or(|held| number > held)
                && self.failed.is_none_or(|failed| number < failed)
        };
        let hinted = hint.and_then(|hint| {
            [Some(hint), hint.checked_add(1).filter(|_| self.held == Some(hint))]
                .into_iter()
                .flatten()
                .find(|number| open(*number))
        });
        match (self.held, self.failed) {
            _ if hinted.is_some() => hinted,
            (None, None) => Some(min),
            (Some(held), None) => Some(held.saturating_mul(2).min(max)).filter(|number| open(*number)),
            (None, Some(_)) => Some(min).filter(|number| open(*number)),
            (Some(held), Some(failed)) => {
                let near = (f64::from(failed) * self.width).max(1.0);
                (f64::from(failed - held) > near).then(|| held.midpoint(failed))
            }
        }
    }

    /// Records the outcome of a trial.
    pub fn record(&mut self, number: u32, held: bool) {
        *(if held { &mut self.held } else { &mut self.failed }) = Some(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bounds that a table of this size gives, and the number of trials.
    fn search(table: u32, hint: Option<u32>, width: f64) -> ([Option<u32>; 2], u32) {
        let mut search = CapacitySearch { min: 1000, max: 300_000, hint, width, held: None, failed: None };
        let mut trials = 0;
        while let Some(number) = search.next_number() {
            search.record(number, number <= table);
            trials += 1;
            assert!(trials < 60, "{search:?}");
        }
        ([search.held, search.failed], trials)
    }

    #[test]
    fn a_right_hint_is_confirmed_exactly_in_two_trials() {
        assert_eq!(search(262_144, Some(262_144), 0.1), ([Some(262_144), Some(262_145)], 2));
    }

    #[test]
    fn a_wrong_hint_does_not_change_the_result() {
        for table in [1000, 5000, 99_999, 262_145] {
            for hint in [None, Some(900), Some(5000), Some(262_144), Some(300_000), Some(u32::MAX)] {
                assert_eq!(search(table, hint, 0.0).0, [Some(table), Some(table + 1)], "{table} {hint:?}");
                let ([held, failed], _) = search(table, hint, 0.01);
                let (held, failed) = (held.unwrap(), failed.unwrap());
                assert!(
                    held <= table && failed > table && failed - held <= failed / 100 + 1,
                    "{held} {failed}"
                );
            }
        }
    }

    #[test]
    fn the_search_ends_at_the_ends_of_the_range() {
        assert_eq!(search(300_000, None, 0.0).0, [Some(300_000), None]);
        assert_eq!(search(999, Some(262_144), 0.0).0, [None, Some(1000)]);
    }
}
