//! `cargo xtask soak`: real traffic for a long time while the configuration, the connections and the daemon change.

use crate::progress::{Progress, print};
use anyhow::ensure;
use shunt_testkit::{
    soak::{Report, SoakPlan, run_with_progress},
    tree::build,
};
use std::time::Duration;

/// Runs traffic and changes, and fails if anything went wrong.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// How long to run, in minutes.
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Seed of the changes and packet sizes; random unless given.
    #[arg(long)]
    seed: Option<u64>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

/// Builds the programs, runs the soak and prints its report, also when it is interrupted.
pub fn run(options: &Options) -> anyhow::Result<()> {
    ensure!(nix::unistd::geteuid().is_root(), "the soak makes network namespaces: run it as root");
    let plan = SoakPlan {
        duration: Duration::try_from_secs_f64(options.minutes * 60.0)?,
        seed: options.seed.unwrap_or_else(|| fastrand::u64(..1 << 32)),
        program: Some(build("shuntd")?.to_string_lossy().into_owned()),
    };
    eprintln!("seed {}", plan.seed);
    let json = options.json;
    let write = move |report: &Report| print(report, json, &format_args!("{report:#?}"));
    let mut progress = Progress::start(move |report| drop(write(report)));
    let minutes = options.minutes;
    let report = run_with_progress(&plan, &mut |so_far: &Report| {
        progress.update(so_far, || {
            let Report { packets, changes, restarts, .. } = so_far;
            let state = if so_far.is_clean() { "clean" } else { "FAILED" };
            let done = so_far.minutes;
            format!("{done:.1} of {minutes:.0} minutes: {packets} exchanges, {changes} changes, {restarts} restarts, {state}")
        });
    });
    write(&report)?;
    ensure!(report.is_clean(), "the soak found faults; repeat with --seed {}", plan.seed);
    Ok(())
}
