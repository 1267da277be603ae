//! The runs of a router at one frame size.

use super::{Point, WHOLE_LINE};
use crate::{
    Doubt, Labels, Limit, Position, Reading, ResultsFile, Run,
    dut::{self, LoadOf},
    load::Load,
    statistics::median,
    traffic::{Directed, Figures, Variant},
};
use serde_json::json;
use shunt_wire::line::WIRE_OVERHEAD_BYTES;

/// A router that loses a smaller share than this was not the limit.
const TOOK_ALL: f64 = 0.001;
/// A router that loses nothing and forwards this share of the generator's own rate was not the limit.
const GENERATOR: f64 = 0.9;
/// Runs that differ by more than this share of their median are noisy.
const NOISY: f64 = 0.1;

/// The runs of a router at one size.
pub(super) struct Series {
    pub(super) router: String,
    pub(super) frame_bytes: u32,
    pub(super) mtu: Option<u32>,
    pub(super) variant: Variant,
    pub(super) labels: Labels,
    pub(super) is_own: bool,
    pub(super) runs: Vec<Figures>,
    pub(super) generator_pps: Option<f64>,
    pub(super) dut_loads: Vec<Load>,
    pub(super) doubts: Vec<Doubt>,
}

impl Series {
    pub(super) fn add(&mut self, directed: &[Directed]) {
        let figures = Figures::sum(directed);
        let doubts = directed.iter().flat_map(|one| one.doubts.clone());
        doubts.for_each(|doubt| doubt.add_to(&mut self.doubts));
        self.runs.push(figures);
    }

    /// The limit of the rate other than the router, by the medians of the runs.
    fn bound(&self, offered_pps: f64, loss_ratio: f64) -> Option<Doubt> {
        // A scheduled rate that the generator did not reach means that the line was not the limit.
        let line = self.runs.iter().filter_map(|figures| figures.offered_pps).fold(f64::INFINITY, f64::min);
        if loss_ratio >= TOOK_ALL || offered_pps >= line * WHOLE_LINE {
            return None;
        }
        Some(match self.generator_pps {
            Some(most) if offered_pps < most * GENERATOR => Doubt::SharedCpu,
            _ => Doubt::GeneratorBound,
        })
    }

    pub(super) fn name(&self) -> String {
        self.variant.name(&format!("{} {}", self.router, self.frame_bytes))
    }

    /// Saves the last run.
    pub(super) fn save(&self, file: &mut ResultsFile, limit: Option<Limit>) -> std::io::Result<()> {
        let Some(figures) = self.runs.last() else { return Ok(()) };
        file.add(&self.name(), "pps", run(figures))?;
        limit.into_iter().for_each(|limit| file.set_limit(&self.name(), limit));
        let position = Position {
            of: self.variant.name("forwarded"),
            line: self.router.clone(),
            along: "frame size".to_owned(),
            unit: "bytes".to_owned(),
            value: f64::from(self.frame_bytes),
        };
        file.set_position(&self.name(), position);
        file.set_labels(&self.name(), self.labels);
        let of = LoadOf {
            router: self.is_own.then_some(self.router.as_str()),
            when: &format!("with {} bytes", self.frame_bytes),
            variant: &self.variant,
            labels: self.labels,
            along: Some(("frame size", "bytes", f64::from(self.frame_bytes))),
        };
        dut::save(file, of, self.dut_loads.last())
    }

    pub(super) fn point(&self, limit: Option<Limit>) -> Option<Point> {
        let mut forwarded_pps = Reading::from_runs("pps", self.runs.iter().map(run).collect())?;
        forwarded_pps.doubts.clone_from(&self.doubts);
        forwarded_pps.set_limit(limit);
        let pps = forwarded_pps.value;
        let apart = (forwarded_pps.spread.high - forwarded_pps.spread.low) / pps;
        if apart > NOISY {
            forwarded_pps.add_doubt(Doubt::Noisy { percent: apart * 100.0 });
        }
        let bits = |bytes: u32| pps * 8.0 * f64::from(bytes);
        let l1_bps = bits(self.frame_bytes + WIRE_OVERHEAD_BYTES);
        let middle = |of: fn(&Figures) -> f64| median(&self.runs.iter().map(of).collect::<Vec<_>>());
        let (offered_pps, loss_ratio) =
            (middle(|figures| figures.achieved_pps)?, middle(|figures| figures.loss_ratio)?);
        self.bound(offered_pps, loss_ratio).into_iter().for_each(|doubt| forwarded_pps.add_doubt(doubt));
        let load = |of: &dyn Fn(&Load) -> Option<f64>| {
            median(&self.dut_loads.iter().filter_map(of).collect::<Vec<_>>())
        };
        Some(Point {
            router: self.router.clone(),
            frame_bytes: self.frame_bytes,
            mtu: self.mtu,
            l2_bps: bits(self.frame_bytes),
            l1_bps,
            line_share: forwarded_pps.share(pps),
            offered_pps,
            loss_ratio,
            generator_pps: self.generator_pps,
            dut_load_percent: load(&|load| Some(load.load_percent)),
            dut_core_percent: load(&|load| load.core_percent),
            forwarded_pps,
            gain: None,
        })
    }
}

fn run(figures: &Figures) -> Run {
    let details = json!({
        "sent": figures.sent, "received": figures.received, "lost": figures.lost, "seconds": figures.seconds,
        "reordered": figures.reordered,
    });
    Run { value: figures.received_pps(), at: None, details: details.as_object().cloned().unwrap_or_default() }
}
