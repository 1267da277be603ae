//! The command `shunt`: parse what was typed, resolve it against the machine, run it, render the answer.

#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "the doc comments of arguments are help texts, where brackets mean optional"
)]
#![cfg_attr(
    not(feature = "full"),
    allow(dead_code, unused_imports, unused_macros, reason = "measurements use more of what commands share")
)]
// These macros panic if standard output or error cannot be written; `output::write_stderr` does not.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod cli;
mod client;
mod command;
mod commands;
mod daemon;
mod failure;
#[cfg(test)]
mod golden;
mod output;
mod render;
#[cfg(feature = "full")]
mod signals;

use commands::Cli;
use output::write_stderr;
use shunt_api::{ErrorBody, Failure, FailureCode, without_number};
use std::{
    ffi::OsString,
    io::{self, Write},
    process::ExitCode,
};

fn main() -> ExitCode {
    #[cfg(feature = "daemon")]
    if daemon::is_this_process() {
        return shuntd::main();
    }
    // If a shell asks for completions, answers and exits.
    #[cfg(feature = "full")]
    clap_complete::CompleteEnv::with_factory(commands::command).complete();
    let words: Vec<OsString> = std::env::args_os().collect();
    let typed = match cli::parse(words.iter().cloned()) {
        Ok(typed) => typed,
        Err(error) => match cli::message(&error) {
            Some(wrong) => {
                let json = words.iter().any(|word| word == "--json" || word == "-j");
                return report_failure(&failure::usage(wrong).into(), json, false);
            }
            None => error.exit(),
        },
    };
    let (json, verbose) = (typed.json, typed.verbose);
    match run(typed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report_failure(&error, json, verbose),
    }
}

fn run(typed: Cli) -> anyhow::Result<()> {
    let Cli { json, brief, verbose, .. } = typed;
    let format =
        render::Format { json, brief, verbose, width: output::width(), colour: output::has_colour() };
    let outcome = typed.run(&mut |answer| Ok(io::stdout().lock().write_all(&answer.render(format)?)?));
    match outcome {
        // The reader of a pipe may stop early, as in `shunt flows | head`.
        Err(error) if is_broken_pipe(&error) => Ok(()),
        other => other,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

/// Prints a failure on standard error: one line, the causes with --verbose, or JSON. Returns its exit code.
fn report_failure(error: &anyhow::Error, json: bool, verbose: bool) -> ExitCode {
    let mut failure = match error.downcast_ref::<Failure>() {
        Some(failure) => failure.clone(),
        None => Failure::new(FailureCode::Internal, error.to_string()),
    };
    failure.message = without_number(&failure.message);
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
    write_stderr(&text);
    ExitCode::from(code)
}
