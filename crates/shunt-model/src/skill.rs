//! The skill of the model for figures that it was not fitted to: its error, compared with that of three predictors that
//! know no mechanism and only the fitted figures.

use crate::{
    case::{Case, Protocol},
    fit::Quantity,
};
use serde::{Deserialize, Serialize};

/// A goodput above this part of what was asked for, or of the line, says nothing about a board.
const SATURATED: f64 = 0.97;
/// A loss below, and a CPU load above, says nothing either, in percent.
const NO_LOSS: f64 = 0.5;
const FULL_CPU: f64 = 99.0;

/// A published figure, the model's, and the run that they belong to.
#[derive(Debug)]
pub(crate) struct Figure<'a> {
    pub(crate) board: &'a str,
    pub(crate) case: Case,
    pub(crate) quantity: Quantity,
    pub(crate) published: f64,
    /// Absent if nobody asks for it: only figures that were held out count.
    pub(crate) predicted: Option<f64>,
    pub(crate) held_out: bool,
}

/// Mean errors for the figures of one quantity that were held out, in percent of goodput, or else in points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Skill {
    /// `goodput`, `loss` or `CPU load`.
    pub quantity: String,
    /// Number of figures that the parameters were fitted to.
    pub fitted: usize,
    /// Number of figures that were held out.
    pub held_out: usize,
    /// How many of those are informative: neither the line, nor the sender, nor a full CPU decides them. Only these
    /// count for the errors; without any, the errors are absent.
    pub informative: usize,
    /// Error of the model.
    pub model: Option<f64>,
    /// Error of the predictor "nothing changes": the first fitted figure of the same board and traffic.
    pub nothing_changes: Option<f64>,
    /// Error of the predictor "as in the fitted run that differs least".
    pub nearest: Option<f64>,
    /// Error of the predictor "mean of the two fitted runs that differ least".
    pub neighbours: Option<f64>,
    /// Whether the model stays better than every such predictor whichever figure is left out; absent with fewer than
    /// two. A single figure, such as 8.5 Mbit/s where others have 210, can decide a mean of errors in percent.
    #[serde(default)]
    pub steady: Option<bool>,
}

impl Skill {
    /// Error of the best predictor that knows no mechanism.
    pub fn best_trivial(&self) -> Option<f64> {
        [self.nothing_changes, self.nearest, self.neighbours].into_iter().flatten().min_by(f64::total_cmp)
    }

    /// Whether the model is better than every such predictor; absent if nothing informative was held out.
    pub fn is_better(&self) -> Option<bool> {
        Some(self.model? < self.best_trivial()?)
    }

    /// Whether it is better, and no single figure decides that.
    pub fn works(&self) -> bool {
        self.is_better() == Some(true) && self.steady == Some(true)
    }
}

fn name(quantity: Quantity) -> &'static str {
    match quantity {
        _ if quantity.is_goodput() => "goodput",
        Quantity::Loss => "loss",
        _ => "CPU load",
    }
}

impl Figure<'_> {
    pub(crate) fn is_informative(&self) -> bool {
        match self.quantity {
            quantity if quantity.is_goodput() => self.published < SATURATED * self.most() / 1e6,
            Quantity::Loss => (NO_LOSS..100.0 - NO_LOSS).contains(&self.published),
            _ => self.published < FULL_CPU,
        }
    }

    /// The goodput that the sender and the line allow.
    fn most(&self) -> f64 {
        let (traffic, link) = (&self.case.traffic, &self.case.link);
        let frame = f64::from(traffic.frame_bytes(traffic.payload) + link.gap_bytes);
        let line = link.rate * f64::from(traffic.payload) / frame;
        if traffic.protocol == Protocol::Udp { line.min(traffic.rate) } else { line }
    }

    /// How much two runs differ in parameters of some names: a board or a word counts 1, and so does a number that
    /// changes by a factor of e or more.
    fn distance(&self, other: &Self, names: &[&str]) -> f64 {
        let board = if self.board == other.board { 0.0 } else { 1.0 };
        let one = |name: &&str| match (self.case.number(name), other.case.number(name)) {
            (Some(a), Some(b)) if a > 0.0 && b > 0.0 => libm::log(a / b).abs().min(1.0),
            (Some(a), Some(b)) => f64::from(u8::from(a != b)),
            _ => f64::from(u8::from(self.case.text(name) != other.case.text(name))),
        };
        board + names.iter().map(one).sum::<f64>()
    }
}

/// The skill for each quantity of a story. `names` are the parameters that its runs set.
pub(crate) fn skills(figures: &[Figure], names: &[&str]) -> Vec<Skill> {
    let of = |quantity: &str| {
        let mut same = figures.iter().filter(|figure| name(figure.quantity) == quantity).peekable();
        same.peek()?;
        Some(skill(quantity, &same.collect::<Vec<_>>(), names))
    };
    ["goodput", "loss", "CPU load"].into_iter().filter_map(of).collect()
}

