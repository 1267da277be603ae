//! `shunt bench sweep`: loss and counters at increasing rates.

mod registers;
pub(crate) mod view;

use super::{
    testbed::{self, ENGINES, TRIAL_OVERHEAD, TestbedArgs, require_device},
    traffic::TrafficArgs,
};
use crate::{
    commands::{
        arguments::duration,
        measure::{MeasureContext, Measurement, begin},
    },
    failure::{traffic_failed, usage},
    render::{Answer, units},
};
use clap::Args;
use registers::RegisterArgs;
use shunt_gen::FrameSizes;
use shunt_lab::sweep::SweepPlan;
use shunt_wire::line::LinkSpeed;
use std::{path::PathBuf, time::Duration};

/// The default of --to, in bit/s.
const HIGHEST_BPS: u64 = 1_000_000_000;
/// More steps would take hours.
const STEPS_MAX: u64 = 1000;

#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    /// The lowest rate of each direction, in bit/s of frames with FCS.
    #[arg(long, value_name = "RATE", default_value = "50M")]
    from: LinkSpeed,
    /// The highest rate of each direction [default: 1000M, or the last step that the line carries].
    #[arg(long, value_name = "RATE")]
    to: Option<LinkSpeed>,
    /// The step from each rate to the next.
    #[arg(long, value_name = "RATE", default_value = "50M")]
    step: LinkSpeed,
    /// Duration of each step [default: 2s].
    #[arg(long, visible_alias = "for", value_name = "TIME", value_parser = duration)]
    time: Option<Duration>,
    /// Frame size with FCS: one size, imix (7 of 64, 4 of 570, 1 of 1518; 78 instead of 64 with --ip 6), or as
    /// 64:7,570:4,1518:1.
    #[arg(long, default_value = "1518")]
    size: FrameSizes,
    #[command(flatten)]
    traffic: TrafficArgs,
    /// Send only from --tx to --rx, instead of in both directions at once.
    #[arg(long)]
    one_way: bool,
    /// The engine in the router's namespace; slow is Linux alone; external is a process that polls
    /// [default: slow].
    #[arg(long = "engine", id = "engines", value_name = "slow|tc|xdp|external", value_parser = ENGINES, hide_possible_values = true)]
    engine: Option<String>,
    #[command(flatten)]
    testbed: TestbedArgs,
    /// Also read the counters of this device of this machine; may be given several times.
    #[arg(long, value_name = "PORT")]
    watch: Vec<String>,
    #[command(flatten)]
    registers: RegisterArgs,
    /// Measure faster and less exactly: steps of 0.5s.
    #[arg(long, conflicts_with = "time")]
    quick: bool,
    /// Keep the results in this file, for `shunt compare` and `shunt report`; if the file exists, the runs are added to
    /// it.
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
}

/// A resolved `shunt bench sweep`.
#[derive(Debug)]
pub(crate) struct SweepBench {
    plan: SweepPlan,
    keep: Option<PathBuf>,
}

impl SweepBench {
    pub(super) fn resolve(typed: &SweepArgs) -> anyhow::Result<Self> {
        let [from, by] = [typed.from, typed.step].map(|rate| rate.bits_per_second());
        let spec = typed.traffic.traffic(&typed.testbed, !typed.one_way, Some(&typed.size))?;
        let engine = typed.engine.clone().unwrap_or_else(|| "slow".to_owned());
        let (testbed, engines) = testbed::resolve(typed.testbed.nics(), &[engine])?;
        let mean_bytes = spec.shape.sizes.mean_bytes();
        let capacity_bps = |line: LinkSpeed| line.frames_per_second(mean_bytes) * 8.0 * mean_bytes;
        let most =
            testbed.speed(spec.speed).map_or(HIGHEST_BPS, |line| HIGHEST_BPS.min(capacity_bps(line) as u64));
        let to = typed.to.map_or(most.max(from), |to| to.bits_per_second());
        if to < from {
            let [from, to] = [from, to].map(units::bits_per_second);
            return Err(usage(format!(
                "--from {from} --to {to}: expected the lowest rate first, then the highest; lower --from, or raise --to"
            ))
            .into());
        }
        let steps = (to - from) / by + 1;
        if steps > STEPS_MAX {
            return Err(usage(format!(
                "{steps} steps: at most {STEPS_MAX} are possible; give a larger --step"
            ))
            .into());
        }
        let step = match typed.quick {
            true => Duration::from_millis(500),
            false => typed.time.unwrap_or(Duration::from_secs(2)),
        };
        typed.watch.iter().try_for_each(|name| require_device(name))?;
        let engine = engines.into_iter().next().and_then(|(_, engine)| engine);
        let rates_bps = (0..steps).map(|n| from + n * by).collect();
        let dut = typed.testbed.dut()?;
        let (watched, own_load) = (typed.watch.clone(), typed.testbed.cpu);
        let registers = typed.registers.resolve()?;
        let plan = SweepPlan { spec, testbed, engine, rates_bps, step, watched, dut, own_load, registers };
        Ok(Self { plan, keep: typed.keep.clone() })
    }
}

impl Measurement for SweepBench {
    fn expected_duration(&self) -> Duration {
        (self.plan.step + TRIAL_OVERHEAD) * self.plan.rates_bps.len() as u32
    }

    fn measure(self: Box<Self>, context: MeasureContext) -> anyhow::Result<Box<dyn Answer + Send>> {
        let MeasureContext { stop, conditions, show } = context;
        let file = begin("UDP rate sweep", self.keep, conditions)?;
        Ok(Box::new(self.plan.perform(file, stop, show).map_err(traffic_failed)?))
    }
}

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::arguments::parse_args;

    fn rates(options: &str) -> Vec<u64> {
        SweepBench::resolve(&parse_args(options).unwrap()).unwrap().plan.rates_bps
    }

    #[test]
    fn a_sweep_ends_at_the_last_step_that_the_line_carries_unless_to_is_given() {
        let last = |words: &str| *rates(words).last().unwrap();
        assert_eq!((rates("").len(), last("")), (20, 1_000_000_000));
        // 1 Gbit/s carries 987 Mbit/s of 1518-byte frames.
        assert_eq!(last("--speed 1G"), 950_000_000);
        assert_eq!(last("--speed 10G"), 1_000_000_000);
        assert_eq!(rates("--speed 10M"), [50_000_000], "the lab refuses this rate before anything is sent");
        assert_eq!(last("--speed 1G --to 2G"), 2_000_000_000);
    }
}
