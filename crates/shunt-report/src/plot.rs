//! Plots, as SVG for a page. The colours are visible on white and on black; the page replaces black in dark mode.

use super::axis::Axis;
use plotters::{
    coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged},
    prelude::*,
};
use std::{error::Error, ops::Range};

/// The width of a phone, so that text is legible there; the page scales plots on wider screens.
const WIDTH: u32 = 360;
const TEXT: (&str, u32) = ("sans-serif", 14);
/// The height of a bar in a group, with the space below it, and of a group's label with the space around it.
const BAR_HEIGHT: u32 = 12;
const LABEL_HEIGHT: u32 = 24;
/// Markers of more points on a line would cover each other.
const MOST_MARKERS: usize = 40;
/// Distinguishable with every kind of colour blindness (after Okabe and Ito), with a contrast of at least 3:1 to white
/// and near-black.
pub(crate) const COLOURS: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x91, 0x6c),
    RGBColor(0xb8, 0x5c, 0x92),
    RGBColor(0x9a, 0x7d, 0x00),
    RGBColor(0x77, 0x77, 0x77),
];

/// An SVG drawing, and the unit of its labels.
#[derive(Debug)]
pub struct Plot {
    pub(crate) svg: String,
    pub(crate) unit: String,
}

/// The points of one file, or of one line of a course.
#[derive(Debug, PartialEq)]
pub struct Series {
    /// The number of the file or line, from 0 on; it selects the colour.
    pub nth: usize,
    /// The points, from left to right.
    pub points: Vec<(f64, f64)>,
    /// For some points, their place and both ends of their spread.
    pub spreads: Vec<(f64, f64, f64)>,
}

/// A line to compare the series with.
#[derive(Debug)]
pub enum Reference {
    /// What the line can carry.
    Limit(Vec<(f64, f64)>),
    /// What arrives if nothing is lost; dashed.
    AllReceived(Vec<(f64, f64)>),
}

impl Reference {
    fn points(&self) -> &[(f64, f64)] {
        match self {
            Self::Limit(points) | Self::AllReceived(points) => points,
        }
    }
}

/// Bars that are drawn together below their label.
#[derive(Debug)]
pub struct Bars<'r> {
    /// Stands above the bars.
    pub label: &'r str,
    /// The bars, from the top down.
    pub bars: Vec<Bar<'r>>,
}

/// The value of one file or engine, with its spread: a bar from zero, or a box of the middle half of the runs.
#[derive(Debug)]
pub struct Bar<'r> {
    /// The number of the file or engine, from 0 on; it selects the colour.
    pub nth: usize,
    /// Stands next to the bar where bars are not in groups.
    pub label: &'r str,
    /// The length of the bar or the median, in the unit of the axis.
    pub value: f64,
    /// The lower end of the spread.
    pub low: f64,
    /// The upper end of the spread.
    pub high: f64,
    /// The first and third quartile, if this is a box.
    pub quartiles: Option<(f64, f64)>,
}

/// A rectangle, and the lines over it.
type Shapes = (Rectangle<(f64, f64)>, Vec<PathElement<(f64, f64)>>);

impl Bar<'_> {
    /// The shapes between these heights; the lines are the spread with its ends, and the median of a box.
    fn shapes(&self, bottom: f64, top: f64) -> Shapes {
        let (from, to) = self.quartiles.unwrap_or((0.0, self.value));
        let rectangle = Rectangle::new([(from, bottom), (to, top)], shade(self.nth).filled());
        let line = |from, to, width| PathElement::new([from, to], BLACK.stroke_width(width));
        let (middle, inset) = (f64::midpoint(bottom, top), (top - bottom) / 5.0);
        let end = |x| line((x, bottom + inset), (x, top - inset), 1);
        let mut lines = Vec::new();
        if self.low < self.high {
            lines.extend([line((self.low, middle), (self.high, middle), 1), end(self.low), end(self.high)]);
        }
        if self.quartiles.is_some() {
            lines.push(line((self.value, bottom), (self.value, top), 2));
        }
        (rectangle, lines)
    }
}

type Drawn = Result<String, Box<dyn Error>>;

