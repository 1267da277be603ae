//! Surveys: whether native XDP pays on a virtual device, from the packets that the device receives.
//!
//! Native XDP of a virtual device copies packets that sockets made, and splits aggregates into single packets. It pays
//! only for XDP frames, which another XDP program has redirected to the device. The data plane counts the kinds of
//! packets while a survey runs; these are short. Where XDP runs already, packets cannot be told apart, so XDP is taken
//! off the port during a review; tc forwards the same flows meanwhile.
//!
//! Where a host or a NIC merges packets before Linux sees them (virtio, Xen, some NICs), only aggregates count against
//! XDP.

use crate::SurveyCounts;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    mem,
    time::{Duration, Instant},
};

/// Number of packets that a survey needs.
const ENOUGH: u64 = 64;
/// Number of surveys in a row that must agree before a port changes from tc to XDP, after the first decision.
const AGREEING: u32 = 2;
/// Time between two surveys where XDP does not run.
const SURVEY_GAP: Duration = Duration::from_secs(5);
/// Time until the first review where XDP runs. Each review that changes nothing doubles the time until the next one.
const REVIEW_GAP: Duration = Duration::from_secs(60);
const REVIEW_GAP_MAX: Duration = Duration::from_secs(960);
/// The longest time of a review. With fewer packets than it needs, it changes nothing.
const REVIEW_TIME: Duration = Duration::from_secs(2);

/// The packets that a port receives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Received {
    /// Not enough packets yet.
    #[default]
    Unknown,
    /// Mostly XDP frames.
    Frames(SurveyCounts),
    /// Mostly packets of sockets or of other devices.
    Packets(SurveyCounts),
    /// Mostly aggregates.
    Aggregates(SurveyCounts),
}

/// What native XDP of a driver does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Driver {
    /// Copies packets of sockets (veth, tap), and accepts redirected frames without a program.
    Copies,
    /// Takes all packets from its own buffers, and accepts redirected frames only while a program is attached (virtio,
    /// Xen).
    Guest,
    /// As a guest's, but there is no review, because attaching a program may reset the link of a NIC.
    Nic,
}

/// The result of the surveys of one port.
#[derive(Debug)]
struct PortSurvey {
    driver: Driver,
    received: Received,
    /// Number of surveys in a row that have found XDP frames while `received` says otherwise.
    agreeing: u32,
    running: Option<Running>,
    due: Instant,
    review_gap: Duration,
}

#[derive(Debug)]
struct Running {
    since: Instant,
    /// Whether the program is still attached, while other ports cease to redirect frames to this one.
    leaving: bool,
    /// The counts when the survey began; `None` until they have been read.
    base: Option<SurveyCounts>,
}

/// The surveys of all ports.
#[derive(Debug, Default)]
pub(crate) struct Surveys {
    ports: BTreeMap<u32, PortSurvey>,
    /// What the daemon before this one has found.
    found: BTreeMap<u32, Received>,
}

impl Received {
    fn from_counts(counts: SurveyCounts) -> Self {
        if counts.aggregated * 2 > counts.packets {
            Self::Aggregates(counts)
        } else if (counts.aggregated + counts.copied) * 2 > counts.packets {
            Self::Packets(counts)
        } else {
            Self::Frames(counts)
        }
    }

    pub(crate) fn is_frames(self) -> bool {
        matches!(self, Self::Frames(_))
    }

    /// The reason why XDP does or does not run on the port, as part of a sentence.
    pub(crate) fn reason(self, port: &str) -> String {
        match self {
            Self::Unknown => too_few_packets(&[port]),
            Self::Frames(SurveyCounts { packets, aggregated, copied }) => {
                let frames = packets.saturating_sub(aggregated + copied);
                format!("{port} receives frames that XDP takes as they are ({frames} of {packets} packets)")
            }
            Self::Packets(SurveyCounts { packets, copied, .. }) => format!(
                "{port} receives packets that its native XDP would have to copy ({copied} of {packets})"
            ),
            Self::Aggregates(SurveyCounts { packets, aggregated, .. }) => {
                format!(
                    "{port} receives aggregates, which XDP would split ({aggregated} of {packets} packets)"
                )
            }
        }
    }
}

