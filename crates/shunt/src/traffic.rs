//! `shunt gen`.

use crate::{
    bench::{Setting, measured},
    cli::GenArgs,
};
use shunt_api::{Failure, FailureCode};
use shunt_gen::Capture;
use shunt_lab::traffic::{self, Place, Replay, Report, Wanted};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

/// What will be sent, and where.
#[derive(Debug)]
pub(crate) struct Generation {
    wanted: Wanted,
    place: Place,
    keep: Option<PathBuf>,
}

impl Generation {
    pub(crate) fn resolve(typed: &GenArgs) -> Result<Self, Failure> {
        let usage = |why| Failure::new(FailureCode::Usage, why);
        let replay = typed.pcap_in.as_deref().map(|path| replay(typed, path)).transpose()?;
        let (wanted, place) = typed.wanted(replay).map_err(usage)?;
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

fn replay(typed: &GenArgs, path: &Path) -> Result<Replay, Failure> {
    let file = path.display().to_string();
    let bad = |why: String| Failure::new(FailureCode::BadConfig, format!("{file}: {why}"));
    let bytes = fs::read(path).map_err(|error| bad(error.to_string()))?;
    let capture = Capture::parse(&bytes).map_err(|unfit| bad(unfit.to_string()))?;
    // As captured, unless a rate says otherwise.
    let multiplier = typed.multiplier.or(if typed.rate.is_some() { None } else { Some(1.0) });
    Ok(Replay { capture: Arc::new(capture), multiplier, rounds: typed.r#loop, file })
}