/// The colour of the `nth` file or line, in CSS notation.
pub fn colour(nth: usize) -> String {
    let RGBColor(r, g, b) = shade(nth);
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// The colours in turn; in every other turn, they are mixed with grey, and grey with a lighter one.
fn shade(nth: usize) -> RGBColor {
    let colour = COLOURS[nth % COLOURS.len()];
    let is_grey = colour.0 == colour.1 && colour.1 == colour.2;
    let with = if is_grey { 0xb2 } else { 0x80 };
    let mix = |part: u8| part / 2 + with / 2;
    match nth / COLOURS.len() % 2 {
        0 => colour,
        _ => RGBColor(mix(colour.0), mix(colour.1), mix(colour.2)),
    }
}

/// Groups of horizontal bars from zero or of boxes, one group below the other. None if the values have no finite range.
pub fn grouped_bars(groups: &[Bars], unit: &str) -> Option<Plot> {
    grouped_bars_in_parts(groups, groups.len(), unit).pop()
}

/// Plots of at most this many groups, with the same axis. Empty if the values have no finite range.
pub(crate) fn grouped_bars_in_parts(groups: &[Bars], most: usize, unit: &str) -> Vec<Plot> {
    let Some(axis) = axis_of(groups.iter().flat_map(|group| &group.bars), None, unit) else {
        return Vec::new();
    };
    let parts = groups.len().div_ceil(most.max(1)).max(1);
    let draw = |part| Some(Plot { svg: draw_groups(part, &axis).ok()?, unit: axis.unit.clone() });
    groups.chunks(groups.len().div_ceil(parts).max(1)).filter_map(draw).collect()
}

/// The axis of bars, from zero on; that of boxes has their range only, because their widths are compared.
fn axis_of<'b>(bars: impl Iterator<Item = &'b Bar<'b>>, limit: Option<f64>, unit: &str) -> Option<Axis> {
    let from = |bar: &Bar| if bar.quartiles.is_some() { bar.low } else { 0.0 };
    let values = bars.flat_map(|bar| [from(bar), bar.value, bar.low, bar.high]);
    Axis::around(&values.chain(limit).collect::<Vec<_>>(), unit, 4)
}

fn draw_groups(groups: &[Bars], axis: &Axis) -> Drawn {
    let height = groups.iter().map(|group| LABEL_HEIGHT + BAR_HEIGHT * group.bars.len() as u32).sum::<u32>();
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height + 60)).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(6)
            .margin_left(16)
            .margin_right(24)
            .x_label_area_size(42)
            .build_cartesian_2d(axis.clone(), 0_f64..f64::from(height))?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .bold_line_style(BLACK.mix(0.2))
            .axis_style(BLACK)
            .label_style(TEXT)
            .x_desc(&axis.unit)
            .x_label_formatter(&|x| axis.label(*x))
            .draw()?;
        let mut top = f64::from(height);
        for group in groups {
            let label = Text::new(group.label.to_owned(), (axis.low, top - 5.0), TEXT);
            chart.draw_series([label])?;
            top -= f64::from(LABEL_HEIGHT);
            for bar in &group.bars {
                let bottom = top - f64::from(BAR_HEIGHT) + 2.0;
                let (rectangle, lines) = bar.shapes(bottom, top);
                chart.draw_series([rectangle])?;
                chart.draw_series(lines)?;
                top -= f64::from(BAR_HEIGHT);
            }
        }
        area.present()?;
    }
    Ok(svg)
}

/// Horizontal bars from zero or boxes, with the limit of the line if it is known. None if the values have no finite
/// range.
pub(crate) fn bars(bars: &[Bar], limit: Option<f64>, unit: &str) -> Option<Plot> {
    let axis = axis_of(bars.iter(), limit, unit)?;
    let svg = draw_bars(bars, limit, &axis).ok()?;
    Some(Plot { svg, unit: axis.unit })
}