fn too_few_packets(ports: &[&str]) -> String {
    let has = if ports.len() == 1 { "has" } else { "have" };
    format!("{} {has} received too few packets to tell whether XDP pays", ports.join(", "))
}

impl Surveys {
    /// Sets the ports to survey. Others are forgotten.
    pub(crate) fn set_ports(&mut self, now: Instant, ports: &BTreeMap<u32, Driver>) {
        self.ports.retain(|ifindex, port| ports.get(ifindex) == Some(&port.driver));
        for (ifindex, driver) in ports {
            let found = self.found.remove(ifindex);
            self.ports.entry(*ifindex).or_insert_with(|| PortSurvey::new(now, *driver, found));
        }
    }

    /// The packets that each port receives.
    pub(crate) fn found(&self) -> BTreeMap<u32, Received> {
        self.ports.iter().map(|(ifindex, port)| (*ifindex, port.received)).collect()
    }

    /// Begins with what the daemon before this one has found.
    pub(crate) fn begin_with(&mut self, found: BTreeMap<u32, Received>) {
        self.found = found;
    }

    /// The packets that a port receives; `None` if the port is not surveyed.
    pub(crate) fn received(&self, ifindex: u32) -> Option<Received> {
        self.ports.get(&ifindex).map(|port| port.received)
    }

    /// The reasons why XDP does or does not run on these ports, as parts of a sentence; none for a port that is not
    /// surveyed.
    pub(crate) fn reasons<'n>(&self, ports: impl Iterator<Item = (u32, &'n str)>) -> Vec<String> {
        let is_unknown = |ifindex: &u32| matches!(self.received(*ifindex), Some(Received::Unknown));
        let (unknown, known): (Vec<_>, Vec<_>) = ports.partition(|(ifindex, _)| is_unknown(ifindex));
        let mut reasons: Vec<String> =
            known.into_iter().filter_map(|(ifindex, name)| self.reason(ifindex, name)).collect();
        if !unknown.is_empty() {
            reasons.push(too_few_packets(&unknown.into_iter().map(|(_, name)| name).collect::<Vec<_>>()));
        }
        reasons
    }

    /// The reason why XDP does or does not run on a port, as part of a sentence; `None` if the port is not surveyed.
    fn reason(&self, ifindex: u32, name: &str) -> Option<String> {
        self.ports.get(&ifindex).map(|port| match port.running {
            Some(_) if port.received.is_frames() => {
                format!("XDP pauses on {name} while its packets are counted")
            }
            _ => port.received.reason(name),
        })
    }

    /// Whether the XDP program may be attached to a port now; `None` if the port is not surveyed.
    pub(crate) fn allows_program(&self, ifindex: u32) -> Option<bool> {
        let is_attached = |port: &PortSurvey| port.running.as_ref().is_none_or(|running| running.leaving);
        self.ports.get(&ifindex).map(|port| port.received.is_frames() && is_attached(port))
    }

    /// Whether frames may be redirected to a port now; `None` if the port is not surveyed.
    pub(crate) fn allows_redirects(&self, ifindex: u32) -> Option<bool> {
        self.ports.get(&ifindex).map(|port| match port.driver {
            Driver::Copies => true,
            Driver::Guest | Driver::Nic => port.received.is_frames() && port.running.is_none(),
        })
    }

    /// Whether a port accepts redirected frames only while the program is attached.
    pub(crate) fn needs_program(&self, ifindex: u32) -> bool {
        self.ports.get(&ifindex).is_none_or(|port| port.driver != Driver::Copies)
    }

    /// Whether a survey runs on any port.
    pub(crate) fn is_running(&self) -> bool {
        self.ports.values().any(|port| port.running.is_some())
    }

    /// Begins surveys that are due and ends reviews that have taken too long. Returns whether ports must be planned
    /// again. Drivers that accept frames only with a program attached are reviewed together, because none can be
    /// reached by XDP meanwhile.
    pub(crate) fn tick(&mut self, now: Instant) -> bool {
        let in_use = |port: &PortSurvey| port.driver == Driver::Guest && port.received.is_frames();
        let guests_due =
            self.ports.values().any(|port| in_use(port) && port.running.is_none() && now >= port.due);
        let mut changed = false;
        for port in self.ports.values_mut() {
            let (is_due, reviews) =
                (now >= port.due || guests_due && in_use(port), port.received.is_frames());
            match &mut port.running {
                Some(running) if running.leaving => {
                    *running = Running { since: now, leaving: false, base: None };
                    changed = true;
                }
                Some(running) if reviews && now - running.since >= REVIEW_TIME => {
                    port.end(now);
                    changed = true;
                }
                None if reviews && port.driver == Driver::Nic => {}
                None if is_due => {
                    port.running = Some(Running { since: now, leaving: in_use(port), base: None });
                    changed |= reviews;
                }
                _ => {}
            }
        }
        changed
    }

    /// Takes what surveys have counted so far. Returns whether ports must be planned again.
    pub(crate) fn counted(&mut self, now: Instant, counts: &BTreeMap<u32, SurveyCounts>) -> bool {
        let mut changed = false;
        for (ifindex, port) in &mut self.ports {
            if let Some(counts) = counts.get(ifindex) {
                changed |= port.counted(now, *counts);
            }
        }
        changed
    }
}

