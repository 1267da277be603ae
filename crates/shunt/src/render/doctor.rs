//! The text of `shunt doctor`.

use super::style;
use serde::Serialize;
use shunt_inspect::doctor::{Certainty, Finding, Load};
use std::collections::BTreeMap;

/// What was found at a port.
#[derive(Debug, Serialize)]
pub(crate) struct Diagnosis {
    pub(crate) port: String,
    pub(crate) findings: Vec<Found>,
    /// What happened while the doctor looked.
    pub(crate) load: Option<Load>,
    /// What could not be seen, and why.
    pub(crate) lacking: BTreeMap<String, String>,
}

/// A finding, and what its fix gains.
#[derive(Debug, Serialize)]
pub(crate) struct Found {
    #[serde(flatten)]
    pub(crate) finding: Finding,
    /// Absent if the board is unknown, or if the model does not know the part that the finding is about.
    #[serde(rename = "model", skip_serializing_if = "Option::is_none")]
    pub(crate) gain: Option<Gain>,
}

/// What a fix gains by the model: a prediction, not a measurement.
#[derive(Debug, Clone, PartialEq, Serialize)]
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

pub(super) fn describe(all: &[Diagnosis], verbose: bool) -> String {
    all.iter().map(|one| describe_one(one, verbose)).collect::<Vec<_>>().join("\n")
}

fn describe_one(diagnosis: &Diagnosis, verbose: bool) -> String {
    let Diagnosis { port, findings, load, lacking } = diagnosis;
    let mut text = match findings.len() {
        0 => format!("{port}: nothing found\n"),
        1 => format!("{port}: 1 finding\n"),
        count => format!("{port}: {count} findings\n"),
    };
    if let Some(load) = load {
        text += &load.doubts.iter().map(|doubt| format!("  doubt: {doubt}\n")).collect::<String>();
        for step in &load.steps {
            text += &format!(
                "  at {} Mbit/s: {:.2} % lost\n",
                step.offered_bps / 1_000_000,
                step.loss_ratio * 100.0
            );
        }
    }
    text += &findings.iter().map(found).collect::<String>();
    if verbose {
        text +=
            &lacking.iter().map(|(what, why)| format!("  not seen: {what} ({why})\n")).collect::<String>();
    } else if !lacking.is_empty() {
        text += &format!("  not seen: {}\n", lacking.keys().cloned().collect::<Vec<_>>().join(", "));
    }
    text
}

fn found(Found { finding, gain }: &Found) -> String {
    let certainty = match finding.certainty {
        Certainty::Certain => style::bad("certain"),
        Certainty::Likely => style::warning("likely"),
        Certainty::Possible => "possible".to_owned(),
    };
    let gain = gain.as_ref().map_or(String::new(), |gain| {
        format!(
            "    model, not a measurement: {:.0} Mbit/s ({:.1} % lost) now, {:.0} Mbit/s ({:.1} % lost) with the fix; {}, {}\n",
            gain.now_mbps, gain.now_loss_percent, gain.fixed_mbps, gain.fixed_loss_percent, gain.case, gain.offered
        )
    });
    format!(
        "  {} ({certainty}): {}\n    seen: {}\n    cost: {}\n    fix: {}\n{gain}    source: {}\n",
        finding.rule, finding.title, finding.evidence, finding.cost, finding.fix, finding.source
    )
}
