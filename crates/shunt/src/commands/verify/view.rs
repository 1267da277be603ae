//! The text of `shunt verify`: the verdict, then both paths side by side, then the first differences.

use crate::render::{Format, Text, columns::align, style, units};
use shunt_api::{Failure, FailureCode};
use shunt_inspect::verify::{Difference, Fault, Interval, PathReport, Report, Verdict, Way};
use shunt_lab::statistics::share_interval;
use std::fmt::Write;

/// What a difference prints for each fault: in the table, and behind a number of packets.
const FAULTS: [(Fault, &str, &str); 5] = [
    (Fault::Bytes, "changed bytes", "with changed bytes"),
    (Fault::Checksum, "wrong checksum", "with a wrong checksum"),
    (Fault::Headers, "other headers", "with other headers"),
    (Fault::Lost, "lost", "lost"),
    (Fault::Order, "out of order", "out of order"),
];
/// Where to look for what may change packets besides Shunt.
const OTHERS: &str = "a tc filter or XDP program: `tc filter show dev PORT egress`, `bpftool net`";

impl Text for Report {
    fn text(&self, format: Format) -> String {
        let mut text = verdict(self);
        if self.paths.values().any(|path| path.packets > 0) {
            let _ = write!(text, "\n{}", table(self));
        }
        let mut before = String::new();
        for difference in &self.differences {
            let heading = heading(difference);
            let same = if heading == before { "" } else { &heading };
            let _ = write!(text, "\n{same}{}", example(difference));
            before = heading;
        }
        text + &notes(self, format)
    }

    fn failure(&self) -> Option<Failure> {
        match self.verdict {
            Verdict::Equal => None,
            Verdict::Differs => Some(Failure::new(FailureCode::Differs, whose_fault(self))),
            Verdict::CannotTell => {
                let why = format!("cannot tell: {}", self.unknown.join("; "));
                Some(Failure::new(FailureCode::Usage, why))
            }
        }
    }
}

/// Who makes the difference, as far as the two paths tell.
fn whose_fault(report: &Report) -> String {
    let path = |way: Way| report.paths.get(&way).cloned().unwrap_or_default();
    let (fast, slow) = (path(Way::Fast), path(Way::Slow));
    let count =
        |path: &PathReport, of: &[Fault]| of.iter().filter_map(|one| path.faults.get(one)).sum::<u64>();
    let changes = [Fault::Bytes, Fault::Checksum, Fault::Headers];
    let off = "`shunt off` takes connections off the fast path";
    let bug = "`shunt bug-report` collects what a bug report needs";
    let is_more_on_fast = |of: &[Fault]| {
        let share = |path: &PathReport| share_interval(count(path, of), path.packets.max(count(path, of)));
        share(&fast).zip(share(&slow)).is_none_or(|(fast, slow)| fast.low > slow.high)
    };
    match [&fast, &slow].map(|path| count(path, &changes)) {
        [0, 0] => {}
        [_, 0] => {
            return format!(
                "packets differ from what Linux sends: Shunt changes them, or {OTHERS}; {off}, {bug}"
            );
        }
        [changed, _] => {
            let too = if changed > 0 { ", too" } else { "" };
            return format!(
                "packets change on the slow path{too}: something besides Shunt changes them, such as {OTHERS}"
            );
        }
    }
    let is_lost =
        count(&fast, &[Fault::Lost]) > count(&fast, &[Fault::Order]) && is_more_on_fast(&[Fault::Lost]);
    match [&fast, &slow].map(|path| count(path, &[Fault::Order])) {
        [late, _] if late > 0 && is_lost => {
            format!("packets of the fast path are lost, and some leave out of order; {off}, {bug}")
        }
        [0, 0] if count(&fast, &[Fault::Lost]) > 0 => format!("packets of the fast path are lost; {off}"),
        // The report says which, and what may drop them.
        [0, 0] => format!(
            "Linux drops packets of the fast path alone: {} of {}; {off}",
            fast.dropped(),
            fast.packets + fast.dropped()
        ),
        [_, 0] => format!("packets of the fast path leave out of order; {off}, {bug}"),
        [late, _] if late > 0 && is_more_on_fast(&[Fault::Order]) => {
            format!(
                "packets leave out of order, on the fast path more often than on the slow one; {off}, {bug}"
            )
        }
        [late, _] => {
            let too = if late > 0 { ", too" } else { "" };
            format!(
                "packets leave out of order on the slow path{too}: something besides Shunt reorders them, such as several \
                 CPUs or queues for packets of one flow: `/proc/interrupts`, `ethtool -x PORT`, rps_cpus"
            )
        }
    }
}

