//! `shunt gen`: sends traffic and accounts for every packet.

mod args;
mod packets;
mod script;
pub(crate) mod streams;
pub(crate) mod view;

use super::measure::{MeasureContext, begin, measure_and_show, with_progress_bar};
use crate::{
    command::{Command, Context},
    failure::{bad_file, traffic_failed, unreadable, usage},
    output::Show,
};
pub(crate) use args::GenArgs;
use script::Script;
use shunt_api::Failure;
use shunt_gen::Capture;
use shunt_lab::traffic::{
    self, Replay, Report, StreamSpec, StreamsReport, StreamsSpec, Testbed, TrafficSpec, measure_streams,
};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

/// A resolved `shunt gen`.
#[derive(Debug)]
pub(crate) enum Plan {
    One(Box<Generation>),
    Streams(StreamsGeneration),
    Script(Script),
}

/// Several streams, the devices, and the file for the results.
#[derive(Debug)]
pub(crate) struct StreamsGeneration {
    spec: StreamsSpec,
    streams: Vec<StreamSpec>,
    testbed: Testbed,
    keep: Option<PathBuf>,
}

/// The traffic, the devices, and the file for the results.
#[derive(Debug)]
pub(crate) struct Generation {
    spec: TrafficSpec,
    testbed: Testbed,
    keep: Option<PathBuf>,
}

impl Command for GenArgs {
    type Plan = Plan;
    const EXAMPLES: &str = "
        [shunt gen]
        shunt gen --rate 100kpps --size 64 --time 5s # through a router in a namespace
        shunt gen --tx eth1 --rx eth2 --gateway 192.0.2.1 --rate 80% --both --rx-gateway 198.51.100.1 # through another router, both ways
        shunt gen --streams streams.toml --time 10s # several streams, each with its own figures
        shunt gen --tx eth1 --rx eth2 --script - # answer requests, a line of JSON each, from a program
        shunt gen --tx eth1 --rx eth2 --pcap-in in.pcap --pcap-out out.pcap # replay a capture
    ";

    fn resolve(self, _: &Context) -> anyhow::Result<Plan> {
        let (spec, testbed) = self.streams();
        Ok(match (&self.streams, &self.script) {
            (Some(file), _) => {
                let streams = streams::read(file, self.stream_defaults())?;
                Plan::Streams(StreamsGeneration { spec, streams, testbed, keep: self.keep })
            }
            (None, Some(file)) => Plan::Script(Script { file: file.clone(), spec, testbed }),
            (None, None) => Plan::One(Box::new(Generation::resolve(&self)?)),
        })
    }

    async fn run(plan: Plan, _: &Context, show: Show<'_>) -> anyhow::Result<()> {
        match plan {
            Plan::One(one) => {
                measure_and_show(show, move |stop| with_progress_bar(stop, |context| one.measure(context)))
                    .await
            }
            Plan::Streams(all) => {
                measure_and_show(show, move |stop| with_progress_bar(stop, |context| all.measure(context)))
                    .await
            }
            Plan::Script(script) => script::run(script, show).await,
        }
    }
}

impl Generation {
    fn resolve(typed: &GenArgs) -> Result<Self, Failure> {
        let replay = typed.pcap_in.as_deref().map(|path| read_replay(typed, path)).transpose()?;
        let (spec, testbed) = typed.traffic(replay).map_err(usage)?;
        // Before the file for the results is made.
        spec.schedule(testbed.speed(spec.speed)).map_err(traffic_failed)?;
        Ok(Self { spec, testbed, keep: typed.keep.clone() })
    }

    fn measure(self, MeasureContext { stop, conditions, .. }: MeasureContext) -> anyhow::Result<Report> {
        let mut file = begin(traffic::WHAT, self.keep, conditions.clone())?;
        let report = traffic::measure(&self.spec, &self.testbed, conditions, stop).map_err(traffic_failed)?;
        report.save(&mut file)?;
        file.end(!stop.load(Ordering::Relaxed))?;
        Ok(report)
    }
}

impl StreamsGeneration {
    fn measure(
        self,
        MeasureContext { stop, conditions, .. }: MeasureContext,
    ) -> anyhow::Result<StreamsReport> {
        let mut file = begin(traffic::WHAT, self.keep, conditions.clone())?;
        let report = measure_streams(&self.spec, &self.streams, &self.testbed, conditions, stop);
        let report = report.map_err(traffic_failed)?;
        report.save(&mut file)?;
        file.end(!stop.load(Ordering::Relaxed))?;
        Ok(report)
    }
}

fn read_replay(typed: &GenArgs, path: &Path) -> Result<Replay, Failure> {
    let bytes = fs::read(path).map_err(|error| unreadable(path, &error))?;
    let capture = Capture::parse(&bytes).map_err(|unfit| bad_file(path, unfit))?;
    // Without --rate and --multiplier, replay at the timing of the capture.
    let multiplier = typed.multiplier.or(if typed.rate.is_some() { None } else { Some(1.0) });
    let file = path.display().to_string();
    Ok(Replay { capture: Arc::new(capture), multiplier, rounds: typed.r#loop, file })
}

#[cfg(test)]
pub(crate) mod sample;
