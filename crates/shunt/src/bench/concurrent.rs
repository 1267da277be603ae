//! `shunt bench ndr --what concurrent`.

use super::{BESIDE, Setting, connections, go_on, place, wanted};
use crate::{cli::NdrArgs, perform::told};
use shunt_api::{Failure, FailureCode};
use shunt_gen::FLOWS_MAX;
use shunt_lab::{
    Kept, Results,
    throughput::concurrent::{MaximumOf, Plan, Range, Report},
};
use std::{path::PathBuf, sync::atomic::Ordering, time::Duration};

const QUICK_MAX: u32 = 65_536;
/// How near bounds come, as a share.
const WIDTHS: [f64; 2] = [0.005, 0.1];
/// Doubling sends over twice as many as the greatest number, and three times over each.
const PASSES_EXPECTED: f64 = 6.0;
const TRIALS_EXPECTED: u32 = 6;

/// What will be measured.
#[derive(Debug)]
pub(crate) struct ConcurrentBench {
    plan: Plan,
    keep: Option<PathBuf>,
}

impl ConcurrentBench {
    pub(super) fn resolve(typed: &NdrArgs) -> anyhow::Result<Self> {
        let range = range(typed, connections::table().unwrap_or(FLOWS_MAX))?;
        if typed.rfc2544.is_some() {
            return Err(usage("--rfc2544: it is of frames/s; leave it out".to_owned()).into());
        }
        let pps = typed.open_rate;
        if !(pps.is_finite() && pps > 0.0) {
            return Err(usage(format!("--open-rate {pps}: not above 0")).into());
        }
        let mut wanted = wanted(typed.place.speed, typed.both, typed.size.clone());
        connections::ask_for(&mut wanted, typed, f64::from(range.max))?;
        let (_, engines) = place(None, &typed.engines)?;
        let plan = Plan { wanted, engines, range, pps, runs: typed.runs };
        Ok(Self { plan, keep: typed.keep.clone() })
    }

    pub(super) fn expected(&self) -> Duration {
        let Plan { engines, range, pps, runs, .. } = &self.plan;
        let search = Duration::from_secs_f64(PASSES_EXPECTED * f64::from(range.max) / pps);
        (search + BESIDE * TRIALS_EXPECTED) * *runs * engines.len() as u32
    }

    pub(super) fn perform(self, Setting { stop, conditions, show }: Setting) -> anyhow::Result<Report> {
        let results = Results::new("concurrent connections", conditions);
        let mut kept = match self.keep {
            Some(path) => go_on(path, results)?,
            None => Kept::nowhere(results),
        };
        match self.plan.perform(&mut kept, stop, show) {
            Ok(report) if !stop.load(Ordering::Relaxed) => Ok(Report { results: kept.finish()?, ..report }),
            Ok(report) => {
                kept.leave()?;
                Ok(report)
            }
            Err(why) => {
                kept.leave()?;
                Err(told(why).into())
            }
        }
    }
}

/// Up to what the table has room for, what can be told apart, or what was asked for: the least of them.
fn range(typed: &NdrArgs, table: u32) -> Result<Range, Failure> {
    let most = match table < FLOWS_MAX {
        true => (table, MaximumOf::Table),
        false => (FLOWS_MAX, MaximumOf::Flows),
    };
    let (max, max_of) = match typed.max_load {
        Some(asked) if asked as u32 != most.0 => (asked as u32, MaximumOf::Asked),
        None if typed.quick && QUICK_MAX < most.0 => (QUICK_MAX, MaximumOf::Quick),
        _ => most,
    };
    if max > most.0 {
        return Err(usage(format!("--max-load {max}: {} is {}", most.1, most.0)));
    }
    // The least number that nobody asked for is no reason to refuse a small table.
    let min = (typed.min_load as u32).min(if typed.max_load.is_some() { u32::MAX } else { max });
    if min == 0 || min > max {
        return Err(usage(format!("--min-load {min}: the least number of connections is from 1 to {max}")));
    }
    Ok(Range { min, max, max_of, width: WIDTHS[usize::from(typed.quick)] })
}

fn usage(why: String) -> Failure {
    Failure::new(FailureCode::Usage, why)
}
