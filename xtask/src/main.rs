//! `cargo xtask`: the developers' commands.

mod arch;
mod btf;
mod companion;
mod debian;
mod dist;
mod prove;
mod tool;
mod vm;

use clap::Parser;
use shunt_bench::interrupt;
use std::process::ExitCode;

/// The commands. Those that measure are in the crate `shunt-bench`.
#[derive(Debug, Parser)]
#[command(name = "xtask", about = "Developers' commands of Shunt.")]
enum Command {
    #[command(flatten)]
    Bench(shunt_bench::Command),
    /// Run Shunt on every emulated board and write docs/boards.md.
    Boards(vm::boards::board_report::Options),
    /// Make files of the types of Debian's kernels without BTF in packaging/btf, from their debug packages.
    Btf(btf::Options),
    /// Run the external engine on emulated 32-bit cores and compare every result with this machine's.
    Companion(companion::Options),
    /// Build a Debian package for an architecture in target/deb.
    Deb(dist::deb::Options),
    /// Build static programs for an architecture and pack them into a tarball in target/dist.
    Dist(dist::Options),
    /// Prove the claims about the packet core in proof/core, and check that each proof rejects faulty cores.
    Prove(prove::Options),
    /// Run Shunt and some of the tests on every kernel of the list and write docs/kernels.md.
    Kernels(vm::kernel_report::Options),
    /// Run Shunt on each NIC that QEMU emulates and write docs/nics.md.
    Nics(vm::nics_report::Options),
    /// Build an OCI image for an architecture in target/oci.
    Oci(dist::oci::Options),
    /// Build packages for OpenWrt in target/openwrt.
    Openwrt(dist::openwrt::Options),
    /// Build the program for small routers, for an architecture, in target/router.
    Router(dist::router::Options),
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
        Command::Bench(bench) => bench.run(&vm::Counting)?,
        Command::Boards(options) => vm::boards::board_report::run(&options)?,
        Command::Btf(options) => btf::run(&options)?,
        Command::Companion(options) => companion::run(&options)?,
        Command::Deb(options) => dist::deb::run(&options)?,
        Command::Dist(options) => dist::run(&options)?,
        Command::Prove(options) => return prove::run(&options),
        Command::Kernels(options) => vm::kernel_report::run(&options)?,
        Command::Nics(options) => vm::nics_report::run(&options)?,
        Command::Oci(options) => dist::oci::run(&options)?,
        Command::Openwrt(options) => dist::openwrt::run(&options)?,
        Command::Router(options) => dist::router::run(&options)?,
        Command::Vm(options) => return Ok(vm::run(&options)),
    }
    Ok(ExitCode::SUCCESS)
}
