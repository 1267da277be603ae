//! Doubts about readings, as text. Doubts of one kind differ in their numbers only, and are shown once.

use shunt_lab::{Doubt, Reading, Results};

/// The doubts about a reading: its own, and those that follow from the file as a whole.
pub(crate) fn about(results: &Results, reading: &Reading) -> Vec<String> {
    let mut doubts: Vec<String> = reading.doubts.iter().map(ToString::to_string).collect();
    if !results.complete {
        doubts.push("interrupted: some of its runs are missing".to_owned());
    }
    // Files of older versions do not have this doubt.
    let above = Doubt::AboveLine.to_string();
    if reading.is_above_limit() && !doubts.contains(&above) {
        doubts.push(above);
    }
    doubts
}

/// The kinds of doubt that all readings of a file have; none if the file has one reading only.
pub(crate) fn shared(results: &Results) -> Vec<DoubtKind> {
    let mut kinds: Vec<DoubtKind> = Vec::new();
    for (nth, reading) in results.readings.values().enumerate() {
        let doubts = about(results, reading);
        if nth == 0 {
            add_kinds(&mut kinds, &doubts);
            continue;
        }
        kinds.retain(|kind| doubts.iter().any(|doubt| kind.is_kind_of(doubt)));
        for kind in &mut kinds {
            doubts.iter().for_each(|doubt| kind.widen(doubt));
        }
    }
    if results.readings.len() > 1 { kinds } else { Vec::new() }
}

pub(crate) fn add_kinds(kinds: &mut Vec<DoubtKind>, doubts: &[String]) {
    for doubt in doubts {
        match kinds.iter_mut().find(|kind| kind.is_kind_of(doubt)) {
            Some(kind) => kind.widen(doubt),
            None => kinds.push(DoubtKind::new(doubt)),
        }
    }
}

/// A number, and its text.
type Number = (f64, String);

/// Doubts that differ in their numbers only.
#[derive(Debug, Clone)]
pub(crate) struct DoubtKind {
    /// The text before each number, and after the last one.
    words: Vec<String>,
    /// The least and the greatest of each number.
    ranges: Vec<(Number, Number)>,
}

impl DoubtKind {
    fn new(doubt: &str) -> Self {
        let (words, numbers) = split(doubt);
        Self { words, ranges: numbers.into_iter().map(|number| (number.clone(), number)).collect() }
    }

    pub(crate) fn is_kind_of(&self, doubt: &str) -> bool {
        split(doubt).0 == self.words
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.words == other.words
    }

    /// Extends the ranges by the numbers of a doubt, if it is of this kind.
    pub(crate) fn widen(&mut self, doubt: &str) {
        self.join(&Self::new(doubt));
    }

    /// Extends the ranges by those of another kind; false if its words differ.
    pub(crate) fn join(&mut self, other: &Self) -> bool {
        if !self.is_same(other) {
            return false;
        }
        for ((low, high), (other_low, other_high)) in self.ranges.iter_mut().zip(&other.ranges) {
            if other_low.0 < low.0 {
                *low = other_low.clone();
            }
            if other_high.0 > high.0 {
                *high = other_high.clone();
            }
        }
        true
    }

    /// The doubt, with the range of each number that differs.
    pub(crate) fn text(&self) -> String {
        let range = |((low, low_text), (high, high_text)): &(Number, Number)| match low == high {
            true => low_text.clone(),
            false => format!("{low_text} to {high_text}"),
        };
        let numbers = self.ranges.iter().map(range).chain([String::new()]);
        self.words.iter().cloned().zip(numbers).flat_map(|(words, number)| [words, number]).collect()
    }
}

/// The words around the numbers, and the numbers.
fn split(doubt: &str) -> (Vec<String>, Vec<Number>) {
    let (mut words, mut numbers) = (vec![String::new()], Vec::new());
    let mut rest = doubt;
    while let Some(first) = rest.chars().next() {
        let length = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let digits = rest[..length].trim_end_matches('.');
        let taken = match digits.parse::<f64>() {
            Ok(number) => {
                numbers.push((number, digits.to_owned()));
                words.push(String::new());
                digits.len()
            }
            Err(_) => {
                let taken = length.max(first.len_utf8());
                if let Some(last) = words.last_mut() {
                    last.push_str(&rest[..taken]);
                }
                taken
            }
        };
        rest = &rest[taken..];
    }
    (words, numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_the_range_of_its_numbers() {
        let mut kinds = Vec::new();
        let doubts =
            ["CPU 1: 20.5 % of time.", "CPU 1: 7 % of time.", "CPU 1: none", "1.2.3.", "µ 0.50", "µ 0.6"];
        add_kinds(&mut kinds, &doubts.map(str::to_owned));
        let texts: Vec<String> = kinds.iter().map(DoubtKind::text).collect();
        assert_eq!(texts, ["CPU 1: 7 to 20.5 % of time.", "CPU 1: none", "1.2.3.", "µ 0.50 to 0.6"]);
    }
}
