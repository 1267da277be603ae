//! The table of predicted and measured costs of a packet.

use super::{Kept, Row};
use anyhow::Context;
use shunt_lab::Results;
use std::fmt::Write;

/// A predictor: its title, and what it predicts for a row.
type Predictor = (&'static str, fn(&Row) -> f64);

const PREDICTORS: [Predictor; 5] = [
    ("model", |row| row.model),
    ("as on the other machine", |row| row.unchanged),
    ("the same, scaled", |row| row.scaled),
    ("flows have no effect", |row| row.few_flows),
    ("by instructions", |row| row.instructions),
];

/// Each row with the error of each predictor, and their mean and worst errors.
pub fn compared(kept: &Kept, results: &[Results]) -> anyhow::Result<String> {
    let mut text = "| row | predicted, ns | measured, ns |".to_owned();
    PREDICTORS.iter().for_each(|(title, _)| text += &format!(" {title} |"));
    write!(text, "\n| --- | ---: | ---: |{}", " ---: |".repeat(PREDICTORS.len()))?;
    let mut errors = PREDICTORS.map(|_| Vec::new());
    for row in &kept.rows {
        let reading = results.iter().find_map(|results| results.readings.get(&row.reading));
        let measured = reading.with_context(|| format!("`{}` was not measured", row.reading))?.value;
        write!(text, "\n| {} | {:.0} | {measured:.0} |", row.reading, row.model)?;
        for ((_, predictor), errors) in PREDICTORS.iter().zip(&mut errors) {
            let error = (predictor(row) / measured - 1.0) * 100.0;
            write!(text, " {error:+.0} % |")?;
            errors.push(error.abs());
        }
    }
    write!(text, "\n| mean error | | |")?;
    for errors in &errors {
        write!(text, " {:.1} % |", errors.iter().sum::<f64>() / errors.len() as f64)?;
    }
    write!(text, "\n| worst error | | |")?;
    for errors in &errors {
        write!(text, " {:.0} % |", errors.iter().copied().fold(0.0, f64::max))?;
    }
    Ok(text)
}
