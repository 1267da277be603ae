//! The figures of a run.

use super::SendMethod;
use crate::{Distribution, Doubt, Limit, Results, ResultsFile};
use serde::{Deserialize, Serialize};
use shunt_gen::Schedule;
use shunt_traffic::{Histogram, Mode, Received, TrafficState};
use std::{io, path::PathBuf};

/// A sender that sends a smaller share than this of the packets that were due has not offered the load.
pub(crate) const SENT_WANTED: f64 = 0.999;

/// The report of a measurement: the sum over all directions, and each direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Reasons why the figures may be wrong.
    pub doubts: Vec<Doubt>,
    /// Sum over all directions.
    #[serde(flatten)]
    pub figures: Figures,
    /// Figures of one or two directions.
    pub directions: Vec<Directed>,
    /// Figures of the generator alone; absent if they were not measured.
    pub floor: Option<Floor>,
    /// The recorded capture file; absent if none was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Recorded>,
    /// Largest number of packets that were passed to the kernel at once.
    pub burst: u32,
    /// The same figures as a file of results, with the conditions.
    #[serde(flatten, serialize_with = "Results::serialize_file")]
    pub results: Results,
}

/// The outcome of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// Path of the file.
    pub file: PathBuf,
    /// Number of frames that were to be recorded.
    pub frames: u64,
    /// Number of frames that arrived after the limit was reached.
    pub beyond_limit: u64,
    /// Number of frames that arrived faster than they could be passed on.
    pub dropped: u64,
    /// The error that made the file incomplete; absent if it is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// The figures of one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Directed {
    /// Device that sends.
    pub from: String,
    /// Device that receives.
    pub to: String,
    /// Description of the packets.
    pub traffic: String,
    /// The way of sending.
    #[serde(rename = "means")]
    pub method: SendMethod,
    /// Figures of this direction.
    #[serde(flatten)]
    pub figures: Figures,
    /// The most that the line carries of these frames; absent if the line's speed is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// The rate of arrival as a share of `limit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line_share: Option<f64>,
    /// Number of received packets, duplicates included.
    #[serde(skip)]
    pub(super) packets: u64,
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
    /// Offered rate in packets/s; None for the highest possible rate.
    pub offered_pps: Option<f64>,
    /// Sent rate in packets/s.
    pub achieved_pps: f64,
    /// Sent rate in bit/s of frames with FCS.
    pub achieved_l2_bps: f64,
    /// Sent rate in bit/s with preamble and gap.
    pub achieved_l1_bps: f64,
    /// Time from the first packet until the packet after the last one would be due, in seconds.
    pub seconds: f64,
    /// Number of sent packets.
    pub sent: u64,
    /// Number of packets that were due and not sent.
    #[serde(default)]
    pub unsent: u64,
    /// Number of received packets without duplicates.
    pub received: u64,
    /// Number of lost packets.
    pub lost: u64,
    /// Share of the sent packets that were lost.
    pub loss_ratio: f64,
    /// Number of duplicates (RFC 5560); None if packets carry no number.
    pub duplicated: Option<u64>,
    /// Number of packets that arrived after a packet with a higher number (RFC 4737); None if packets carry no number.
    pub reordered: Option<u64>,
    /// The largest displacement: how far a packet's number was below the highest number received before.
    pub displaced_max: u32,
    /// Number of flows of which a packet arrived.
    pub flows: u32,
    /// One-way latency from the sender's stamp to the receiver's; None if no packet arrived.
    pub latency_us: Option<LatencyUs>,
    /// Jitter of RFC 3550 in us: the mean over all flows at the end.
    pub jitter_us: f64,
    /// Distribution of the latencies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Distribution>,
    /// Distribution of the jitter of RFC 3550, taken after each packet of a flow but the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter_ns: Option<Distribution>,
}

/// One-way latencies in microseconds. All but `min` and `max` are exact to 0.8 %.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyUs {
    /// The least latency.
    pub min: f64,
    /// 50th percentile.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// The greatest latency.
    pub max: f64,
}

/// Figures of the same traffic back to back over a plain veth: the part that does not come from the device under test.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    /// Latency at the same rate.
    pub latency_us: LatencyUs,
    /// Jitter at the same rate, in us.
    pub jitter_us: f64,
    /// Highest rate of the generator, in packets/s.
    pub max_pps: f64,
}

