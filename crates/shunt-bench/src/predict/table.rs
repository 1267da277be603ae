//! The table of predicted and measured costs of a packet.

use super::{Kept, Reference, Row};
use crate::table_cells::with_range;
use anyhow::Context;
use shunt_lab::Results;
use std::fmt::Write;

/// A predictor: its title, and what it says of a row, from what was filed and from what the model says today.
type Predictor = (&'static str, fn(&Row, &Row) -> f64);

const PREDICTORS: [Predictor; 6] = [
    ("model", |filed, _| filed.model),
    ("as on the other machine", |filed, _| filed.unchanged),
    ("the same, scaled", |filed, _| filed.scaled),
    ("flows have no effect", |filed, _| filed.few_flows),
    ("by instructions", |filed, _| filed.instructions),
    ("model today, not blind", |_, today| today.model),
];

/// Each row with the error of each predictor, and the mean and the worst errors.
pub fn compared(kept: &Kept, reference: &Reference, results: &[Results]) -> anyhow::Result<String> {
    let mut text = "| row | filed, ns | measured, ns |".to_owned();
    PREDICTORS.iter().for_each(|(title, _)| text += &format!(" {title} |"));
    write!(text, "\n| --- | ---: | ---: |{}", " ---: |".repeat(PREDICTORS.len()))?;
    let mut errors = PREDICTORS.map(|_| Vec::new());
    for (filed, today) in kept.rows.iter().zip(kept.revised(reference)?) {
        let name = &filed.reading;
        let measured = results.iter().find(|results| results.readings.contains_key(name));
        let measured = measured.with_context(|| format!("`{name}` was not measured"))?;
        write!(text, "\n| {name} | {:.0} | {} |", filed.model, with_range(measured, name, 1.0, 0)?)?;
        for ((_, predictor), errors) in PREDICTORS.iter().zip(&mut errors) {
            let error = (predictor(filed, &today) / measured.readings[name].value - 1.0) * 100.0;
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
