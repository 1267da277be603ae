//! The summary of `shunt bench run`, and its text.

use crate::render::{Answer, Format, columns::align, json_line};
use serde::Serialize;
use std::{path::PathBuf, time::Duration};

/// The outcome of a campaign.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(crate) struct CampaignSummary {
    pub(crate) campaign: String,
    pub(crate) sha256: String,
    pub(crate) seconds: f64,
    pub(crate) steps: Vec<StepSummary>,
    /// The page with all results; none if there are none, or if no page was asked for.
    pub(crate) report: Option<PathBuf>,
}

/// The outcome of a step.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(crate) struct StepSummary {
    pub(crate) step: String,
    pub(crate) command: String,
    #[serde(flatten)]
    pub(crate) state: StepState,
    pub(crate) seconds: f64,
    pub(crate) readings: usize,
    pub(crate) doubts: usize,
    /// The file of results; none if nothing was kept.
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
#[serde(tag = "state", rename_all = "kebab-case")]
pub(crate) enum StepState {
    Measured,
    /// An earlier run of the campaign measured it.
    There,
    Interrupted,
    Failed {
        why: String,
    },
    /// The campaign ended before this step began.
    Missing,
}

/// The answer of one step.
#[derive(Debug)]
pub(crate) struct StepAnswer {
    pub(crate) step: String,
    pub(crate) answer: Box<dyn Answer + Send>,
}

impl Answer for StepAnswer {
    fn text(&self, format: Format) -> String {
        format!("== {}\n{}", self.step, self.answer.text(format))
    }

    fn json(&self) -> serde_json::Result<String> {
        let report: serde_json::Value = serde_json::from_str(&self.answer.json()?)?;
        json_line(&serde_json::json!({"step": self.step, "report": report}))
    }
}

impl Answer for CampaignSummary {
    fn text(&self, _: Format) -> String {
        describe(self)
    }

    fn json(&self) -> serde_json::Result<String> {
        json_line(self)
    }
}

fn describe(summary: &CampaignSummary) -> String {
    let heads = ["step", "", "time", "readings", "doubts", "results", "command"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(summary.steps.iter().map(fields));
    let mut text = align("<<>>><", &rows);
    for step in &summary.steps {
        if let StepState::Failed { why } = &step.state {
            text += &format!("{}: {why}\n", step.step);
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

fn fields(step: &StepSummary) -> Vec<String> {
    let state = match &step.state {
        StepState::Measured => "measured",
        StepState::There => "kept",
        StepState::Interrupted => "interrupted",
        StepState::Failed { .. } => "failed",
        StepState::Missing => "missing",
    };
    vec![
        step.step.clone(),
        state.to_owned(),
        seconds(step.seconds),
        step.readings.to_string(),
        step.doubts.to_string(),
        step.file.as_ref().map_or("-".to_owned(), |path| path.display().to_string()),
        step.command.clone(),
    ]
}

fn seconds(seconds: f64) -> String {
    humantime::format_duration(Duration::from_secs(seconds.round() as u64)).to_string()
}
