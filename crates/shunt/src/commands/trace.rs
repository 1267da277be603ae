//! `shunt trace`: where the time of packets goes.

pub(crate) mod view;

use super::{
    arguments::{port_name, time_from},
    connections::{NamedConnections, SelectionArgs},
    measure::measure_and_show,
    result_files,
};
use crate::{
    client::candidates,
    command::{Command, Context},
    failure::no_device,
    output::{Show, write_stderr},
};
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use nix::unistd::geteuid;
use shunt_api::{Failure, FailureCode};
use shunt_inspect::trace::{self, Path, Report, Request, TraceError};
use shunt_lab::{Conditions, Results, ResultsFile, Run};
use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

/// The name of the measurement in files of results.
const WHAT: &str = "trace";
const STARTED: &str = "shunt: tracing; Ctrl-C ends it and shows what was seen\n";

/// Show where the time of packets goes: each stage from the driver to the wire, or to the program that reads.
///
/// Follows one packet in N through this network namespace, without changing it: on the slow path, on the fast path, and
/// from the send call of a local program to the wire and back. Percentiles come first, with paths and directions side
/// by side, then single packets.
#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// Only packets that arrive at this port, and those that local programs send [default: all ports].
    #[arg(value_parser = port_name, add = ArgValueCandidates::new(candidates::devices))]
    port: Option<String>,
    #[command(flatten)]
    selection: SelectionArgs,
    /// How long to trace.
    #[arg(long, visible_aliases = ["time", "for"], value_name = "TIME", default_value = "5s",
        value_parser = time_from(Duration::from_millis(1)))]
    seconds: Duration,
    /// Trace one packet in N, chosen at random.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    sample: u32,
    /// Show this many single packets of each path.
    #[arg(long, value_name = "N", default_value_t = 5)]
    rows: usize,
    /// Then search the stage that takes most of the time for the function of the kernel in which it passes. Needs
    /// kprobes.
    #[arg(long)]
    bisect: bool,
    /// Add the medians of all stages to this file of results, for `shunt compare` and `shunt report`.
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
}

/// A resolved `shunt trace`.
#[derive(Debug)]
pub(crate) struct Tracing {
    request: Request,
    /// What the request is to select.
    which: NamedConnections,
    keep: Option<PathBuf>,
}

impl Command for TraceArgs {
    type Plan = Tracing;
    const EXAMPLES: &str = "
        [shunt trace]
        shunt trace lan0 # where the packets that arrive at a port spend their time
        shunt trace --dst 198.51.100.7 --for 10s # those of a connection, for ten seconds
        shunt trace --host laptop # those of a host, at all its addresses
    ";

    fn resolve(self, _: &Context) -> anyhow::Result<Tracing> {
        Ok(Tracing::resolve(self)?)
    }

    async fn run(mut plan: Tracing, context: &Context, show: Show<'_>) -> anyhow::Result<()> {
        plan.request.selections = plan.which.look_up(&context.client).await?;
        plan.run(show).await
    }
}

impl Tracing {
    fn resolve(typed: TraceArgs) -> Result<Self, Failure> {
        let TraceArgs { port, selection, seconds, sample, rows, bisect, keep } = typed;
        let which = selection.named()?;
        let request = Request { port, selections: Vec::new(), sample, time: seconds, rows, bisect };
        Ok(Self { request, which, keep })
    }

    async fn run(self, show: Show<'_>) -> anyhow::Result<()> {
        if !geteuid().is_root() {
            let why = "shunt trace needs root: it loads programs into the kernel; use sudo";
            return Err(Failure::new(FailureCode::NotRoot, why).into());
        }
        let Self { request, keep, .. } = self;
        measure_and_show(show, move |stop| {
            let conditions = Conditions::of_this_machine();
            let mut file =
                keep.map(|path| result_files::open(path, Results::new(WHAT, conditions))).transpose()?;
            file.iter_mut().for_each(ResultsFile::record_machine);
            let report = trace::run(&request, stop, || write_stderr(STARTED)).map_err(failure)?;
            if let Some(file) = file {
                keep_medians(file, &report, stop)?;
            }
            Ok(report)
        })
        .await
    }
}

fn failure(error: TraceError) -> Failure {
    let code = match &error {
        TraceError::NoDevice(name) => return no_device(name),
        TraceError::NotAllowed(_) => FailureCode::NotRoot,
        TraceError::Selections(_) => FailureCode::Usage,
        TraceError::Programs(_) => FailureCode::KernelTooOld,
        _ => FailureCode::Internal,
    };
    Failure::new(code, error.to_string())
}

fn keep_medians(mut file: ResultsFile, report: &Report, stop: &AtomicBool) -> anyhow::Result<()> {
    for path in &report.paths {
        let name = path_name(path);
        file.add(&format!("{name}: total"), "ns", Run::from(path.total.p50_ns as f64))?;
        for stage in &path.stages {
            file.add(&format!("{name}: {}", stage.stage), "ns", Run::from(stage.times.p50_ns as f64))?;
        }
    }
    file.end(!stop.load(Ordering::Relaxed))?;
    Ok(())
}

/// `slow r0 > r1`, with `here` for programs on this machine.
fn path_name(path: &Path) -> String {
    let here = || "here".to_owned();
    let (from, to) = (path.from.clone().unwrap_or_else(here), path.to.clone().unwrap_or_else(here));
    format!("{} {from} > {to}", path.way)
}

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests {
    use super::{super::arguments::parse_args, *};

    #[test]
    fn times_have_units_or_are_seconds_and_every_packet_can_be_traced() {
        let resolve = |words: &str| Tracing::resolve(parse_args::<TraceArgs>(words).expect("valid"));
        let tracing = resolve("r0 --seconds 2 --sample 1 -p tcp --dport 5001 --bisect").expect("valid");
        assert_eq!(tracing.which.words(), "--proto tcp --dport 5001");
        let typed = tracing.request;
        assert_eq!(
            (typed.port.as_deref(), typed.time, typed.sample),
            (Some("r0"), Duration::from_secs(2), 1)
        );
        assert!(typed.bisect);
        for same in ["--seconds 500ms", "--time 500ms", "--for 500ms"] {
            assert_eq!(resolve(same).expect("valid").request.time, Duration::from_millis(500), "{same}");
        }
        assert!(parse_args::<TraceArgs>("--seconds 0").is_err());
        assert!(parse_args::<TraceArgs>("--sample 0").is_err());
    }
}
