//! `shunt bench ndr --what concurrent`: how many connections a router holds at once.

pub(crate) mod view;

use super::{args::NdrArgs, connections};
use crate::{
    commands::{
        bench::testbed::{self, TRIAL_OVERHEAD, udp_traffic},
        measure::{MeasureContext, Measurement, begin},
    },
    failure::{traffic_failed, usage},
    render::Answer,
};
use shunt_api::Failure;
use shunt_gen::FLOWS_MAX;
use shunt_lab::throughput::concurrent::{ConcurrentPlan, MaximumOf, Range};
use std::{path::PathBuf, time::Duration};

/// The highest number with --quick.
const QUICK_MAX: u32 = 65_536;
/// Distance of the bounds at the end of the search, relative to the upper bound: by default, and with --quick.
const WIDTHS: [f64; 2] = [0.005, 0.1];
/// Estimate: doubling opens about twice the highest number of connections, and sends three packets over each.
const PASSES_EXPECTED: f64 = 6.0;
const TRIALS_EXPECTED: u32 = 6;

/// A resolved `shunt bench ndr --what concurrent`.
#[derive(Debug)]
pub(crate) struct ConcurrentBench {
    plan: ConcurrentPlan,
    keep: Option<PathBuf>,
}

impl ConcurrentBench {
    pub(crate) fn resolve(typed: &NdrArgs) -> anyhow::Result<Self> {
        let range = search_range(typed, connections::conntrack_max().unwrap_or(FLOWS_MAX))?;
        if typed.rfc2544.is_some() {
            return Err(usage("--rfc2544 measures frames/s, not concurrent connections; leave it out").into());
        }
        let pps = typed.open_rate;
        if !(pps.is_finite() && pps > 0.0) {
            return Err(usage(format!("--open-rate {pps}: expected a rate above 0")).into());
        }
        let mut spec = udp_traffic(typed.testbed.speed, typed.both, typed.size.clone());
        connections::one_connection_per_packet(&mut spec, typed, f64::from(range.max))?;
        let (_, engines) = testbed::resolve(None, &typed.engines)?;
        let plan = ConcurrentPlan { spec, engines, range, pps, runs: typed.runs };
        Ok(Self { plan, keep: typed.keep.clone() })
    }
}

impl Measurement for ConcurrentBench {
    fn expected_duration(&self) -> Duration {
        let ConcurrentPlan { engines, range, pps, runs, .. } = &self.plan;
        let search = Duration::from_secs_f64(PASSES_EXPECTED * f64::from(range.max) / pps);
        (search + TRIAL_OVERHEAD * TRIALS_EXPECTED) * *runs * engines.len() as u32
    }

    fn measure(
        self: Box<Self>,
        MeasureContext { stop, conditions, show }: MeasureContext,
    ) -> anyhow::Result<Box<dyn Answer + Send>> {
        let file = begin("concurrent connections", self.keep, conditions)?;
        Ok(Box::new(self.plan.perform(file, stop, show).map_err(traffic_failed)?))
    }
}

/// The numbers to search. The highest is the smallest of: the size of conntrack's table, the flows of the generator,
/// and --max-load.
fn search_range(typed: &NdrArgs, table: u32) -> Result<Range, Failure> {
    let most = match table < FLOWS_MAX {
        true => (table, MaximumOf::Table),
        false => (FLOWS_MAX, MaximumOf::Flows),
    };
    let (max, max_of) = match typed.max_load {
        Some(given) if given as u32 != most.0 => (given as u32, MaximumOf::Asked),
        None if typed.quick && QUICK_MAX < most.0 => (QUICK_MAX, MaximumOf::Quick),
        _ => most,
    };
    if max > most.0 {
        return Err(usage(format!("--max-load {max}: too high: {} is {}", most.1, most.0)));
    }
    // Do not refuse a small table because of the default of --min-load.
    let min = (typed.min_load as u32).min(if typed.max_load.is_some() { u32::MAX } else { max });
    if min == 0 || min > max {
        return Err(usage(format!("--min-load {min}: expected a number from 1 to {max}")));
    }
    Ok(Range { min, max, max_of, width: WIDTHS[usize::from(typed.quick)] })
}

#[cfg(test)]
pub(crate) mod sample;
