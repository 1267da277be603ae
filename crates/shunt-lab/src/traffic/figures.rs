//! What came out.

use super::{LATE_NS, Means, Recorded};
use crate::{Distribution, Doubt, Kept, Limit, Results};
use serde::{Deserialize, Serialize};
use shunt_bpf::traffic::{Histogram, Mode, Received, State};
use shunt_gen::Schedule;
use std::io;

/// Everything about one measurement: the sum of all directions, and each of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Why the figures may be wrong: read these first.
    pub doubts: Vec<Doubt>,
    /// Of all directions.
    #[serde(flatten)]
    pub figures: Figures,
    /// One or two.
    pub directions: Vec<Directed>,
    /// What the generator adds by itself.
    pub floor: Option<Floor>,
    /// The file of what was received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Recorded>,
    /// Packets went to the kernel by so many at most.
    pub burst: u32,
    /// The same as a file of results, with the conditions.
    #[serde(flatten, serialize_with = "Results::serialize_file")]
    pub results: Results,
}

/// One direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Directed {
    /// Where packets went in.
    pub from: String,
    /// Where they came out.
    pub to: String,
    /// What they were.
    pub traffic: String,
    /// Who sent them.
    pub means: Means,
    /// Its part.
    #[serde(flatten)]
    pub figures: Figures,
    /// What the line can carry of these frames, where its speed is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// What arrived, as a share of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line_share: Option<f64>,
    /// Packets that came, copies included.
    #[serde(skip)]
    pub(super) packets: u64,
    /// From the first packet to the last.
    #[serde(skip)]
    pub(crate) span_ns: u64,
    #[serde(skip)]
    pub(super) latency: Histogram,
    #[serde(skip)]
    pub(super) jitter: Histogram,
    #[serde(skip)]
    pub(crate) doubts: Vec<Doubt>,
}

/// Rates, counts and times.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// What was asked for; none for as fast as possible.
    pub offered_pps: Option<f64>,
    /// What was sent.
    pub achieved_pps: f64,
    /// bit/s of frames with FCS.
    pub achieved_l2_bps: f64,
    /// bit/s with preamble and gap.
    pub achieved_l1_bps: f64,
    /// From the first packet until the one after the last would have been due.
    pub seconds: f64,
    /// Packets.
    pub sent: u64,
    /// Packets that came, each once.
    pub received: u64,
    /// Packets that did not come.
    pub lost: u64,
    /// Of those sent.
    pub loss_ratio: f64,
    /// Copies beside the first (RFC 5560); none where packets have no numbers.
    pub duplicated: Option<u64>,
    /// With a lower number than one before (RFC 4737); none where packets have no numbers.
    pub reordered: Option<u64>,
    /// How far behind the highest number one was.
    pub displaced_max: u32,
    /// Flows of which something came.
    pub flows: u32,
    /// From the stamp of the sender to that of the receiver; none when nothing came.
    pub latency_us: Option<LatencyUs>,
    /// Of RFC 3550, the mean over flows at the end.
    pub jitter_us: f64,
    /// How latencies are spread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Distribution>,
    /// How the jitter of RFC 3550 is spread, as it is after each packet but the first of a flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter_ns: Option<Distribution>,
}

/// One-way latencies in microseconds; all but the least and the greatest to within 0.8 %.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyUs {
    /// The least.
    pub min: f64,
    /// Half of the packets took no longer.
    pub p50: f64,
    /// 99 of 100 took no longer.
    pub p99: f64,
    /// 999 of 1000 took no longer.
    pub p999: f64,
    /// The greatest.
    pub max: f64,
}

/// The same traffic back to back over a plain veth: what is not of the device under test.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    /// At the same rate.
    pub latency_us: LatencyUs,
    /// At the same rate.
    pub jitter_us: f64,
    /// As fast as the generator can.
    pub max_pps: f64,
}

