//! The text of `shunt trace`: the likely cause, percentiles with the paths side by side, then single packets with a
//! line for each event.

mod cause;

use crate::render::{Format, Text, columns::align, units};
use shunt_api::{Failure, FailureCode};
use shunt_inspect::trace::{Bisection, Lost, Packet, Path, Report, Round, StageName, Step};
use std::fmt::Write;

impl Text for Report {
    fn text(&self, _: Format) -> String {
        describe(self)
    }

    fn failure(&self) -> Option<Failure> {
        failure(self)
    }
}

pub(crate) fn describe(report: &Report) -> String {
    let mut text = cause::likely(report);
    let _ = writeln!(
        text,
        "{} traced to the end in {:.1} s, one in {}",
        units::count(report.packets as u64, "packet"),
        report.seconds,
        report.sample
    );
    text += &cause::losses(report);
    if report.paths.is_empty() {
        text +=
            "No packet was seen: is there traffic in this network namespace, and does the filter match it?\n";
    }
    if !report.paths.is_empty() {
        text += HEADINGS;
    }
    // Two paths fit 80 columns.
    for paths in report.paths.chunks(2) {
        text.push('\n');
        text += &percentiles(paths);
    }
    for (path, packets) in report.paths.iter().zip(&report.rows).filter(|(_, packets)| !packets.is_empty()) {
        for packet in packets {
            text += &events(&title(path), packet);
        }
    }
    text.push('\n');
    text += &report.bisection.as_ref().map(bisection).unwrap_or_default();
    text += &footer(report);
    text
}

/// The failure with which the command ends, if the search was impossible.
pub(crate) fn failure(report: &Report) -> Option<Failure> {
    report.bisection_failed.clone().map(|why| Failure::new(FailureCode::Usage, why))
}

pub(crate) fn title(path: &Path) -> String {
    let place = |name: &Option<String>| name.clone().unwrap_or_else(|| "here".to_owned());
    format!("{} {} > {}", path.way, place(&path.from), place(&path.to))
}

/// What the columns of the tables of paths are.
const HEADINGS: &str = "\nHow long packets took from one event to the next, in microseconds (us). median: half of them took less; \
    mean: their average, which adds up to `total`; p99: 99 % took less; max: the longest. `-`: not on this path.\n";

/// One path, or two side by side.
fn percentiles(paths: &[Path]) -> String {
    let titles = match paths {
        [left, right] => format!("left: {}; right: {}", title(left), title(right)),
        _ => paths.iter().map(title).collect(),
    };
    let head = ["event"].into_iter().chain(paths.iter().flat_map(|_| COLUMNS)).map(str::to_owned).collect();
    let table: Vec<Vec<String>> = [head].into_iter().chain(stage_rows(paths)).collect();
    format!("{titles}\n{}", align("<>", &table))
}

/// What a path has for each stage, in microseconds.
pub(crate) const COLUMNS: [&str; 4] = ["median", "mean", "p99", "max"];

/// The stages of these paths, in the order in which packets pass them.
pub(crate) fn stages(paths: &[Path]) -> Vec<StageName> {
    let mut stages: Vec<&str> = Vec::new();
    for path in paths {
        in_order(&mut stages, path.stages.iter().map(|stage| stage.stage));
    }
    stages
}

/// Adds further stages: one that is there already is at its place, and a new one follows the one before it.
fn in_order(stages: &mut Vec<StageName>, further: impl Iterator<Item = StageName>) {
    let mut at = 0;
    for stage in further {
        match stages.iter().position(|name| *name == stage) {
            Some(place) => at = place + 1,
            None => {
                stages.insert(at, stage);
                at += 1;
            }
        }
    }
}

/// A row for each stage, with its name and [`COLUMNS`] for each path; then totals, and numbers of packets.
pub(crate) fn stage_rows(paths: &[Path]) -> Vec<Vec<String>> {
    let mut table = Vec::new();
    for stage in stages(paths) {
        let mut row = vec![stage.to_owned()];
        for path in paths {
            match path.stages.iter().find(|one| one.stage == stage) {
                Some(one) => row.extend([
                    us(one.times.p50_ns as f64),
                    us(one.share_ns),
                    us(one.times.p99_ns as f64),
                    us(one.times.max_ns as f64),
                ]),
                None => row.extend(["-", "", "", ""].map(str::to_owned)),
            }
        }
        table.push(row);
    }
    for name in ["total", "to the wire"] {
        let mut row = vec![name.to_owned()];
        for path in paths {
            let times = if name == "total" { &path.total } else { &path.crossing };
            let all = [times.p50_ns as f64, times.mean_ns, times.p99_ns as f64, times.max_ns as f64];
            row.extend(all.map(us));
        }
        table.push(row);
    }
    let count = |name: &str, of: fn(&Path) -> usize| {
        let counts =
            paths.iter().flat_map(|path| [of(path).to_string(), String::new(), String::new(), String::new()]);
        [name.to_owned()].into_iter().chain(counts).collect()
    };
    table.push(count("packets", |path| path.packets));
    if paths.iter().any(|path| path.dropped > 0) {
        table.push(count("dropped", |path| path.dropped));
    }
    table
}

