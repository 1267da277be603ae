//! The text of `shunt doctor`.

use super::style;
use serde::Serialize;
use shunt_inspect::doctor::{Certainty, Finding, Load};
use std::collections::BTreeMap;

/// What was found at a port.
#[derive(Debug, Serialize)]
pub(crate) struct Diagnosis {
    pub(crate) port: String,
    pub(crate) findings: Vec<Finding>,
    /// What happened while the doctor looked.
    pub(crate) load: Option<Load>,
    /// What could not be seen, and why.
    pub(crate) lacking: BTreeMap<String, String>,
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
    text += &findings.iter().map(finding).collect::<String>();
    if verbose {
        text +=
            &lacking.iter().map(|(what, why)| format!("  not seen: {what} ({why})\n")).collect::<String>();
    } else if !lacking.is_empty() {
        text += &format!("  not seen: {}\n", lacking.keys().cloned().collect::<Vec<_>>().join(", "));
    }
    text
}

fn finding(finding: &Finding) -> String {
    let certainty = match finding.certainty {
        Certainty::Certain => style::bad("certain"),
        Certainty::Likely => style::warning("likely"),
        Certainty::Possible => "possible".to_owned(),
    };
    format!(
        "  {} ({certainty}): {}\n    seen: {}\n    cost: {}\n    fix: {}\n    source: {}\n",
        finding.rule, finding.title, finding.evidence, finding.cost, finding.fix, finding.source
    )
}
