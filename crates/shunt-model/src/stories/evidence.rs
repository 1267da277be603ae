//! What published measurements say of a change on a board: advice on that board needs no other ground.

use super::{CASES, Story, all, case};
use crate::{
    case::{Case, CaseError},
    fit::Quantity,
    skill::Figure,
};

/// Settings as for [`Case::set`].
pub type Settings<'a> = &'a [(&'a str, String)];

/// The published effect of a change on a board.
#[derive(Debug, Clone)]
pub struct Evidence {
    /// Who published it, and when.
    pub source: &'static str,
    /// Runs that differ in the change only, and in which the board was the limit.
    pub pairs: Vec<Pair>,
}

/// A run before the change, and the same run after it.
#[derive(Debug, Clone)]
pub struct Pair {
    /// The run before.
    pub before: PublishedRun,
    /// The run after.
    pub after: PublishedRun,
}

/// A published run.
#[derive(Debug, Clone)]
pub struct PublishedRun {
    /// Its settings.
    pub case: Case,
    /// Its goodput in Mbit/s.
    pub goodput: f64,
}

/// The published effect of a change from some settings to others on a board of the library. None if nothing was
/// published that differs in just that.
///
/// # Errors
/// Fails if the settings are not possible.
pub fn evidence(board: &str, before: Settings, after: Settings) -> Result<Option<Evidence>, CaseError> {
    for story in all() {
        let pairs = story.pairs(board, before, after)?;
        if !pairs.is_empty() {
            return Ok(Some(Evidence { source: &story.source, pairs }));
        }
    }
    Ok(None)
}

/// The name in the library of a case that is exactly as it is there.
pub fn name_of(board: &Case) -> Option<&'static str> {
    CASES.iter().map(|(name, _)| *name).find(|name| case(name).as_ref() == Some(board))
}

impl Story {
    fn pairs(&self, board: &str, before: Settings, after: Settings) -> Result<Vec<Pair>, CaseError> {
        let cases = self.cases();
        let mut runs = Vec::new();
        for row in self.row.iter().filter(|row| row.case == board) {
            let case = row.case(&cases)?;
            runs.extend(row.goodput.map(|goodput| PublishedRun { case, goodput }));
        }
        let with = |case: &Case, settings: Settings| {
            let mut case = case.clone();
            settings.iter().try_for_each(|(name, value)| case.set(name, value)).map(|()| case)
        };
        let mut pairs = Vec::new();
        for run in &runs {
            if with(&run.case, before)? != run.case {
                continue;
            }
            let changed = with(&run.case, after)?;
            let same = runs.iter().filter(|other| other.case == changed && changed != run.case);
            let pair = |other: &PublishedRun| Pair { before: run.clone(), after: other.clone() };
            pairs.extend(
                same.map(pair).filter(|pair| pair.before.board_is_limit() && pair.after.board_is_limit()),
            );
        }
        Ok(pairs)
    }
}

impl PublishedRun {
    /// Whether the board decided the goodput, and neither the line nor the sender.
    fn board_is_limit(&self) -> bool {
        let (quantity, published) = (Quantity::Goodput, self.goodput);
        let case = self.case.clone();
        Figure { board: "", case, quantity, published, predicted: None, held_out: false }.is_informative()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings<'a>(all: &[(&'a str, &str)]) -> Vec<(&'a str, String)> {
        all.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
    }

    fn of_imx6(before: &[(&str, &str)], after: &[(&str, &str)]) -> Option<Evidence> {
        evidence("imx6", &settings(before), &settings(after)).unwrap()
    }

    const OFF: [(&str, &str); 3] = [("fifo.pause", "off"), ("fifo.xoff", "off"), ("fifo.section_full", "0")];
    const ON: [(&str, &str); 3] = [("fifo.pause", "on"), ("fifo.xoff", "on"), ("fifo.section_full", "128")];

    #[test]
    fn pause_frames_and_thresholds_together_have_evidence_on_the_imx6() {
        let found = of_imx6(&OFF, &ON).unwrap();
        let figures: Vec<(f64, f64)> =
            found.pairs.iter().map(|pair| (pair.before.goodput, pair.after.goodput)).collect();
        for published in [(311.0, 583.0), (278.0, 583.0), (315.0, 580.0), (210.0, 426.0)] {
            assert!(figures.contains(&published), "{published:?} {figures:?}");
        }
        assert!(!figures.contains(&(203.0, 203.0)), "the sender was the limit");
    }

    #[test]
    fn a_change_that_nobody_measured_has_no_evidence() {
        assert!(of_imx6(&OFF[..1], &ON[..1]).is_none(), "flow control alone");
        assert!(of_imx6(&[("ring.rx", "128")], &[("ring.rx", "512")]).is_none());
        assert!(of_imx6(&OFF, &OFF).is_none(), "no change");
        assert!(evidence("template", &settings(&OFF), &settings(&ON)).unwrap().is_none());
    }

    #[test]
    fn a_board_is_that_of_the_library_until_a_parameter_differs() {
        let mut board = case("imx6").unwrap();
        assert_eq!(name_of(&board), Some("imx6"));
        board.set("fifo.bytes", "8192").unwrap();
        assert_eq!(name_of(&board), None);
    }
}
