//! The effect of the frame size on the rate.

use super::{Point, WHOLE_LINE};
use crate::{Doubt, Spread, statistics::median_interval};
use serde::{Deserialize, Serialize};

/// The effect of the frame size on a router's rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// Name of the router.
    pub router: String,
    /// Frames/s at the largest size divided by frames/s at the smallest.
    pub pps_ratio: f64,
    /// bit/s (with FCS) at the largest size divided by bit/s at the smallest.
    pub l2_ratio: f64,
    /// Time per frame and per byte; None if the router was the limit at fewer than two sizes.
    pub cost: Option<Cost>,
}

/// The fit `time = frame_ns + byte_ns x bytes`, by least squares.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Time per frame, independent of its size.
    pub frame_ns: f64,
    /// Time per byte; not above 0 if larger frames took no longer.
    pub byte_ns: f64,
    /// Share of the bytes in the time of the largest frame.
    pub bytes_share: f64,
    /// Bounds of that share, from one fit for each round.
    pub share_spread: Spread,
}

impl Effect {
    pub(super) fn between_sizes(router: &str, points: &[&Point]) -> Option<Self> {
        let held_up = |point: &&&Point| point.forwarded_pps.doubts.iter().any(Doubt::is_held_up);
        let points: Vec<&Point> = points.iter().filter(|point| !held_up(point)).copied().collect();
        let smallest = points.iter().min_by_key(|point| point.frame_bytes)?;
        let largest = points.iter().max_by_key(|point| point.frame_bytes)?;
        if smallest.frame_bytes == largest.frame_bytes {
            return None;
        }
        let is_limit = |point: &&&Point| {
            let Point { forwarded_pps, line_share, .. } = point;
            let bound = forwarded_pps.doubts.contains(&Doubt::GeneratorBound);
            !bound && line_share.is_none_or(|share| share < WHOLE_LINE) && forwarded_pps.value > 0.0
        };
        let limited: Vec<&Point> = points.iter().filter(is_limit).copied().collect();
        Some(Self {
            router: router.to_owned(),
            pps_ratio: largest.forwarded_pps.value / smallest.forwarded_pps.value,
            l2_ratio: largest.l2_bps / smallest.l2_bps,
            cost: Cost::between_sizes(&limited),
        })
    }
}

impl Cost {
    fn between_sizes(points: &[&Point]) -> Option<Self> {
        let times = |pps: &dyn Fn(&Point) -> Option<f64>| {
            let time = |point: &&Point| Some((f64::from(point.frame_bytes), 1e9 / pps(point)?));
            points.iter().map(time).collect::<Option<Vec<_>>>()
        };
        let line = Line::fit(&times(&|point| Some(point.forwarded_pps.value))?)?;
        let rounds = points.iter().map(|point| point.forwarded_pps.runs.len()).min()?;
        let of_round = |round: usize| {
            Some(Line::fit(&times(&|point| Some(point.forwarded_pps.runs.get(round)?.value))?)?.bytes_share)
        };
        let shares: Vec<f64> = (0..rounds).map(of_round).collect::<Option<_>>()?;
        let Line { frame_ns, byte_ns, bytes_share } = line;
        Some(Self { frame_ns, byte_ns, bytes_share, share_spread: median_interval(&shares)? })
    }
}

struct Line {
    frame_ns: f64,
    byte_ns: f64,
    bytes_share: f64,
}

impl Line {
    /// Fits pairs of bytes and ns; None if there are fewer than two sizes, or a time is not finite.
    fn fit(times: &[(f64, f64)]) -> Option<Self> {
        let n = times.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| times.iter().map(of).sum::<f64>() / n;
        let (bytes, ns) = (mean(|t| t.0), mean(|t| t.1));
        let above: f64 = times.iter().map(|t| (t.0 - bytes) * (t.1 - ns)).sum();
        let below: f64 = times.iter().map(|t| (t.0 - bytes).powi(2)).sum();
        let byte_ns = above / below;
        let frame_ns = ns - byte_ns * bytes;
        let largest = times.iter().map(|t| t.0).fold(0.0, f64::max);
        let bytes_share = byte_ns * largest / (frame_ns + byte_ns * largest);
        (byte_ns.is_finite() && bytes_share.is_finite()).then_some(Self { frame_ns, byte_ns, bytes_share })
    }
}
