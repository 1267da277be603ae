//! The bounds around a value.

use serde::{Deserialize, Serialize};

/// An interval around a value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The lower bound.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
    /// The meaning of the bounds.
    pub kind: SpreadKind,
}

/// The meaning of a spread's bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpreadKind {
    /// The least and the greatest run.
    Range,
    /// The 95 % confidence interval of the true value.
    #[serde(rename = "confidence-95")]
    Confidence95,
}
