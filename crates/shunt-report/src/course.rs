//! A course: readings that differ in one quantity, such as the frame size. One plot and one table show all of them.

use super::{
    doubts, engine,
    files::{self, FileReading},
    grid::{Cell, Change},
    plot::{self, Plot, Reference, Series, colour},
    reading::{ReadingView, RunRow, Table, in_unit},
    section::{Figure, Line},
};
use shunt_lab::{Reading, Spread};
use std::collections::{BTreeMap, BTreeSet};

/// Units of rates: more is better.
pub(crate) const RATES: [&str; 3] = ["pps", "bit/s", "Mbit/s"];

/// A limit is drawn only if a value reaches at least this share of it; otherwise the plot would be nearly empty.
const NEAR: f64 = 0.2;

/// The number of a file, and the name of a line in it.
pub(crate) type LineKey<'r> = (usize, &'r str);

/// A reading of the course.
pub(crate) struct Point<'r> {
    /// The line's file is the first one where the line has points of several files.
    pub(crate) line: LineKey<'r>,
    /// The position, in the course's `along_unit`.
    pub(crate) value: f64,
    pub(crate) file_reading: FileReading<'r>,
}

/// What the readings of a course have in common.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Course<'r> {
    pub(crate) of: &'r str,
    pub(crate) along: &'r str,
    pub(crate) along_unit: &'r str,
    pub(crate) unit: &'r str,
}

impl Course<'_> {
    /// Its place on the page: what gets through, and then what that costs; what the generator sent and what never
    /// happened come last.
    pub(crate) fn rank(&self, points: &[Point]) -> usize {
        match self.of {
            _ if points.iter().all(Point::is_zero) => 3,
            "sent" => 2,
            _ if RATES.contains(&self.unit) => 0,
            _ => 1,
        }
    }

    /// A position with its unit.
    pub(crate) fn show(&self, position: f64) -> String {
        let scale = Scale::for_unit(self.along_unit);
        format!("{} {}", scale.show(position), scale.unit)
    }
}

/// The names of the lines: with the campaign's letter, or with the file's label if the page has several files, each
/// line is of one, and the letter does not tell the lines apart.
pub(crate) fn line_names<'r>(points: &[Point<'r>], several_files: bool) -> BTreeMap<LineKey<'r>, String> {
    let campaign = |point: &Point<'r>| point.file_reading.1.campaign.as_deref();
    let is_of_one_file = points.iter().all(|point| point.line.0 == point.file_reading.0);
    let name = |point: &Point<'r>| {
        let (_, line) = point.line;
        let same = points.iter().filter(|other| campaign(other) == campaign(point) && other.line.1 == line);
        let is_one_line = same.map(|other| other.line.0).all(|file| file == point.line.0);
        let prefix = match campaign(point) {
            Some(letter) if is_one_line => letter,
            _ if several_files && is_of_one_file => &point.file_reading.1.label,
            _ => "",
        };
        (point.line, format!("{prefix} {line}").trim_start().to_owned())
    };
    points.iter().map(name).collect()
}

pub(crate) fn view<'r>(
    id: usize,
    course: Course<'r>,
    points: &[Point<'r>],
    several_files: bool,
) -> ReadingView<'r> {
    let (scale, unit) = (Scale::for_unit(course.along_unit), course.unit);
    let name = format!("{} by {}", course.of, course.along);
    let along = format!("{}, {}", course.along, scale.unit);
    let lines: BTreeSet<LineKey> = points.iter().map(|point| point.line).collect();
    let names = line_names(points, several_files);
    let colours = engine::colours(lines.iter().copied());
    let lines_shown = names.values().zip(&colours);
    let lines_shown = lines_shown.map(|(name, nth)| Line { name: name.clone(), colour: colour(*nth) });
    let at = |point: &Point| format!("{} at {} {}", names[&point.line], scale.show(point.value), scale.unit);
    let runs = points.iter().flat_map(|point| RunRow::for_runs(point.reading(), &at(point))).collect();
    ReadingView {
        id,
        unit,
        doubts: doubts::at_places(points.iter().map(|point| (at(point), point.file_reading))),
        table: Table::Grid {
            head: along.clone(),
            is_numeric: true,
            lines: lines_shown.collect(),
            rows: rows(points, &lines, &scale),
        },
        limits: Vec::new(),
        is_zero: points.iter().all(Point::is_zero),
        plots: plot_of(course, points, (&lines, &colours), &scale).into_iter().collect(),
        name: name.into(),
        runs,
    }
}

impl<'r> Point<'r> {
    /// None if the reading has no position.
    pub(crate) fn new(file_reading: FileReading<'r>) -> Option<Self> {
        let position = file_reading.2.position.as_ref()?;
        Some(Self { line: (file_reading.0, &position.line), value: position.value, file_reading })
    }

