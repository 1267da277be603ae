//! The text of `shunt quality`: the verdict, then the sides, then the hosts.

use crate::render::{Answer, Format, columns::align, json, style, units};
use shunt_api::{Failure, FailureCode};
use shunt_inspect::quality::{
    Finding, HostReport, Loss, Part, Quantile, Report, Share, Side, SideReport, Symptom, Times, Unseen,
    Verdict,
};
use std::fmt::Write;

/// With fewer segments, a share in the table of hosts would say nothing.
const SEGMENTS_WANTED: u64 = 100;
/// What waits for so long, or longer, waits for too long.
const WAITS_MS: f64 = 50.0;

/// A report, and how many hosts its text has.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) report: Report,
    pub(super) limit: usize,
    /// A host that was asked for and had no traffic, and those that had some.
    pub(super) unseen_host: Option<UnseenHost>,
}

/// A host without traffic.
#[derive(Debug)]
pub(super) struct UnseenHost {
    pub(super) wanted: String,
    pub(super) seen: Vec<String>,
}

impl Answer for Shown {
    fn text(&self, _: Format) -> String {
        let report = &self.report;
        let mut text = verdict(self);
        if report.sides.values().any(|side| segments(side) > 0 || side.round_trip.is_some()) {
            let _ = write!(text, "\n{}", table(report));
            let _ = write!(text, "\n{}", hosts(report, self.limit));
        }
        let notes = notes(report, self.limit);
        if !notes.is_empty() {
            let _ = write!(text, "\n{}\n", notes.join("\n"));
        }
        text
    }

    fn json(&self) -> serde_json::Result<String> {
        json(&self.report)
    }

    fn failure(&self) -> Option<Failure> {
        match self.report.verdict {
            Verdict::Sound => None,
            Verdict::Fault => Some(Failure::new(FailureCode::CheckFailed, faults(&self.report))),
            Verdict::CannotTell => {
                Some(Failure::new(FailureCode::Usage, format!("cannot tell: {}", why(self))))
            }
        }
    }
}

fn verdict(shown: &Shown) -> String {
    let report = &shown.report;
    let seen: u64 = report.sides.values().map(segments).sum();
    let hosts = report.hosts.iter().filter(|host| !host.is_not_attributed).count();
    let observed = format!(
        "{} of {} in {:.0} s",
        units::count(seen, "TCP segment"),
        units::count(hosts as u64, "host"),
        report.seconds
    );
    match report.verdict {
        Verdict::Fault => format!("{}\n{observed}\n", style::warning(faults(report))),
        Verdict::Sound => {
            format!(
                "{}\n{observed}\nwhat the router itself drops is not seen here: `tc -s qdisc`, `ip -s link`\n",
                sound(report)
            )
        }
        Verdict::CannotTell if report.unseen.is_some() => format!("cannot tell: {}\n", why(shown)),
        Verdict::CannotTell => format!("cannot tell: {}\n{observed}\n", why(shown)),
    }
}

/// What nothing is wrong with. Of losses, only a direction with enough traffic tells.
fn sound(report: &Report) -> String {
    let is_upload = |one: &Finding| {
        matches!(
            (one.part, one.symptom),
            (Part::LanSide, Symptom::LosesTowardsRouter) | (Part::WanSide, Symptom::LosesFromRouter)
        )
    };
    let uploads = report.unknown.iter().filter(|one| is_upload(one)).count();
    let directions = match (uploads, report.unknown.len() - uploads) {
        (0, 0) => return "nothing wrong on either side, and nothing waits in the router".to_owned(),
        (_, 0) => "download, and nothing waits in the router; too little upload",
        (0, _) => "upload, and nothing waits in the router; too little download",
        (..) => "traffic that was enough, and nothing waits in the router; the rest is too little",
    };
    format!("nothing wrong with the {directions} to judge")
}

/// `WAN side: loses 2.1 % of segments towards the router (95 %: 1.7 to 2.5 %); ...`.
fn faults(report: &Report) -> String {
    let all = report.findings.iter().map(|finding| {
        let share = finding.share.map_or_else(|| "some".to_owned(), |share| percent(share.value));
        let bounds = finding.share.map_or_else(String::new, |share| format!(" ({})", bounds(share)));
        let what = match (finding.symptom, finding.part) {
            (Symptom::LosesTowardsRouter, _) => format!("loses {share} of segments towards the router"),
            (Symptom::LosesFromRouter, _) => format!("loses {share} of segments from the router"),
            (Symptom::Waits, Part::Router) => format!("lets {share} of packets wait for 50 ms or longer"),
            (Symptom::Waits, _) => format!("at least {share} of round trips wait for 50 ms or longer"),
        };
        format!("{}: {what}{bounds}", part(finding.part))
    });
    all.collect::<Vec<_>>().join("; ")
}

/// How often a flow of the fast path is proved by a packet that Linux forwards, in seconds, by default.
const PROOF_S: u64 = 2;

