//! A report as JUnit's XML, for CI systems.

use super::{Outcome, Report};
use std::fmt::Write;

/// The report as a JUnit test suite; impossible cases are skipped tests.
pub fn junit(report: &Report) -> String {
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let seconds: f64 = report.cases.iter().map(|case| case.seconds).sum();
    let _ = writeln!(
        text,
        "<testsuite name=\"shunt check {}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{seconds:.3}\">",
        escaped(&report.port),
        report.cases.len(),
        report.count(Outcome::Fail),
        report.count(Outcome::Error),
        report.count(Outcome::Impossible),
    );
    for case in &report.cases {
        let evidence = escaped(&case.evidence);
        let inside = match case.outcome {
            Outcome::Pass => format!("<system-out>{evidence}</system-out>"),
            Outcome::Fail => format!("<failure message=\"{evidence}\"/>"),
            Outcome::Error => format!("<error message=\"{evidence}\"/>"),
            Outcome::Impossible => format!("<skipped message=\"{evidence}\"/>"),
        };
        let _ = writeln!(
            text,
            "  <testcase classname=\"{}\" name=\"{}\" time=\"{:.3}\">{inside}</testcase>",
            escaped(&report.port),
            escaped(&case.case),
            case.seconds
        );
    }
    text + "</testsuite>\n"
}

/// Escapes text for XML attributes and elements. XML cannot express control characters, so they are replaced.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            character if character.is_control() => escaped.push(' '),
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::{super::Verdict, *};

    #[test]
    fn each_outcome_has_its_element_and_any_text_is_well_formed() {
        let outcomes = [Outcome::Pass, Outcome::Fail, Outcome::Impossible, Outcome::Error];
        let cases = outcomes.map(|outcome| Verdict {
            case: "lengths".to_owned(),
            title: String::new(),
            outcome,
            evidence: "a \"b\" <c> & \u{1}d".to_owned(),
            seconds: 0.5,
        });
        let report = Report {
            port: "p0".to_owned(),
            driver: String::new(),
            peer: None,
            cases: cases.to_vec(),
            without_peer: 0,
            lost: None,
            unconnected: None,
        };
        let text = junit(&report);
        let document = roxmltree::Document::parse(&text).expect("well-formed");
        let suite = document.root_element();
        assert_eq!((suite.attribute("tests"), suite.attribute("skipped")), (Some("4"), Some("1")));
        let wanted = ["system-out", "failure", "skipped", "error"];
        let names = document.descendants().map(|node| node.tag_name().name());
        let inside: Vec<_> = names.filter(|name| wanted.contains(name)).collect();
        assert_eq!(inside, wanted);
        let failure = document.descendants().find(|node| node.has_tag_name("failure")).expect("a failure");
        assert_eq!(failure.attribute("message"), Some("a \"b\" <c> &  d"));
    }
}
