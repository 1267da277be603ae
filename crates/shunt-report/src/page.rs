//! The page of a report: the values for its template.

use super::{
    card,
    comparison::{self, Engines},
    course::{self, Course, Point},
    doubt_kind::DoubtKind,
    doubts,
    engine::EngineName,
    files::FileReading,
    files::{OtherFile, Report, ResultFile},
    offered::OfferedRates,
    plot::colour,
    reading::{ReadingView, Table},
    section::{NO_COLOUR, Section},
    summary::{self, Card},
    variants::{self, Variants},
};
use askama::Template;
use shunt_lab::{Position, card::WHAT};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Template)]
#[template(path = "report.html")]
pub(crate) struct Page<'r> {
    report: &'r Report,
    title: &'static str,
    files: Vec<File<'r>>,
    /// The summary.
    cards: Vec<Card>,
    /// The files' labels, and the doubt about all readings of these files.
    shared_doubts: Vec<(String, String)>,
    /// Number of readings, and how many of them have further doubts.
    count: usize,
    doubted: usize,
    conditions: Vec<Condition>,
    parts: Vec<Part<'r>>,
    /// What was seen at ports, and predictions: their anchors and contents.
    sections: Vec<(String, &'r Section)>,
}

struct File<'r> {
    source: &'r ResultFile,
    colour: String,
}

/// A longer text is folded.
const FEW_LINES: usize = 8;

/// A condition of the measurements, and its value in each file.
struct Condition {
    name: String,
    /// The labels of the files, and the value that they share; no label if all files have the same value.
    values: Vec<(String, String)>,
}

/// Readings of the same kind of measurement. Simulated and real routers are different kinds, and share no table.
struct Part<'r> {
    what: &'r str,
    /// Lines below the heading.
    notes: Vec<String>,
    views: Vec<ReadingView<'r>>,
}

/// The readings of a part, by how they are shown.
#[derive(Default)]
struct Sorted<'r> {
    courses: BTreeMap<Course<'r>, Vec<Point<'r>>>,
    /// By metric and unit.
    engines: BTreeMap<(&'r str, &'r str), Engines<'r>>,
    others: Vec<(&'r str, FileReading<'r>)>,
}

/// As many cards as fit on one screen; the others are folded.
const FIRST_CARDS: usize = 9;

/// If a part has more readings with no engine and no position, they share one table without plots.
const FEW: usize = 4;

impl<'r> Sorted<'r> {
    fn new(readings: &[(&'r str, FileReading<'r>)]) -> Self {
        let mut sorted = Self::default();
        let mut engines: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
        for (name, (_, _, reading)) in readings {
            if let Some(name) = EngineName::parse(name).filter(|_| reading.position.is_none()) {
                engines.entry((name.metric, &reading.unit)).or_default().insert(name.engine);
            }
        }
        let offered = OfferedRates::new(readings);
        let mut ratios = Vec::new();
        for &(name, file_reading) in readings.iter().filter(|(_, reading)| !offered.is_rate(reading)) {
            let unit = file_reading.2.unit.as_str();
            if let Some((course, point)) = place(file_reading).or_else(|| offered.place(file_reading)) {
                sorted.courses.entry(course).or_default().push(point);
                continue;
            }
            let with_engine = EngineName::parse(name);
            let compared =
                with_engine.filter(|name| engines.get(&(name.metric, unit)).is_some_and(|all| all.len() > 1));
            match (compared, EngineName::parse_ratio(name)) {
                (Some(compared), _) => {
                    sorted
                        .engines
                        .entry((compared.metric, unit))
                        .or_default()
                        .insert(&compared, file_reading);
                }
                (None, Some(ratio)) => ratios.push((name, ratio, file_reading)),
                (None, None) => sorted.others.push((name, file_reading)),
            }
        }
        for (name, ratio, file_reading) in ratios {
            let mut tables = sorted.engines.iter_mut().filter(|((metric, _), _)| metric.is_empty());
            if !tables.any(|(_, engines)| engines.insert_ratio(&ratio, file_reading)) {
                sorted.others.push((name, file_reading));
            }
        }
        sorted
    }

