//! A stream that was started, and its figures.

use super::{
    StreamReport, StreamSpec,
    lane::{Lane, Share},
    sending::SentStream,
};
use crate::traffic::{Directed, Error, Figures};
use shunt_traffic::{Arrival, Pacing, TrafficState, now_ns};

/// A stream that was started.
pub(super) struct Running {
    pub(super) spec: StreamSpec,
    pub(super) share: Share,
    pub(super) sent: SentStream,
    pub(super) pacing: Pacing,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) traffic: String,
    pub(super) start_ns: u64,
    /// When the stream ends, in ns / 65536 since its start.
    pub(super) end: u64,
    /// The present rate in packets/s, or the one at the end of a ramp; None for the highest possible.
    pub(super) pps: Option<f64>,
    /// Whether the stream has had a rate all the time.
    pub(super) paced: bool,
}

impl Running {
    /// The figures so far. Packets under way count as lost: what was received is read before what was sent.
    pub(super) fn report(&self, lane: &Lane, arrivals: &[Arrival]) -> Result<StreamReport, Error> {
        let received = lane.received(&self.share, arrivals)?;
        let now = now_ns();
        let state = self.sent.state()?;
        let counted = state.counted();
        let (seconds, over) = (self.seconds(&state, now), state.is_over(now));
        let due = (counted.sent + counted.unsent) as f64;
        let offered_pps = self.paced.then(|| due / seconds.max(1e-9));
        let method = lane.sending(&self.share).method();
        let figures = Figures::within(&counted, &received, seconds, offered_pps, true);
        let doubts = if over { figures.doubts(&counted, &received, method, lane.mode()) } else { Vec::new() };
        Ok(StreamReport {
            name: self.spec.name.clone(),
            running: !over,
            warm_up_sent: state.warm_sent,
            doubts,
            directed: Directed {
                from: self.from.clone(),
                to: self.to.clone(),
                traffic: self.traffic.clone(),
                method,
                figures,
                limit: None,
                line_share: None,
                packets: received.packets,
                latency: received.latency,
                jitter: received.jitter,
                doubts: Vec::new(),
            },
        })
    }

    /// A time since the start, in ns / 65536.
    pub(super) fn since_start(&self, now: u64) -> u64 {
        now.saturating_sub(self.start_ns) << 16
    }

    /// Duration of the traffic that counts, until now or its end.
    fn seconds(&self, state: &TrafficState, now: u64) -> f64 {
        let counted = state.counted();
        if self.pacing.packets.is_some_and(|packets| counted.sent >= packets) && counted.sent > 1 {
            // The number of packets ended it: count the interval behind the last one.
            let span = state.last_ns.saturating_sub(counted.start_ns) as f64;
            return span * counted.sent as f64 / (counted.sent - 1) as f64 / 1e9;
        }
        let until = self.start_ns + (self.end >> 16);
        now.min(until).saturating_sub(counted.start_ns) as f64 / 1e9
    }
}