impl Figures {
    /// `ended_ns` is the time when the sender finished or gave up.
    pub(super) fn new(
        sent: &TrafficState,
        received: &Received,
        schedule: &Schedule,
        ended_ns: u64,
        stamped: bool,
    ) -> Self {
        let span_ns = sent.last_ns.saturating_sub(sent.start_ns);
        let apart = schedule.pps.map_or(span_ns as f64 / (sent.sent.max(2) - 1) as f64, |pps| 1e9 / pps);
        let seconds = match schedule.pps {
            // Packets that were due and not sent reduce the rate, not the duration.
            Some(_) if sent.sent < schedule.offered().unwrap_or(u64::MAX) => {
                let time = schedule.duration.map_or(u64::MAX, |time| time.as_nanos() as u64);
                time.min(ended_ns.saturating_sub(sent.start_ns)).max(span_ns) as f64 / 1e9
            }
            // A count of packets may have cut the last burst short.
            Some(pps) if schedule.burst > 1 => (span_ns as f64 / 1e9).max(sent.sent as f64 / pps),
            _ => (span_ns as f64 + apart) / 1e9,
        };
        Self::within(sent, received, seconds, schedule.pps, stamped)
    }

    /// The figures of packets that were sent within this time, at an offered rate; None for the highest possible one.
    pub(super) fn within(
        sent: &TrafficState,
        received: &Received,
        seconds: f64,
        offered_pps: Option<f64>,
        stamped: bool,
    ) -> Self {
        let per_second = |n: u64| if sent.sent == 0 { 0.0 } else { n as f64 / seconds.max(1e-9) };
        let once = received.packets - received.duplicated;
        let lost = sent.sent.saturating_sub(once);
        Self {
            offered_pps,
            achieved_pps: per_second(sent.sent),
            achieved_l2_bps: per_second(8 * (sent.bytes + 4 * sent.sent)),
            achieved_l1_bps: per_second(8 * (sent.bytes + 24 * sent.sent)),
            seconds: if sent.sent == 0 { 0.0 } else { seconds },
            sent: sent.sent,
            unsent: sent.unsent,
            received: once,
            lost,
            loss_ratio: lost as f64 / sent.sent.max(1) as f64,
            duplicated: stamped.then_some(received.duplicated),
            reordered: stamped.then_some(received.reordered),
            displaced_max: received.displaced_max,
            flows: received.flows,
            latency_us: LatencyUs::from_histogram(&received.latency),
            jitter_us: received.jitter_ns / 1e3,
            latency_ns: Distribution::of_received(&received.latency),
            jitter_ns: Distribution::of_received(&received.jitter),
        }
    }

    /// Rate of arrival in packets/s.
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
                sum.unsent += figures.unsent;
                sum.received += figures.received;
                sum.lost += figures.lost;
                sum.duplicated = sum.duplicated.zip(figures.duplicated).map(|(a, b)| a + b);
                sum.reordered = sum.reordered.zip(figures.reordered).map(|(a, b)| a + b);
                sum.displaced_max = sum.displaced_max.max(figures.displaced_max);
                sum.flows += figures.flows;
                sum.jitter_us += figures.jitter_us / all.len() as f64;
                (latency, jitter) = (latency.with(latency_of_one), jitter.with(jitter_of_one));
            }
            sum.latency_us = LatencyUs::from_histogram(&latency);
            sum.latency_ns = Distribution::of_received(&latency);
            sum.jitter_ns = Distribution::of_received(&jitter);
            sum.loss_ratio = sum.lost as f64 / sum.sent.max(1) as f64;
            return sum;
        };
        one.figures.clone()
    }

    /// The doubts that follow from the figures.
    pub(super) fn doubts(
        &self,
        sent: &TrafficState,
        received: &Received,
        method: SendMethod,
        mode: Mode,
    ) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        let share = self.offered_pps.map_or(1.0, |asked| self.achieved_pps / asked);
        if share < SENT_WANTED {
            doubts.push(match sent.is_too_slow() {
                true => Doubt::SentLess { percent: share * 100.0 },
                false => {
                    // In a replay, the last frame was put off by the sum of all delays.
                    let late_ns = sent.late_ns_max.max(sent.put_off_ns);
                    Doubt::SentLate { microseconds: late_ns as f64 / 1e3 }
                }
            });
        }
        if self.sent > 0 && received.packets == 0 {
            doubts.push(Doubt::NothingArrived);
        }
        if received.beyond > 0 {
            doubts.push(Doubt::BeyondWindow { packets: received.beyond });
        }
        if method == SendMethod::Socket {
            doubts.push(Doubt::SocketSender);
        }
        if mode == Mode::Generic {
            doubts.push(Doubt::GenericReceiver);
        }
        doubts
    }
}

