//! When a sender of UDP sends.

use crate::{
    case::{Pacing, Traffic},
    time::{Ps, SECOND, from_ps},
};
use fastrand::Rng;

/// Times of a sender's packets. A sender that is late catches up.
#[derive(Debug)]
pub(crate) struct SendTimes {
    pacing: Pacing,
    burst: u32,
    /// Mean distance.
    gap: f64,
    least: Ps,
    due: f64,
    number: u32,
    sleep: f64,
    jitter: f64,
    /// Duration of a stall, mean time from one to the next, and when the next begins.
    stall: f64,
    stall_every: f64,
    next_stall: f64,
    rng: Rng,
}

/// An exponentially distributed number with mean 1. libm's logarithm is the same on every platform.
fn exponential(rng: &mut Rng) -> f64 {
    -libm::log(1.0 - rng.f64())
}

impl SendTimes {
    /// A sender that needs at least this time for a packet.
    pub(crate) fn new(traffic: &Traffic, least: Ps, mut rng: Rng) -> Self {
        let gap = f64::from(traffic.payload) * 8.0 / traffic.rate * SECOND;
        let gap = match traffic.pacing {
            Pacing::Iperf2 => (gap / 1e6).floor() * 1e6,
            _ => gap,
        };
        let (stall, stall_every) = (traffic.stall_us * 1e6, traffic.stall_every_us * 1e6);
        let stalls = stall > 0.0 && stall_every > 0.0;
        let next_stall = if stalls { stall_every * exponential(&mut rng) } else { f64::INFINITY };
        Self {
            pacing: traffic.pacing,
            burst: traffic.burst,
            gap,
            least,
            due: 0.0,
            number: 0,
            sleep: traffic.sleep_us * 1e6,
            jitter: traffic.sleep_jitter_us * 1e6,
            stall,
            stall_every,
            next_stall,
            rng,
        }
    }

    /// Puts a moment off to the end of a stall, if one has begun.
    fn after_stalls(&mut self, at: Ps) -> Ps {
        let mut at = at;
        while self.next_stall <= at as f64 {
            let end = self.next_stall + self.stall;
            at = at.max(from_ps(end));
            self.next_stall = end + self.stall_every * exponential(&mut self.rng);
        }
        at
    }

    /// The time of the packet after one that was sent now.
    pub(crate) fn next(&mut self, now: Ps) -> Ps {
        self.number += 1;
        self.due += match self.pacing {
            Pacing::Cbr | Pacing::Iperf2 => self.gap,
            Pacing::Poisson => self.gap * exponential(&mut self.rng),
            Pacing::Bursts if self.number.is_multiple_of(self.burst) => self.gap * f64::from(self.burst),
            Pacing::Bursts => 0.0,
        };
        let (soonest, due) = (now + self.least, from_ps(self.due));
        if due <= soonest {
            return self.after_stalls(soonest);
        }
        let jitter = if self.jitter > 0.0 { self.jitter * exponential(&mut self.rng) } else { 0.0 };
        self.after_stalls(due + from_ps(self.sleep + jitter))
    }
}
