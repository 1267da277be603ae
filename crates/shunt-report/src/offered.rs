//! Series of traffic whose rates were measured one by one. The position of a reading is its rate.

use super::{
    course::{Course, Point},
    files::FileReading,
};
use shunt_lab::Position;
use std::collections::{BTreeMap, BTreeSet};

/// Fewer rates are no series, but runs to compare.
const FEWEST_RATES: usize = 3;

/// The files whose rates are a series, each with the first file of that series.
pub(crate) struct OfferedRates {
    first_files: BTreeMap<usize, usize>,
}

impl OfferedRates {
    pub(crate) fn new(readings: &[(&str, FileReading)]) -> Self {
        let mut rates: BTreeMap<(Option<&str>, usize), BTreeSet<u64>> = BTreeMap::new();
        for (_, reading) in readings {
            if let Some(position) = position(reading).filter(|position| position.of == "offered") {
                let (file, source, _) = reading;
                let of_file = rates.entry((source.campaign.as_deref(), *file)).or_default();
                of_file.insert(position.value.to_bits());
            }
        }
        // A file with several rates is a series by itself; the others of a campaign are one together.
        let (alone, together): (BTreeMap<_, _>, BTreeMap<_, _>) =
            rates.into_iter().partition(|(_, rates)| rates.len() >= FEWEST_RATES);
        let mut first_files: BTreeMap<usize, usize> =
            alone.into_keys().map(|(_, file)| (file, file)).collect();
        let mut series: BTreeMap<Option<&str>, BTreeMap<usize, BTreeSet<u64>>> = BTreeMap::new();
        for ((campaign, file), rates) in together {
            series.entry(campaign).or_default().insert(file, rates);
        }
        for files in series.into_values() {
            let all: BTreeSet<&u64> = files.values().flatten().collect();
            // A rate that occurs twice was measured twice: the runs are compared, not lined up.
            let are_distinct = all.len() == files.values().map(BTreeSet::len).sum::<usize>();
            if let Some(first) = files.keys().next().filter(|_| are_distinct && all.len() >= FEWEST_RATES) {
                first_files.extend(files.keys().map(|file| (*file, *first)));
            }
        }
        Self { first_files }
    }

    /// Whether a reading is the offered rate of a run in a series, which the x axis shows.
    pub(crate) fn is_rate(&self, reading: &FileReading) -> bool {
        position(reading).is_some_and(|position| position.of == "offered")
            && self.first_files.contains_key(&reading.0)
    }

    /// The place of a reading in a series; None if its run belongs to no series.
    pub(crate) fn place<'r>(&self, reading: FileReading<'r>) -> Option<(Course<'r>, Point<'r>)> {
        let Position { of, line, along, unit: along_unit, value } = position(&reading)?;
        let first = *self.first_files.get(&reading.0)?;
        let course = Course { of, along, along_unit, unit: &reading.2.unit };
        Some((course, Point { line: (first, line), value: *value, file_reading: reading }))
    }
}

/// The position of a reading that was measured at one offered rate.
fn position<'r>((.., reading): &FileReading<'r>) -> Option<&'r Position> {
    reading.position.as_ref().filter(|position| position.is_at_offered_rate())
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