fn draw_bars(bars: &[Bar], limit: Option<f64>, axis: &Axis) -> Drawn {
    let rows = Axis::counting(bars.len(), bars.len());
    // The first bar is at the top.
    let at = |row: usize| (bars.len() - row) as f64;
    let label = |y: &f64| bars.get(bars.len() - *y as usize).map_or("", |bar| bar.label).to_owned();
    let mut svg = String::new();
    {
        let height = 60 + 22 * bars.len() as u32;
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(6)
            .margin_right(24)
            .x_label_area_size(42)
            .y_label_area_size(34)
            .build_cartesian_2d(axis.clone(), rows.clone())?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .bold_line_style(BLACK.mix(0.2))
            .axis_style(BLACK)
            .label_style(TEXT)
            .x_desc(&axis.unit)
            .x_label_formatter(&|x| axis.label(*x))
            .y_label_formatter(&label)
            .draw()?;
        for (row, bar) in bars.iter().enumerate() {
            let (rectangle, lines) = bar.shapes(at(row) - 0.32, at(row) + 0.32);
            chart.draw_series([rectangle])?;
            chart.draw_series(lines)?;
        }
        if let Some(limit) = limit {
            let line = [(limit, rows.low), (limit, rows.high)];
            chart.draw_series([PathElement::new(line, BLACK.stroke_width(2))])?;
        }
        area.present()?;
    }
    Ok(svg)
}

/// Each run, in the order of measuring; the vertical axis covers only the range of the values.
pub(crate) fn runs(series: &[Series], unit: &str) -> Option<Plot> {
    let values: Vec<f64> = series.iter().flat_map(|line| &line.points).map(|point| point.1).collect();
    let most = series.iter().map(|line| line.points.len()).max()?;
    let (x, y) = (Axis::counting(most, 6), Axis::around(&values, unit, 4)?);
    let svg = draw_lines(series, &[], &x, &y, "run", &|at| x.label(at), &|at| y.label(at)).ok()?;
    Some(Plot { svg, unit: y.unit })
}

/// The cumulative distribution of the runs: the share of them that are not above each value, in percent.
pub(crate) fn cumulative(series: &[Series], unit: &str) -> Option<Plot> {
    let series: Vec<Series> = series
        .iter()
        .map(|line| Series { nth: line.nth, points: steps(&line.points), spreads: Vec::new() })
        .collect();
    let values: Vec<f64> = series.iter().flat_map(|line| &line.points).map(|point| point.0).collect();
    let (x, y) = (Axis::around(&values, unit, 3)?, Axis::around(&[0.0, 100.0], "%", 4)?);
    let svg = draw_lines(&series, &[], &x, &y, &x.unit, &|at| x.label(at), &|at| y.label(at)).ok()?;
    Some(Plot { svg, unit: y.unit })
}

/// The lower and the upper end of the step at each value, from the smallest value on.
fn steps(runs: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut values: Vec<f64> = runs.iter().map(|run| run.1).collect();
    values.sort_by(f64::total_cmp);
    let share = |nth: usize| nth as f64 / runs.len() as f64 * 100.0;
    let step = |(nth, value)| [(value, share(nth)), (value, share(nth + 1))];
    values.into_iter().enumerate().flat_map(step).collect()
}

/// Values against their position on the course, from zero.
pub fn course(series: &[Series], references: &[Reference], along: &str, unit: &str) -> Option<Plot> {
    let of_references = || references.iter().flat_map(Reference::points);
    let all = || series.iter().flat_map(|line| &line.points).chain(of_references());
    let x: Vec<f64> = all().map(|point| point.0).collect();
    let ends = series.iter().flat_map(|line| &line.spreads).flat_map(|(_, low, high)| [*low, *high]);
    let y: Vec<f64> = all().map(|point| point.1).chain(ends).chain([0.0]).collect();
    let (x, y) = (Axis::around(&x, "", 4)?, Axis::around(&y, unit, 4)?);
    let svg = draw_lines(series, references, &x, &y, along, &|at| x.label(at), &|at| y.label(at)).ok()?;
    Some(Plot { svg, unit: y.unit })
}

