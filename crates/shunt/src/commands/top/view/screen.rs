//! Draws `shunt top` on a terminal: only the terminal's own colours, and no colour for a background.

use super::{
    Top, bits, packets,
    pane::{Column, Pane, columns},
    share, since_start,
    state::{Detail, View},
    table::Table,
};
use crate::render::units;
use ratatui_core::{
    layout::{Alignment, Constraint, Layout, Rect},
    style::{Color, Modifier, Style, Stylize},
    symbols::bar,
    terminal::Frame,
    text::{Line, Span},
};
use ratatui_widgets::{
    paragraph::{Paragraph, Wrap},
    sparkline::Sparkline,
};

/// What the terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    /// Whether characters outside ASCII can be shown.
    pub(crate) unicode: bool,
    pub(crate) colour: bool,
}

/// Rows from which the chart of the fast share is taller than one row.
const TALL: u16 = 30;
/// Columns below which names are short.
const NARROW: u16 = 60;

/// The fast share below which the rate of slow packets stands out.
const LOW_SHARE: f64 = 0.9;

const ASCII_BARS: bar::Set = bar::Set {
    full: "#",
    seven_eighths: "*",
    three_quarters: "*",
    five_eighths: "+",
    half: "=",
    three_eighths: "-",
    one_quarter: ":",
    one_eighth: ".",
    empty: " ",
};

/// Draws the screen. Without a state, there has been only one sample yet. Returns the number of rows of the table.
pub(crate) fn draw(frame: &mut Frame<'_>, top: Option<&Top>, view: &View, look: Look) -> usize {
    let area = frame.area();
    let chart_height = if area.height >= TALL { 4 } else { 1 };
    let [head, totals, chart, tabs, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(chart_height),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(head_line(top, view, look, area.width), head);
    if let Some(top) = top {
        frame.render_widget(totals_line(top, look), totals);
        draw_chart(frame, top, look, chart);
    }
    frame.render_widget(tabs_line(view, area.width), tabs);
    let rows = match (&view.detail, top) {
        (Some(detail), _) => {
            draw_detail(frame, detail, body);
            usize::from(body.height)
        }
        (None, Some(top)) => draw_table(frame, top, view, look, body),
        (None, None) => {
            frame.render_widget(Paragraph::new("measuring"), body);
            0
        }
    };
    frame.render_widget(foot_line(top, view, area.width), foot);
    rows
}

fn head_line(top: Option<&Top>, view: &View, look: Look, width: u16) -> Paragraph<'static> {
    if let Some(why) = &view.failure {
        return Paragraph::new(Line::from(format!("no answer: {why}; trying again")))
            .bold()
            .style(alarm(look));
    }
    let mut spans = vec!["shunt top".bold()];
    if let Some(top) = top {
        if top.instance != "default" {
            spans.push(format!(" {}", top.instance).into());
        }
        spans.push(format!("  up {}", units::time(top.uptime_s)).into());
        if width >= NARROW {
            spans.push(format!("  epoch {}  rates over {:.1} s", top.epoch, top.over_s).into());
        }
    }
    if view.is_paused {
        spans.push("  paused".bold());
    }
    Paragraph::new(Line::from(spans))
}

fn totals_line(top: &Top, look: Look) -> Paragraph<'static> {
    let Top { rates, flows, .. } = top;
    let slow = format!("  slow {}", packets(rates.slow_pps));
    let slow = if rates.fast_share.is_some_and(|share| share < LOW_SHARE) {
        Span::styled(slow, alarm(look))
    } else {
        slow.into()
    };
    Paragraph::new(Line::from(vec![
        format!("fast {}", bits(rates.fast_bps)).into(),
        format!(" {}", packets(rates.fast_pps)).into(),
        slow,
        format!("  dropped {}", packets(rates.dropped_pps)).into(),
        format!("  flows {} of {}", flows.active + flows.static_, flows.max).into(),
    ]))
}

/// The fast share of each interval, the oldest at the left, on a scale from 0 to 100 %.
fn draw_chart(frame: &mut Frame<'_>, top: &Top, look: Look, area: Rect) {
    let label = format!("{} fast ", share(top.rates.fast_share));
    let [text, chart] = Layout::horizontal([Constraint::Length(13), Constraint::Fill(1)]).areas(area);
    frame.render_widget(Paragraph::new(label).bold(), text);
    let first = top.shares.len().saturating_sub(usize::from(chart.width));
    let percent = |share: &Option<f64>| share.map(|share| (share * 100.0).round() as u64);
    let data: Vec<Option<u64>> = top.shares[first..].iter().map(percent).collect();
    let bars = if look.unicode { bar::NINE_LEVELS } else { ASCII_BARS };
    let style = if look.colour { Style::new().fg(Color::Green) } else { Style::new() };
    frame.render_widget(
        Sparkline::default().data(data).max(100).bar_set(bars).absent_value_symbol(" ").style(style),
        chart,
    );
}

fn tabs_line(view: &View, width: u16) -> Paragraph<'static> {
    let mut spans = Vec::new();
    for (n, pane) in Pane::ALL.into_iter().enumerate() {
        let (long, short) = pane.names();
        let name = format!("{} {}", n + 1, if width < NARROW { short } else { long });
        let style = if pane == view.pane { Modifier::REVERSED } else { Modifier::empty() };
        spans.push(Span::styled(name, style));
        spans.push(if width < NARROW { " " } else { "  " }.into());
    }
    Paragraph::new(Line::from(spans))
}

