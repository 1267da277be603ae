//! Files of predictions, as `shunt model` prints them with `--json`.

use crate::commands::model::view::ModelPoint;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use shunt_model::{Fit, Prediction, stories::StoryPredictions};

/// A file that `shunt model ... --json` printed.
#[derive(Debug, Serialize)]
pub(crate) struct ModelSource {
    /// As for a file of results.
    pub(crate) label: String,
    /// The path, as it was typed.
    pub(crate) file: String,
    /// The contents of the file.
    #[serde(rename = "predictions")]
    raw: Box<RawValue>,
    #[serde(skip)]
    pub(super) predictions: Predictions,
}

/// What `shunt model` prints.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Predictions {
    Points { points: Vec<ModelPoint> },
    Run { model: String, prediction: Prediction },
    Fit { fit: Fit },
    Stories(Vec<StoryPredictions>),
}

impl ModelSource {
    /// Reads a file; None if it is not one that `shunt model` printed.
    pub(crate) fn parse(label: &str, file: &str, text: &str) -> Option<Self> {
        let predictions = serde_json::from_str(text).ok()?;
        if matches!(&predictions, Predictions::Stories(stories) if stories.is_empty()) {
            return None;
        }
        let raw = RawValue::from_string(text.trim().to_owned()).ok()?;
        Some(Self { label: label.to_owned(), file: file.to_owned(), raw, predictions })
    }
}
