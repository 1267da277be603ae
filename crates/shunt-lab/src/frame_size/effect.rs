//! The effect of the frame size on the rate.

use super::{Point, WHOLE_LINE};
use crate::Doubt;
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
    /// Time per frame and per byte; None if the router was the limit at fewer than two sizes, or larger frames are not
    /// slower.
    pub cost: Option<Cost>,
}

/// The fit `time = frame_ns + byte_ns x bytes`, by least squares.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Time per frame, independent of its size.
    pub frame_ns: f64,
    /// Time per byte.
    pub byte_ns: f64,
    /// Share of the bytes in the time of the largest frame.
    pub bytes_share: f64,
}

impl Effect {
    pub(super) fn between_sizes(router: &str, points: &[&Point]) -> Option<Self> {
        let smallest = points.iter().min_by_key(|point| point.frame_bytes)?;
        let largest = points.iter().max_by_key(|point| point.frame_bytes)?;
        if smallest.frame_bytes == largest.frame_bytes {
            return None;
        }
        let limited = |point: &&&Point| {
            let Point { forwarded_pps, line_share, .. } = point;
            let bound = forwarded_pps.doubts.contains(&Doubt::GeneratorBound);
            !bound && line_share.is_none_or(|share| share < WHOLE_LINE) && forwarded_pps.value > 0.0
        };
        let times: Vec<(f64, f64)> = points
            .iter()
            .filter(limited)
            .map(|point| (f64::from(point.frame_bytes), 1e9 / point.forwarded_pps.value))
            .collect();
        Some(Self {
            router: router.to_owned(),
            pps_ratio: largest.forwarded_pps.value / smallest.forwarded_pps.value,
            l2_ratio: largest.l2_bps / smallest.l2_bps,
            cost: Cost::fit(&times),
        })
    }
}

impl Cost {
    /// Fits pairs of bytes and ns.
    pub(super) fn fit(times: &[(f64, f64)]) -> Option<Self> {
        let n = times.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| times.iter().map(of).sum::<f64>() / n;
        let (bytes, ns) = (mean(|t| t.0), mean(|t| t.1));
        let above: f64 = times.iter().map(|t| (t.0 - bytes) * (t.1 - ns)).sum();
        let below: f64 = times.iter().map(|t| (t.0 - bytes).powi(2)).sum();
        let byte_ns = above / below;
        let frame_ns = ns - byte_ns * bytes;
        let largest = times.iter().map(|t| t.0).fold(0.0, f64::max);
        let of_bytes = byte_ns * largest;
        let makes_sense = byte_ns.is_finite() && byte_ns > 0.0 && frame_ns > 0.0;
        makes_sense.then(|| Self { frame_ns, byte_ns, bytes_share: of_bytes / (frame_ns + of_bytes) })
    }
}
