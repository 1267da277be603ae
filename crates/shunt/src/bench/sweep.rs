//! `shunt bench sweep`.

use super::{BESIDE, Setting, between, is_there, measured, place, wanted};
use crate::cli::SweepArgs;
use shunt_api::{Failure, FailureCode};
use shunt_lab::sweep::{Plan, Report};
use std::{path::PathBuf, time::Duration};

/// More steps take hours.
const STEPS_MAX: u64 = 1000;

/// What will be measured.
#[derive(Debug)]
pub(crate) struct SweepBench {
    plan: Plan,
    keep: Option<PathBuf>,
}

impl SweepBench {
    pub(super) fn resolve(typed: &SweepArgs) -> anyhow::Result<Self> {
        let usage = |why: String| Failure::new(FailureCode::Usage, why);
        let [from, to, by] = [typed.from, typed.to, typed.step].map(|rate| rate.bits_per_second());
        if to < from {
            return Err(
                usage(format!("from {from} to {to} bit/s: the highest rate is below the lowest")).into()
            );
        }
        let steps = (to - from) / by + 1;
        if steps > STEPS_MAX {
            return Err(
                usage(format!("{steps} steps: {STEPS_MAX} are the most; give a larger --step")).into()
            );
        }
        let step = match typed.quick {
            true => Duration::from_millis(500),
            false => typed.time.unwrap_or(Duration::from_secs(2)),
        };
        typed.watch.iter().try_for_each(|name| is_there(name))?;
        let wanted = wanted(typed.place.speed, !typed.one_way, typed.size.clone());
        let named = typed.engine.clone().unwrap_or_else(|| "slow".to_owned());
        let (place, engines) = place(between(&typed.place), &[named])?;
        let engine = engines.into_iter().next().and_then(|(_, engine)| engine);
        let rates_bps = (0..steps).map(|n| from + n * by).collect();
        let plan = Plan { wanted, place, engine, rates_bps, step, watched: typed.watch.clone() };
        Ok(Self { plan, keep: typed.keep.clone() })
    }

    pub(super) fn expected(&self) -> Duration {
        (self.plan.step + BESIDE) * self.plan.rates_bps.len() as u32
    }

    pub(super) fn perform(self, setting: Setting) -> anyhow::Result<Report> {
        let stop = setting.stop.clone();
        measured("UDP rate sweep", self.keep, setting, |kept, conditions, show| {
            self.plan.perform(kept, conditions, &stop, show)
        })
    }
}
