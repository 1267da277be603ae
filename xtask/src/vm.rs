//! `cargo xtask vm`: a command, or tests, on another kernel, in a QEMU guest.

pub mod boards;
mod guest;
mod image;
pub mod kernel_report;
mod kernels;
mod machine;
pub mod nics_report;
mod package;
mod qemu;

use crate::{
    arch::{AMD64, Arch},
    btf,
    debian::{Cache, require_room},
    dist,
    tool::tool,
};
use anyhow::{Context, ensure};
use boards::Board;
use guest::{COUNTING, Guest};
use image::{Image, is_this_machine};
use kernels::Kernel;
use machine::Machine;
use serde_json::Value;
use shunt_bench::{CountingGuest, CountingGuests};
use shunt_testkit::tree::{built, root, target};
use std::{
    env, fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{self, Command, ExitCode, Stdio},
    time::{Duration, SystemTime},
};
use tempfile::TempDir;

/// Run a command, or tests, on another kernel in QEMU.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Name of the kernel; --list shows the names.
    #[arg(long, default_value = "newest", value_name = "K")]
    kernel: String,
    /// Architecture of kernel, tools and programs.
    #[arg(long, default_value = "amd64", value_name = "ARCH")]
    arch: String,
    /// Emulate this board, with its kernel and architecture; --list shows the names.
    #[arg(long, value_name = "BOARD", conflicts_with_all = ["kernel", "arch"])]
    board: Option<String>,
    /// List kernels and boards.
    #[arg(long)]
    list: bool,
    /// Ask the archive for the kernel's latest build, instead of using the build that was fetched before.
    #[arg(long)]
    update: bool,
    /// Time limit for booting and the command together, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
    /// Run this test program of the package shunt-tests, with the command as its arguments.
    #[arg(long, value_name = "NAME")]
    test: Option<String>,
    /// Copy a further program or file into the guest, to the same path.
    #[arg(long, value_name = "PATH")]
    file: Vec<PathBuf>,
    /// Count instructions: each takes one nanosecond of the guest's time, whatever the machine.
    #[arg(long)]
    count: bool,
    /// Add two wires, each with a NIC of this QEMU model at both ends: NICs 1 and 2, 3 and 4
    #[arg(long, value_name = "MODEL")]
    nics: Option<String>,
    /// Further programs of this tree, by their name in the guest.
    #[arg(skip)]
    programs: Vec<(String, PathBuf)>,
    /// The command to run in the guest.
    #[arg(last = true)]
    command: Vec<String>,
}

impl Options {
    /// Runs a command on a kernel, or a test program with arguments.
    fn on_kernel(kernel: &Kernel, timeout: u64, test: Option<&str>, command: &[&str]) -> Self {
        Self {
            kernel: kernel.name.to_owned(),
            arch: kernel.arch.name.to_owned(),
            board: None,
            list: false,
            update: false,
            timeout,
            test: test.map(str::to_owned),
            file: Vec::new(),
            count: false,
            nics: None,
            programs: Vec::new(),
            command: command.iter().map(|word| (*word).to_owned()).collect(),
        }
    }

    /// Runs a script on a board.
    fn on_board(board: &Board, timeout: u64, script: &str) -> Self {
        let board_name = Some(board.name.to_owned());
        Self { board: board_name, ..Self::on_kernel(&board.kernel, timeout, None, &["sh", "-c", script]) }
    }
}

/// The first process of a guest.
const INIT: &str = include_str!("vm/init.sh");
/// Exit code if the command could not be started; its own exit codes are below.
const NOT_RUN: u8 = 125;

/// Runs the command in a guest and returns its exit code.
pub fn run(options: &Options) -> ExitCode {
    if options.list {
        print!("{}{}", kernels::table(), boards::table());
        return ExitCode::SUCCESS;
    }
    ExitCode::from(in_guest(options, &mut io::stdout()).unwrap_or_else(|e| {
        eprintln!("{e:#}");
        NOT_RUN
    }))
}

/// Guests that count instructions.
pub struct Counting;

impl CountingGuests for Counting {
    fn machine(&self) -> String {
        format!("QEMU without KVM, one CPU, {}", COUNTING.join(" "))
    }

    fn run(&self, guest: &CountingGuest<'_>, stdout: &mut dyn Write) -> anyhow::Result<u8> {
        let programs = guest.programs.iter().map(|(name, path)| ((*name).to_owned(), path.to_path_buf()));
        let programs = programs.collect();
        let kernel = Kernel::named(guest.kernel, &AMD64)?;
        let options = Options::on_kernel(kernel, guest.timeout.as_secs(), None, guest.command);
        in_guest(&Options { count: true, programs, ..options }, stdout)
    }
}

/// A file of the documentation.
fn docs(name: &str) -> PathBuf {
    root().join("docs").join(name)
}

/// Checks that everything is available that a guest with this kernel needs.
fn require_all(kernel: &Kernel) -> anyhow::Result<()> {
    qemu::command(Machine::for_arch(kernel.arch)?, None)?;
    let unpacked = package::unpacked(kernel, &Cache::open()?, false)?;
    Image::new(kernel.arch, &unpacked.modules, INIT).map(drop)
}

