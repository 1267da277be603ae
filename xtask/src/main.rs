//! The developers' command.

mod bench;
mod demo;
mod interrupt;
mod iperf;
mod napi;
mod shunt;

use clap::Parser;
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(name = "xtask", about = "The developers' command.")]
enum Command {
    /// Measure Shunt against Linux alone.
    Bench(bench::Options),
    /// Show real traffic without Shunt and with it.
    Demo(demo::Options),
}

fn main() -> ExitCode {
    let command = Command::parse();
    let done = interrupt::clean_up_on_signals().and_then(|()| match command {
        Command::Bench(options) => bench::run(&options),
        Command::Demo(options) => demo::run(&options),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e:#}");
            ExitCode::FAILURE
        }
    }
}
