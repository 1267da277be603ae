//! Readings that differ in one number, such as the size of frames: one plot and one table for all of them.

use super::{
    plot::{self, Plot, Series, colour},
    view::{self, Cell, Figure, From, Line, RunRow, Table, Told, in_unit, percent},
};
use crate::render::units::number;
use shunt_lab::{Position, Reading, Spread};
use std::collections::{BTreeMap, BTreeSet};

/// The part of a limit that is high enough to be drawn below it.
const NEAR: f64 = 0.2;

/// Which file, and which of its lines.
type LineOf<'r> = (usize, &'r str);

/// A reading of the course: which line it is of, whose file it stands in, and where on the course.
struct Point<'r> {
    line: LineOf<'r>,
    position: &'r Position,
    from: From<'r>,
}

pub(super) fn told<'r>(
    id: usize,
    name: String,
    (along, along_unit): (&str, &str),
    unit: &'r str,
    of: &[From<'r>],
    several_files: bool,
) -> Told<'r> {
    let scale = Scale::of(along_unit);
    let along = format!("{along}, {}", scale.unit);
    let points: Vec<Point> = of.iter().filter_map(|from| Point::of(*from)).collect();
    let lines: BTreeSet<LineOf> = points.iter().map(|point| point.line).collect();
    let name_of = |point: &Point| match several_files {
        true => format!("{} {}", point.from.1.label, point.line.1),
        false => point.line.1.to_owned(),
    };
    let names: BTreeMap<LineOf, String> = points.iter().map(|point| (point.line, name_of(point))).collect();
    let lines_shown =
        names.values().enumerate().map(|(nth, name)| Line { name: name.clone(), colour: colour(nth) });
    let at = |point: &Point| {
        format!("{} at {} {}", names[&point.line], scale.show(point.position.value), scale.unit)
    };
    let runs = points.iter().flat_map(|point| RunRow::of_all(point.from.2, &at(point))).collect();
    Told {
        id,
        unit,
        doubts: doubts(&points, at),
        table: Table::Course {
            along: along.clone(),
            lines: lines_shown.collect(),
            rows: rows(&points, &lines, &scale),
        },
        limits: Vec::new(),
        plots: plot_of(&name, &points, &lines, &scale, &along, unit).into_iter().collect(),
        name: name.into(),
        runs,
    }
}

impl<'r> Point<'r> {
    fn of(from: From<'r>) -> Option<Self> {
        let position = from.2.position.as_ref()?;
        Some(Self { line: (from.0, &position.line), position, from })
    }

    fn reading(&self) -> &'r Reading {
        self.from.2
    }

    fn share(&self) -> Option<f64> {
        self.reading().share(self.reading().value)
    }
}

/// In what the course is counted.
struct Scale<'u> {
    factor: f64,
    unit: &'u str,
}

impl<'u> Scale<'u> {
    fn of(unit: &'u str) -> Self {
        match unit {
            "bit/s" => Self { factor: 1e6, unit: "Mbit/s" },
            _ => Self { factor: 1.0, unit },
        }
    }

    fn show(&self, value: f64) -> String {
        (value / self.factor).to_string()
    }
}

fn rows(points: &[Point], lines: &BTreeSet<LineOf>, scale: &Scale) -> Vec<(String, Vec<Option<Cell>>)> {
    let mut values: Vec<f64> = points.iter().map(|point| point.position.value).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let cell = |line: &LineOf, value: f64| {
        let there = |point: &&Point| point.line == *line && point.position.value == value;
        points.iter().find(there).map(|point| Cell::of(point.reading()))
    };
    let row = |value: f64| (scale.show(value), lines.iter().map(|line| cell(line, value)).collect());
    values.into_iter().map(row).collect()
}

impl Cell {
    fn of(reading: &Reading) -> Self {
        let Spread { low, high, .. } = reading.spread;
        let spread = (reading.runs.len() > 1).then(|| format!("{} to {}", number(low), number(high)));
        let share = reading.share(reading.value).map(|share| format!("{} of the line", percent(share)));
        Self { value: number(reading.value), beside: spread.into_iter().chain(share).collect() }
    }
}

/// Those that differ in their numbers only are one doubt: the first stands for all.
fn doubts(points: &[Point], at: impl Fn(&Point) -> String) -> Vec<(String, String)> {
    let mut kinds: Vec<(String, String, String, usize)> = Vec::new();
    for point in points {
        let mut of_this_point = BTreeSet::new();
        for doubt in view::against(&point.from.1.results, point.reading()) {
            let kind = doubt.replace(|c: char| c.is_ascii_digit() || c == '.', "");
            if !of_this_point.insert(kind.clone()) {
                continue;
            }
            match kinds.iter_mut().find(|(known, ..)| *known == kind) {
                Some((.., times)) => *times += 1,
                None => kinds.push((kind, at(point), doubt, 1)),
            }
        }
    }
    let all = points.len();
    let told = |(_, at, doubt, times): (String, String, String, usize)| match times {
        1 => (at, doubt),
        times => (format!("{at}, and {} more of {all}", times - 1), doubt),
    };
    kinds.into_iter().map(told).collect()
}

