//! `shunt gen`.

use crate::{
    bench::{Setting, measured},
    cli::GenArgs,
};
use shunt_api::{Failure, FailureCode};
use shunt_lab::traffic::{self, Place, Report, Wanted};
use std::path::PathBuf;

/// What will be sent, and where.
#[derive(Debug)]
pub(crate) struct Generation {
    wanted: Wanted,
    place: Place,
    keep: Option<PathBuf>,
}

impl Generation {
    pub(crate) fn resolve(typed: &GenArgs) -> Result<Self, Failure> {
        let (wanted, place) = typed.wanted().map_err(|why| Failure::new(FailureCode::Usage, why))?;
        Ok(Self { wanted, place, keep: typed.keep.clone() })
    }

    pub(crate) fn perform(self, setting: Setting) -> anyhow::Result<Report> {
        let stop = setting.stop.clone();
        measured(traffic::WHAT, self.keep, setting, |kept, conditions, _| {
            let report = traffic::measure(&self.wanted, &self.place, conditions, &stop)?;
            kept.map_or(Ok(()), |kept| report.keep(kept))?;
            Ok(report)
        })
    }
}
