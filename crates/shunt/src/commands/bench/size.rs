//! `shunt bench size`: the forwarding rate for each frame size.

pub(crate) mod view;

use super::{
    goodput::args::mtu,
    testbed::{self, ENGINES, TRIAL_OVERHEAD, TestbedArgs},
    traffic::TrafficArgs,
};
use crate::{
    commands::{
        arguments::{duration, frame_bytes},
        measure::{MeasureContext, Measurement, begin},
    },
    failure::{traffic_failed, usage},
    render::Answer,
};
use clap::Args;
use shunt_gen::{FrameSizes, Sizes};
use shunt_lab::{
    frame_size::{FrameSizePlan, RFC2544_BYTES},
    statistics::RUNS_WANTED,
};
use std::{path::PathBuf, time::Duration};

/// Ethernet header and FCS.
const FRAME_AROUND_PACKET_BYTES: u32 = 18;

#[derive(Debug, Args)]
pub(crate) struct SizeArgs {
    /// Frame sizes with FCS, separated by commas [default: 64, 128, 256, 512, 1024, 1280 and 1518; with --ip 6, 78
    /// instead of 64].
    #[arg(long = "size", value_name = "BYTES", value_delimiter = ',', value_parser = frame_bytes)]
    sizes: Vec<u32>,
    /// MTUs of all links of the router in a namespace, separated by commas, 576 to 9000; each is measured with the
    /// sizes that fit it, by default with its largest frame, too [default: what the largest frame needs, and at least
    /// 1500].
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', value_parser = mtu, conflicts_with = "tx")]
    mtu: Vec<u32>,
    #[command(flatten)]
    traffic: TrafficArgs,
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
    #[arg(long, visible_alias = "for", value_name = "TIME", value_parser = duration)]
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
        let traffic = |sizes| typed.traffic.traffic(&typed.testbed, typed.both, sizes);
        let mut frame_bytes = typed.sizes.clone();
        if frame_bytes.is_empty() {
            let least = traffic(None)?.shape.sizes.smallest();
            frame_bytes = RFC2544_BYTES.map(|bytes| bytes.max(least)).to_vec();
            frame_bytes.extend(typed.mtu.iter().map(|mtu| mtu + FRAME_AROUND_PACKET_BYTES));
        }
        frame_bytes.sort_unstable();
        frame_bytes.dedup();
        let (rounds, trial) = match typed.quick {
            true => (2, Duration::from_millis(500)),
            false => (typed.runs.unwrap_or(RUNS_WANTED as u32), typed.time.unwrap_or(Duration::from_secs(2))),
        };
        if trial.is_zero() {
            return Err(usage("--time 0s: give a duration above 0").into());
        }
        // The smallest frames have to have room for the headers.
        let smallest = frame_bytes.first().map(|bytes| Sizes::fixed(*bytes)).transpose()?;
        let spec = traffic(smallest.map(FrameSizes::Given).as_ref())?;
        let (testbed, engines) = testbed::resolve(typed.testbed.nics(), &typed.engines)?;
        let dut = typed.testbed.dut()?;
        let own_load = typed.testbed.cpu;
        let mut mtus = typed.mtu.clone();
        mtus.sort_unstable();
        mtus.dedup();
        let plan = FrameSizePlan { spec, testbed, engines, frame_bytes, mtus, rounds, trial, dut, own_load };
        if let Some(bytes) = plan.without_mtu() {
            let why = "no MTU of --mtu has room for such a frame; give a larger one";
            return Err(usage(format!("--size {bytes}: {why}")).into());
        }
        Ok(Self { plan, keep: typed.keep.clone() })
    }
}

impl Measurement for SizeBench {
    fn expected_duration(&self) -> Duration {
        let FrameSizePlan { engines, frame_bytes, mtus, rounds, trial, .. } = &self.plan;
        let sizes = (frame_bytes.len() * mtus.len().max(1)) as u32;
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
#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::arguments::parse_args;

    fn plan(options: &str) -> FrameSizePlan {
        SizeBench::resolve(&parse_args(options).unwrap()).unwrap().plan
    }

    #[test]
    fn the_smallest_default_size_has_room_for_the_headers() {
        assert_eq!(plan("").frame_bytes, RFC2544_BYTES);
        assert_eq!(plan("--ip 6").frame_bytes, [78, 128, 256, 512, 1024, 1280, 1518]);
        assert_eq!(plan("--ip 6 --size 512,80").frame_bytes, [80, 512]);
    }

    #[test]
    fn each_mtu_is_measured_with_the_frames_that_fit_it() {
        let jumbo = plan("--mtu 9000,1500");
        assert_eq!((&jumbo.mtus[..], jumbo.frame_bytes.last()), (&[1500, 9000][..], Some(&9018)));
        assert!(plan("").mtus.is_empty());
        let why = |options: &str| match parse_args::<SizeArgs>(options) {
            Ok(typed) => SizeBench::resolve(&typed).unwrap_err().to_string(),
            Err(error) => error.to_string(),
        };
        assert!(why("--mtu 1500 --size 64,1519").starts_with("--size 1519: no MTU of --mtu has room"));
        assert!(why("--mtu 9001").contains("576 to 9000"));
        assert!(why("--mtu 1500 --tx lo --rx lo").contains("cannot be used with"));
    }

    #[test]
    fn flows_differ_in_source_ports_before_destination_ports() {
        let ports = |options| {
            let shape = plan(options).spec.shape;
            (shape.flows, shape.source_ports.count, shape.destination_ports.count)
        };
        assert_eq!(ports(""), (Some(1), 1, 1));
        assert_eq!(ports("--flows 64512"), (Some(64512), 64512, 1));
        assert_eq!(ports("--flows 64513"), (Some(64513), 64512, 2));
        let nat = ["", "--nat", "--nat on", "--nat off"].map(|options| plan(options).spec.nat);
        assert_eq!(nat, [false, true, true, false]);
    }
}