impl PortSurvey {
    fn new(now: Instant, driver: Driver, found: Option<Received>) -> Self {
        let mut port = Self {
            driver,
            received: found.unwrap_or_default(),
            agreeing: 0,
            running: None,
            due: now,
            review_gap: REVIEW_GAP,
        };
        if port.received != Received::Unknown {
            port.end(now);
        }
        port
    }

    fn counted(&mut self, now: Instant, counts: SurveyCounts) -> bool {
        let Some(running) = self.running.as_mut().filter(|running| !running.leaving) else { return false };
        // The counts restart if the port was detached meanwhile.
        let base = match running.base {
            Some(base) if base.packets <= counts.packets => base,
            _ => *running.base.insert(counts),
        };
        let counts = SurveyCounts {
            packets: counts.packets - base.packets,
            aggregated: counts.aggregated.saturating_sub(base.aggregated),
            copied: match self.driver {
                Driver::Copies => counts.copied.saturating_sub(base.copied),
                Driver::Guest | Driver::Nic => 0,
            },
        };
        if counts.packets < ENOUGH {
            return false;
        }
        let before = self.received;
        self.take(Received::from_counts(counts));
        self.end(now);
        before.is_frames() || mem::discriminant(&before) != mem::discriminant(&self.received)
    }

    /// Takes the answer of a survey. To run XDP again needs several equal answers; not to run it needs one.
    fn take(&mut self, answer: Received) {
        self.agreeing += 1;
        let runs = self.received.is_frames();
        if answer.is_frames() && !runs && self.received != Received::Unknown && self.agreeing < AGREEING {
            return;
        }
        let confirmed = runs && answer.is_frames();
        self.review_gap = if confirmed { (self.review_gap * 2).min(REVIEW_GAP_MAX) } else { REVIEW_GAP };
        self.received = answer;
        self.agreeing = 0;
    }

    fn end(&mut self, now: Instant) {
        self.running = None;
        self.due = now + if self.received.is_frames() { self.review_gap } else { SURVEY_GAP };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: u32 = 1;

    /// Surveys of one port, and the counts of its packets so far.
    struct Rig {
        surveys: Surveys,
        now: Instant,
        counts: SurveyCounts,
    }

    impl Rig {
        #[expect(
            clippy::disallowed_methods,
            reason = "any instant will do, and std has no other constructor"
        )]
        fn new() -> Self {
            let now = Instant::now();
            let mut surveys = Surveys::default();
            surveys.set_ports(now, &BTreeMap::from([(PORT, Driver::Copies)]));
            Self { surveys, now, counts: SurveyCounts::default() }
        }

        /// A tick, and these packets until the next one. Packets count only during surveys.
        fn tick(&mut self, packets: u64, aggregated: u64, copied: u64) {
            self.surveys.tick(self.now);
            self.surveys.counted(self.now, &BTreeMap::from([(PORT, self.counts)]));
            if self.surveys.is_running() {
                self.counts.packets += packets;
                self.counts.aggregated += aggregated;
                self.counts.copied += copied;
            }
            self.now += Duration::from_millis(500);
        }