    /// The CPU load, if there is one table of goodput: a gain is told together with what it costs.
    fn cpu_of_goodput(&self) -> Option<&Engines<'r>> {
        let tables = self.engines.keys().filter(|(metric, unit)| title(metric, unit) == GOODPUT).count();
        self.engines.get(&CPU).filter(|_| tables == 1)
    }

    /// The CPU load that is shown with this metric.
    fn cpu_with(&self, metric: &str, unit: &str) -> Option<&Engines<'r>> {
        self.cpu_of_goodput().filter(|_| title(metric, unit) == GOODPUT)
    }

    /// `views` are those that stand before.
    fn views(
        &self,
        ids: &mut impl Iterator<Item = usize>,
        several_files: bool,
        mut views: Vec<ReadingView<'r>>,
    ) -> Vec<ReadingView<'r>> {
        let is_first = views.is_empty() && self.courses.is_empty() && self.engines.is_empty();
        let mut with_id = |view: &dyn Fn(usize) -> ReadingView<'r>| views.extend(ids.next().map(view));
        let mut courses: Vec<_> = self.courses.iter().collect();
        courses.sort_by_key(|(course, points)| course.rank(points));
        for (course, points) in courses {
            with_id(&|id| course::view(id, *course, points, several_files));
        }
        for ((metric, unit), engines) in &self.engines {
            if self.cpu_of_goodput().is_none() || (*metric, *unit) != CPU {
                let cpu = self.cpu_with(metric, unit);
                with_id(&|id| engines.view(id, (title(metric, unit), unit), cpu, several_files));
            }
        }
        let mut others: BTreeMap<(&str, &str), Vec<FileReading>> = BTreeMap::new();
        for (name, reading) in &self.others {
            others.entry((name, &reading.2.unit)).or_default().push(*reading);
        }
        if others.len() > FEW {
            let name = if is_first { "Readings" } else { "Other readings" };
            with_id(&|id| comparison::by_name(id, name.to_owned(), &self.others));
            return views;
        }
        for ((name, unit), readings) in &others {
            with_id(&|id| ReadingView::new(id, name, unit, readings));
        }
        views
    }
}

/// A reading's course, and its place on it; None if it has no position.
fn place(reading: FileReading) -> Option<(Course, Point)> {
    let position = reading.2.position.as_ref().filter(|position| !position.is_at_offered_rate())?;
    let Position { of, along, unit: along_unit, .. } = position;
    Some((Course { of, along, along_unit, unit: &reading.2.unit }, Point::new(reading)?))
}

/// The metric of the CPU load, and its unit.
const CPU: (&str, &str) = ("CPU", "%");
const GOODPUT: &str = "goodput";

/// What a table of engines shows.
fn title<'n>(metric: &'n str, unit: &'n str) -> &'n str {
    match (metric, unit) {
        ("", "bit/s" | "Mbit/s" | "Gbit/s") => GOODPUT,
        ("", "1/s") => "rate",
        ("", "pps") => "packet rate",
        ("", "ns/packet") => "CPU time per packet",
        ("", "instructions/packet") => "instructions per packet",
        ("", "us" | "ms" | "ns") => "time",
        ("", "1") => "ratio",
        ("", "%") => "share",
        ("/proc/stat", _) => "CPU load of /proc/stat",
        ("", unit) => unit,
        (metric, _) => metric,
    }
}

impl<'r> Page<'r> {
    pub(crate) fn new(report: &'r Report) -> Self {
        let mut readings: BTreeMap<&str, Vec<(&str, FileReading)>> = BTreeMap::new();
        for (nth, source) in report.files.iter().enumerate() {
            let named =
                source.results.readings.iter().map(|(name, reading)| (name.as_str(), (nth, source, reading)));
            readings.entry(&source.results.what).or_default().extend(named);
        }
        let (mut ids, mut cards, mut parts) = (0.., Vec::new(), Vec::new());
        for (what, readings) in &readings {
            if *what == WHAT {
                let views = ids.next().map(|id| card::view(id, &report.files)).into_iter().collect();
                parts.push(Part { what, notes: card::notes(&report.files), views });
                continue;
            }
            let files: BTreeSet<usize> = readings.iter().map(|(_, reading)| reading.0).collect();
            let several = files.len() > 1;
            let (variants, others) = match *what {
                variants::WHAT => Variants::of(readings),
                _ => (Variants::default(), readings.clone()),
            };
            let sorted = Sorted::new(&others);
            cards.extend(variants.cards(several));
            for (course, points) in &sorted.courses {
                cards.extend(summary::of_course(*course, points, several));
            }
            for ((_, unit), engines) in sorted.engines.iter().filter(|((metric, _), _)| metric.is_empty()) {
                cards.extend(summary::of_engines(what, engines, sorted.cpu_with("", unit), several));
            }
            let table = (!variants.is_empty()).then(|| ids.next()).flatten();
            let first = table.map(|id| variants.view(id, several)).into_iter().collect();
            parts.push(Part { what, notes: Vec::new(), views: sorted.views(&mut ids, several, first) });
        }
        let doubted =
            |(_, (_, source, reading)): &&(&str, FileReading)| !doubts::own(source, reading).is_empty();
        let files = report.files.iter().enumerate();
        let sections = |kind: &'static str, of: &'r [OtherFile]| {
            (1..).zip(of).map(move |(nth, other): (usize, _)| (format!("{kind}-{nth}"), &other.section))
        };
        let inspections = sections("inspection", &report.inspections);
        Self {
            report,
            title: title_of(report),
            files: files.map(|(nth, source)| File { source, colour: colour(nth) }).collect(),
            cards,
            shared_doubts: shared_doubts(&report.files),
            count: readings.values().map(Vec::len).sum(),
            doubted: readings.values().flatten().filter(doubted).count(),
            conditions: conditions(&report.files),
            parts,
            sections: inspections.chain(sections("model", &report.models)).collect(),
        }
    }
}

