//! Lines: each run, distributions, and courses.

use super::{super::axis::Axis, COLOURS, Drawn, Plot, TEXT, WIDTH, shade};
use plotters::prelude::*;

/// Markers of more points on a line would cover each other.
const MOST_MARKERS: usize = 40;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_rises_by_one_step_for_each_run() {
        assert_eq!(steps(&[(1.0, 3.0), (2.0, 1.0)]), [(1.0, 0.0), (1.0, 50.0), (3.0, 50.0), (3.0, 100.0)]);
    }
}
