//! What was seen at ports, on the page of a report: settings, findings, checks and traces, as `shunt link`, `shunt
//! doctor`, `shunt check` and `shunt trace` print them with `--json`.

use crate::commands::{
    check::view as check,
    doctor::view::{self as doctor, Diagnosis, Examination, Found, Gain},
    link::view::{self as link, LinkScreen},
    trace::view as trace,
};
use serde::Deserialize;
use shunt_inspect::check::{self as checks, Outcome, Verdict};
use shunt_report::{
    Kind, OtherFile, Section, SectionTable, figure, heads,
    plot::{self, Bar, Bars, colour},
};

/// What these commands print.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Inspection {
    Links(Vec<LinkScreen>),
    Examination(Examination),
    /// Of an earlier version.
    Diagnoses(Vec<Diagnosis>),
    Check(checks::Report),
    Trace(Box<shunt_inspect::trace::Report>),
}

/// Reads a file; None if it is not one that these commands printed.
pub(super) fn parse(label: &str, file: &str, text: &str) -> Option<OtherFile> {
    let inspection = serde_json::from_str(text).ok()?;
    if matches!(&inspection, Inspection::Links(links) if links.is_empty()) {
        return None;
    }
    OtherFile::new(Kind::Inspection, label, file, text, section(label, file, &inspection)).ok()
}

fn section(label: &str, file: &str, inspection: &Inspection) -> Section {
    let (what, command, tables): (_, _, Vec<SectionTable>) = match inspection {
        Inspection::Links(links) => ("settings and counters", "link", links.iter().map(of_link).collect()),
        Inspection::Examination(Examination { limit, ports }) => {
            let mut tables: Vec<SectionTable> = ports.iter().map(of_diagnosis).collect();
            if let (Some(first), Some(limit)) = (tables.first_mut(), limit) {
                first.notes.insert(0, limit.to_string());
            }
            ("findings", "doctor", tables)
        }
        Inspection::Diagnoses(all) => ("findings", "doctor", all.iter().map(of_diagnosis).collect()),
        Inspection::Check(report) => ("checks", "check", vec![of_check(report)]),
        Inspection::Trace(report) => ("where the time of packets goes", "trace", vec![of_trace(report)]),
    };
    Section {
        title: format!("{label}: {what}"),
        about: format!("{file} was printed by shunt {command} --json."),
        tables,
    }
}

fn of_link(screen: &LinkScreen) -> SectionTable {
    let rows = link::settings(screen, false).into_iter().chain(link::rates(screen));
    SectionTable {
        name: link::head(screen),
        heads: heads(["", &format!("rates over {:.1} s", screen.seconds)]),
        rows: rows.map(|(name, text)| vec![name, text]).collect(),
        notes: Vec::new(),
        plots: Vec::new(),
    }
}

fn of_diagnosis(diagnosis: &Diagnosis) -> SectionTable {
    let row = |Found { finding, gain }: &Found| {
        let gain: String = gain.iter().flat_map(Gain::lines).map(|line| format!("; {line}")).collect();
        vec![
            finding.certainty.to_string(),
            finding.title.clone(),
            finding.evidence.clone(),
            finding.cost.clone(),
            format!("{}{gain}", finding.fix),
            finding.source.clone(),
        ]
    };
    SectionTable {
        name: doctor::head(diagnosis),
        heads: heads(["certainty", "finding", "seen", "cost", "fix", "source"]),
        rows: diagnosis.findings.iter().map(row).collect(),
        notes: [doctor::observations(diagnosis), doctor::not_seen(diagnosis)].concat(),
        plots: Vec::new(),
    }
}

/// Failures come first.
fn of_check(report: &checks::Report) -> SectionTable {
    let row = |case: &Verdict| {
        vec![case.outcome.to_string(), case.case.clone(), case.title.clone(), case.evidence.clone()]
    };
    let order = [Outcome::Fail, Outcome::Error, Outcome::Pass, Outcome::Impossible];
    let cases = order.iter().flat_map(|outcome| report.cases.iter().filter(|case| case.outcome == *outcome));
    SectionTable {
        name: check::head(report),
        heads: heads(["outcome", "case", "claim", "seen"]),
        rows: cases.map(row).collect(),
        notes: vec![check::totals(report)],
        plots: Vec::new(),
    }
}

fn of_trace(report: &shunt_inspect::trace::Report) -> SectionTable {
    let titles: Vec<String> = report.paths.iter().map(trace::title).collect();
    let mut all = heads(["stage (us)"]);
    for (nth, title) in titles.iter().enumerate() {
        let names = trace::COLUMNS.map(|column| format!("{title}: {column}"));
        all.extend(heads(names.iter().map(String::as_str)));
        let first = all.len() - names.len();
        all[first].colour = colour(nth);
    }
    let stages = trace::stages(&report.paths);
    let bars = |stage: &str| {
        let of_paths = report.paths.iter().zip(&titles).enumerate().filter_map(|(nth, (path, title))| {
            let us = path.stages.iter().find(|one| one.stage == stage)?.share_ns / 1000.0;
            Some(Bar { nth, label: title, value: us, low: us, high: us, quartiles: None })
        });
        of_paths.collect()
    };
    let groups: Vec<Bars> = stages.iter().map(|stage| Bars { label: stage, bars: bars(stage) }).collect();
    SectionTable {
        name: format!("{} packets in {:.1} s, one in {}", report.packets, report.seconds, report.sample),
        heads: all,
        rows: trace::stage_rows(&report.paths),
        notes: trace::footer(report).lines().map(str::to_owned).collect(),
        plots: figure("share of each stage", plot::grouped_bars(&groups, "us"), "mean").into_iter().collect(),
    }
}
