//! The table of predicted and measured costs of a packet.

use super::{Kept, Reference, Row};
use crate::table_cells::with_range;
use anyhow::Context;
use shunt_lab::Results;
use std::fmt::Write;

/// A summary of errors, by its title.
type Summary = (&'static str, fn(&[f64]) -> f64);

const SUMMARIES: [Summary; 2] = [("mean", mean), ("worst", worst)];

/// A predictor: its title, and what it says of a row, from what was filed and from what the model says today.
type Predictor = (&'static str, fn(&Row, &Row) -> f64);

const FILED: [Predictor; 5] = [
    ("model", |filed, _| filed.model),
    ("as on the other machine", |filed, _| filed.unchanged),
    ("the same, scaled", |filed, _| filed.scaled),
    ("flows have no effect", |filed, _| filed.few_flows),
    ("by instructions", |filed, _| filed.instructions),
];
/// Shown if the model has been revised since.
const TODAY: Predictor = ("model today, not blind", |_, today| today.model);
/// Flows matter in a row if the predictor that knows no effect of flows errs by more, in percent.
const MATTER: f64 = 10.0;
/// Smaller differences come from the decimal numbers of the file.
const EQUAL: f64 = 1e-9;

/// Each row with the error of each predictor, and the mean and the worst errors.
pub fn compared(kept: &Kept, reference: &Reference, results: &[Results]) -> anyhow::Result<String> {
    let today = kept.revised(reference)?;
    let rows = kept.rows.iter().map(|filed| {
        let today = today.iter().find(|today| today.reading == filed.reading);
        Ok((filed, today.with_context(|| format!("`{}` is no longer predicted", filed.reading))?))
    });
    let rows = rows.collect::<anyhow::Result<Vec<_>>>()?;
    let mut predictors = FILED.to_vec();
    if rows.iter().any(|(filed, today)| (today.model / filed.model - 1.0).abs() > EQUAL) {
        predictors.push(TODAY);
    }
    let mut text = "| row | filed, ns | measured, ns |".to_owned();
    predictors.iter().for_each(|(title, _)| text += &format!(" {title} |"));
    write!(text, "\n| --- | ---: | ---: |{}", " ---: |".repeat(predictors.len()))?;
    let mut errors = vec![Vec::new(); predictors.len()];
    let mut matter = Vec::new();
    for (filed, today) in rows {
        let name = &filed.reading;
        let measured = results.iter().find(|results| results.readings.contains_key(name));
        let measured = measured.with_context(|| format!("`{name}` was not measured"))?;
        write!(text, "\n| {name} | {:.0} | {} |", filed.model, with_range(measured, name, 1.0, 0)?)?;
        let value = measured.readings[name].value;
        let error_of = |predicted: f64| (predicted / value - 1.0) * 100.0;
        matter.push(error_of(filed.few_flows).abs() > MATTER);
        for ((_, predictor), errors) in predictors.iter().zip(&mut errors) {
            let error = error_of(predictor(filed, today));
            write!(text, " {error:+.0} % |")?;
            errors.push(error.abs());
        }
    }
    for (rows, every) in [("", true), (" where flows matter", false)] {
        for (title, summary) in SUMMARIES {
            write!(text, "\n| {title} error{rows} | | |")?;
            for errors in &errors {
                let counted = errors.iter().zip(&matter).filter(|(_, matter)| every || **matter);
                let counted: Vec<f64> = counted.map(|(error, _)| *error).collect();
                if counted.is_empty() {
                    text += " - |";
                } else {
                    write!(text, " {:.1} % |", summary(&counted))?;
                }
            }
        }
    }
    Ok(text)
}

fn mean(errors: &[f64]) -> f64 {
    errors.iter().sum::<f64>() / errors.len() as f64
}

fn worst(errors: &[f64]) -> f64 {
    errors.iter().copied().fold(0.0, f64::max)
}
