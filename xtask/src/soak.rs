//! Real traffic for a long time, while everything else comes and goes.

use crate::shunt::built;
use anyhow::ensure;
use shunt_testkit::soak::{Plan, run as soak};
use std::time::Duration;

/// Runs traffic and changes, and fails when anything has happened that must not.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// For so long.
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Chooses the changes; another one each time unless given.
    #[arg(long)]
    seed: Option<u64>,
    /// Print what was seen as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let plan = Plan {
        duration: Duration::try_from_secs_f64(options.minutes * 60.0)?,
        seed: options.seed.unwrap_or_else(|| fastrand::u64(..1 << 32)),
        program: Some(built("shuntd")?.to_string_lossy().into_owned()),
    };
    eprintln!("seed {}", plan.seed);
    let report = soak(&plan);
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        println!("{report:#?}");
    }
    ensure!(report.is_clean(), "what must not happen has happened; --seed {}", plan.seed);
    Ok(())
}
