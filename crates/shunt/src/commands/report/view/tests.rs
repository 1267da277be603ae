use super::*;
use crate::{
    commands::report::sample,
    golden::{TEXT, assert_golden, show},
};
use serde_json::{Value, json};

fn report_as(form: ReportForm) -> Document {
    Document { report: sample::report(), form }
}

#[test]
fn the_csv_of_a_report_matches_its_golden_file() {
    assert_golden("golden/report.csv", &report_as(ReportForm::Csv), TEXT);
}

/// The text between the first `from` and the next `to`.
fn between<'t>(text: &'t str, from: &str, to: &str) -> &'t str {
    let rest = text.split_once(from).unwrap_or_else(|| panic!("no {from}")).1;
    rest.split_once(to).unwrap_or_else(|| panic!("no {to}")).0
}

#[test]
fn the_page_of_a_report_contains_the_files_as_json() {
    let page = show(&report_as(ReportForm::Html), TEXT);
    let data: Value =
        serde_json::from_str(between(&page, "type=\"application/json\" id=\"data\">", "</script>")).unwrap();
    let printed: Value = serde_json::from_str(&show(&report_as(ReportForm::Json), TEXT)).unwrap();
    assert_eq!(data, printed);
    let files = [("A", "tc.json"), ("B", "xdp.json"), ("C", "odd.json")].into_iter().zip(sample::files());
    let files: Vec<Value> = files
        .map(|((label, file), (_, text))| {
            json!({"label": label, "file": file, "results": serde_json::from_str::<Value>(text).unwrap()})
        })
        .collect();
    assert_eq!(data, json!({"format": "shunt-report", "version": 1, "files": files}));
}

#[test]
fn texts_of_a_file_are_escaped_in_the_page() {
    let page = show(&report_as(ReportForm::Html), TEXT);
    // Names, conditions and units of the odd file, in plots, too.
    assert!(page.contains("&#60;/script&#62;&#60;img src=x") && page.contains("&lt;i&gt;&amp;"));
    for markup in ["<img", "<i>", "<b> ", "onerror=\"", "http://", "https://"] {
        // The XML namespace of SVG looks like an address, but nothing is fetched from it.
        let page = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        assert!(!page.contains(markup), "{markup}");
    }
}

#[test]
fn doubts_stand_above_the_values_that_they_concern() {
    let page = show(&report_as(ReportForm::Html), TEXT);
    let article = between(&page, "<h3>ndr router</h3>", "</article>");
    let at = |what: &str| article.find(what).unwrap_or_else(|| panic!("{what}: {article}"));
    let doubts = ["A, B: CPU 1 ran at 97.2 %", "B: interrupted: some of its runs are missing"];
    // The median and the share of the line, as text and as a plot.
    let values = ["805\u{a0}kpps", "54.1\u{a0}%", "1.49\u{a0}Mpps", "<svg"];
    for doubt in doubts {
        assert!(values.iter().all(|value| at(doubt) < at(value)), "{doubt}");
    }
    let above = between(&page, "<h3>many</h3>", "</article>");
    assert!(above.contains("C: above what the line can carry") && above.contains("101"), "{above}");
}
