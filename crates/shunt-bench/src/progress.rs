//! Progress of a long run, and its results so far if it is interrupted.

use crate::interrupt;
use serde::Serialize;
use std::{
    fmt::{Debug, Display},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Time between two lines on standard error.
const INTERVAL: Duration = Duration::from_secs(10);

/// Follows a run whose report is of type `R`.
#[derive(Debug)]
pub struct Progress<R> {
    latest: Arc<Mutex<Option<R>>>,
    next: Instant,
}

impl<R: Clone + Send + 'static> Progress<R> {
    /// Begins to follow a run. On SIGINT or SIGTERM, `write` gets the latest report.
    pub fn start(write: impl Fn(&R) + Send + 'static) -> Self {
        let latest = Arc::new(Mutex::new(None));
        let shared = Arc::clone(&latest);
        interrupt::before_exit(move || {
            let report: Option<R> = shared.lock().unwrap_or_else(PoisonError::into_inner).take();
            match report {
                Some(report) => {
                    eprintln!("interrupted; results so far:");
                    write(&report);
                }
                None => eprintln!("interrupted before there were results"),
            }
        });
        Self { latest, next: Instant::now() + INTERVAL }
    }

    /// Keeps the report so far, and prints `line` on standard error every ten seconds.
    pub fn update(&mut self, report: &R, line: impl FnOnce() -> String) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(report.clone());
        if Instant::now() >= self.next {
            eprintln!("{}", line());
            self.next = Instant::now() + INTERVAL;
        }
    }
}

/// Prints a report to standard output: as JSON, or as `text`.
pub fn print(report: &impl Serialize, json: bool, text: &dyn Display) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(report)?);
    } else {
        println!("{text}");
    }
    Ok(())
}