        /// The number of ticks until XDP may run, or may not, on the port.
        fn ticks_until(&mut self, allowed: bool, packets: u64, aggregated: u64, copied: u64) -> usize {
            let mut ticks = 0;
            while self.surveys.allows_program(PORT) != Some(allowed) {
                self.tick(packets, aggregated, copied);
                ticks += 1;
                assert!(ticks < 10_000, "never {allowed}: {:?}", self.surveys);
            }
            ticks
        }
    }

    #[test]
    fn xdp_waits_for_packets_and_runs_only_for_xdp_frames() {
        for (aggregated, copied, allowed) in [(0, 0, true), (0, 90, false), (90, 0, false), (30, 30, false)] {
            let mut rig = Rig::new();
            rig.tick(10, 0, 0);
            rig.tick(100, aggregated, copied);
            assert_eq!(rig.surveys.received(PORT), Some(Received::Unknown));
            rig.tick(0, 0, 0);
            assert_eq!(rig.surveys.allows_program(PORT), Some(allowed), "{aggregated} {copied}");
        }
    }

    #[test]
    fn the_next_daemon_begins_with_what_was_found() {
        let mut rig = Rig::new();
        rig.ticks_until(true, 100, 0, 0);
        let mut next = Surveys::default();
        next.begin_with(rig.surveys.found());
        let ports = BTreeMap::from([(PORT, Driver::Copies), (PORT + 1, Driver::Copies)]);
        next.set_ports(rig.now, &ports);
        assert_eq!(next.allows_program(PORT), Some(true));
        assert_eq!(next.received(PORT + 1), Some(Received::Unknown));
        // The port that was surveyed has its review later, the other one its survey now.
        assert!(!next.tick(rig.now) && next.is_running());
        assert_eq!(next.allows_program(PORT), Some(true));
    }

    #[test]
    fn xdp_comes_after_two_equal_surveys_and_goes_after_one() {
        let mut rig = Rig::new();
        rig.tick(100, 0, 100);
        rig.tick(0, 0, 0);
        assert!(rig.ticks_until(true, 100, 0, 0) > 20, "two surveys, five seconds apart");
        assert!(rig.ticks_until(false, 0, 0, 0) >= 120, "the first review comes after a minute");
        rig.tick(100, 100, 0);
        rig.tick(0, 0, 0);
        assert!(matches!(rig.surveys.received(PORT), Some(Received::Aggregates(_))));
        assert!(rig.ticks_until(true, 100, 0, 0) > 20);
    }

    #[test]
    fn a_review_without_packets_changes_nothing_and_reviews_become_rare() {
        let mut rig = Rig::new();
        rig.tick(100, 0, 0);
        rig.tick(0, 0, 0);
        assert_eq!(rig.surveys.allows_program(PORT), Some(true));
        rig.ticks_until(false, 0, 0, 0);
        assert!(rig.ticks_until(true, 0, 0, 0) <= 5, "a review ends after two seconds");
        let mut gaps = Vec::new();
        for _ in 0..6 {
            gaps.push(rig.ticks_until(false, 100, 0, 0));
            rig.ticks_until(true, 100, 0, 0);
        }
        assert!(gaps.windows(2).all(|pair| pair[1] >= pair[0]) && gaps[5] >= 1900, "{gaps:?}");
    }

    #[test]
    fn a_driver_with_buffers_of_its_own_is_left_to_tc_for_aggregates_only() {
        for (driver, aggregated, allowed) in [
            (Driver::Guest, 0, true),
            (Driver::Guest, 60, false),
            (Driver::Nic, 0, true),
            (Driver::Nic, 60, false),
        ] {
            let mut rig = Rig::new();
            rig.surveys.set_ports(rig.now, &BTreeMap::from([(PORT, driver)]));
            rig.tick(100, aggregated, 100 - aggregated);
            rig.tick(0, 0, 0);
            assert_eq!(rig.surveys.allows_program(PORT), Some(allowed));
        }
    }

    #[test]
    fn a_nic_on_which_xdp_runs_is_never_reviewed() {
        let mut rig = Rig::new();
        rig.surveys.set_ports(rig.now, &BTreeMap::from([(PORT, Driver::Nic)]));
        rig.tick(100, 0, 0);
        rig.tick(0, 0, 0);
        for _ in 0..1000 {
            assert_eq!(rig.surveys.allows_program(PORT), Some(true));
            rig.tick(100, 100, 0);
        }
    }
}
