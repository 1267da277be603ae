//! Bars and boxes.

use super::{super::axis::Axis, Drawn, Plot, TEXT, WIDTH, shade};
use plotters::prelude::*;

/// The height of a bar in a group, with the space below it, and of a group's label with the space around it.
const BAR_HEIGHT: u32 = 12;
const LABEL_HEIGHT: u32 = 24;

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

/// The bars in groups, one for each label in this order; a bar of another label is left out.
pub(crate) fn by_label<'r>(labels: impl IntoIterator<Item = &'r str>, bars: Vec<Bar<'r>>) -> Vec<Bars<'r>> {
    let mut groups: Vec<Bars> = labels.into_iter().map(|label| Bars { label, bars: Vec::new() }).collect();
    for bar in bars {
        if let Some(group) = groups.iter_mut().find(|group| group.label == bar.label) {
            group.bars.push(bar);
        }
    }
    groups
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_begin_at_zero_and_boxes_need_not() {
        let bar = |quartiles| Bar { nth: 0, label: "A", value: 95.0, low: 91.0, high: 99.0, quartiles };
        let low = |bar: Bar| axis_of([bar].iter(), None, "us").unwrap().low;
        assert_eq!((low(bar(None)), low(bar(Some((94.0, 96.0))))), (0.0, 90.0));
    }
}
