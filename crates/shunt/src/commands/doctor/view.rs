//! The text of `shunt doctor`.

use crate::render::{Format, Text, style};
use serde::{Deserialize, Serialize};
use shunt_inspect::doctor::{Certainty, Finding, Limit, Load};
use std::collections::BTreeMap;

/// What was found at all ports.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Examination {
    /// Whether the router is the limit; absent if traffic was not watched, or was a sweep of rates.
    pub(crate) limit: Option<Limit>,
    pub(crate) ports: Vec<Diagnosis>,
}

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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gain: Option<Gain>,
}

/// What a fix gains.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Gain {
    /// The board of the library.
    pub(crate) case: String,
    #[serde(flatten)]
    pub(crate) ground: Ground,
}

/// The ground of a gain, or why there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ground {
    /// Published measurements of the same board with the same change.
    Measured {
        /// Who published them, and when.
        source: String,
        traffic: Vec<TrafficGain>,
    },
    /// Nobody measured it, for this reason.
    Untested(String),
}

/// Goodput with one kind of traffic, each as a range in Mbit/s.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TrafficGain {
    /// The traffic in words.
    pub(crate) traffic: String,
    /// Published, without the fix.
    pub(crate) now_mbps: [f64; 2],
    /// Published, with the fix.
    pub(crate) fixed_mbps: [f64; 2],
}

/// A range, or one number if its ends are the same.
pub(crate) fn span([low, high]: [f64; 2]) -> String {
    // Wait mode left 8.5 Mbit/s.
    let number = |value: f64| if value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") };
    let (low, high) = (number(low), number(high));
    if low == high { low } else { format!("{low} to {high}") }
}

impl Text for Examination {
    fn text(&self, format: Format) -> String {
        let limit = self.limit.iter().map(|limit| format!("{limit}\n"));
        let ports = self.ports.iter().map(|one| describe_one(one, format.verbose));
        limit.chain(ports).collect::<Vec<_>>().join("\n")
    }
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
    let gain: String = gain.iter().flat_map(Gain::lines).map(|line| format!("    {line}\n")).collect();
    format!(
        "  {} ({certainty}): {}\n    seen: {}\n    cost: {}\n    fix: {}\n{gain}    source: {}\n",
        finding.rule, finding.title, finding.evidence, finding.cost, finding.fix, finding.source
    )
}

impl Gain {
    pub(crate) fn lines(&self) -> Vec<String> {
        let (source, traffic) = match &self.ground {
            Ground::Measured { source, traffic } => (source, traffic),
            Ground::Untested(why) => return vec![format!("gain: no figure: {}: {why}", self.case)],
        };
        let mut lines = Vec::new();
        for TrafficGain { traffic, now_mbps, fixed_mbps } in traffic {
            let (now, fixed) = (span(*now_mbps), span(*fixed_mbps));
            lines.push(format!("gain, published: {now} Mbit/s before, {fixed} after; {traffic}"));
        }
        lines.push(format!("gain, source: {}: {source}", self.case));
        lines
    }
}