    pub(crate) fn reading(&self) -> &'r Reading {
        self.file_reading.2
    }

    /// Whether no run of the reading had another value than 0.
    fn is_zero(&self) -> bool {
        self.reading().runs.iter().all(|run| run.value == 0.0)
    }

    fn share(&self) -> Option<f64> {
        self.reading().share(self.reading().value)
    }
}

/// The unit in which positions on the course are shown.
struct Scale<'u> {
    factor: f64,
    unit: &'u str,
}

impl<'u> Scale<'u> {
    fn for_unit(unit: &'u str) -> Self {
        match unit {
            "bit/s" => Self { factor: 1e6, unit: "Mbit/s" },
            "pps" => Self { factor: 1e3, unit: "kpps" },
            _ => Self { factor: 1.0, unit },
        }
    }

    fn show(&self, value: f64) -> String {
        let value = if self.factor > 1.0 { value.round() } else { value };
        (value / self.factor).to_string()
    }
}

fn rows(points: &[Point], lines: &BTreeSet<LineKey>, scale: &Scale) -> Vec<(String, Vec<Option<Cell>>)> {
    let mut values: Vec<f64> = points.iter().map(|point| point.value).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let here = |line: LineKey, value: f64| {
        let is_here = |point: &&Point| point.line == line && point.value == value;
        points.iter().find(is_here).map(|point| point.file_reading)
    };
    let cell = |(file, line): &LineKey, value: f64| {
        let reading = here((*file, line), value)?;
        let same = points.iter().filter(|point| point.line.1 == *line && point.value == value);
        let before = files::earlier(&reading, same.map(|point| point.file_reading));
        let mut cell = Cell::new(reading);
        cell.change = before.and_then(|before| Change::between(&before, &reading));
        Some(cell)
    };
    let row = |value: f64| (scale.show(value), lines.iter().map(|line| cell(line, value)).collect());
    values.into_iter().map(row).collect()
}

/// The line where all offered packets arrive; empty unless the course shows what arrives, and the rate is known.
fn all_received(course: Course, points: &[Point], scale: &Scale) -> Vec<(f64, f64)> {
    if !(course.of == "received" && course.along == "offered rate") {
        return Vec::new();
    }
    let at = |point: &Point| match course.unit == course.along_unit {
        true => Some((point.value, point.value)),
        false => Some((point.value, offered_per_second(point)?)),
    };
    let mut line: Vec<(f64, f64)> =
        points.iter().filter_map(at).map(|(x, y)| (x / scale.factor, y)).collect();
    line.sort_by(|a, b| a.0.total_cmp(&b.0));
    line.dedup_by_key(|point| point.0);
    line
}

/// The packets/s of an offered rate in bit/s, by the size of the packets that the first run sent.
fn offered_per_second(point: &Point) -> Option<f64> {
    let details = &point.reading().runs.first()?.details;
    let number = |name: &str| details.get(name)?.as_f64();
    let bits = number("achieved_bps")? * number("seconds")? / number("sent")?;
    Some(point.value / bits).filter(|rate| rate.is_finite())
}

fn plot_of(
    course: Course,
    points: &[Point],
    (lines, colours): (&BTreeSet<LineKey>, &[usize]),
    scale: &Scale,
) -> Option<Figure> {
    // Only zeros, such as the loss below the knee, are no picture.
    if points.iter().all(Point::is_zero) {
        return None;
    }
    let place = |point: &Point, value: f64| (point.value / scale.factor, value);
    let sorted = |mut of: Vec<(f64, f64)>| {
        of.sort_by(|a, b| a.0.total_cmp(&b.0));
        of
    };
    let spread = |point: &Point| {
        let Spread { low, high, .. } = point.reading().spread;
        (point.value / scale.factor, low, high)
    };
    let series = lines.iter().zip(colours).map(|(line, nth)| {
        let of_line = points.iter().filter(|point| point.line == *line);
        Series {
            nth: *nth,
            points: sorted(of_line.clone().map(|point| place(point, point.reading().value)).collect()),
            spreads: of_line.map(spread).collect(),
        }
    });
    let limits = points.iter().filter_map(|point| Some(place(point, point.reading().limit.as_ref()?.value)));
    let mut limits = sorted(limits.collect());
    limits.dedup();
    // Draw a limit only if all lines share it and a value comes near it.
    let one_line = limits.windows(2).all(|two| two[0].0 != two[1].0);
    let is_near = points.iter().filter_map(Point::share).any(|share| share > NEAR);
    let limits = if one_line && is_near { limits } else { Vec::new() };
    let all_received = all_received(course, points, scale);
    let mut caption = format!("{} by {}: medians, with their spread", course.of, course.along);
    if !limits.is_empty() {
        caption += ", and the line's limit";
    }
    if !all_received.is_empty() {
        caption += "; dashed: all received";
    }
    let references = [Reference::Limit(limits), Reference::AllReceived(all_received)];
    let along = format!("{}, {}", course.along, scale.unit);
    let Plot { svg, unit } = plot::course(&series.collect::<Vec<_>>(), &references, &along, course.unit)?;
    Some(Figure { caption: in_unit(&caption, &unit), svg })
}

