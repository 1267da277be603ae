//! `cargo xtask prove`: runs the harnesses of proof/core: each claim in each of its cases, and against faulty packet
//! cores.

mod checker;
mod harness;

use anyhow::ensure;
use checker::{Checker, Verdict};
use harness::Harness;
use std::{
    panic,
    path::Path,
    process::ExitCode,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Instant,
};

/// Directory of the harnesses.
const HARNESSES: &str = "proof/core";

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Check only the harness of this name (a file of proof/core without `.c`)
    only: Option<String>,
    /// Do not check that the claims fail for faulty packet cores
    #[arg(long)]
    no_mutants: bool,
    /// Number of proofs to run at the same time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Time limit of one proof, in seconds
    #[arg(long, default_value_t = 600)]
    limit: u32,
}

/// A claim in all its cases, or one mutant of the core, which at least one case must reject.
struct Task<'a> {
    harness: &'a Harness,
    cases: Vec<&'a str>,
    mutant: Option<&'a harness::Mutant>,
}

impl Task<'_> {
    fn run(&self, checker: &Checker) -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let core = match self.mutant {
            Some(mutant) => mutant.apply(Path::new("bpf"), directory.path())?,
            None => Path::new("bpf").to_owned(),
        };
        for case in &self.cases {
            let started = Instant::now();
            let verdict = checker.check(self.harness, case, &core)?;
            let name = format!("{} {case}", self.harness.name);
            let took = started.elapsed().as_secs_f64();
            match (&verdict, self.mutant) {
                (Verdict::Holds(what), None) => println!("proved    {name}: {what}, {took:.1} s"),
                (Verdict::Fails(why), None) => anyhow::bail!("{name}: {why}"),
                (Verdict::Fails(why), Some(mutant)) => {
                    println!("rejected  {name}: {mutant}: {why}, {took:.1} s");
                    return Ok(());
                }
                (Verdict::Holds(_), Some(_)) => {}
            }
        }
        match self.mutant {
            Some(mutant) => anyhow::bail!("{}: accepts a faulty core: {mutant}", self.harness.name),
            None => Ok(()),
        }
    }
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let mut harnesses = Harness::read_all(Path::new(HARNESSES))?;
    harnesses.retain(|harness| options.only.as_ref().is_none_or(|only| *only == harness.name));
    ensure!(!harnesses.is_empty(), "{HARNESSES} has no such harness");
    let checker = Checker::find(options.limit)?;
    let mut claims: Vec<Task> = Vec::new();
    for harness in &harnesses {
        let cases = harness.cases.iter().map(|case| vec![case.as_str()]);
        claims.extend(cases.map(|cases| Task { harness, cases, mutant: None }));
    }
    let unproved = run_all(&claims, &checker, options.jobs);
    let mut with_mutants: Vec<Task> = Vec::new();
    let mut not_tried = 0;
    for harness in harnesses.iter().filter(|_| !options.no_mutants) {
        if unproved.contains(&harness.name.as_str()) {
            // A claim that fails anyway would reject every mutant.
            println!("FAILED    {}: not proved, so its mutants are not tried", harness.name);
            not_tried += harness.mutants.len();
            continue;
        }
        let cases: Vec<&str> = harness.cases.iter().map(String::as_str).collect();
        let mutants = harness.mutants.iter();
        with_mutants.extend(mutants.map(|mutant| Task {
            harness,
            cases: cases.clone(),
            mutant: Some(mutant),
        }));
    }
    let accepted = run_all(&with_mutants, &checker, options.jobs);
    println!("{} of {} proofs failed", unproved.len(), claims.len());
    println!(
        "{} of {} faulty cores were accepted, {not_tried} not tried",
        accepted.len(),
        with_mutants.len() + not_tried
    );
    let good = unproved.is_empty() && accepted.is_empty();
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs tasks, `jobs` at a time. Returns the harness of each task that failed.
fn run_all<'a>(tasks: &[Task<'a>], checker: &Checker, jobs: usize) -> Vec<&'a str> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut failed = Vec::new();
        while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(e) = task.run(checker) {
                println!("FAILED    {e:#}");
                failed.push(task.harness.name.as_str());
            }
        }
        failed
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|panic| panic::resume_unwind(panic)))
            .collect()
    })
}