/// Why there is no answer, and what would tell.
fn why(shown: &Shown) -> String {
    let Shown { report, unseen_host, .. } = shown;
    if let (None, Some(UnseenHost { wanted, seen })) = (report.unseen, unseen_host) {
        let seen = if seen.is_empty() { "no host".to_owned() } else { seen.join(", ") };
        return format!("no TCP data of {wanted} passed the ports; seen was {seen}");
    }
    match report.unseen {
        Some(Unseen { packets, of }) => format!(
            "the engines xdp and external forwarded {packets} of {of} packets, which cannot be observed; \
             with --off, Linux forwards TCP meanwhile"
        ),
        None if report.sides.values().map(segments).sum::<u64>() == 0 => {
            "no TCP data passed the ports; UDP and QUIC do not tell. Start a download and an upload, or observe for longer"
                .to_owned()
        }
        None if report.unknown.is_empty() => {
            format!("the headers of {} packets could not be read", report.unread)
        }
        None => undecided(report)
            .or_else(|| long(report))
            .unwrap_or_else(|| too_little(report).to_owned()),
    }
}

/// What is too little for an answer.
fn too_little(report: &Report) -> &'static str {
    let is_of_round_trips = |one: &Finding| one.symptom == Symptom::Waits && one.part != Part::Router;
    if report.unknown.iter().all(is_of_round_trips) {
        return "too few round trips; a longer run, or more connections, would tell";
    }
    "too little traffic; the list below says what is missing"
}

/// A side whose segments came in another order, as lost ones do that are sent again.
fn undecided(report: &Report) -> Option<String> {
    let of = |figures: &SideReport| {
        [figures.towards_router, figures.from_router].into_iter().find(|loss| loss.is_undecided())
    };
    let (side, loss) = report.sides.iter().find_map(|(side, figures)| Some((side, of(figures)?)))?;
    let side = part(side_part(*side));
    let unclear = loss.reordered + loss.unclear;
    Some(format!(
        "{side}: {unclear} of {} were late: lost and sent again, or only out of order; `nstat TcpRetransSegs` on their \
         sender tells",
        units::count(loss.segments, "segment")
    ))
}

/// A side whose round trips are long, from the first one on.
fn long(report: &Report) -> Option<String> {
    let (finding, p95) = report.unknown.iter().find_map(|one| Some((one, long_round_trip(one, report)?)))?;
    Some(format!(
        "{}: round trips take up to {} (p95); the other end is far away, or a buffer was full all the time: {} would tell",
        part(finding.part),
        ms(p95.ms),
        SHORTER
    ))
}

/// What tells a queue from distance.
const SHORTER: &str = "a start while the line is idle, or a server nearby";

/// How long the round trips of a side take, if they are long and nobody knows whether they wait.
fn long_round_trip(finding: &Finding, report: &Report) -> Option<Quantile> {
    let side = Side::ALL.into_iter().find(|side| side_part(*side) == finding.part)?;
    let times = report.sides.get(&side)?.round_trip.filter(|_| finding.symptom == Symptom::Waits)?;
    times.p95.filter(|p95| p95.ms >= WAITS_MS)
}

const fn side_part(side: Side) -> Part {
    match side {
        Side::Lan => Part::LanSide,
        Side::Wan => Part::WanSide,
    }
}

const fn part(part: Part) -> &'static str {
    match part {
        Part::LanSide => "LAN side",
        Part::Router => "router",
        Part::WanSide => "WAN side",
    }
}

const fn segments(side: &SideReport) -> u64 {
    side.towards_router.segments + side.from_router.segments
}

fn table(report: &Report) -> String {
    let column = |value: &dyn Fn(&SideReport) -> String| {
        Side::ALL.map(|side| report.sides.get(&side).map_or_else(|| "-".to_owned(), value))
    };
    let mut rows = vec![["", "LAN side", "WAN side"].map(str::to_owned).to_vec()];
    let mut row = |name: &str, values: [String; 2]| {
        rows.push([name.to_owned()].into_iter().chain(values).collect());
    };
    row("round trip, shortest", column(&|side| shortest(side.round_trip)));
    row("round trip, p50", column(&|side| quantile(side.round_trip.and_then(|times| times.p50))));
    row("round trip, p95", column(&|side| quantile(side.round_trip.and_then(|times| times.p95))));
    row("of it waiting, at least, p95", column(&|side| quantile(side.waiting.and_then(|times| times.p95))));
    row("segments to the router", column(&|side| side.towards_router.segments.to_string()));
    row("lost of these", column(&|side| lost(side.towards_router)));
    row("segments from the router", column(&|side| side.from_router.segments.to_string()));
    row("lost of these", column(&|side| lost(side.from_router)));
    let mut text = align("<>>", &rows);
    for (side, times) in &report.router {
        let to = part(side_part(*side));
        let _ = writeln!(
            text,
            "inside the router, to the {to}: p50 {}, p95 {}",
            quantile(times.p50),
            quantile(times.p95)
        );
    }
    text
}