/// A tail distribution: for each share, the value that this share of all values does not exceed. Both axes are
/// logarithmic.
pub(crate) fn tail(series: &[Series], unit: &str) -> Option<Plot> {
    let values: Vec<f64> = series.iter().flat_map(|line| &line.points).map(|point| point.1).collect();
    let y = Axis::logarithmic(&values)?;
    let shares = [(0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"), (0.9999, "99.99 %")];
    let logarithm = |value: f64| value.max(1.0).log10();
    let series: Vec<_> = series
        .iter()
        .map(|line| Series {
            points: line.points.iter().map(|(share, value)| (nines(*share), logarithm(*value))).collect(),
            nth: line.nth,
            spreads: Vec::new(),
        })
        .collect();
    let end = series.iter().flat_map(|line| &line.points).map(|point| point.0).fold(1.0, f64::max);
    let ticks =
        shares.map(|(share, _)| nines(share)).into_iter().filter(|tick| *tick <= end + 1e-9).collect();
    let x = Axis::marked(0.0, end, ticks);
    let label = |at: f64| {
        let near = shares.iter().find(|(share, _)| (nines(*share) - at).abs() < 1e-9);
        near.map_or("", |(_, label)| label).to_owned()
    };
    let svg =
        draw_lines(&series, &[], &x, &y, "share of values not above", &label, &Axis::power_label).ok()?;
    Some(Plot { svg, unit: unit.to_owned() })
}

/// The number of nines of a share: 1 for 0.9, 2 for 0.99.
fn nines(share: f64) -> f64 {
    -(1.0 - share).max(1e-9).log10()
}

type Label<'l> = &'l dyn Fn(f64) -> String;

fn draw_lines(
    series: &[Series],
    references: &[Reference],
    x: &Axis,
    y: &Axis,
    along: &str,
    below: Label,
    beside: Label,
) -> Drawn {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, 220)).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(10)
            .margin_right(28)
            .x_label_area_size(42)
            .y_label_area_size(52)
            .build_cartesian_2d(x.clone(), y.clone())?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(BLACK.mix(0.2))
            .axis_style(BLACK)
            .label_style(TEXT)
            .x_desc(along)
            .x_label_formatter(&|at| below(*at))
            .y_label_formatter(&|at| beside(*at))
            .draw()?;
        for line in series {
            let colour = shade(line.nth);
            chart.draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(1)))?;
            let spreads = line.spreads.iter().filter(|(_, low, high)| low < high);
            let spread = |(at, low, high): &(f64, f64, f64)| {
                PathElement::new([(*at, *low), (*at, *high)], colour.stroke_width(1))
            };
            chart.draw_series(spreads.map(spread))?;
            // Different shapes distinguish the series in print without colours, if there is room for them.
            let points = line.points.iter().filter(|_| line.points.len() <= MOST_MARKERS).copied();
            match (line.nth + line.nth / COLOURS.len()) % 3 {
                0 => chart.draw_series(points.map(|at| Circle::new(at, 4, colour.filled())))?,
                1 => chart.draw_series(points.map(|at| TriangleMarker::new(at, 5, colour.filled())))?,
                _ => chart.draw_series(points.map(|at| Cross::new(at, 4, colour.stroke_width(2))))?,
            };
        }
        for reference in references {
            let points = reference.points().iter().copied();
            match reference {
                Reference::Limit(_) => chart.draw_series(LineSeries::new(points, BLACK.stroke_width(2)))?,
                Reference::AllReceived(_) => {
                    chart.draw_series(DashedLineSeries::new(points, 4, 4, BLACK.stroke_width(1)))?
                }
            };
        }
        area.present()?;
    }
    Ok(svg)
}

/// The axis chooses its ticks itself, because plotters does not know how wide a label is.
impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let share = (value - self.low) / (self.high - self.low);
        from + (share * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_rises_by_one_step_for_each_run() {
        assert_eq!(steps(&[(1.0, 3.0), (2.0, 1.0)]), [(1.0, 0.0), (1.0, 50.0), (3.0, 50.0), (3.0, 100.0)]);
    }

    #[test]
    fn bars_begin_at_zero_and_boxes_need_not() {
        let bar = |quartiles| Bar { nth: 0, label: "A", value: 95.0, low: 91.0, high: 99.0, quartiles };
        let low = |bar: Bar| axis_of([bar].iter(), None, "us").unwrap().low;
        assert_eq!((low(bar(None)), low(bar(Some((94.0, 96.0))))), (0.0, 90.0));
    }
}