fn plot_of(
    name: &str,
    points: &[Point],
    lines: &BTreeSet<LineOf>,
    scale: &Scale,
    along: &str,
    unit: &str,
) -> Option<Figure> {
    let place = |point: &Point, value: f64| (point.position.value / scale.factor, value);
    let sorted = |mut of: Vec<(f64, f64)>| {
        of.sort_by(|a, b| a.0.total_cmp(&b.0));
        of
    };
    let series = lines.iter().enumerate().map(|(nth, line)| {
        let of_line = points.iter().filter(|point| point.line == *line);
        Series { nth, points: sorted(of_line.map(|point| place(point, point.reading().value)).collect()) }
    });
    let limits = points.iter().filter_map(|point| Some(place(point, point.reading().limit.as_ref()?.value)));
    let mut limits = sorted(limits.collect());
    limits.dedup();
    // Different lines have no one limit to draw, and of a far one there is nothing to see.
    let one_line = limits.windows(2).all(|two| two[0].0 != two[1].0);
    let is_near = points.iter().filter_map(Point::share).any(|share| share > NEAR);
    let limits = if one_line && is_near { &limits[..] } else { &[] };
    let Plot { svg, unit } = plot::course(&series.collect::<Vec<_>>(), limits, along, unit)?;
    let line = if limits.is_empty() { "" } else { ", and the line's limit" };
    Some(Figure { caption: in_unit(&format!("{name}: medians{line}"), &unit), svg })
}

#[cfg(test)]
mod tests {
    use crate::{
        render::report::view::Page,
        report::{Report, Source},
    };
    use askama::Template;

    const SIZES: &str = include_str!("../../../tests/report/size.json");

    fn page(texts: &[&str]) -> String {
        let files = texts.iter().enumerate();
        let source =
            |(nth, text): (usize, &&str)| Source::parse(nth, "size.json".to_owned(), (*text).to_owned());
        Page::of(&Report::of(files.map(|file| source(file).unwrap()).collect())).render().unwrap()
    }

    /// Between the first of one and the next of the other.
    fn part<'p>(page: &'p str, from: &str, to: &str) -> &'p str {
        let begins = page.find(from).unwrap();
        &page[begins..begins + page[begins..].find(to).unwrap()]
    }

    #[test]
    fn a_course_is_one_table_with_a_column_for_each_line_and_one_plot() {
        let page = page(&[SIZES]);
        assert_eq!(page.matches("<article").count(), 1);
        assert_eq!(page.matches("<figure>").count(), 1);
        let head = part(&page, "<thead>", "</thead>");
        let columns: Vec<_> = ["frame size, bytes", "slow, pps", "tc, pps", "xdp, pps"]
            .iter()
            .map(|name| head.find(name).unwrap())
            .collect();
        assert!(columns.is_sorted(), "{head}");
        let rows: Vec<_> = part(&page, "<tbody>", "</tbody>").split("<tr>").skip(1).collect();
        let [small, middle, large] = &rows[..] else { panic!("{rows:#?}") };
        assert!(
            small.contains(">64<")
                && small.contains("<b>612000</b>")
                && small.contains("41.1\u{a0}% of the line"),
            "{small}"
        );
        // Nobody measured tc there.
        assert!(middle.contains(">512<") && middle.matches("none").count() == 1, "{middle}");
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
    fn doubts_that_differ_in_numbers_are_one() {
        let noisy = |percent| format!(r#""doubts": [{{"kind": "noisy", "percent": {percent}}}]"#);
        let mut texts = SIZES.split(r#""doubts": []"#);
        let first = texts.next().unwrap().to_owned();
        let doubted = texts.enumerate().fold(first, |text, (nth, rest)| text + &noisy(20 + nth) + rest);
        // As those of several CPUs.
        let doubted = doubted.replace("20}]", r#"20}, {"kind": "noisy", "percent": 30}]"#);
        let page = page(&[&doubted]);
        assert_eq!(part(&page, "<ul class=\"doubts\">", "</ul>").matches("<li>").count(), 1);
        assert!(page.contains("slow at 1518 bytes, and 7 more of 8: noisy: runs differ by 20"), "{page}");
    }

    #[test]
    fn lines_of_two_files_are_told_apart() {
        let page = page(&[SIZES, SIZES]);
        for name in ["A slow, pps", "B slow, pps", "A xdp, pps", "B xdp, pps"] {
            assert!(page.contains(name), "{name}");
        }
    }
}
