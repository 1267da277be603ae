//! `shunt gen`: sends traffic and accounts for every packet.

mod args;

use super::measure::{MeasureContext, measure_and_keep, measure_and_show, with_progress_bar};
use crate::{
    failure::{bad_file, usage},
    output::Show,
    render::Answer,
};
pub(crate) use args::GenArgs;
use shunt_api::Failure;
use shunt_gen::Capture;
use shunt_lab::traffic::{self, Replay, Report, Testbed, TrafficSpec};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A resolved `shunt gen`: the traffic, the devices, and the file for the results.
#[derive(Debug)]
pub(crate) struct Generation {
    spec: TrafficSpec,
    testbed: Testbed,
    keep: Option<PathBuf>,
}

impl Generation {
    pub(crate) fn resolve(typed: &GenArgs) -> Result<Self, Failure> {
        let replay = typed.pcap_in.as_deref().map(|path| read_replay(typed, path)).transpose()?;
        let (spec, testbed) = typed.traffic(replay).map_err(usage)?;
        Ok(Self { spec, testbed, keep: typed.keep.clone() })
    }

    pub(crate) async fn run(self, show: Show<'_>) -> anyhow::Result<()> {
        let measure = move |stop: &Arc<_>| with_progress_bar(stop, |context| self.measure(context));
        measure_and_show(show, move |stop| Ok(Answer::Traffic(Box::new(measure(stop)?)))).await
    }

    fn measure(self, context: MeasureContext) -> anyhow::Result<Report> {
        let stop = context.stop.clone();
        measure_and_keep(traffic::WHAT, self.keep, context, |file, conditions, _| {
            let report = traffic::measure(&self.spec, &self.testbed, conditions, &stop)?;
            file.map_or(Ok(()), |file| report.save(file))?;
            Ok(report)
        })
    }
}

fn read_replay(typed: &GenArgs, path: &Path) -> Result<Replay, Failure> {
    let bytes = fs::read(path).map_err(|error| bad_file(path, error))?;
    let capture = Capture::parse(&bytes).map_err(|unfit| bad_file(path, unfit))?;
    // Without --rate and --multiplier, replay at the timing of the capture.
    let multiplier = typed.multiplier.or(if typed.rate.is_some() { None } else { Some(1.0) });
    let file = path.display().to_string();
    Ok(Replay { capture: Arc::new(capture), multiplier, rounds: typed.r#loop, file })
}
