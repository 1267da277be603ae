//! The soak's short form: nothing is lost, changed, delivered against the rules, left over or leaked.

use shunt_testkit::{
    require_root,
    soak::{Plan, run},
};
use std::{env, time::Duration};

/// `SHUNT_SOAK_MINUTES`; without it five minutes in CI, and one elsewhere.
fn minutes() -> f64 {
    let asked = env::var("SHUNT_SOAK_MINUTES").ok().and_then(|minutes| minutes.parse().ok());
    let ci = env::var("CI").is_ok_and(|ci| ci == "true");
    asked.unwrap_or(if ci { 5.0 } else { 1.0 })
}

#[test]
fn traffic_stays_right_while_everything_else_comes_and_goes() {
    if !require_root() {
        return;
    }
    let seed = u64::from(std::process::id());
    eprintln!("seed {seed}");
    let report = run(&Plan { duration: Duration::from_secs_f64(minutes() * 60.0), seed, program: None });
    eprintln!("{report:#?}");
    assert!(report.is_clean(), "{report:#?}");
    assert!(report.fast > 1000, "hardly anything was fast: {report:#?}");
}
