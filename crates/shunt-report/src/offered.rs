//! Series of traffic at several rates. Their readings have no position: each run says the offered rate in a reading of
//! its own, such as `offered g0 to g1` next to `received g0 to g1`.

use super::{
    course::{Course, Point},
    files::FileReading,
};
use std::collections::{BTreeMap, BTreeSet};

/// Fewer rates are no series, but runs to compare.
const FEWEST_RATES: usize = 3;

/// What tells the runs of a file apart: the direction, or the rate.
type RunKey<'r> = (usize, &'r str);
/// The campaign, and the file where each run has its own name; otherwise the direction, which all files share.
type SeriesKey<'r> = (Option<&'r str>, Option<usize>, &'r str);

/// The offered rates of the runs that belong to a series, and the first file of the series.
pub(crate) struct OfferedRates<'r> {
    runs: BTreeMap<RunKey<'r>, (f64, usize)>,
}

impl<'r> OfferedRates<'r> {
    pub(crate) fn new(readings: &[(&'r str, FileReading<'r>)]) -> Self {
        let mut series: BTreeMap<SeriesKey, Vec<(RunKey, f64)>> = BTreeMap::new();
        for (name, (file, source, reading)) in readings {
            let Some(run) = name.strip_prefix("offered ").filter(|_| reading.unit == "pps") else { continue };
            let campaign = source.campaign.as_deref();
            let key = if names_rate(run) { (campaign, Some(*file), "") } else { (campaign, None, run) };
            series.entry(key).or_default().push(((*file, run), reading.value));
        }
        // A rate that occurs twice was measured twice: the runs are compared, not lined up.
        series.retain(|_, runs| {
            let rates: BTreeSet<u64> = runs.iter().map(|(_, rate)| rate.to_bits()).collect();
            rates.len() >= FEWEST_RATES && rates.len() == runs.len()
        });
        let with_first = |runs: Vec<(RunKey<'r>, f64)>| {
            let first = runs.iter().map(|((file, _), _)| *file).min().unwrap_or_default();
            runs.into_iter().map(move |(run, rate)| (run, (rate, first)))
        };
        Self { runs: series.into_values().flat_map(with_first).collect() }
    }

    /// Whether a reading is the offered rate of a run in a series, which the x axis shows.
    pub(crate) fn is_rate(&self, name: &str, (file, ..): FileReading) -> bool {
        name.strip_prefix("offered ").is_some_and(|run| self.runs.contains_key(&(file, run)))
    }

    /// The place of a reading in a series; None if its run belongs to no series.
    pub(crate) fn place(&self, name: &'r str, reading: FileReading<'r>) -> Option<(Course<'r>, Point<'r>)> {
        let of_file = self.runs.range((reading.0, "")..(reading.0 + 1, ""));
        let mut found = of_file
            .filter_map(|((_, run), rate)| Some((name.strip_suffix(run)?.strip_suffix(' ')?, *run, *rate)));
        let (quantity, run, (value, first)) = found.next()?;
        // Percentiles of one quantity are lines of one plot.
        let percentile = quantity.rsplit_once(' ').filter(|(_, last)| is_percentile(last));
        let (of, line) = match (percentile, names_rate(run)) {
            (Some((of, percentile)), true) => (of, percentile),
            (Some((of, _)), false) => (of, &name[of.len() + 1..]),
            (None, true) => (quantity, quantity),
            (None, false) => (quantity, run),
        };
        let course = Course { of, along: "offered rate", along_unit: "pps", unit: &reading.2.unit };
        Some((course, Point { line: (first, line), value, file_reading: reading }))
    }
}

/// Whether a run is named for its rate, as `at 450 kpps`, not for its direction.
fn names_rate(run: &str) -> bool {
    run.starts_with("at ")
}

