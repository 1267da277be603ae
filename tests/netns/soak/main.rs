//! The short form of the soak; see `shunt_testkit::soak`. `cargo xtask soak` runs longer ones.

use shunt_testkit::{
    require_root,
    soak::{SoakPlan, run},
};
use std::{env, time::Duration};

/// `SHUNT_SOAK_MINUTES`; by default two minutes if `CI=true`, and half a minute otherwise.
fn minutes() -> f64 {
    let set = env::var("SHUNT_SOAK_MINUTES").ok().and_then(|minutes| minutes.parse().ok());
    let ci = env::var("CI").is_ok_and(|ci| ci == "true");
    set.unwrap_or(if ci { 2.0 } else { 0.5 })
}

#[test]
fn traffic_survives_changes_of_everything_else() {
    if !require_root() {
        return;
    }
    let seed = u64::from(std::process::id());
    eprintln!("seed {seed}");
    let report = run(&SoakPlan { duration: Duration::from_secs_f64(minutes() * 60.0), seed, program: None });
    eprintln!("{report:#?}");
    assert!(report.is_clean(), "{report:#?}");
    assert!(report.fast > 1000, "only {} packets were fast: {report:#?}", report.fast);
}
