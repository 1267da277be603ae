//! The text of `shunt gen`.

use crate::render::{Format, Text, columns::align, units};
use shunt_api::{Failure, FailureCode};
use shunt_lab::traffic::{Directed, Figures, Floor, LatencyUs, Recorded, Report, SendMethod};

impl Text for Report {
    fn text(&self, _: Format) -> String {
        describe(self)
    }

    fn failure(&self) -> Option<Failure> {
        let recorded = self.recorded.as_ref()?;
        let why = format!("{}: {}", recorded.file.display(), recorded.failure.as_ref()?);
        Some(Failure::new(FailureCode::BadConfig, why))
    }
}

fn describe(report: &Report) -> String {
    let mut text = String::new();
    for doubt in &report.doubts {
        text += &format!("doubt: {doubt}\n");
    }
    for directed in &report.directions {
        text += &direction(directed, report.burst);
    }
    if report.directions.len() > 1 {
        text += "both directions\n";
        text += &figures(&report.figures, None);
    }
    if let Some(floor) = &report.floor {
        text += &describe_floor(floor);
    }
    if let Some(recorded) = &report.recorded {
        text += &describe_recorded(recorded);
    }
    text
}

fn direction(directed: &Directed, burst: u32) -> String {
    let means = match directed.method {
        SendMethod::XdpLive => "live XDP frames",
        SendMethod::Socket => "a socket",
    };
    format!(
        "{} -> {}: {}\nsent by {means}, at most {burst} back to back\n{}",
        directed.from,
        directed.to,
        directed.traffic,
        figures(&directed.figures, Some(line_share(directed)))
    )
}

fn line_share(directed: &Directed) -> String {
    match (&directed.limit, directed.line_share) {
        (Some(limit), Some(share)) => format!("{} of it arrived: {}", units::percent(share), limit.of),
        _ => "speed not known; give it with --speed".to_owned(),
    }
}

fn figures(f: &Figures, line: Option<String>) -> String {
    let rate = |pps: f64| units::packets_per_second(pps.round() as u64);
    let bits = |bps: f64| units::bits_per_second(bps.round() as u64);
    let offered = f.offered_pps.map_or("as fast as possible".to_owned(), rate);
    let mut rows = vec![
        row("offered", offered),
        row(
            "achieved",
            format!(
                "{}{} = {} L2, {} L1, for {:.3} s",
                rate(f.achieved_pps),
                share(f),
                bits(f.achieved_l2_bps),
                bits(f.achieved_l1_bps),
                f.seconds
            ),
        ),
    ];
    rows.extend(line.map(|line| row("line", line)));
    rows.extend([
        row(
            "sent",
            match f.unsent {
                0 => f.sent.to_string(),
                unsent => format!("{}, and {unsent} left out", f.sent),
            },
        ),
        row(
            "received",
            match f.flows {
                0 => f.received.to_string(),
                flows => format!("{} of {}", f.received, units::count(flows.into(), "flow")),
            },
        ),
        row("lost", lost(f)),
    ]);
    rows.extend(f.duplicated.map(|duplicated| row("duplicated", duplicated.to_string())));
    rows.extend(f.reordered.map(|reordered| {
        row(
            "reordered",
            match reordered {
                0 => "0".to_owned(),
                some => format!("{some}, by at most {}", units::count(f.displaced_max.into(), "packet")),
            },
        )
    }));
    if let Some(l) = &f.latency_us {
        rows.push(row("latency", latency(l)));
        rows.push(row("jitter", format!("{:.2} us", f.jitter_us)));
    }
    align("<", &rows)
}

/// The achieved share of the offered rate; three digits of a rate would not show a small difference.
pub(super) fn share(f: &Figures) -> String {
    f.offered_pps.map_or(String::new(), |offered| format!(" ({:.3} %)", f.achieved_pps / offered * 100.0))
}

fn describe_floor(floor: &Floor) -> String {
    format!(
        "the generator without a router: latency {}, jitter {:.2} us, at most {}\n",
        latency(&floor.latency_us),
        floor.jitter_us,
        units::packets_per_second(floor.max_pps.round() as u64)
    )
}

fn describe_recorded(recorded: &Recorded) -> String {
    let beyond = match recorded.beyond_limit {
        0 => String::new(),
        some => format!("; {some} more arrived beyond --pcap-limit"),
    };
    let failure = recorded.failure.as_ref().map_or(String::new(), |why| format!("; incomplete: {why}"));
    format!("{}: {} frames{beyond}{failure}\n", recorded.file.display(), recorded.frames)
}

fn latency(l: &LatencyUs) -> String {
    format!("{:.1} min, {:.1} p50, {:.1} p99, {:.1} p99.9, {:.1} max us", l.min, l.p50, l.p99, l.p999, l.max)
}

fn row(name: &str, value: String) -> Vec<String> {
    vec![format!("  {name}"), value]
}

/// The loss, with the interval that chance alone explains.
fn lost(figures: &Figures) -> String {
    let Figures { lost, sent, loss_ratio, .. } = figures;
    format!("{lost} ({:.4} %, 95 %: {})", loss_ratio * 100.0, units::loss_interval(*lost, *sent, 4))
}