/// A line for each event of a packet: the time since the event before, and since the first one.
fn events(title: &str, packet: &Packet) -> String {
    let ends = packet.ends.map_or("frame".to_owned(), |ends| ends.to_string());
    let mut table =
        vec![["event", "us since the last", "us since the first", "CPU", "thread"].map(str::to_owned)];
    let mut at_ns = 0;
    for Step { stage, ns, cpu, thread, .. } in &packet.steps {
        at_ns += ns;
        let row =
            [(*stage).to_owned(), us(*ns as f64), us(at_ns as f64), cpu.to_string(), thread.to_string()];
        table.push(row);
    }
    let table: Vec<Vec<String>> = table.into_iter().map(Vec::from).collect();
    format!("\n{title}: {ends}, {} bytes\n{}", packet.bytes, align("<>>><", &table))
}

fn bisection(found: &Bisection) -> String {
    let mut text = format!(
        "{}: `{}` takes longest, {} us; it calls {} functions with the packet\n",
        found.way,
        found.stage,
        us(found.stage_ns),
        found.functions.len()
    );
    for Round { from, at, to, before_ns, after_ns, packets } in &found.rounds {
        let _ = writeln!(
            text,
            "  {} .. {at}: {} us, {at} .. {}: {} us ({packets} packets)",
            from.as_deref().unwrap_or("begin"),
            us(*before_ns),
            to.as_deref().unwrap_or("end"),
            us(*after_ns)
        );
    }
    let end = match &found.next {
        Some(next) => format!("before {next} is called"),
        None => "before the stage ends".to_owned(),
    };
    match &found.culprit {
        Some(culprit) => {
            let _ = writeln!(text, "culprit: {culprit}, {} us {end}", us(found.culprit_ns));
        }
        None => {
            let _ = writeln!(text, "culprit: the beginning of the stage, {} us {end}", us(found.culprit_ns));
        }
    }
    text.push('\n');
    text
}

/// What tracing cost and lost, and what it could not see.
pub(crate) fn footer(report: &Report) -> String {
    let mut text = String::new();
    match (&report.cost, &report.cost_unknown) {
        (Some(cost), _) => {
            let _ = writeln!(
                text,
                "cost: {:.0} ns for each packet, traced or not, on average ({:.1} probes of {:.0} ns, attached {:.1} % of the time; {:.0} ns \
                 for each event recorded); switching them took {:.1} % of a CPU",
                cost.per_packet_ns,
                cost.probes_per_packet,
                cost.measured.probe_ns,
                cost.attached_share * 100.0,
                cost.measured.event_ns,
                cost.switching_percent
            );
        }
        (None, Some(why)) => {
            let _ = writeln!(text, "cost: unknown: {why}");
        }
        (None, None) => {}
    }
    text += &lost(&report.lost);
    for (stage, why) in &report.missing {
        let _ = writeln!(text, "not seen: {stage} ({why})");
    }
    text
}

fn lost(lost: &Lost) -> String {
    let Lost { slots_busy, ring_full, runs_skipped, events, vanished, unfinished, not_kept, switches } = lost;
    let all = [
        (slots_busy, "packets without a slot"),
        (ring_full, "records without room"),
        (runs_skipped, "runs that the kernel skipped"),
        (events, "events without room"),
        (vanished, "packets merged by GRO or freed unseen"),
        (unfinished, "packets on their way at the end"),
        (not_kept, "packets beyond those that are kept"),
        (switches, "switches of threads beyond those that are kept"),
    ];
    let seen: Vec<String> =
        all.iter().filter(|(count, _)| **count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    if seen.is_empty() { "lost: nothing\n".to_owned() } else { format!("lost: {}\n", seen.join(", ")) }
}

/// Microseconds with two decimals below 100.
fn us(ns: f64) -> String {
    let us = ns / 1000.0;
    if us < 100.0 { format!("{us:.2}") } else { format!("{us:.0}") }
}
