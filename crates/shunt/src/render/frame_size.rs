//! The text of `shunt bench size`. What speaks against a number stands above it.

use super::{columns::align, units};
use shunt_lab::{
    Doubt,
    frame_size::{Effect, Point, Report},
};
use std::mem::discriminant;

/// Where bytes are less than this part of the time of the largest frame, the size hardly matters.
const HARDLY: f64 = 0.1;
/// Where they are more than this part, it is what matters most.
const MOST: f64 = 0.5;

pub(super) fn describe(report: &Report) -> String {
    let mut doubts: Vec<String> = report.doubts.iter().map(|doubt| format!("doubt: {doubt}\n")).collect();
    // Those that differ by a figure, at several points, are one line.
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
        doubts.push(format!("doubt: {router} of {frame_bytes} bytes{more}: {doubt}\n"));
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
    if report.points.iter().any(|point| point.dut_load_percent.is_some()) {
        rows[0].push("DUT load".to_owned());
        for (row, point) in rows[1..].iter_mut().zip(&report.points) {
            row.push(units::load(point.dut_load_percent));
        }
    }
    let mut text = doubts.concat() + &align("<>", &rows);
    report.effects.iter().for_each(|effect| text += &describe_effect(effect));
    let most = report.speed_bps.map_or("all that the generator can".to_owned(), |speed| {
        format!("what {} carry", units::bits_per_second(speed))
    });
    text += &format!(
        "Frames that arrived, by runs of {} s at {most}. Bytes are those of a frame with FCS, L2 is in them; line is with preamble and gap.\n",
        report.trial_s
    );
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
            format!("{:.2} ({:.2} to {:.2})", gain.value, gain.spread.low, gain.spread.high)
        }),
    ]
}

fn describe_effect(effect: &Effect) -> String {
    let Effect { router, pps_ratio, l2_ratio, cost } = effect;
    let matters = cost.map_or("no cost of a byte shows".to_owned(), |cost| {
        let how = match cost.bytes_share {
            share if share < HARDLY => "size hardly matters",
            share if share < MOST => "size matters",
            _ => "size matters most",
        };
        format!(
            "{how}: a frame takes {:.0} ns and {:.3} ns a byte, which is {} of the time of the largest",
            cost.frame_ns,
            cost.byte_ns,
            units::percent(cost.bytes_share)
        )
    });
    format!(
        "{router}: the largest frames at {pps_ratio:.2} of the rate of the smallest, {l2_ratio:.1} times their bit/s; {matters}\n"
    )
}
