//! A report as CSV: one line for each run, and one for each reading that could not be measured. Doubts precede the
//! value.

use super::{doubt_kind, files::Report};
use std::io;

const HEADS: [&str; 15] = [
    "label",
    "file",
    "what",
    "began",
    "complete",
    "reading",
    "unit",
    "doubts",
    "run",
    "at",
    "value",
    "limit",
    "limit_of",
    "share_of_limit",
    "details",
];

pub(crate) fn write(report: &Report, out: &mut Vec<u8>) -> io::Result<()> {
    let mut lines = csv::Writer::from_writer(out);
    lines.write_record(HEADS)?;
    for source in &report.files {
        let results = &source.results;
        let complete = results.complete.to_string();
        let file = [&source.label, &source.file, &results.what, &results.began, &complete];
        for (name, reading) in &results.readings {
            let doubts = doubt_kind::about(results, reading).join("; ");
            for (nth, run) in (1..).zip(&reading.runs) {
                let or_empty = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
                let details = match run.details.is_empty() {
                    true => String::new(),
                    false => serde_json::to_string(&run.details)?,
                };
                let limit = reading.limit.as_ref();
                lines.write_record(file.into_iter().chain([
                    name,
                    &reading.unit,
                    &doubts,
                    &format!("{nth}"),
                    run.at.as_ref().unwrap_or(&String::new()),
                    &run.value.to_string(),
                    &or_empty(limit.map(|limit| limit.value)),
                    limit.map_or(&String::new(), |limit| &limit.of),
                    &or_empty(reading.share(run.value)),
                    &details,
                ]))?;
            }
        }
        for (name, why) in &results.missing {
            let why = format!("not measured: {why}");
            let empty = String::new();
            let rest = [name, &empty, &why].into_iter().chain([&empty; 7]);
            lines.write_record(file.into_iter().chain(rest))?;
        }
    }
    lines.flush()
}
