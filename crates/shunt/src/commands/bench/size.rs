//! `shunt bench size`: the forwarding rate for each frame size.

pub(crate) mod view;

use super::testbed::{self, ENGINES, TRIAL_OVERHEAD, TestbedArgs, udp_traffic};
use crate::{
    commands::{
        arguments::{duration, frame_bytes},
        measure::{MeasureContext, Measurement, begin},
    },
    failure::{traffic_failed, usage},
    render::Answer,
};
use clap::Args;
use shunt_gen::Sizes;
use shunt_lab::{
    frame_size::{FrameSizePlan, RFC2544_BYTES},
    statistics::RUNS_WANTED,
};
use std::{path::PathBuf, time::Duration};

#[derive(Debug, Args)]
pub(crate) struct SizeArgs {
    /// Frame sizes with FCS, separated by commas.
    #[arg(long = "size", value_name = "BYTES", value_delimiter = ',', default_values_t = RFC2544_BYTES,
        value_parser = frame_bytes)]
    sizes: Vec<u32>,
    /// An engine to measure in the router's namespace; slow is Linux alone; external is a process that polls. May be
    /// given several times [default: slow, tc and xdp].
    #[arg(long = "engine", value_name = "slow|tc|xdp|external", value_parser = ENGINES, hide_possible_values = true)]
    engines: Vec<String>,
    #[command(flatten)]
    testbed: TestbedArgs,
    /// Send in both directions at once; rates are the sum of both.
    #[arg(long)]
    both: bool,
    /// Duration of each run [default: 2s].
    #[arg(long, value_name = "TIME", value_parser = duration)]
    time: Option<Duration>,
    /// Number of runs for each size and engine; at least six are needed to tell a difference [default: 6].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: Option<u32>,
    /// Measure faster and less exactly: two runs of 0.5s each.
    #[arg(long, conflicts_with_all = ["time", "runs"])]
    quick: bool,
    /// Keep the results in this file, for `shunt compare` and `shunt report`; if the file exists, the runs are added to
    /// it.
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
}

/// A resolved `shunt bench size`.
#[derive(Debug)]
pub(crate) struct SizeBench {
    plan: FrameSizePlan,
    keep: Option<PathBuf>,
}

impl SizeBench {
    pub(super) fn resolve(typed: &SizeArgs) -> anyhow::Result<Self> {
        let mut frame_bytes = typed.sizes.clone();
        frame_bytes.sort_unstable();
        frame_bytes.dedup();
        let (rounds, trial) = match typed.quick {
            true => (2, Duration::from_millis(500)),
            false => (typed.runs.unwrap_or(RUNS_WANTED as u32), typed.time.unwrap_or(Duration::from_secs(2))),
        };
        if trial.is_zero() {
            return Err(usage("--time 0s: give a duration above 0").into());
        }
        let spec = udp_traffic(typed.testbed.speed, typed.both, Sizes::fixed(64)?);
        let (testbed, engines) = testbed::resolve(typed.testbed.nics(), &typed.engines)?;
        let dut = typed.testbed.dut()?;
        let plan = FrameSizePlan { spec, testbed, engines, frame_bytes, rounds, trial, dut };
        Ok(Self { plan, keep: typed.keep.clone() })
    }
}

impl Measurement for SizeBench {
    fn expected_duration(&self) -> Duration {
        let FrameSizePlan { engines, frame_bytes, rounds, trial, .. } = &self.plan;
        let sizes = frame_bytes.len() as u32;
        // For each size, the rate of the generator without a router is measured, too.
        (*trial + TRIAL_OVERHEAD) * *rounds * engines.len() as u32 * sizes + 2 * TRIAL_OVERHEAD * sizes
    }

    fn measure(self: Box<Self>, context: MeasureContext) -> anyhow::Result<Box<dyn Answer + Send>> {
        let MeasureContext { stop, conditions, show } = context;
        let file = begin("forwarding rate by frame size", self.keep, conditions)?;
        Ok(Box::new(self.plan.perform(file, stop, show).map_err(traffic_failed)?))
    }
}

#[cfg(test)]
pub(crate) mod sample;