fn hosts(report: &Report, limit: usize) -> String {
    let heads = ["host", "LAN p50", "p95", "lost in/out", "WAN p50", "p95", "lost in/out"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for host in report.hosts.iter().take(limit) {
        let mut row = vec![name(host)];
        for side in Side::ALL {
            match host.sides.get(&side) {
                Some(figures) => row.extend([
                    quantile(figures.round_trip.and_then(|times| times.p50)),
                    quantile(figures.round_trip.and_then(|times| times.p95)),
                    format!("{}/{}", short(figures.towards_router), short(figures.from_router)),
                ]),
                None => row.extend(["-", "-", "-"].map(str::to_owned)),
            }
        }
        rows.push(row);
    }
    align("<>", &rows)
}

pub(super) fn name(host: &HostReport) -> String {
    match (&host.name, host.host) {
        _ if host.is_router => "this router".to_owned(),
        _ if host.is_not_attributed => "not attributed".to_owned(),
        (Some(name), _) => name.clone(),
        (None, Some(address)) => address.to_string(),
        (None, None) => "others".to_owned(),
    }
}

fn shortest(times: Option<Times>) -> String {
    times.map_or_else(|| "-".to_owned(), |times| ms(times.shortest_ms))
}

fn quantile(quantile: Option<Quantile>) -> String {
    quantile.map_or_else(|| "-".to_owned(), |quantile| ms(quantile.ms))
}

fn ms(ms: f64) -> String {
    match ms {
        ms if ms < 1.0 => format!("{ms:.2} ms"),
        ms if ms < 100.0 => format!("{ms:.1} ms"),
        ms => format!("{ms:.0} ms"),
    }
}

/// A share of segments in percent, with its interval.
fn lost(loss: Loss) -> String {
    let share = |share: Share| format!("{} ({})", percent(share.value), bounds(share));
    loss.share.map_or_else(|| "-".to_owned(), share)
}

fn short(loss: Loss) -> String {
    let share = loss.share.filter(|_| loss.segments >= SEGMENTS_WANTED);
    share.map_or_else(|| "-".to_owned(), |share| percent(share.value))
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 10.0 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

fn bounds(share: Share) -> String {
    format!("{:.1} to {:.1}", share.low * 100.0, share.high * 100.0)
}

fn notes(report: &Report, limit: usize) -> Vec<String> {
    let mut notes = Vec::new();
    if report.unseen.is_none() && report.sides.values().map(segments).sum::<u64>() > 0 {
        notes.extend(report.unknown.iter().map(|one| missing(one, report)));
    }
    for (side, figures) in &report.sides {
        let side = part(side_part(*side));
        if figures.may_be_delayed {
            notes.push(format!(
                "round trip of the {side}: the shortest is an upper bound; the other end may have waited before each answer"
            ));
        }
        let reordered = figures.towards_router.reordered;
        if reordered > 0 {
            notes.push(format!(
                "{side}: {} arrived out of order; on a fast network, some of them may have been lost and sent again",
                units::count(reordered, "segment")
            ));
        }
    }
    if report.hosts.iter().any(|host| host.is_not_attributed) {
        notes.push(format!(
            "not attributed: connections behind NAT until their first packet by Linux; on the fast path, that is their next \
             proof, up to {PROOF_S} s after the start"
        ));
    }
    let more = report.hosts.len().saturating_sub(limit);
    if more > 0 {
        notes.push(format!("{} more; --limit shows them", units::count(more as u64, "host")));
    }
    notes
}

/// What is unknown, and what would tell.
fn missing(finding: &Finding, report: &Report) -> String {
    let what = match (finding.symptom, finding.part) {
        (Symptom::LosesTowardsRouter, _) => "loses segments towards the router",
        (Symptom::LosesFromRouter, _) => "loses segments from the router",
        (Symptom::Waits, _) => "lets packets wait",
    };
    // A round trip is that of data which leaves by the side, and of its acknowledgement.
    let remedy = match (finding.symptom, finding.part, finding.share) {
        (Symptom::Waits, Part::Router, _) => "more traffic",
        _ if long_round_trip(finding, report).is_some() => SHORTER,
        (Symptom::LosesTowardsRouter, Part::LanSide, None)
        | (Symptom::LosesFromRouter | Symptom::Waits, Part::WanSide, None) => "an upload",
        (Symptom::LosesTowardsRouter, Part::LanSide, Some(_))
        | (Symptom::LosesFromRouter | Symptom::Waits, Part::WanSide, Some(_)) => "a longer upload",
        (_, _, None) => "a download",
        (_, _, Some(_)) => "a longer download",
    };
    let known = finding.share.map_or_else(|| "none seen".to_owned(), |share| format!("{} %", bounds(share)));
    format!("cannot tell whether the {} {what} ({known}): {remedy} would tell", part(finding.part))
}
