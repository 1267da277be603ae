//! The text of `shunt doctor`.

use crate::render::{Format, Text, style};
use serde::{Deserialize, Serialize};
use shunt_inspect::doctor::{Certainty, Finding, Load};
use std::{
    collections::BTreeMap,
    fmt::{self, Display, Formatter},
};

/// What was found at a port.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Diagnosis {
    pub(crate) port: String,
    pub(crate) findings: Vec<Found>,
    /// What happened while the doctor looked.
    pub(crate) load: Option<Load>,
    /// What could not be seen, and why.
    pub(crate) lacking: BTreeMap<String, String>,
}

/// A finding, and what its fix gains.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Found {
    #[serde(flatten)]
    pub(crate) finding: Finding,
    /// Absent if the board is unknown, or if the model does not know the part that the finding is about.
    #[serde(rename = "model", skip_serializing_if = "Option::is_none")]
    pub(crate) gain: Option<Gain>,
}

/// What a fix gains by the model: a prediction, not a measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Gain {
    /// The board of the model.
    pub(crate) case: String,
    /// The traffic of the model, in words.
    pub(crate) offered: String,
    pub(crate) now_mbps: f64,
    pub(crate) fixed_mbps: f64,
    pub(crate) now_loss_percent: f64,
    pub(crate) fixed_loss_percent: f64,
}

impl Text for Vec<Diagnosis> {
    fn text(&self, format: Format) -> String {
        describe(self, format.verbose)
    }
}

fn describe(all: &[Diagnosis], verbose: bool) -> String {
    all.iter().map(|one| describe_one(one, verbose)).collect::<Vec<_>>().join("\n")
}

fn describe_one(diagnosis: &Diagnosis, verbose: bool) -> String {
    let lines = |lines: Vec<String>| lines.iter().map(|line| format!("  {line}\n")).collect::<String>();
    let mut text = head(diagnosis) + "\n";
    text += &lines(observations(diagnosis));
    text += &diagnosis.findings.iter().map(found).collect::<String>();
    if verbose {
        text += &lines(not_seen(diagnosis));
    } else if !diagnosis.lacking.is_empty() {
        let names: Vec<&str> = diagnosis.lacking.keys().map(String::as_str).collect();
        text += &format!("  not seen: {}\n", names.join(", "));
    }
    text
}

/// The port, and how much was found.
pub(crate) fn head(Diagnosis { port, findings, .. }: &Diagnosis) -> String {
    match findings.len() {
        0 => format!("{port}: nothing found"),
        1 => format!("{port}: 1 finding"),
        count => format!("{port}: {count} findings"),
    }
}

/// What happened while the doctor looked.
pub(crate) fn observations(diagnosis: &Diagnosis) -> Vec<String> {
    let Some(load) = &diagnosis.load else { return Vec::new() };
    let doubts = load.doubts.iter().map(|doubt| format!("doubt: {doubt}"));
    let steps = load.steps.iter().map(|step| {
        format!("at {} Mbit/s: {:.2} % lost", step.offered_bps / 1_000_000, step.loss_ratio * 100.0)
    });
    doubts.chain(steps).collect()
}

/// What could not be seen, and why.
pub(crate) fn not_seen(diagnosis: &Diagnosis) -> Vec<String> {
    diagnosis.lacking.iter().map(|(what, why)| format!("not seen: {what} ({why})")).collect()
}

fn found(Found { finding, gain }: &Found) -> String {
    let certainty = finding.certainty.to_string();
    let certainty = match finding.certainty {
        Certainty::Certain => style::bad(certainty),
        Certainty::Likely => style::warning(certainty),
        Certainty::Possible => certainty,
    };
    let gain = gain.as_ref().map_or(String::new(), |gain| format!("    {gain}\n"));
    format!(
        "  {} ({certainty}): {}\n    seen: {}\n    cost: {}\n    fix: {}\n{gain}    source: {}\n",
        finding.rule, finding.title, finding.evidence, finding.cost, finding.fix, finding.source
    )
}

impl Display for Gain {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "model, not a measurement: {:.0} Mbit/s ({:.1} % lost) now, {:.0} Mbit/s ({:.1} % lost) with the fix; {}, {}",
            self.now_mbps,
            self.now_loss_percent,
            self.fixed_mbps,
            self.fixed_loss_percent,
            self.case,
            self.offered
        )
    }
}
