//! The developers' command.

mod arch;
mod bench;
mod debian;
mod demo;
mod dist;
mod generators;
mod interrupt;
mod iperf;
mod napi;
mod peers;
mod reaction;
mod shunt;
mod soak;
mod tool;
mod twin;
mod vm;

use clap::Parser;
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(name = "xtask", about = "The developers' command.")]
enum Command {
    /// Measure Shunt against Linux alone.
    Bench(bench::Options),
    /// Try Shunt on every board that QEMU knows, and write what came of it into docs/boards.md.
    Boards(vm::boards::tried::Options),
    /// Show real traffic without Shunt and with it.
    Demo(demo::Options),
    /// Build static programs for an architecture, and put them into a tarball in target/dist.
    Dist(dist::Options),
    /// Measure how many packets Shunt's generator and others send.
    Generators(generators::Options),
    /// Measure Shunt and other ways through a router side by side, in instructions for each packet.
    Peers(peers::Options),
    /// What that runs in a guest.
    #[command(hide = true)]
    PeersGuest(peers::guest::Options),
    /// Measure how soon a change in Linux holds for fast flows.
    Reaction(reaction::Options),
    /// Run real traffic for a long time while everything else comes and goes.
    Soak(soak::Options),
    /// Compare a router with Shunt and one without, packet by packet.
    Twin(twin::Options),
    /// Try Shunt on every kernel of the list, and write what came of it into docs/kernels.md.
    Kernels(vm::tried::Options),
    /// Run a command, or tests, on another kernel, in a machine of QEMU's.
    Vm(vm::Options),
}

fn main() -> ExitCode {
    let command = Command::parse();
    let done = interrupt::clean_up_on_signals().and_then(|()| run(command));
    match done {
        Ok(code) => code,
        Err(e) => {
            eprintln!("{e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Bench(options) => bench::run(&options)?,
        Command::Boards(options) => vm::boards::tried::run(&options)?,
        Command::Demo(options) => demo::run(&options)?,
        Command::Dist(options) => dist::run(&options)?,
        Command::Generators(options) => generators::run(&options)?,
        Command::Peers(options) => peers::run(&options)?,
        Command::PeersGuest(options) => peers::guest::run(&options)?,
        Command::Reaction(options) => reaction::run(&options)?,
        Command::Soak(options) => soak::run(&options)?,
        Command::Twin(options) => twin::start(&options)?,
        Command::Kernels(options) => vm::tried::run(&options)?,
        Command::Vm(options) => return Ok(vm::run(&options)),
    }
    Ok(ExitCode::SUCCESS)
}
