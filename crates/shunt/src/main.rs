//! The command that people type: parse what was typed, resolve it against the machine, do it, render the answer.

// They panic where standard error or output cannot be written; see `say`.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod agent;
mod bench;
mod campaign;
mod cli;
mod client;
mod daemon;
mod ends;
mod line;
mod load;
mod man;
mod perform;
mod plan;
mod progress;
mod render;
mod report;
mod select;
mod traffic;

use clap::Parser;
use cli::Cli;
use plan::Plan;
use shunt_api::{ErrorBody, Failure, FailureCode};
use std::{
    io::{self, Write},
    process::ExitCode,
    thread::sleep,
    time::{Duration, Instant},
};

fn main() -> ExitCode {
    let typed = Cli::parse();
    let (json, verbose) = (typed.json, typed.verbose);
    match run(typed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, json, verbose),
    }
}

fn run(typed: Cli) -> anyhow::Result<()> {
    let format = render::Format { json: typed.json, verbose: typed.verbose };
    let plan = Plan::resolve(typed)?;
    let shown = perform::perform(plan, &mut |answer| {
        let mut text = Vec::new();
        answer.render(&mut text, format)?;
        Ok(io::stdout().lock().write_all(&text)?)
    });
    match shown {
        // `shunt flows | head` has seen enough.
        Err(error) if is_broken_pipe(&error) => Ok(()),
        other => other,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

fn fail(error: &anyhow::Error, json: bool, verbose: bool) -> ExitCode {
    let failure = match error.downcast_ref::<Failure>() {
        Some(failure) => failure.clone(),
        None => Failure::new(FailureCode::Internal, error.to_string()),
    };
    let code = failure.code.exit_code();
    let mut text = format!("shunt: {failure}\n");
    if json {
        let body = ErrorBody { error: failure };
        text = serde_json::to_string(&body).map_or(text, |body| body + "\n");
    } else if verbose {
        for cause in error.chain().skip(1) {
            text += &format!("  because {cause}\n");
        }
    }
    say(&text);
    ExitCode::from(code)
}

/// On standard error. Where memory ran out, what a daemon had of it comes back a moment after its end, and a pipe needs some.
pub(crate) fn say(text: &str) {
    let until = Instant::now() + Duration::from_secs(10);
    // Where nobody reads it, the exit code still says it.
    while let Err(error) = io::stderr().lock().write_all(text.as_bytes()) {
        if error.kind() != io::ErrorKind::OutOfMemory || Instant::now() > until {
            return;
        }
        sleep(Duration::from_millis(10));
    }
}
