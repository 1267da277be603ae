//! What `shunt quality` reports: figures of both sides and of the router, by host, and a verdict. Pure.

use super::{
    Side, abi,
    programs::{Counted, HostTally, Sender},
    times::{Histogram, Times},
};
use serde::{Deserialize, Serialize};
use shunt_lab::statistics::share_interval;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

/// A side that loses more than this share of segments is at fault. Less is what TCP itself makes a full line lose.
const LOSS: f64 = 0.01;
/// Something is at fault if more than this share of packets waits there for 50 ms or longer (`QUALITY_WAITS`).
const WAITING: f64 = 0.05;
/// So many segments tell more and less than that share apart.
const ENOUGH: u64 = 1000;
/// Fewer round trips blame nobody: one stall hits several that follow each other.
const ENOUGH_TIMES: u64 = 75;
/// From this share of unread packets on, there is no answer.
const UNREAD: f64 = 0.01;

/// What an observation knows besides hosts.
#[derive(Debug)]
pub(super) struct Course {
    pub(super) seconds: f64,
    pub(super) counted: Counted,
    /// The addresses of the router.
    pub(super) own: BTreeSet<IpAddr>,
}

/// Packets that engines forwarded past the observer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unseen {
    /// Packets that the engines xdp and external forwarded.
    pub packets: u64,
    /// Packets that arrived through all ports in the same time.
    pub of: u64,
}

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Something loses packets or lets them wait: see the findings.
    Fault,
    /// Neither side and not the router: nothing waits, and nothing is lost where there was enough traffic to tell.
    Sound,
    /// The traffic does not carry an answer.
    CannotTell,
}

/// A part of the path of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Beyond the ports of the LAN side.
    LanSide,
    /// Between the ports.
    Router,
    /// Beyond the ports of the WAN side.
    WanSide,
}

/// What is wrong with a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Symptom {
    /// Segments that are sent to the router are lost before it.
    LosesTowardsRouter,
    /// Segments that left the router are lost behind it.
    LosesFromRouter,
    /// Packets wait there for 50 ms or longer; on a side, longer than the shortest round trip of their connection.
    Waits,
}

/// What is wrong, or what is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The part of the path where packets suffer.
    pub part: Part,
    /// What happens to them.
    pub symptom: Symptom,
    /// The share of packets; absent if there were none.
    pub share: Option<Share>,
}

/// A share, from 0 to 1, with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// What was seen: hits by trials; for round trips that wait, at least so many.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Share {
    /// The share of hits; up to `most` of the trials may be hits. `None` without trials.
    fn new(hits: u64, most: u64, trials: u64) -> Option<Self> {
        let (low, high) = (share_interval(hits, trials)?.low, share_interval(most, trials)?.high);
        Some(Self { value: hits as f64 / trials as f64, low, high })
    }
}

/// Figures of both sides and of the router, and the verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The answer.
    pub verdict: Verdict,
    /// What is at fault.
    pub findings: Vec<Finding>,
    /// What the traffic was too little to tell.
    pub unknown: Vec<Finding>,
    /// Packets that were forwarded unseen; absent if there were none. With them, there are no figures.
    pub unseen: Option<Unseen>,
    /// Packets of TCP whose headers could not be read.
    pub unread: u64,
    /// Duration in seconds.
    pub seconds: f64,
    /// Figures by side, all hosts together.
    pub sides: BTreeMap<Side, SideReport>,
    /// Time inside the router, of packets that leave by this side; sides without any are left out.
    pub router: BTreeMap<Side, Times>,
    /// Figures by host, those with most segments first.
    pub hosts: Vec<HostReport>,
}

/// Figures of what lies beyond the ports of a side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SideReport {
    /// Round trips from the router to the other end and back; absent without any.
    pub round_trip: Option<Times>,
    /// Whether all of these may include the time for which the other end waited before it answered. Then only the
    /// shortest is given, which no true one exceeds.
    pub may_be_delayed: bool,
    /// By how much round trips exceed the shortest one of their connection: they wait at least so long. Absent without
    /// any.
    pub waiting: Option<Times>,
    /// The share that waits for 50 ms or longer. Its value and its lower end are of [`Self::waiting`], its upper end is
    /// of whole round trips: the shortest one may have waited, too.
    pub waiting_share: Option<Share>,
    /// Losses on the way to the router.
    pub towards_router: Loss,
    /// Losses on the way from the router.
    pub from_router: Loss,
}

/// Segments of TCP with data, and how many of them were lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    /// Segments that were sent.
    pub segments: u64,
    /// Those that were lost.
    pub lost: u64,
    /// Those that were missing for a moment only: reordered.
    pub reordered: u64,
    /// Those that were sent again; it is unknown where they were lost.
    pub unclear: u64,
    /// The share of lost segments; absent without segments.
    pub share: Option<Share>,
}

