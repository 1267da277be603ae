//! The text of `shunt check`: a line for each case, with its evidence below.

use crate::render::{Format, Text, style};
use shunt_api::{Failure, FailureCode};
use shunt_inspect::check::{Outcome, Report};
use std::fmt::Write;

impl Text for Report {
    /// The list only if a case ran, or with --verbose: the failure says why none did.
    fn text(&self, format: Format) -> String {
        let none_ran = self.cases.iter().all(|case| case.outcome == Outcome::Impossible);
        if none_ran && self.lost.is_none() && !format.verbose { String::new() } else { describe(self) }
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
    if let Some(why) = &report.unconnected {
        return Some(Failure::new(FailureCode::CheckFailed, format!("{}: {why}", report.port)));
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
    } else if report.without_peer > 0 {
        let (count, all) = (report.without_peer, report.cases.len());
        let who = match (count, all) {
            (1, 1) => "the case needs".to_owned(),
            (1, _) => format!("1 of {all} cases needs"),
            _ => format!("{count} of {all} cases need"),
        };
        let others = match report.count(Outcome::Impossible).saturating_sub(count) {
            0 => String::new(),
            others => format!("; {others} more cannot run on this port or with its driver"),
        };
        format!("cannot tell: {who} the port at the other end of the cable (--peer PORT2){others}")
    } else if report.count(Outcome::Pass) == 0 {
        "cannot tell: no case can run on this port or with its driver; `--verbose` says why".to_owned()
    } else {
        return None;
    };
    Some(Failure::new(FailureCode::Usage, format!("{}: {why}", report.port)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_inspect::check::Verdict;

    #[test]
    fn a_check_of_which_no_case_ran_is_one_line_with_the_counts() {
        let case = |name: &str| Verdict {
            case: name.to_owned(),
            title: String::new(),
            outcome: Outcome::Impossible,
            evidence: String::new(),
            seconds: 0.0,
        };
        let mut report = Report {
            port: "eth0".to_owned(),
            driver: String::new(),
            peer: None,
            cases: ["link", "rings", "mac"].map(case).to_vec(),
            without_peer: 2,
            lost: None,
            unconnected: None,
        };
        assert_eq!(report.text(Format::default()), "");
        assert!(report.text(Format { verbose: true, ..Format::default() }).contains("impossible  link"));
        let failure = Text::failure(&report).unwrap();
        assert_eq!(failure.code, FailureCode::Usage);
        assert_eq!(
            failure.message,
            "eth0: cannot tell: 2 of 3 cases need the port at the other end of the cable (--peer PORT2); 1 more cannot \
             run on this port or with its driver"
        );
        report.without_peer = 0;
        assert!(Text::failure(&report).unwrap().message.contains("no case can run"));
        // A case that ran is shown.
        report.cases[0].outcome = Outcome::Pass;
        assert!(report.text(Format::default()).contains("  link  "));
    }
}
