//! The lines of `shunt trace` on what makes packets slow, and what drops them.

use super::us;
use crate::render::units;
use shunt_inspect::trace::{Cause, Report};
use std::fmt::Write;

/// The likely cause, or why none can be told.
pub(super) fn likely(report: &Report) -> String {
    let diagnosis = &report.diagnosis;
    let why = match (&diagnosis.likely, &diagnosis.longest) {
        (Some(cause), _) => return format!("likely cause: {}\n", described(cause)),
        (None, _) if report.packets == 0 && diagnosis.losses.is_empty() => "no packet was traced".to_owned(),
        (None, Some(longest)) => format!("no single delay stands out; the longest: {}", described(longest)),
        (None, None) => "no delay was seen".to_owned(),
    };
    let mut text = format!("likely cause: cannot tell: {why}\n");
    if let Some(reason) = report.missing.get("threads") {
        let _ = writeln!(text, "what threads did was not seen: {reason}");
    } else if diagnosis.unknown >= 0.1 {
        let _ = writeln!(
            text,
            "what threads did is unknown for {:.0} % of the time: trace longer",
            diagnosis.unknown * 100.0
        );
    }
    if report.sample > 1 {
        text += "with `--sample 1`, the time of programs between reading and writing is seen, too\n";
    }
    text
}

/// A line for each culprit that drops packets.
pub(super) fn losses(report: &Report) -> String {
    let mut text = String::new();
    for loss in &report.diagnosis.losses {
        let _ = writeln!(
            text,
            "dropped: {} ({}): {}: {}",
            units::count(loss.packets as u64, "packet"),
            loss.path,
            loss.reason,
            loss.culprit
        );
    }
    text
}

fn described(cause: &Cause) -> String {
    let Cause { culprit, path, mean_ns, share, packets } = cause;
    let percent = share * 100.0;
    match mean_ns {
        Some(mean_ns) => {
            format!("{culprit} ({} us per packet, {percent:.0} % of the time; {path})", us(*mean_ns))
        }
        None => format!("{culprit} ({}, {percent:.0} %; {path})", units::count(*packets as u64, "packet")),
    }
}