impl Loss {
    /// Whether there was enough traffic to tell whether too much is lost, but not what became of too many segments.
    #[must_use]
    pub fn is_undecided(self) -> bool {
        let Self { segments, lost, reordered, unclear, share } = self;
        let most = LOSS * segments as f64;
        let may_be_lost = (lost + reordered + unclear) as f64;
        segments >= ENOUGH && may_be_lost > most && share.is_some_and(|share| share.low <= LOSS)
    }
}

/// Figures of a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostReport {
    /// Its address; absent for all those that the observer had no room for, and for what is not attributed.
    pub host: Option<IpAddr>,
    /// The name that its DHCP lease gives; absent without a lease.
    pub name: Option<String>,
    /// Whether the address is the router's.
    pub is_router: bool,
    /// Whether these are the connections behind NAT of which no packet has named the host yet; absent if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_not_attributed: bool,
    /// Figures by side.
    pub sides: BTreeMap<Side, SideReport>,
}

/// Whose figures a line has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Host(IpAddr),
    NoRoom,
    NotAttributed,
}

impl Owner {
    /// An address of the router whose connection is not known may hide any host.
    fn of(sender: Sender, own: &BTreeSet<IpAddr>) -> Self {
        match sender {
            Sender::Assumed(address) if own.contains(&address) => Self::NotAttributed,
            Sender::Host(address) | Sender::Assumed(address) => Self::Host(address),
            Sender::NoRoom => Self::NoRoom,
        }
    }

    const fn address(self) -> Option<IpAddr> {
        match self {
            Self::Host(address) => Some(address),
            Self::NoRoom | Self::NotAttributed => None,
        }
    }
}

/// What was counted of one host or of several.
#[derive(Debug, Clone, Default)]
struct Sum {
    prompt: Histogram,
    delayed: Histogram,
    excess: Histogram,
    towards: Loss,
    from: Loss,
    repeated: u64,
    duplicate: u64,
}

impl Sum {
    fn add(&mut self, tally: &abi::QualityTally) {
        self.prompt.add(&tally.prompt);
        self.delayed.add(&tally.delayed);
        self.excess.add(&tally.excess);
        // What was lost did not arrive, and was sent.
        self.towards.segments += tally.in_segments + tally.in_lost;
        self.towards.lost += tally.in_lost;
        self.towards.reordered += tally.in_reordered;
        self.towards.unclear += tally.in_unclear;
        self.from.segments += tally.out_segments;
        self.from.unclear += tally.out_unclear;
        self.repeated += tally.out_repeated;
        self.duplicate += tally.out_duplicate;
    }

    fn segments(&self) -> u64 {
        self.towards.segments + self.from.segments
    }

    /// What waits for too long is in between: round trips that exceed the shortest one of their connection by so much,
    /// and those that take so long at all.
    fn waiting_share(&self) -> Option<Share> {
        let whole = if self.prompt.total() < ENOUGH_TIMES {
            self.prompt.clone().plus(&self.delayed)
        } else {
            self.prompt.clone()
        };
        let high = too_long(&whole)?.high;
        let least = too_long(&self.excess);
        let (value, low) = least.map_or((0.0, 0.0), |share| (share.value, share.low));
        let low = if self.excess.total() < ENOUGH_TIMES { 0.0 } else { low };
        Some(Share { value, low, high: high.max(value) })
    }

    fn report(&self) -> SideReport {
        let prompt = self.prompt.times().filter(|times| times.p50.is_some());
        let may_be_delayed = prompt.is_none() && self.delayed.total() > 0;
        let at_most = || self.delayed.times().map(|times| Times { p50: None, p95: None, ..times });
        let round_trip = if may_be_delayed { at_most() } else { self.prompt.times() };
        let from = Loss { lost: self.repeated.saturating_sub(self.duplicate), ..self.from };
        SideReport {
            round_trip,
            may_be_delayed,
            waiting: self.excess.times(),
            waiting_share: self.waiting_share(),
            towards_router: with_share(self.towards),
            from_router: with_share(from),
        }
    }
}

/// The share of these times that is too long.
fn too_long(times: &Histogram) -> Option<Share> {
    let long = times.at_least(abi::QUALITY_WAITS);
    Share::new(long, long, times.total())
}

/// With the share of lost segments. Those that are unclear or out of order may be lost or not: on a fast network, a
/// sender repeats a segment as soon as others overtake it elsewhere.
fn with_share(loss: Loss) -> Loss {
    let Loss { segments, lost, unclear, reordered, .. } = loss;
    // A segment may be lost more than once.
    let share = Share::new(lost.min(segments), (lost + unclear + reordered).min(segments), segments);
    Loss { share, ..loss }
}

