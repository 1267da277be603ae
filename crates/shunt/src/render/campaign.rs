//! The text of `shunt bench run`.

use super::columns::align;
use crate::campaign::{Done, State, Summary};
use std::time::Duration;

pub(super) fn describe(summary: &Summary) -> String {
    let heads = ["step", "", "time", "readings", "doubts", "results", "command"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(summary.steps.iter().map(fields));
    let mut text = align("<<>>><", &rows);
    for done in &summary.steps {
        if let State::Failed { why } = &done.state {
            text += &format!("{}: {why}\n", done.step);
        }
    }
    text += &format!(
        "campaign {}, sha256 {}, in {}\n",
        summary.campaign,
        summary.sha256,
        seconds(summary.seconds)
    );
    if let Some(page) = &summary.report {
        text += &format!("all results on one page: {}\n", page.display());
    }
    text
}

fn fields(done: &Done) -> Vec<String> {
    let state = match &done.state {
        State::Measured => "measured",
        State::There => "was there",
        State::Interrupted => "interrupted",
        State::Failed { .. } => "failed",
        State::Missing => "missing",
    };
    vec![
        done.step.clone(),
        state.to_owned(),
        seconds(done.seconds),
        done.readings.to_string(),
        done.doubts.to_string(),
        done.file.as_ref().map_or("-".to_owned(), |path| path.display().to_string()),
        done.command.clone(),
    ]
}

fn seconds(seconds: f64) -> String {
    humantime::format_duration(Duration::from_secs(seconds.round() as u64)).to_string()
}
