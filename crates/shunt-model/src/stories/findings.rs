//! What a story found, in a few numbers, and what the model makes of it.

use super::{Story, case, text};
use crate::{
    case::{Case, CaseError},
    fit::Quantity,
    prediction::Prediction,
    world,
};
use serde::{Deserialize, Serialize};
use toml::Table;

/// A finding of a story: the published numbers in words, and the runs that should show the same.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Finding {
    /// What was found, with the unit of its numbers.
    name: String,
    published: String,
    value: Vec<Value>,
}

/// One number of a finding: of a row of its story, or of a case with settings.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Value {
    /// The label of the row, and its table.
    row: Option<[String; 2]>,
    #[serde(default)]
    case: String,
    #[serde(default)]
    set: Table,
    /// The settings of a run to compare with. The number is then the change in percent.
    over: Option<Table>,
    quantity: Counted,
    /// The least and the most that agree with what was published. Absent if the model has to refuse, because it lacks a
    /// cost.
    within: Option<[f64; 2]>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Counted {
    Goodput,
    Up,
    Down,
    Loss,
    Cpu,
    /// Pause frames that the board sent.
    Pauses,
}

/// A finding, and the numbers of the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FindingPrediction {
    /// What was found, with the unit of its numbers.
    pub name: String,
    /// The published numbers.
    pub published: String,
    /// The model's.
    pub values: Vec<FindingValue>,
}

/// A number of the model, or why it has none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FindingValue {
    /// The number; absent if the model refuses.
    pub predicted: Option<f64>,
    /// Whether it is a change in percent.
    #[serde(default)]
    pub change: bool,
    /// The least and the most that agree with what was published; absent if the model has to refuse.
    pub within: Option<[f64; 2]>,
    /// Why the model refuses, such as `forward.external_ns is unknown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl Finding {
    /// # Errors
    /// Fails if a run sets a parameter to what it cannot be.
    pub(super) fn predict(&self, story: &Story) -> Result<FindingPrediction, CaseError> {
        Ok(FindingPrediction {
            name: self.name.clone(),
            published: self.published.clone(),
            values: self.value.iter().map(|value| value.predict(story)).collect::<Result<_, _>>()?,
        })
    }
}

impl Value {
    fn predict(&self, story: &Story) -> Result<FindingValue, CaseError> {
        let (within, change) = (self.within, self.over.is_some());
        match self.number(story) {
            Ok(number) => Ok(FindingValue { predicted: Some(number), change, within, refused: None }),
            Err(CaseError::Impossible(why)) if within.is_none() => Ok(FindingValue {
                predicted: None,
                change,
                within,
                refused: Some(format!("{} is {}", why.name, why.value)),
            }),
            Err(error) => Err(error),
        }
    }

    fn number(&self, story: &Story) -> Result<f64, CaseError> {
        let of = |case: Case| Ok::<_, CaseError>(self.quantity.of(&world::run(&case)?));
        let number = of(match &self.row {
            Some([label, table]) => story.case_of(label, table)?,
            None => self.case(&self.set)?,
        })?;
        match &self.over {
            None => Ok(number),
            Some(over) => Ok(100.0 * (number / of(self.case(over)?)? - 1.0)),
        }
    }

    fn case(&self, set: &Table) -> Result<Case, CaseError> {
        let mut found = case(&self.case).ok_or_else(|| CaseError::Text(self.case.clone()))?;
        for (name, value) in set {
            found.set(name, &text(value))?;
        }
        Ok(found)
    }
}

impl Counted {
    fn of(self, prediction: &Prediction) -> f64 {
        match self {
            Self::Goodput => Quantity::Goodput.value_in(prediction),
            Self::Up => Quantity::Up.value_in(prediction),
            Self::Down => Quantity::Down.value_in(prediction),
            Self::Loss => Quantity::Loss.value_in(prediction),
            Self::Cpu => Quantity::Cpu.value_in(prediction),
            Self::Pauses => prediction.pauses as f64,
        }
    }
}

impl FindingPrediction {
    /// Whether all numbers agree with what was published.
    pub fn agrees(&self) -> bool {
        self.values.iter().all(|value| match (value.predicted, value.within) {
            (Some(number), Some([least, most])) => (least..=most).contains(&number),
            (None, None) => true,
            _ => false,
        })
    }
}