impl Directed {
    /// Whether the sender was held up, so that the load was not offered.
    pub fn is_held_up(&self) -> bool {
        self.doubts.iter().any(Doubt::is_held_up)
    }

    pub(super) fn set_limit(&mut self, limit: Limit) {
        self.line_share = limit.share(self.figures.received_pps());
        if limit.is_below(self.figures.received_pps()) || limit.is_below(self.figures.achieved_pps) {
            self.doubts.push(Doubt::AboveLine);
        }
        self.limit = Some(limit);
    }
}

impl Recorded {
    pub(super) fn doubt(&self) -> Option<Doubt> {
        (self.dropped > 0).then_some(Doubt::NotRecorded { frames: self.dropped })
    }
}

impl LatencyUs {
    pub(super) fn from_histogram(latency: &Histogram) -> Option<Self> {
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
    /// Adds the figures to a file of results.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn save(&self, file: &mut ResultsFile) -> io::Result<()> {
        file.set_nics(&self.results.conditions.nics);
        self.results.readings.iter().try_for_each(|(name, reading)| file.add_all(name, reading))
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
        let sent = TrafficState {
            start_ns: 500,
            last_ns: 500 + 9_000_000,
            sent: 10,
            bytes: 600,
            ..TrafficState::default()
        };
        let received = Received { packets: 12, duplicated: 3, ..Received::default() };
        let of =
            |sent, pps, burst| Figures::new(sent, &received, &schedule(pps, burst, 10), 99_000_000, true);
        let figures = of(&sent, Some(1000.0), 1);
        assert_eq!((figures.seconds, figures.achieved_pps), (0.01, 1000.0));
        assert_eq!((figures.achieved_l2_bps, figures.achieved_l1_bps), (512_000.0, 672_000.0));
        assert_eq!((figures.received, figures.lost, figures.loss_ratio), (9, 1, 0.1));
        let fast = of(&sent, None, 1);
        assert_eq!((fast.offered_pps, fast.achieved_pps), (None, 1000.0));
        // Three bursts of four packets, the last one cut to two: 10 packets in 2.5 intervals of 4 ms.
        let bursts = TrafficState { last_ns: 500 + 8_000_000, ..sent };
        assert_eq!(of(&bursts, Some(1000.0), 4).achieved_pps, 1000.0);
    }

    #[test]
    fn packets_not_sent_in_time_reduce_the_rate() {
        let sent =
            TrafficState { start_ns: 500, last_ns: 500 + 4_000_000, sent: 5, ..TrafficState::default() };
        let second = Schedule {
            packets: None,
            duration: Some(std::time::Duration::from_millis(10)),
            ..schedule(Some(1000.0), 1, 0)
        };
        let seconds = |ended_ns| Figures::new(&sent, &Received::default(), &second, ended_ns, true).seconds;
        // Once to the end, and once interrupted after 6 ms.
        assert_eq!((seconds(30_000_500), seconds(6_000_500)), (0.01, 0.006));
    }

    #[test]
    fn odd_figures_are_doubted() {
        let sent = TrafficState {
            last_ns: 9_020_000,
            sent: 10,
            unsent: 2,
            idle_ns: 9_000_000,
            late_ns_max: 2_000_000,
            ..TrafficState::default()
        };
        let none = Received::default();
        let doubts = |sent: &TrafficState| {
            let figures = Figures::new(sent, &none, &schedule(Some(1000.0), 1, 10), 0, true);
            assert_eq!(figures.unsent, sent.unsent);
            figures.doubts(sent, &none, SendMethod::Socket, Mode::Generic)
        };
        let others = [Doubt::NothingArrived, Doubt::SocketSender, Doubt::GenericReceiver];
        let found = doubts(&sent);
        assert_eq!((&found[0], &found[1..]), (&Doubt::SentLate { microseconds: 2000.0 }, &others[..]));
        // A sender that never had to wait for its schedule was not held up, but too slow.
        let found = doubts(&TrafficState { idle_ns: 0, ..sent });
        assert!(
            matches!(found[0], Doubt::SentLess { percent } if (99.7..99.9).contains(&percent)),
            "{found:?}"
        );
        assert_eq!(found[1..], others);
        // A delay that costs less than a thousandth of the packets is none.
        assert_eq!(doubts(&TrafficState { last_ns: 9_005_000, ..sent }), others);
        assert_eq!(
            Figures::new(&TrafficState::default(), &none, &schedule(None, 1, 10), 0, false).achieved_pps,
            0.0
        );
    }
}
