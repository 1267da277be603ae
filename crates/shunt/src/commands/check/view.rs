//! The text of `shunt check`: a line for each case, with its evidence below.

use crate::render::{Format, Text, style};
use shunt_api::{Failure, FailureCode};
use shunt_inspect::check::{Outcome, Report};
use std::fmt::Write;

impl Text for Report {
    fn text(&self, _: Format) -> String {
        describe(self)
    }

    fn failure(&self) -> Option<Failure> {
        failure(self)
    }
}

fn describe(report: &Report) -> String {
    let mut text = head(report) + "\n";
    for case in &report.cases {
        let outcome = format!("{:<10}", case.outcome);
        let outcome = match case.outcome {
            Outcome::Pass => style::good(outcome),
            Outcome::Fail | Outcome::Error => style::bad(outcome),
            Outcome::Impossible => outcome,
        };
        let _ = writeln!(text, "{outcome}  {:<12}  {:5.1} s  {}", case.case, case.seconds, case.title);
        let _ = writeln!(text, "            {}", case.evidence);
    }
    text + &totals(report) + "\n"
}

/// The port, its driver and its other end.
pub(crate) fn head(report: &Report) -> String {
    let driver = if report.driver.is_empty() { String::new() } else { format!(", driver {}", report.driver) };
    let peer = report.peer.as_ref().map_or(", no other end".to_owned(), |peer| format!(", other end {peer}"));
    format!("{}{driver}{peer}", report.port)
}

/// How many cases had each outcome.
pub(crate) fn totals(report: &Report) -> String {
    let count = |outcome| report.count(outcome);
    format!(
        "{} passed, {} failed, {} impossible, {} could not be carried out",
        count(Outcome::Pass),
        count(Outcome::Fail),
        count(Outcome::Impossible),
        count(Outcome::Error)
    )
}

/// The failure with which the command ends, if a case did not pass.
fn failure(report: &Report) -> Option<Failure> {
    if let Some(why) = &report.lost {
        return Some(Failure::new(FailureCode::DutUnavailable, why.clone()));
    }
    let named = |outcome| {
        let cases = report.cases.iter().filter(|case| case.outcome == outcome);
        cases.map(|case| case.case.as_str()).collect::<Vec<_>>().join(", ")
    };
    if report.count(Outcome::Fail) > 0 {
        let why = format!("{}: failed: {}", report.port, named(Outcome::Fail));
        return Some(Failure::new(FailureCode::CheckFailed, why));
    }
    let why = if report.count(Outcome::Error) > 0 {
        format!("could not be carried out: {}", named(Outcome::Error))
    } else if report.peer.is_none() && report.count(Outcome::Impossible) > 0 {
        let (count, all) = (report.count(Outcome::Impossible), report.cases.len());
        format!(
            "cannot tell: {count} of {all} cases need the port at the other end of the cable: --peer PORT2"
        )
    } else if report.count(Outcome::Pass) == 0 {
        "cannot tell: no case is possible on this port; the lines above say why".to_owned()
    } else {
        return None;
    };
    Some(Failure::new(FailureCode::Usage, format!("{}: {why}", report.port)))
}
