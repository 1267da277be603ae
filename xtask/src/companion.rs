//! `cargo xtask companion`: the external engine as a companion core's firmware would contain it. Builds packet core,
//! flow table and scheduler without libc for 32-bit ARM and RISC-V, runs them under QEMU, and compares every result
//! with this machine's.

mod toolchain;
mod vectors;

use anyhow::{Context, ensure};
use std::{
    io::{Read, Write},
    path::Path,
    process::{Command, Stdio},
    thread,
};
use toolchain::{CORES, Toolchain};
use vectors::Vectors;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Seed of the vectors
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of frames, and of steps of the scheduler
    #[arg(long, default_value_t = 5000)]
    vectors: u32,
}

/// Builds for all cores and compares.
pub fn run(options: &Options) -> anyhow::Result<()> {
    println!("seed {}", options.seed);
    let vectors = Vectors::new(options.seed, options.vectors)?;
    let toolchain = Toolchain::find()?;
    let directory = tempfile::tempdir()?;
    for core in &CORES {
        let program = directory.path().join(core.name);
        toolchain.build(core, &program)?;
        let got = answers(toolchain.emulator(core, &program), &vectors.input).context(core.name)?;
        vectors.compare(&got).context(core.name)?;
        let size = toolchain.size(core, &program)?;
        println!("{:8} {vectors}: equal to this machine's; {size}", core.name);
    }
    Ok(())
}

/// What a program writes when it is given the input.
fn answers(mut emulator: Command, input: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut child = emulator.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    let mut stdout = child.stdout.take().context("no standard output")?;
    let mut got = Vec::new();
    thread::scope(|scope| {
        // Fails if the program ends early; its status says more.
        scope.spawn(move || stdin.write_all(input));
        stdout.read_to_end(&mut got)
    })?;
    let status = child.wait()?;
    ensure!(status.success(), "the program ended with {status} after {} bytes of answers", got.len());
    Ok(got)
}

/// The sources, below the root of the repository.
const SOURCES: [&str; 4] =
    ["external/engine.c", "external/poll.c", "external/sched.c", "external/companion/vectors.c"];

fn sources() -> impl Iterator<Item = std::path::PathBuf> {
    SOURCES.iter().map(|source| Path::new("bpf").join(source))
}