fn skill(quantity: &str, figures: &[&Figure], names: &[&str]) -> Skill {
    let (held_out, fitted): (Vec<&Figure>, Vec<&Figure>) = figures.iter().partition(|figure| figure.held_out);
    let informative: Vec<&Figure> =
        held_out.iter().copied().filter(|figure| figure.is_informative()).collect();
    let traffic: Vec<&str> = names.iter().copied().filter(|name| name.starts_with("traffic.")).collect();
    let nearest = |figure: &Figure, names: &[&str]| {
        let mut near: Vec<(f64, f64)> =
            fitted.iter().map(|one| (figure.distance(one, names), one.published)).collect();
        near.sort_by(|a, b| a.0.total_cmp(&b.0));
        near
    };
    let errors = |predict: &dyn Fn(&Figure) -> Option<f64>| -> Vec<f64> {
        let error = |figure: &&Figure| Some(figure.quantity.error(predict(figure)?, figure.published).abs());
        informative.iter().filter_map(error).collect()
    };
    let model = errors(&|figure| figure.predicted);
    let nothing_changes = errors(&|figure| Some(nearest(figure, &traffic).first()?.1));
    let one = errors(&|figure| Some(nearest(figure, names).first()?.1));
    let neighbours = errors(&|figure| {
        let near = nearest(figure, names);
        let two = near.get(..2).unwrap_or(&near);
        (!two.is_empty()).then(|| two.iter().map(|one| one.1).sum::<f64>() / two.len() as f64)
    });
    let steady = (model.len() > 1).then(|| {
        let trivial = [&nothing_changes, &one, &neighbours];
        (0..model.len()).all(|left_out| trivial.iter().all(|of| rest(&model, left_out) < rest(of, left_out)))
    });
    Skill {
        quantity: quantity.to_owned(),
        fitted: fitted.len(),
        held_out: held_out.len(),
        informative: informative.len(),
        model: mean(&model),
        nothing_changes: mean(&nothing_changes),
        nearest: mean(&one),
        neighbours: mean(&neighbours),
        steady,
    }
}

fn mean(errors: &[f64]) -> Option<f64> {
    (!errors.is_empty()).then(|| errors.iter().sum::<f64>() / errors.len() as f64)
}

/// The sum of all errors but one.
fn rest(errors: &[f64], left_out: usize) -> f64 {
    let others = errors.iter().enumerate().filter(|(number, _)| *number != left_out);
    others.map(|(_, error)| error).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(rate: f64, published: f64, predicted: f64, held_out: bool) -> Figure<'static> {
        let mut case = Case::default();
        (case.traffic.rate, case.traffic.payload) = (rate * 1e6, 1472);
        let (quantity, predicted) = (Quantity::Goodput, Some(predicted));
        Figure { board: "board", case, quantity, published, predicted, held_out }
    }

    #[test]
    fn errors_are_those_of_informative_figures_that_were_held_out() {
        let figures = [
            figure(100.0, 100.0, 100.0, false),
            figure(500.0, 400.0, 410.0, false),
            figure(900.0, 300.0, 310.0, false),
            figure(200.0, 200.0, 150.0, true), // all that was asked for: says nothing
            figure(600.0, 380.0, 361.0, true),
        ];
        let [skill] = &skills(&figures, &["traffic.rate"])[..] else { panic!("one quantity") };
        assert_eq!((skill.fitted, skill.held_out, skill.informative), (3, 2, 1));
        let near = |got: Option<f64>, wanted: f64| assert!((got.unwrap() - wanted).abs() < 0.01, "{skill:?}");
        near(skill.model, 5.0);
        near(skill.nearest, 100.0 * 20.0 / 380.0);
        near(skill.neighbours, 100.0 * 30.0 / 380.0);
        assert_eq!((skill.is_better(), skill.works()), (Some(true), false));
    }

    #[test]
    fn a_skill_that_one_figure_decides_is_not_steady() {
        let figures = [
            figure(500.0, 400.0, 400.0, false),
            figure(600.0, 10.0, 12.0, true), // off by 20 %, and the nearest fitted run by 3900 %
            figure(520.0, 400.0, 420.0, true),
        ];
        let skill = &skills(&figures, &["traffic.rate"])[0];
        assert_eq!((skill.is_better(), skill.works()), (Some(true), false));
        let figures = [
            figure(500.0, 400.0, 400.0, false),
            figure(600.0, 300.0, 303.0, true),
            figure(700.0, 200.0, 202.0, true),
        ];
        assert!(skills(&figures, &["traffic.rate"])[0].works());
    }
}