fn is_percentile(word: &str) -> bool {
    word.strip_prefix('p').is_some_and(|digits| digits.parse::<f64>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::super::{
        files::{Report, ResultFile},
        page::Page,
    };
    use askama::Template;
    use serde_json::{Value, json};

    /// A file of `shunt gen` at one rate.
    fn file(nth: usize, readings: &[(&str, &str, f64)]) -> ResultFile {
        let mut file: Value = serde_json::from_str(include_str!("sample/tc.json")).unwrap();
        let reading = |(name, unit, value): &(&str, &str, f64)| {
            let spread = json!({"low": value, "high": value, "kind": "range"});
            let reading = json!({
                "unit": unit, "value": value, "spread": spread, "runs": [{"value": value}], "doubts": [],
            });
            ((*name).to_owned(), reading)
        };
        file["readings"] = readings.iter().map(reading).collect();
        file["what"] = json!("traffic");
        ResultFile::parse(ResultFile::letter(nth), "gen.json".to_owned(), file.to_string()).unwrap()
    }

    fn at_rate(nth: usize, offered: f64) -> ResultFile {
        let received = offered.min(5000.0);
        let all = [
            ("offered g0 to g1", "pps", offered),
            ("received g0 to g1", "pps", received),
            ("latency p50 g0 to g1", "us", offered / 100.0),
            ("latency p99 g0 to g1", "us", offered / 10.0),
        ];
        file(nth, &all)
    }

    fn page(files: Vec<ResultFile>) -> String {
        Page::new(&Report::new(files, Vec::new())).render().unwrap().replace('\u{a0}', " ")
    }

    fn headings(page: &str) -> Vec<&str> {
        page.split("<h3>").skip(1).map(|rest| rest.split_once('<').unwrap().0).collect()
    }

    #[test]
    fn files_of_one_rate_each_are_a_series() {
        let page = page([4000.0, 6000.0, 5000.0].into_iter().zip(0..).map(|(r, n)| at_rate(n, r)).collect());
        let expected = ["most received", "received by offered rate", "latency by offered rate"];
        assert_eq!(headings(&page), expected, "{page}");
        assert_eq!(page.matches("<figure>").count(), 2);
        let received = page.split_once("<h3>received by").unwrap().1;
        assert!(received.contains("offered rate, kpps</th>") && received.contains("</i>g0 to g1</th>"));
        let rows: Vec<&str> = received.split("<tr><th class=\"number\">").skip(2).collect();
        assert!(rows[2].starts_with("6</th>") && rows[2].contains("<b>5.00 kpps</b>"), "{rows:?}");
        assert!(page.contains("dashed: all received") && page.contains("</i>p99 g0 to g1</th>"), "{page}");
    }

    #[test]
    fn rates_in_the_names_of_one_file_are_a_series() {
        let readings: Vec<(String, &str, f64)> = [("1", 1000.0), ("2", 2000.0), ("10", 10_000.0)]
            .into_iter()
            .flat_map(|(kpps, rate)| {
                let of_run =
                    [("offered", "pps", rate), ("loss", "%", rate / 1000.0), ("duplicates", "%", 0.0)];
                of_run.map(|(of, unit, value)| (format!("{of} at {kpps} kpps"), unit, value))
            })
            .collect();
        let page =
            page(vec![file(0, &readings.iter().map(|(n, u, v)| (n.as_str(), *u, *v)).collect::<Vec<_>>())]);
        // Zeros come last, folded and without a plot.
        assert_eq!(headings(&page), ["loss by offered rate", "duplicates by offered rate"], "{page}");
        assert_eq!(page.matches("<summary>0 in all runs: 3 values of each").count(), 1, "{page}");
        assert_eq!(page.matches("<figure>").count(), 1);
        let at: Vec<usize> =
            ["1", "2", "10"].map(|at| page.find(&format!("<th class=\"number\">{at}</th>")).unwrap()).into();
        assert!(at.is_sorted() && page.contains("</i>loss</th>"), "{page}");
    }

    #[test]
    fn runs_of_one_file_at_several_rates_are_plotted_by_rate() {
        let names = ["offered", "received", "jitter", "latency p50", "latency p99"];
        let readings = names.map(|name| (format!("{name} g0 to g1"), "pps", 1.0));
        let one = file(0, &readings.each_ref().map(|(name, unit, value)| (name.as_str(), *unit, *value)));
        let page_of = |rates: [f64; 3]| {
            let mut file: Value = serde_json::from_str(&one.results.to_json().unwrap()).unwrap();
            for (name, _, _) in &readings {
                let runs = rates.map(|rate| json!({"value": if name.starts_with('o') { rate } else { 7.0 }}));
                file["readings"][name]["runs"] = json!(runs);
            }
            let text = file.to_string();
            page(vec![ResultFile::parse("A".to_owned(), "gen.json".to_owned(), text).unwrap()])
        };
        let series = page_of([3000.0, 1000.0, 2000.0]);
        assert_eq!(series.matches("each run, by offered rate").count(), 2 * 4, "{series}");
        // Runs of the same rate are repetitions.
        assert_eq!(page_of([3000.0, 1000.0, 3000.0]).matches("<figure>").count(), 0);
    }

    #[test]
    fn each_of_two_campaigns_has_its_series_with_differences() {
        let files = (0..6).map(|nth| {
            let rate = [4000.0, 6000.0, 5000.0][nth % 3];
            let mut step = at_rate(nth, rate);
            step.label = format!("gen-{}", nth % 3);
            step.in_campaign(if nth < 3 { "A" } else { "B" })
        });
        let of_two = page(files.collect());
        assert!(headings(&of_two).contains(&"received by offered rate"), "{of_two}");
        assert_eq!(of_two.matches("0.0 % against A: cannot tell").count(), 3 * 3, "{of_two}");
        for line in ["</i>A g0 to g1</th>", "</i>B g0 to g1</th>"] {
            assert!(of_two.contains(line), "{line}: {of_two}");
        }
    }

    #[test]
    fn equal_rates_are_compared_instead() {
        let page = page([4000.0, 5000.0, 4000.0].into_iter().zip(0..).map(|(r, n)| at_rate(n, r)).collect());
        assert!(!page.contains("by offered rate"), "{page}");
    }
}
