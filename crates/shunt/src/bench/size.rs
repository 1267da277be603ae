//! `shunt bench size`.

use super::{BESIDE, Setting, between, inside, measured, place, wanted};
use crate::cli::SizeArgs;
use shunt_api::{Failure, FailureCode};
use shunt_gen::Sizes;
use shunt_lab::frame_size::{Plan, Report};
use std::{path::PathBuf, time::Duration};

/// What will be measured.
#[derive(Debug)]
pub(crate) struct SizeBench {
    plan: Plan,
    keep: Option<PathBuf>,
}

impl SizeBench {
    pub(super) fn resolve(typed: &SizeArgs) -> anyhow::Result<Self> {
        let mut frame_bytes = typed.sizes.clone();
        frame_bytes.sort_unstable();
        frame_bytes.dedup();
        let (rounds, trial) = match typed.quick {
            true => (2, Duration::from_millis(500)),
            false => (typed.runs.unwrap_or(5), typed.time.unwrap_or(Duration::from_secs(2))),
        };
        if trial.is_zero() {
            return Err(Failure::new(FailureCode::Usage, "--time 0s: nothing is sent in no time").into());
        }
        let wanted = wanted(typed.place.speed, typed.both, Sizes::fixed(64)?);
        let (place, engines) = place(between(&typed.place), &typed.engines)?;
        let dut = inside(&typed.place)?;
        let plan = Plan { wanted, place, engines, frame_bytes, rounds, trial, dut };
        Ok(Self { plan, keep: typed.keep.clone() })
    }

    pub(super) fn expected(&self) -> Duration {
        let Plan { engines, frame_bytes, rounds, trial, .. } = &self.plan;
        let sizes = frame_bytes.len() as u32;
        // And what the generator can do, for each size.
        (*trial + BESIDE) * *rounds * engines.len() as u32 * sizes + 2 * BESIDE * sizes
    }

    pub(super) fn perform(self, setting: Setting) -> anyhow::Result<Report> {
        let stop = setting.stop.clone();
        measured("forwarding rate by frame size", self.keep, setting, |kept, conditions, show| {
            self.plan.perform(kept, conditions, &stop, show)
        })
    }
}
