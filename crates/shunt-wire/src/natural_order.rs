//! The order of names as people expect it: `slow 64` before `slow 1518`.

use std::cmp::Ordering;

/// Compares two names, with the numbers in them by value.
pub fn compare(a: &str, b: &str) -> Ordering {
    parts(a).cmp(parts(b)).then_with(|| a.cmp(b))
}

/// A number sorts before text. The digits of a number have no leading zeros, so a longer one is greater.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Part<'n> {
    Number { digits: usize, text: &'n str },
    Text(&'n str),
}

fn parts(name: &str) -> impl Iterator<Item = Part<'_>> {
    let runs = name.as_bytes().chunk_by(|one, other| one.is_ascii_digit() == other.is_ascii_digit());
    let mut at = 0;
    runs.map(move |run| {
        let text = &name[at..at + run.len()];
        at += run.len();
        match run[0].is_ascii_digit() {
            true => {
                let text = text.trim_start_matches('0');
                Part::Number { digits: text.len(), text }
            }
            false => Part::Text(text),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_by_value() {
        let mut names =
            ["tc 64", "slow 1518", "at 100 Mbit/s", "slow 64", "at 50 Mbit/s", "slow 064", "slow", "größe 9"];
        names.sort_by(|a, b| compare(a, b));
        let sorted =
            ["at 50 Mbit/s", "at 100 Mbit/s", "größe 9", "slow", "slow 064", "slow 64", "slow 1518", "tc 64"];
        assert_eq!(names, sorted);
        assert_eq!(compare("a1b2", "a1b10"), Ordering::Less);
    }
}