impl Figures {
    /// `ended_ns` is when the sender gave up or was done.
    pub(super) fn of(
        sent: &State,
        received: &Received,
        schedule: &Schedule,
        ended_ns: u64,
        stamped: bool,
    ) -> Self {
        let span_ns = sent.last_ns.saturating_sub(sent.start_ns);
        let apart = schedule.pps.map_or(span_ns as f64 / (sent.sent.max(2) - 1) as f64, |pps| 1e9 / pps);
        let seconds = match schedule.pps {
            // What was due and did not go makes the rate less, not the time.
            Some(_) if sent.sent < schedule.offered().unwrap_or(u64::MAX) => {
                let time = schedule.duration.map_or(u64::MAX, |time| time.as_nanos() as u64);
                time.min(ended_ns.saturating_sub(sent.start_ns)).max(span_ns) as f64 / 1e9
            }
            // The last burst may have been cut short by a count.
            Some(pps) if schedule.burst > 1 => (span_ns as f64 / 1e9).max(sent.sent as f64 / pps),
            _ => (span_ns as f64 + apart) / 1e9,
        };
        let per_second = |n: u64| if sent.sent == 0 { 0.0 } else { n as f64 / seconds.max(1e-9) };
        let once = received.packets - received.duplicated;
        let lost = sent.sent.saturating_sub(once);
        Self {
            offered_pps: schedule.pps,
            achieved_pps: per_second(sent.sent),
            achieved_l2_bps: per_second(8 * (sent.bytes + 4 * sent.sent)),
            achieved_l1_bps: per_second(8 * (sent.bytes + 24 * sent.sent)),
            seconds: if sent.sent == 0 { 0.0 } else { seconds },
            sent: sent.sent,
            received: once,
            lost,
            loss_ratio: lost as f64 / sent.sent.max(1) as f64,
            duplicated: stamped.then_some(received.duplicated),
            reordered: stamped.then_some(received.reordered),
            displaced_max: received.displaced_max,
            flows: received.flows,
            latency_us: LatencyUs::of(&received.latency),
            jitter_us: received.jitter_ns / 1e3,
            latency_ns: Distribution::of_received(&received.latency),
            jitter_ns: Distribution::of_received(&received.jitter),
        }
    }

    /// What arrived.
    pub(crate) fn received_pps(&self) -> f64 {
        self.received as f64 / self.seconds.max(1e-9)
    }

    pub(crate) fn sum(all: &[Directed]) -> Self {
        let [one] = all else {
            let zero = Some(0);
            let mut sum =
                Self { offered_pps: Some(0.0), duplicated: zero, reordered: zero, ..Self::default() };
            let (mut latency, mut jitter) = (Histogram::default(), Histogram::default());
            for Directed { figures, latency: latency_of_one, jitter: jitter_of_one, .. } in all {
                sum.offered_pps = sum.offered_pps.zip(figures.offered_pps).map(|(a, b)| a + b);
                sum.achieved_pps += figures.achieved_pps;
                sum.achieved_l2_bps += figures.achieved_l2_bps;
                sum.achieved_l1_bps += figures.achieved_l1_bps;
                sum.seconds = sum.seconds.max(figures.seconds);
                sum.sent += figures.sent;
                sum.received += figures.received;
                sum.lost += figures.lost;
                sum.duplicated = sum.duplicated.zip(figures.duplicated).map(|(a, b)| a + b);
                sum.reordered = sum.reordered.zip(figures.reordered).map(|(a, b)| a + b);
                sum.displaced_max = sum.displaced_max.max(figures.displaced_max);
                sum.flows += figures.flows;
                sum.jitter_us += figures.jitter_us / all.len() as f64;
                (latency, jitter) = (latency.with(latency_of_one), jitter.with(jitter_of_one));
            }
            sum.latency_us = LatencyUs::of(&latency);
            sum.latency_ns = Distribution::of_received(&latency);
            sum.jitter_ns = Distribution::of_received(&jitter);
            sum.loss_ratio = sum.lost as f64 / sum.sent.max(1) as f64;
            return sum;
        };
        one.figures.clone()
    }

    /// Those that follow from the figures.
    pub(super) fn doubts(&self, sent: &State, received: &Received, means: Means, mode: Mode) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        if let Some(share) =
            self.offered_pps.map(|asked| self.achieved_pps / asked).filter(|share| *share < 0.999)
        {
            doubts.push(Doubt::SentLess { percent: share * 100.0 });
        }
        if self.sent > 0 && received.packets == 0 {
            doubts.push(Doubt::NothingArrived);
        }
        if received.beyond > 0 {
            doubts.push(Doubt::BeyondWindow { packets: received.beyond });
        }
        if sent.late_ns_max > LATE_NS {
            doubts.push(Doubt::SentLate { microseconds: sent.late_ns_max as f64 / 1e3 });
        }
        if means == Means::Socket {
            doubts.push(Doubt::SocketSender);
        }
        if mode == Mode::Generic {
            doubts.push(Doubt::GenericReceiver);
        }
        doubts
    }
}

impl Directed {
    pub(super) fn set_limit(&mut self, limit: Limit) {
        self.line_share = limit.share(self.figures.received_pps());
        if limit.is_below(self.figures.received_pps()) || limit.is_below(self.figures.achieved_pps) {
            self.doubts.push(Doubt::AboveLine);
        }
        self.limit = Some(limit);
    }
}

