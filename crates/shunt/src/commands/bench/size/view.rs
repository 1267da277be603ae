//! The text of `shunt bench size`. Doubts stand above the numbers.

use crate::render::{Format, Text, columns::align, units, units::bounds};
use shunt_lab::{
    Doubt, Spread, SpreadKind,
    frame_size::{Cost, Effect, Point, Report},
    statistics::RUNS_WANTED,
};
use std::mem::discriminant;

/// Below this share of the time of the largest frame, the cost of bytes hardly matters.
const HARDLY: f64 = 0.1;
/// Above this share, the cost of bytes matters most.
const MOST: f64 = 0.5;

impl Text for Report {
    fn text(&self, _: Format) -> String {
        describe(self)
    }
}

fn describe(report: &Report) -> String {
    let mut doubts: Vec<String> = report.doubts.iter().map(|doubt| format!("doubt: {doubt}\n")).collect();
    // Doubts of the same kind are shown once, with the number of further points.
    let mut at: Vec<(&Point, &Doubt, usize)> = Vec::new();
    for (point, doubt) in
        report.points.iter().flat_map(|p| p.forwarded_pps.doubts.iter().map(move |d| (p, d)))
    {
        match at.iter_mut().find(|(_, known, _)| discriminant(*known) == discriminant(doubt)) {
            Some((_, _, more)) => *more += 1,
            None => at.push((point, doubt, 0)),
        }
    }
    for (Point { router, frame_bytes, .. }, doubt, more) in at {
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        doubts.push(format!("doubt: {router} at {frame_bytes} bytes{more}: {doubt}\n"));
    }
    let base = report.points.first().map_or(String::new(), |point| format!("x {}", point.router));
    let heads = [
        "router",
        "bytes",
        "forwarded",
        "from",
        "to",
        "L2",
        "line",
        "offered",
        "lost",
        "runs",
        base.as_str(),
    ];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(report.points.iter().map(fields));
    if report.points.iter().any(|point| point.mtu.is_some()) {
        rows[0].push("MTU".to_owned());
        for (row, point) in rows[1..].iter_mut().zip(&report.points) {
            row.push(point.mtu.map_or("-".to_owned(), |mtu| mtu.to_string()));
        }
    }
    if report.points.iter().any(|point| point.dut_load_percent.is_some()) {
        rows[0].extend(units::LOAD_HEADS.map(str::to_owned));
        for (row, point) in rows[1..].iter_mut().zip(&report.points) {
            row.extend([point.dut_load_percent, point.dut_core_percent].map(units::load));
        }
    }
    let mut text = doubts.concat() + &align("<>", &rows);
    report.effects.iter().for_each(|effect| text += &describe_effect(effect));
    let most = report.speed_bps.map_or("the maximum rate of the generator".to_owned(), |speed| {
        format!("the maximum rate of a line of {}", units::bits_per_second(speed))
    });
    text += &format!(
        "Frames that arrived, in runs of {} s at {most}. Bytes and L2 include the FCS; line also includes preamble and gap.{}\n",
        report.trial_s,
        units::variant(Some(&report.variant))
    );
    if report.points.iter().any(|point| point.dut_load_percent.is_some()) {
        text += units::LOAD_NOTE;
    }
    if report.points.iter().all(|point| point.line_share.is_none()) {
        text += units::NO_LINE;
    }
    text
}

fn fields(point: &Point) -> Vec<String> {
    let pps = |pps: f64| units::packets_per_second(pps.round() as u64);
    let spread = &point.forwarded_pps.spread;
    vec![
        point.router.clone(),
        point.frame_bytes.to_string(),
        pps(point.forwarded_pps.value),
        pps(spread.low),
        pps(spread.high),
        units::bits_per_second(point.l2_bps.round() as u64),
        units::line_share(point.line_share),
        pps(point.offered_pps),
        units::percent(point.loss_ratio),
        point.forwarded_pps.runs.len().to_string(),
        point.gain.map_or(String::new(), |gain| {
            format!("{:.2} ({})", gain.value, bounds(gain.spread, |ratio| format!("{ratio:.2}")))
        }),
    ]
}

fn describe_effect(effect: &Effect) -> String {
    let Effect { router, pps_ratio, l2_ratio, cost } = effect;
    let matters = cost.map_or_else(
        || "cannot tell whether size matters: the router was the limit at fewer than two sizes".to_owned(),
        |cost| {
            format!(
                "{}: a frame costs {:.0} ns plus {:.3} ns per byte; the bytes are {} ({}) of the time of the largest frame",
                size_matters(&cost),
                cost.frame_ns,
                cost.byte_ns,
                units::percent(cost.bytes_share),
                bounds(cost.share_spread, units::percent)
            )
        },
    );
    format!(
        "{router}: the largest frames pass at {pps_ratio:.2} of the frame rate and {l2_ratio:.1} times the bit/s of the smallest; {matters}\n"
    )
}

/// What the bounds of the share of the bytes say, not only its median.
fn size_matters(cost: &Cost) -> String {
    let Spread { low, high, kind } = cost.share_spread;
    match kind {
        SpreadKind::Range => {
            format!("cannot tell whether size matters: at least {RUNS_WANTED} runs are needed")
        }
        SpreadKind::Confidence95 if low > -HARDLY && high < HARDLY => "size hardly matters".to_owned(),
        SpreadKind::Confidence95 if low > MOST => "size matters most".to_owned(),
        SpreadKind::Confidence95 if low > HARDLY => "size matters".to_owned(),
        SpreadKind::Confidence95 => {
            "cannot tell whether size matters: more runs or a quieter machine would".to_owned()
        }
    }
}