fn verdict(report: &Report) -> String {
    let path = |way: Way| report.paths.get(&way).cloned().unwrap_or_default();
    let (fast, slow) = (path(Way::Fast), path(Way::Slow));
    let compared = format!(
        "{} of {} compared in {:.0} s: {} fast, {} slow",
        units::count(fast.packets + slow.packets, "packet"),
        units::count(report.flows.len() as u64, "flow"),
        report.seconds,
        fast.packets,
        slow.packets
    );
    let mut text = match report.verdict {
        Verdict::Equal => {
            let is_all = report.unknown.is_empty() && report.unseen == 0;
            let what = if is_all { "all equal" } else { "what was compared is equal" };
            let lost_slow = slow.faults.get(&Fault::Lost).copied().unwrap_or(0);
            let loss = match fast.dropped() + slow.dropped() {
                0 if lost_slow > 0 => format!("none lost on the fast path, {lost_slow} on the slow one"),
                0 => "none lost".to_owned(),
                dropped => format!("none lost but {} that Linux dropped", units::count(dropped, "packet")),
            };
            let mut text = format!("{what}, in order, {loss}: {compared}\n");
            if !report.unknown.is_empty() {
                let _ = writeln!(text, "not compared: {}", report.unknown.join("; "));
            }
            text
        }
        Verdict::Differs => {
            let what = match differs(&fast, &slow) {
                nothing if nothing.is_empty() => {
                    let packets = units::count(fast.dropped(), "packet");
                    format!("Linux dropped {packets} of the fast path alone")
                }
                faults => faults,
            };
            format!("{} {compared}\n", style::warning(format!("{what}:")))
        }
        Verdict::CannotTell => {
            let faults = [&fast, &slow].into_iter().flat_map(|path| path.faults.values()).sum::<u64>();
            let is_equal = fast.packets + slow.packets > 0 && faults == 0;
            let equal = if is_equal { "what was compared is equal and in order: " } else { "" };
            format!("cannot tell: {}\n{equal}{compared}\n", report.unknown.join("; "))
        }
    };
    if let (Verdict::Equal, Some(most)) = (report.verdict, report.faults_at_most) {
        let _ = writeln!(
            text,
            "With 95 % confidence, fewer than one fast packet in {:.0} has a fault.",
            1.0 / most
        );
    }
    text
}

/// `3 packets with changed bytes, 2 lost on the fast path`.
fn differs(fast: &PathReport, slow: &PathReport) -> String {
    let of = |path: &PathReport, name: &str| {
        let found = FAULTS.iter().filter_map(|(fault, _, words)| {
            let count = path.faults.get(fault).copied().filter(|count| *count > 0)?;
            Some((count, words))
        });
        let found = found.enumerate().map(|(at, (count, words))| match at {
            0 => format!("{} {words}", units::count(count, "packet")),
            _ => format!("{count} {words}"),
        });
        let found: Vec<String> = found.collect();
        (!found.is_empty()).then(|| format!("{} on the {name} path", found.join(", ")))
    };
    let both: Vec<String> = [of(fast, "fast"), of(slow, "slow")].into_iter().flatten().collect();
    both.join("; ")
}

fn table(report: &Report) -> String {
    let column = |value: &dyn Fn(&PathReport) -> String| {
        Way::ALL.map(|way| report.paths.get(&way).map_or_else(|| "-".to_owned(), value))
    };
    let mut rows = vec![vec![String::new(), "fast".to_owned(), "slow".to_owned()]];
    let mut row = |name: &str, values: [String; 2]| {
        rows.push([name.to_owned()].into_iter().chain(values).collect());
    };
    row("packets", column(&|path| path.packets.to_string()));
    for (fault, name, _) in FAULTS {
        row(name, column(&|path| path.faults.get(&fault).copied().unwrap_or(0).to_string()));
    }
    row("dropped by Linux", column(&|path| path.dropped().to_string()));
    row("TCP segments sent again", column(&repeated));
    row("time in the router", column(&|path| time(path.in_router_us)));
    row("round trip of TCP", column(&|path| time(path.round_trip_us)));
    align("<>>", &rows)
}