impl LatencyUs {
    pub(super) fn of(latency: &Histogram) -> Option<Self> {
        let us = |ns: u64| ns as f64 / 1e3;
        let share = |share| latency.quantile(share).map(us);
        Some(Self {
            min: us(latency.min_ns?),
            p50: share(0.5)?,
            p99: share(0.99)?,
            p999: share(0.999)?,
            max: us(latency.max_ns?),
        })
    }
}

impl Report {
    pub(super) fn of(
        directions: Vec<Directed>,
        schedule: &Schedule,
        floor: Option<Floor>,
        recorded: Option<Recorded>,
        mut results: Results,
        interrupted: bool,
    ) -> Self {
        let mut doubts = results.conditions.doubts();
        let mut found: Vec<Doubt> = directions.iter().flat_map(|one| one.doubts.clone()).collect();
        found.extend(recorded.as_ref().and_then(Recorded::doubt));
        found.extend(interrupted.then_some(Doubt::Interrupted));
        for doubt in found {
            if !doubts.contains(&doubt) {
                doubts.push(doubt);
            }
        }
        results.readings = super::kept::readings(&directions, floor.as_ref(), &doubts);
        results.complete = !interrupted;
        let figures = Figures::sum(&directions);
        let burst = schedule.burst.max(super::sender::batch(schedule));
        Self { doubts, figures, directions, floor, recorded, burst, results }
    }

    /// Adds it to a file of such results.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn keep(&self, kept: &mut Kept) -> io::Result<()> {
        kept.took_part(&self.results.conditions.nics);
        self.results.readings.iter().try_for_each(|(name, reading)| kept.add_all(name, reading))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(pps: Option<f64>, burst: u32, packets: u64) -> Schedule {
        Schedule { pps, burst, packets: Some(packets), duration: None }
    }

    #[test]
    fn rates_count_the_interval_behind_the_last_packet() {
        let sent =
            State { start_ns: 500, last_ns: 500 + 9_000_000, sent: 10, bytes: 600, ..State::default() };
        let received = Received { packets: 12, duplicated: 3, ..Received::default() };
        let of = |sent, pps, burst| Figures::of(sent, &received, &schedule(pps, burst, 10), 99_000_000, true);
        let figures = of(&sent, Some(1000.0), 1);
        assert_eq!((figures.seconds, figures.achieved_pps), (0.01, 1000.0));
        assert_eq!((figures.achieved_l2_bps, figures.achieved_l1_bps), (512_000.0, 672_000.0));
        assert_eq!((figures.received, figures.lost, figures.loss_ratio), (9, 1, 0.1));
        let fast = of(&sent, None, 1);
        assert_eq!((fast.offered_pps, fast.achieved_pps), (None, 1000.0));
        // Three bursts of four, the last cut to two: 10 packets in 2.5 intervals of 4 ms.
        let bursts = State { last_ns: 500 + 8_000_000, ..sent };
        assert_eq!(of(&bursts, Some(1000.0), 4).achieved_pps, 1000.0);
    }

    #[test]
    fn packets_that_were_not_sent_in_time_make_the_rate_less() {
        let sent = State { start_ns: 500, last_ns: 500 + 4_000_000, sent: 5, ..State::default() };
        let second = Schedule {
            packets: None,
            duration: Some(std::time::Duration::from_millis(10)),
            ..schedule(Some(1000.0), 1, 0)
        };
        let seconds = |ended_ns| Figures::of(&sent, &Received::default(), &second, ended_ns, true).seconds;
        // To its end, and interrupted after 6 ms.
        assert_eq!((seconds(30_000_500), seconds(6_000_500)), (0.01, 0.006));
    }

    #[test]
    fn what_is_odd_is_doubted() {
        let sent =
            State { start_ns: 0, last_ns: 9_020_000, sent: 10, late_ns_max: 2_000_000, ..State::default() };
        let none = Received::default();
        let figures = Figures::of(&sent, &none, &schedule(Some(1000.0), 1, 10), 0, true);
        let doubts = figures.doubts(&sent, &none, Means::Socket, Mode::Generic);
        assert!(
            matches!(doubts[0], Doubt::SentLess { percent } if (99.7..99.9).contains(&percent)),
            "{doubts:?}"
        );
        assert_eq!(
            doubts[1..],
            [
                Doubt::NothingArrived,
                Doubt::SentLate { microseconds: 2000.0 },
                Doubt::SocketSender,
                Doubt::GenericReceiver
            ]
        );
        assert_eq!(Figures::of(&State::default(), &none, &schedule(None, 1, 10), 0, false).achieved_pps, 0.0);
    }
}