/// Makes the report.
pub(super) fn report(
    tallies: &[HostTally],
    course: &Course,
    unseen: Option<Unseen>,
    wanted: impl Fn(Option<IpAddr>) -> bool,
    name: impl Fn(IpAddr) -> Option<String>,
) -> Report {
    let mut report = Report {
        verdict: Verdict::CannotTell,
        findings: Vec::new(),
        unknown: Vec::new(),
        unseen: unseen.filter(|unseen| unseen.packets > 0),
        unread: course.counted.unseen.unread,
        seconds: course.seconds,
        sides: BTreeMap::new(),
        router: BTreeMap::new(),
        hosts: Vec::new(),
    };
    if report.unseen.is_some() {
        return report;
    }
    let mut sides: BTreeMap<Side, Sum> = Side::ALL.into_iter().map(|side| (side, Sum::default())).collect();
    let mut hosts: BTreeMap<Owner, BTreeMap<Side, Sum>> = BTreeMap::new();
    for ((sender, side), tally) in tallies {
        let owner = Owner::of(*sender, &course.own);
        if wanted(owner.address()) {
            sides.entry(*side).or_default().add(tally);
            hosts.entry(owner).or_default().entry(*side).or_default().add(tally);
        }
    }
    let is_seen = |sum: &Sum| sum.segments() + sum.prompt.total() + sum.delayed.total() > 0;
    hosts.retain(|_, sides| sides.values().any(is_seen));
    let mut hosts: Vec<_> = hosts.into_iter().collect();
    hosts.sort_by_key(|(_, sides)| Reverse(sides.values().map(Sum::segments).sum::<u64>()));
    let host_report = |(owner, sides): (Owner, BTreeMap<Side, Sum>)| HostReport {
        host: owner.address(),
        name: owner.address().and_then(&name),
        is_router: owner.address().is_some_and(|host| course.own.contains(&host)),
        is_not_attributed: owner == Owner::NotAttributed,
        sides: sides.iter().map(|(side, sum)| (*side, sum.report())).collect(),
    };
    report.hosts = hosts.into_iter().map(host_report).collect();
    let transit = &course.counted.transit;
    report.router = transit.iter().filter_map(|(side, times)| Some((*side, times.times()?))).collect();
    let segments: u64 = sides.values().map(Sum::segments).sum();
    report.sides = sides.iter().map(|(side, sum)| (*side, sum.report())).collect();
    let is_read = report.unread as f64 <= UNREAD * (segments + report.unread) as f64;
    judge(&mut report, transit, is_read);
    report
}

/// What the traffic tells of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Fault,
    Sound,
    /// Something is lost or takes long, and it may or may not be too much.
    Unclear,
    TooLittle,
}

impl Finding {
    fn told(&self) -> Told {
        let most = if self.symptom == Symptom::Waits { WAITING } else { LOSS };
        match self.share {
            Some(share) if share.low > most => Told::Fault,
            Some(share) if share.high < most => Told::Sound,
            Some(share) if self.symptom == Symptom::Waits || share.value > 0.0 => Told::Unclear,
            _ => Told::TooLittle,
        }
    }
}

/// Every question about every part, with its answer if the traffic carries one.
fn judge(report: &mut Report, transit: &BTreeMap<Side, Histogram>, is_read: bool) {
    let mut asked = Vec::new();
    for (side, part) in [(Side::Lan, Part::LanSide), (Side::Wan, Part::WanSide)] {
        let Some(figures) = report.sides.get(&side) else { continue };
        let ask = |symptom, share| Finding { part, symptom, share };
        asked.push(ask(Symptom::LosesTowardsRouter, figures.towards_router.share));
        asked.push(ask(Symptom::LosesFromRouter, figures.from_router.share));
        asked.push(ask(Symptom::Waits, figures.waiting_share));
    }
    let inside = transit.values().fold(Histogram::default(), Histogram::plus);
    asked.push(Finding { part: Part::Router, symptom: Symptom::Waits, share: too_long(&inside) });
    // Each part needs an answer on its queues, and a side one on losses in a direction.
    let is_loss = |one: &Finding| one.symptom != Symptom::Waits;
    let is_sound = |part: Part, loss: bool| {
        asked.iter().any(|one| one.part == part && is_loss(one) == loss && one.told() == Told::Sound)
    };
    let losses = report.sides.values().flat_map(|side| [side.towards_router, side.from_router]);
    let all_sound =
        [Part::LanSide, Part::Router, Part::WanSide].into_iter().all(|part| is_sound(part, false))
            && [Part::LanSide, Part::WanSide].into_iter().all(|part| is_sound(part, true))
            && !asked.iter().any(|one| one.told() == Told::Unclear)
            && !losses.into_iter().any(Loss::is_undecided);
    for finding in asked {
        match finding.told() {
            Told::Fault => report.findings.push(finding),
            Told::Sound => {}
            Told::Unclear | Told::TooLittle => report.unknown.push(finding),
        }
    }
    report.verdict = match (is_read, report.findings.is_empty()) {
        (false, _) => Verdict::CannotTell,
        (true, false) => Verdict::Fault,
        (true, true) if all_sound => Verdict::Sound,
        (true, true) => Verdict::CannotTell,
    };
}

#[cfg(test)]
mod tests;