/// A share of segments in percent, with its interval.
fn repeated(path: &PathReport) -> String {
    let Some(spread) = share_interval(path.repeated, path.data) else { return "-".to_owned() };
    let percent = |share: f64| format!("{:.2}", share * 100.0);
    let share = path.repeated as f64 / path.data as f64;
    format!("{} % ({} to {})", percent(share), percent(spread.low), percent(spread.high))
}

fn time(us: Option<f64>) -> String {
    us.map_or_else(|| "-".to_owned(), |us| format!("{us:.1} us"))
}

fn heading(difference: &Difference) -> String {
    let name = FAULTS.iter().find(|(fault, ..)| *fault == difference.fault).map_or("", |(_, name, _)| name);
    let packets = units::count(difference.packets, "packet");
    format!("{name}: {}, {} path, {packets}\n", difference.flow, self::name(difference.way))
}

/// The path, as the table calls it.
const fn name(way: Way) -> &'static str {
    match way {
        Way::Fast => "fast",
        Way::Slow => "slow",
    }
}

/// One of the packets with a fault.
fn example(difference: &Difference) -> String {
    let mut text = String::new();
    for what in &difference.what {
        let _ = writeln!(text, "  {what}");
    }
    let place = match (difference.fault, difference.at) {
        (Fault::Headers, _) => "L2 header".to_owned(),
        (_, at) => format!("from byte {at} of the IP packet, zeros for what a router rewrites"),
    };
    for (when, bytes) in [("entered", &difference.entered), ("left", &difference.left)] {
        if !bytes.is_empty() {
            let _ = writeln!(text, "  {when}, {place}:\n{}", hex(bytes, &difference.differing));
        }
    }
    text
}

/// Sixteen bytes in a line; those that differ stand in brackets.
fn hex(bytes: &str, differing: &[usize]) -> String {
    let marked = bytes.split(' ').enumerate().map(|(at, byte)| match differing.contains(&at) {
        true => format!("[{byte}]"),
        false => format!(" {byte} "),
    });
    let marked: Vec<String> = marked.collect();
    let lines = marked.chunks(16).map(|line| format!("    {}", line.concat().trim_end()));
    lines.collect::<Vec<_>>().join("\n")
}

fn notes(report: &Report, format: Format) -> String {
    let mut notes = Vec::new();
    if report.overtaken > 0 {
        let packets = units::count(report.overtaken, "packet");
        let were = if report.overtaken == 1 { "was" } else { "were" };
        notes.push(format!(
            "{packets} {were} overtaken by packets of the other path, as around each proof (docs/limits/differences.md)"
        ));
    }
    if let Some(Interval { value, low, high }) = report.round_trip_difference_us {
        notes.push(format!(
            "round trip, fast less slow, median of periods: {value:.1} us ({low:.1} to {high:.1})"
        ));
    }
    if report.unseen > 0 {
        let their = if report.unseen == 1 { "its" } else { "their" };
        notes.push(format!("{} could not be followed to {their} end", units::count(report.unseen, "packet")));
    }
    for (way, path) in &report.paths {
        for (reason, count) in &path.dropped_by_linux {
            let packets = units::count(*count, "packet");
            notes.push(format!("Linux dropped {packets} of the {} path: {reason}", name(*way)));
        }
    }
    if report.verdict == Verdict::Differs {
        notes.extend(report.unknown.iter().cloned());
    }
    if format.verbose {
        for flow in &report.flows {
            let packets = |way: Way| flow.packets.get(&way).copied().unwrap_or(0);
            let (fast, slow) = (packets(Way::Fast), packets(Way::Slow));
            notes.push(format!("{} by {}: {fast} fast, {slow} slow", flow.flow, flow.engine));
        }
    }
    if notes.is_empty() { String::new() } else { format!("\n{}\n", notes.join("\n")) }
}
