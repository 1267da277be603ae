//! `cargo xtask`: the developers' commands.

mod arch;
mod auto;
mod bench;
mod bench_external;
mod churn;
mod companion;
mod debian;
mod demo;
mod dist;
mod generators;
mod interrupt;
mod iperf;
mod live;
mod napi;
mod peers;
mod progress;
mod prove;
mod reaction;
mod rows;
mod scale;
mod shunt;
mod soak;
mod tables;
mod tool;
mod trace_cost;
mod twin;
mod vm;

use clap::Parser;
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(name = "xtask", about = "Developers' commands of Shunt.")]
enum Command {
    /// Check that the engine that Shunt chooses is never worse than Linux alone.
    Auto(auto::Options),
    /// Measure Shunt beside Linux alone.
    Bench(bench::Options),
    /// Measure the external engine's loop in memory.
    BenchExternal(bench_external::Options),
    /// Run Shunt on every emulated board and write docs/boards.md.
    Boards(vm::boards::board_report::Options),
    /// Measure how much traffic stays fast while Linux changes in ways that concern no flow.
    Churn(churn::Options),
    /// Run the external engine on emulated 32-bit cores and compare every result with this machine's.
    Companion(companion::Options),
    /// Build a Debian package for an architecture in target/deb.
    Deb(dist::deb::Options),
    /// Show real traffic without Shunt and with it.
    Demo(demo::Options),
    /// Build static programs for an architecture and pack them into a tarball in target/dist.
    Dist(dist::Options),
    /// Measure the packet rates of Shunt's generator and of others.
    Generators(generators::Options),
    /// Measure Shunt beside other fast paths, in instructions per packet.
    Peers(peers::Options),
    /// The part of `peers` that runs in a guest.
    #[command(hide = true)]
    PeersGuest(peers::guest::Options),
    /// Prove the claims about the packet core in proof/core, and check that each proof rejects faulty cores.
    Prove(prove::Options),
    /// Measure how soon a change in Linux takes effect on fast flows.
    Reaction(reaction::Options),
    /// Measure the cost of a packet, memory and learning with up to a million flows.
    Scale(scale::Options),
    /// Run real traffic for a long time while configuration, connections and daemon change.
    Soak(soak::Options),
    /// Rewrite the tables of docs/performance.md and the index of lab/results from the committed results.
    Tables(tables::Options),
    /// Measure what `shunt trace` costs a router that forwards.
    TraceCost(trace_cost::Options),
    /// Compare a router with Shunt and a router without, packet by packet.
    Twin(twin::Options),
    /// Run Shunt and some of the tests on every kernel of the list and write docs/kernels.md.
    Kernels(vm::kernel_report::Options),
    /// Run Shunt on each NIC that QEMU emulates and write docs/nics.md.
    Nics(vm::nics_report::Options),
    /// Run a command, or tests, on another kernel in QEMU.
    Vm(vm::Options),
}

fn main() -> ExitCode {
    let command = Command::parse();
    interrupt::clean_up_on_panic();
    let done = interrupt::clean_up_on_signals().and_then(|()| run(command));
    match done {
        Ok(code) => interrupt::exit_status().map_or(code, ExitCode::from),
        Err(e) => {
            eprintln!("{e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Auto(options) => auto::run(&options)?,
        Command::Bench(options) => bench::run(&options)?,
        Command::BenchExternal(options) => bench_external::run(&options)?,
        Command::Boards(options) => vm::boards::board_report::run(&options)?,
        Command::Churn(options) => churn::run(&options)?,
        Command::Companion(options) => companion::run(&options)?,
        Command::Deb(options) => dist::deb::run(&options)?,
        Command::Demo(options) => demo::run(&options)?,
        Command::Dist(options) => dist::run(&options)?,
        Command::Generators(options) => generators::run(&options)?,
        Command::Peers(options) => peers::run(&options)?,
        Command::PeersGuest(options) => peers::guest::run(&options)?,
        Command::Prove(options) => return prove::run(&options),
        Command::Reaction(options) => reaction::run(&options)?,
        Command::Scale(options) => scale::run(&options)?,
        Command::Soak(options) => soak::run(&options)?,
        Command::Tables(options) => tables::run(&options)?,
        Command::TraceCost(options) => trace_cost::run(&options)?,
        Command::Twin(options) => twin::start(&options)?,
        Command::Kernels(options) => vm::kernel_report::run(&options)?,
        Command::Nics(options) => vm::nics_report::run(&options)?,
        Command::Vm(options) => return Ok(vm::run(&options)),
    }
    Ok(ExitCode::SUCCESS)
}