fn title_of(report: &Report) -> &'static str {
    let are_cards = report.files.iter().all(|source| source.results.what == WHAT);
    match report.files.len() {
        1 if are_cards && report.count() == 1 => "Router card",
        several if are_cards && report.count() == several => "Router cards",
        _ => "Shunt report",
    }
}

/// The labels of the files in which all readings have a doubt of one kind, and the doubt.
fn shared_doubts(files: &[ResultFile]) -> Vec<(String, String)> {
    let mut doubts: Vec<(String, DoubtKind)> = Vec::new();
    for source in files {
        for kind in &source.shared_doubts {
            match doubts.iter_mut().find_map(|(labels, known)| known.join(kind).then_some(labels)) {
                Some(labels) => labels.push_str(&format!(", {}", source.label)),
                None => doubts.push((source.label.clone(), kind.clone())),
            }
        }
    }
    doubts.into_iter().map(|(labels, kind)| (labels, kind.text())).collect()
}

fn conditions(files: &[ResultFile]) -> Vec<Condition> {
    let of_each: Vec<_> = files.iter().map(|source| source.results.conditions.by_name()).collect();
    let names: BTreeSet<&String> = of_each.iter().flat_map(BTreeMap::keys).collect();
    let condition = |name: &String| {
        let mut values: Vec<(String, String)> = Vec::new();
        for (source, known) in files.iter().zip(&of_each) {
            let value = known.get(name).map_or("unknown", String::as_str);
            match values.iter_mut().find(|(_, of)| of == value) {
                Some((labels, _)) => labels.push_str(&format!(", {}", source.label)),
                None => values.push((source.label.clone(), value.to_owned())),
            }
        }
        if let [(labels, _)] = &mut values[..] {
            labels.clear();
        }
        // Such as `cpus.max_khz`.
        Condition { name: name.replace('.', ": ").replace('_', " "), values }
    };
    // The labels of the files say the step.
    names.into_iter().filter(|name| *name != "campaign.step").map(condition).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Rates of slow, tc and xdp, with the frame size in their names only.
    fn source(nth: usize, from: &str, to: &str) -> ResultFile {
        let text = include_str!("sample/size.json").replace("\"position\"", "\"was\"");
        ResultFile::parse(ResultFile::letter(nth), "size.json".to_owned(), text.replace(from, to)).unwrap()
    }

    fn page(sources: Vec<ResultFile>) -> String {
        Page::new(&Report::new(sources, Vec::new())).render().unwrap().replace('\u{a0}', " ")
    }

    #[test]
    fn engines_stand_side_by_side_with_their_ratio_to_linux_alone() {
        let page = page(vec![source(0, "", "")]);
        assert_eq!((page.matches("<article").count(), page.matches("<figure>").count()), (1, 1), "{page}");
        let table = page.split_once("<table class=\"grid\">").unwrap().1;
        let head = table.split_once("</thead>").unwrap().0;
        let heads: Vec<&str> =
            head.split("</i>").skip(1).map(|rest| rest.split_once('<').unwrap().0).collect();
        assert_eq!(heads, ["slow", "tc", "xdp"]);
        let smallest = table.split("<tr>").find(|row| row.starts_with("<th>64<")).unwrap();
        assert!(smallest.contains("<b>612 kpps</b>") && smallest.contains("1.974 × slow"), "{smallest}");
        assert!(smallest.contains("<b>1.40 Mpps</b>") && smallest.contains("4.523 × slow"), "{smallest}");
    }

    #[test]
    fn a_measured_ratio_goes_before_a_calculated_one() {
        let page = page(vec![source(0, "\"xdp 512\"", "\"64 xdp to slow\"")]);
        let calculated = page.matches("4.523 × slow").count();
        assert_eq!((page.matches("<article").count(), calculated), (1, 0), "{page}");
    }

    #[test]
    fn further_files_show_their_change_from_the_first() {
        let page = page(vec![source(0, "", ""), source(1, "612000", "306000")]);
        assert!(page.contains("</i>B tc<") && page.contains("-50.0 % against A"), "{page}");
        // Each engine has the summary's values of both files.
        let summary =
            page.split_once("<section id=\"summary\">").unwrap().1.split_once("</section>").unwrap().0;
        assert!(summary.contains("B xdp") && summary.matches("<b>").count() >= 6, "{summary}");
    }

    #[test]
    fn many_readings_share_a_table() {
        let named = |text: &str| {
            ["slow", "tc", "xdp"].iter().fold(text.to_owned(), |text, engine| {
                text.replace(&format!("\"{engine} "), &format!("\"{engine}_"))
            })
        };
        let source = source(0, "", "");
        let source =
            ResultFile::parse("A".to_owned(), source.file, named(&source.results.to_json().unwrap()))
                .unwrap();
        let page = page(vec![source]);
        assert_eq!((page.matches("<article").count(), page.matches("<svg").count()), (1, 0), "{page}");
        assert!(page.contains("<h3>Readings</h3>") && page.contains("<th>tc_64</th>"), "{page}");
    }

    /// A file with these readings, each with one run.
    fn matrix(readings: impl IntoIterator<Item = (String, &'static str)>) -> ResultFile {
        let mut file: serde_json::Value = serde_json::from_str(include_str!("sample/tc.json")).unwrap();
        let reading = |(nth, (name, unit)): (usize, (String, &str))| {
            let value = nth as f64 + 40.0;
            let spread = json!({"low": value, "high": value, "kind": "range"});
            let runs = json!([{"value": value}]);
            (name, json!({"unit": unit, "value": value, "spread": spread, "runs": runs, "doubts": []}))
        };
        file["readings"] = readings.into_iter().enumerate().map(reading).collect();
        ResultFile::parse("A".to_owned(), "m.json".to_owned(), file.to_string()).unwrap()
    }

    #[test]
    fn goodput_and_cpu_load_of_a_test_stand_together() {
        let goodput =
            ["duplex forward slow", "duplex forward tc", "duplex reverse slow", "duplex reverse tc"];
        let loads = ["TCP duplex slow CPU", "TCP duplex tc CPU", "UDP slow CPU", "UDP tc CPU"];
        let goodput = goodput.map(|test| (format!("TCP {test}"), "Mbit/s"));
        let loads = loads.map(|test| (test.to_owned(), "%"));
        let page = page(vec![matrix(goodput.into_iter().chain(loads))]);
        assert_eq!((page.matches("<article").count(), page.matches("<figure>").count()), (1, 2), "{page}");
        assert!(page.contains("<h3>goodput and CPU load by engine</h3>"), "{page}");
        assert!(page.contains("1.025 × slow, CPU 45.0 %"), "{page}");
        let table = page.split_once("<table class=\"grid\">").unwrap().1.split_once("</table>").unwrap().0;
        let heads: Vec<&str> =
            table.split("<tr><th>").skip(1).map(|rest| rest.split_once('<').unwrap().0).collect();
        // The load is that of both ways together; a test without goodput keeps its name.
        assert_eq!(heads[1..], ["TCP duplex forward", "TCP duplex reverse", "CPU load", "UDP CPU load"]);
    }

    #[test]
    fn a_summary_longer_than_a_screen_is_folded() {
        let of_kinds = |count: usize| {
            let kinds = (0..count).flat_map(|nth| ["slow", "tc"].map(|engine| format!("kind{nth} {engine}")));
            let page = page(vec![matrix(kinds.map(|name| (name, "Mbit/s")))]);
            let summary = page.split_once("<section id=\"summary\">").unwrap().1;
            let (cards, _) = summary.split_once("</section>").unwrap();
            let (shown, folded) = cards.split_once("<details>").unwrap_or((cards, ""));
            [shown, folded].map(|cards| cards.matches("class=\"card\"").count())
        };
        assert_eq!((of_kinds(FIRST_CARDS), of_kinds(FIRST_CARDS + 2)), ([FIRST_CARDS, 0], [FIRST_CARDS, 2]));
    }

    #[test]
    fn a_plot_of_many_rows_is_divided() {
        let rows = (0..36).flat_map(|nth| ["slow", "tc"].map(|engine| format!("kind {nth} {engine}")));
        let page = page(vec![matrix(rows.map(|name| (name, "Mbit/s")))]);
        let plots: Vec<&str> =
            page.split("<svg").skip(1).map(|rest| rest.split_once("</svg>").unwrap().0).collect();
        let has = |plot: &str, row: &str| plot.contains(&format!("\n{row}\n"));
        assert_eq!(plots.len(), 2);
        assert!(
            has(plots[0], "kind 17") && !has(plots[0], "kind 18") && has(plots[1], "kind 18"),
            "{plots:?}"
        );
        // Both have the axis of all values.
        assert!(plots.iter().all(|plot| has(plot, "0") && has(plot, "100")), "{plots:?}");
    }
}