/// Runs the command in a guest, copies its standard output to `stdout`, and returns its exit code.
fn in_guest(options: &Options, stdout: &mut dyn Write) -> anyhow::Result<u8> {
    let (kernel, machine) = options.place()?;
    kernel.require_support(&today())?;
    let qemu = qemu::command(machine, options.nics.as_deref())?;
    let unpacked = package::unpacked(kernel, &Cache::open()?, options.update)?;
    let directory = directory()?;
    let image = options.image(kernel.arch, &unpacked.modules, directory.path())?;
    require_room(directory.path(), 2 * image.bytes(), "CARGO_TARGET_DIR names another place")?;
    let initramfs = directory.path().join("initramfs");
    image.write(&initramfs)?;
    let limit = Duration::from_secs(options.timeout);
    let guest = Guest::new((machine, qemu), directory.path(), limit, options.count, options.nics.as_deref());
    guest.run(&unpacked, &initramfs, stdout).with_context(|| format!("kernel {kernel}"))
}

/// Makes a directory for a guest, and removes those of processes that no longer exist.
fn directory() -> anyhow::Result<TempDir> {
    let parent = target().join("vm");
    fs::create_dir_all(&parent).with_context(|| parent.display().to_string())?;
    for entry in fs::read_dir(&parent)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.split('-').next().unwrap_or_default();
        if !Path::new("/proc").join(owner).exists() {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(tempfile::Builder::new().prefix(&format!("{}-", process::id())).tempdir_in(&parent)?)
}

impl Options {
    /// The kernel and the machine to run it on.
    fn place(&self) -> anyhow::Result<(&'static Kernel, &'static Machine)> {
        if let Some(name) = &self.board {
            let board = Board::named(name)?;
            return Ok((&board.kernel, &board.machine));
        }
        let arch = Arch::named(&self.arch)?;
        let machine = Machine::for_arch(arch)?;
        Ok((Kernel::named(&self.kernel, arch)?, machine))
    }

    /// The initramfs of the guest: the command and everything that it needs.
    fn image<'a>(&self, arch: &'a Arch, modules: &Path, directory: &Path) -> anyhow::Result<Image<'a>> {
        let mut image = Image::new(arch, modules, INIT)?;
        image.programs(self.file.iter().map(|path| (path.clone(), path.clone())))?;
        let mut own: Vec<(PathBuf, &str)> = if is_this_machine(arch) {
            dist::PROGRAMS.iter().filter_map(|name| Some((built(name).ok()?, *name))).collect()
        } else {
            dist::programs(arch)?.into_iter().zip(dist::PROGRAMS).collect()
        };
        let mut command = self.command.clone();
        if let Some(name) = &self.test {
            own.push((test_program(name, arch)?, name));
            command.splice(..0, [name.clone(), "--test-threads=1".to_owned()]);
        }
        own.extend(self.programs.iter().map(|(name, path)| (path.clone(), name.as_str())));
        for (path, name) in own {
            // Programs for other architectures are linked without debug information.
            let path = if is_this_machine(arch) { stripped(&path, name, directory)? } else { path };
            image.programs([(path, Path::new("/usr/local/bin").join(name))])?;
        }
        // Where Shunt looks for them.
        for (path, name) in btf::files()? {
            image.file(path, &Path::new("/usr/share/shunt/btf").join(name));
        }
        let program = command.first().context("no command given: cargo xtask vm -- COMMAND")?;
        ensure!(
            image.has_program(program),
            "the guest has no `{program}`; add it with `--file \"$(command -v {program})\"`"
        );
        image.text("/command", &script(&command), 0o755);
        Ok(image)
    }
}

/// The shell script that runs the command in the guest.
fn script(command: &[String]) -> String {
    let quoted: Vec<String> =
        command.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
    let variable =
        |name: &str| env::var(name).map_or(String::new(), |value| format!("export {name}='{value}'\n"));
    format!(
        "#!/bin/sh\nexport SHUNT_GUEST=1 SHUNT=/usr/local/bin/shunt SHUNTD=/usr/local/bin/shuntd\n\
         export SHUNT_BIN_DIR=/usr/local/bin CARGO_TARGET_DIR=/tmp\n{}{}exec {}\n",
        variable("SHUNT_NO_SKIP"),
        variable("RUST_BACKTRACE"),
        quoted.join(" ")
    )
}

/// Builds a test program and returns its path.
fn test_program(name: &str, arch: &Arch) -> anyhow::Result<PathBuf> {
    let mut command = if is_this_machine(arch) {
        let mut here = Command::new(env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
        here.args(["test", "--locked"]);
        here
    } else {
        let mut there = dist::cargo(arch, &["test"])?;
        there.env("CARGO_PROFILE_DEV_STRIP", "symbols");
        there
    };
    // With the whole workspace, dependencies have the features that `make test` has built them with.
    command.args(["--no-run", "--quiet", "--workspace", "--test", name]);
    let built = command.args(["--message-format", "json"]).stderr(Stdio::inherit()).output()?;
    ensure!(built.status.success(), "cannot build the test program `{name}`");
    let output = String::from_utf8_lossy(&built.stdout);
    let messages = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs = messages.filter(|message| message["target"]["name"] == name);
    let program = programs.find_map(|message| message["executable"].as_str().map(PathBuf::from));
    program.with_context(|| format!("cargo did not report an executable for the test program `{name}`"))
}

/// A copy of a program without debug information, stripped by this machine's binutils.
fn stripped(program: &Path, name: &str, directory: &Path) -> anyhow::Result<PathBuf> {
    let copy = directory.join(name);
    tool("strip", &["-o", &copy.to_string_lossy(), &program.to_string_lossy()])?;
    Ok(copy)
}

/// Today's date, such as 2026-11-22.
fn today() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now())
        .to_string()
        .split('T')
        .next()
        .unwrap_or_default()
        .to_owned()
}