#[cfg(test)]
mod tests {
    use super::super::{
        files::{Report, ResultFile},
        page::Page,
    };
    use askama::Template;

    const SIZES: &str = include_str!("sample/size.json");

    fn page(texts: &[&str]) -> String {
        let files = texts.iter().enumerate();
        let source = |(nth, text): (usize, &&str)| {
            ResultFile::parse(ResultFile::letter(nth), "size.json".to_owned(), (*text).to_owned())
        };
        Page::new(&Report::new(files.map(|file| source(file).unwrap()).collect(), Vec::new()))
            .render()
            .unwrap()
    }

    /// The text from the first `from` to the next `to`.
    fn part<'p>(page: &'p str, from: &str, to: &str) -> &'p str {
        let begins = page.find(from).unwrap();
        &page[begins..begins + page[begins..].find(to).unwrap()]
    }

    #[test]
    fn a_course_has_one_plot_and_one_table_with_a_column_for_each_line() {
        let page = page(&[SIZES]);
        assert_eq!(page.matches("<article").count(), 1);
        assert_eq!(page.matches("<figure>").count(), 1);
        let head = part(&page, "<thead>", "</thead>");
        let head = head.replace("</i>", ">");
        let columns: Vec<_> = ["frame size, bytes", ">slow<", ">tc<", ">xdp<"]
            .iter()
            .map(|name| head.find(name).unwrap())
            .collect();
        assert!(columns.is_sorted(), "{head}");
        let rows: Vec<_> = part(&page, "<tbody>", "</tbody>").split("<tr>").skip(1).collect();
        let [small, middle, large] = &rows[..] else { panic!("{rows:#?}") };
        assert!(
            small.contains(">64<")
                && small.contains("<b>612\u{a0}kpps</b>")
                && small.contains("41.1\u{a0}% of the line"),
            "{small}"
        );
        // tc was not measured at this size.
        assert!(middle.contains(">512<") && middle.matches(">none<").count() == 1, "{middle}");
        assert!(large.contains(">1518<") && large.matches("<b>").count() == 3, "{large}");
    }

    #[test]
    fn ratios_have_no_unit_in_tables_and_captions() {
        let ratios = SIZES.replace(r#""unit": "pps""#, r#""unit": "1""#);
        let alone = ratios.replace("\"position\"", "\"was\"");
        let [course, alone] = [&ratios, &alone].map(|text| page(&[text]));
        assert!(part(&course, "<thead>", "</thead>").contains("</i>slow</th>"), "{course}");
        for page in [course, alone] {
            let captions: Vec<_> =
                page.split("<figcaption>").skip(1).map(|rest| part(rest, "", "<")).collect();
            assert!(
                !captions.is_empty() && captions.iter().all(|caption| !caption.ends_with(", 1")),
                "{captions:?}"
            );
        }
    }

    #[test]
    fn doubts_that_differ_only_in_numbers_are_shown_once() {
        let noisy = |percent| format!(r#""doubts": [{{"kind": "noisy", "percent": {percent}}}]"#);
        let doubted = |all: usize| {
            let mut texts = SIZES.split(r#""doubts": []"#);
            let first = texts.next().unwrap().to_owned();
            let doubts = |nth| if nth < all { noisy(20 + nth) } else { r#""doubts": []"#.to_owned() };
            let text = texts.enumerate().fold(first, |text, (nth, rest)| text + &doubts(nth) + rest);
            // A second doubt of the same kind at one position, as for several CPUs.
            page(&[&text.replace("20}]", r#"20}, {"kind": "noisy", "percent": 30}]"#)])
        };
        let some = doubted(7);
        assert_eq!(part(&some, "<details class=\"doubts\">", "</details>").matches("<li>").count(), 1);
        assert!(
            some.contains("slow at 1518 bytes, and 6 more of 8: noisy: runs differ by 20.0 to 30.0 %"),
            "{some}"
        );
        let all = doubted(8);
        let top = part(&all, "<section id=\"doubts\"", "</section>");
        assert!(top.contains("<li>noisy: runs differ by 20.0 to 30.0 %</li>"), "{top}");
        assert!(!all.contains("<details class=\"doubts\">") && !all.contains("<sup>"), "{all}");
    }

    #[test]
    fn lines_of_two_files_have_the_label_of_their_file() {
        let page = page(&[SIZES, SIZES]);
        for name in ["</i>A slow<", "</i>B slow<", "</i>A xdp<", "</i>B xdp<"] {
            assert!(page.contains(name), "{name}");
        }
    }
}