/// Draws the table around the selected row, and returns the number of rows that fit.
fn draw_table(frame: &mut Frame<'_>, top: &Top, view: &View, look: Look, area: Rect) -> usize {
    let table = Table::new(top, view);
    let is_changes = view.pane == Pane::Changes;
    let [note, head, body] = Layout::vertical([
        Constraint::Length(u16::from(is_changes)),
        Constraint::Length(1),
        Constraint::Fill(1),
    ])
    .areas(area);
    if is_changes {
        frame.render_widget(Paragraph::new(since_start(top)), note);
    }
    let shown = shown_columns(view.pane, area.width);
    let order = view.order();
    let mut titles = String::new();
    for (n, column, width) in &shown {
        let title = match (*n == order.column, order.descending, look.unicode) {
            (false, ..) => column.title.to_owned(),
            (true, true, true) => format!("{}↓", column.title),
            (true, false, true) => format!("{}↑", column.title),
            // As in the keys of `ps --sort`.
            (true, true, false) => format!("-{}", column.title),
            (true, false, false) => format!("+{}", column.title),
        };
        push_cell(&mut titles, column, *width, &title, look);
    }
    frame.render_widget(Paragraph::new(titles).bold().underlined(), head);
    let fit = usize::from(body.height);
    // The selected row stays in the middle, except near the ends.
    let first = table.selected.saturating_sub(fit / 2).min(table.rows.len().saturating_sub(fit));
    let lines = table.rows.iter().enumerate().skip(first).take(fit).map(|(n, row)| {
        let mut text = String::new();
        for (n, column, width) in &shown {
            push_cell(&mut text, column, *width, &row.cell(*n), look);
        }
        let line = Line::from(format!("{text:<width$}", width = usize::from(area.width)));
        if n == table.selected { line.reversed() } else { line }
    });
    let lines: Vec<Line<'_>> = lines.collect();
    if lines.is_empty() {
        frame.render_widget(Paragraph::new(empty(view, &table)), body);
    } else {
        frame.render_widget(Paragraph::new(lines), body);
    }
    fit
}

/// The columns that this width shows: index, column and width.
fn shown_columns(pane: Pane, width: u16) -> Vec<(usize, &'static Column, usize)> {
    let shown: Vec<(usize, &Column)> =
        columns(pane).iter().enumerate().filter(|(_, column)| column.from <= width).collect();
    let fixed: u16 = shown.iter().map(|(_, column)| column.width).sum();
    let gaps = u16::try_from(shown.len()).unwrap_or(u16::MAX).saturating_sub(1);
    let left = usize::from(width.saturating_sub(fixed.saturating_add(gaps)));
    let width_of = |column: &Column| if column.width == 0 { left } else { usize::from(column.width) };
    shown.into_iter().map(|(n, column)| (n, column, width_of(column))).collect()
}

/// Appends a cell, cut to its width.
fn push_cell(line: &mut String, column: &Column, width: usize, text: &str, look: Look) {
    if !line.is_empty() {
        line.push(' ');
    }
    let mut text = text.to_owned();
    if text.chars().count() > width {
        text = text.chars().take(width.saturating_sub(1)).collect();
        text.extend((width > 0).then_some(if look.unicode { '…' } else { '~' }));
    }
    *line += &if column.is_number { format!("{text:>width$}") } else { format!("{text:<width$}") };
}

fn empty(view: &View, table: &Table<'_>) -> &'static str {
    match view.pane {
        _ if table.all > 0 => "no row contains the words of the filter",
        Pane::Connections | Pane::Hosts => "no connections on the fast path",
        Pane::Ports => "no ports",
        Pane::Slow => "no packet was slow",
        Pane::Changes => "no change since shunt top started",
    }
}

fn draw_detail(frame: &mut Frame<'_>, detail: &Detail, area: Rect) {
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    frame.render_widget(Paragraph::new(detail.title.as_str()).bold().underlined(), head);
    let text = Paragraph::new(detail.text.as_str()).wrap(Wrap { trim: false }).scroll((detail.scroll, 0));
    frame.render_widget(text, body);
}

fn foot_line(top: Option<&Top>, view: &View, width: u16) -> Paragraph<'static> {
    let keys = match (&view.detail, width < NARROW) {
        _ if view.is_typing => return Paragraph::new(format!("/{}_", view.filter)).bold(),
        (Some(_), _) => "Esc back  up/down scroll  q quit".to_owned(),
        (None, false) => {
            "q quit  Tab pane  s sort  r reverse  / filter  Enter why  p pause  ? keys".to_owned()
        }
        (None, true) => "q quit  / filter  Enter why  ? keys".to_owned(),
    };
    let mut kept = Vec::new();
    if let Some(host) = view.host.filter(|_| view.pane == Pane::Connections) {
        kept.push(format!("host {host}"));
    }
    if !view.filter.is_empty() {
        kept.push(format!("/{}", view.filter));
    }
    match top.filter(|_| !kept.is_empty() && view.detail.is_none()) {
        Some(top) => {
            let Table { rows, all, .. } = Table::new(top, view);
            Paragraph::new(format!("{}  {} of {all}  Esc shows all  ? keys", kept.join("  "), rows.len()))
                .bold()
        }
        None => Paragraph::new(keys).alignment(Alignment::Left),
    }
}

fn alarm(look: Look) -> Style {
    if look.colour { Style::new().fg(Color::Red) } else { Style::new() }
}
