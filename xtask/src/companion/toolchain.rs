//! The distribution's compilers for cores without an operating system, and QEMU's user mode.

use crate::{
    arch,
    debian::{self, Set},
    tool::tool,
};
use anyhow::{Context, ensure};
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Packages with the programs.
const PACKAGES: [&str; 5] = [
    "binutils-arm-none-eabi",
    "binutils-riscv64-unknown-elf",
    "gcc-arm-none-eabi",
    "gcc-riscv64-unknown-elf",
    "qemu-user",
];

/// A kind of companion core.
#[derive(Debug)]
pub struct Core {
    pub name: &'static str,
    prefix: &'static str,
    emulator: &'static str,
    options: &'static [&'static str],
}

pub const CORES: [Core; 2] = [
    Core {
        name: "arm",
        prefix: "arm-none-eabi-",
        emulator: "qemu-arm",
        options: &["-march=armv7-a", "-marm", "-mfloat-abi=soft", "-mno-unaligned-access"],
    },
    Core {
        name: "riscv32",
        prefix: "riscv64-unknown-elf-",
        emulator: "qemu-riscv32",
        options: &["-march=rv32imac", "-mabi=ilp32", "-mstrict-align"],
    },
];

/// Where the programs are.
#[derive(Debug)]
pub struct Toolchain(Option<PathBuf>);

impl Toolchain {
    /// Finds the programs on this machine, or unpacks them from Debian's packages.
    pub fn find() -> anyhow::Result<Self> {
        let here = Self(None);
        let names = CORES.iter().flat_map(|core| [format!("{}gcc", core.prefix), core.emulator.to_owned()]);
        let has = |name: String| {
            Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
        };
        if names.into_iter().all(has) {
            return Ok(here);
        }
        let root = debian::unpacked(&Set {
            name: "companion",
            suite: debian::STABLE,
            arch: &arch::AMD64,
            packages: &PACKAGES,
            closed: false,
        })
        .with_context(|| {
            format!("install these packages, which cannot be fetched: {}", PACKAGES.join(" "))
        })?;
        Ok(Self(Some(root.join("usr/bin"))))
    }

    fn program(&self, name: &str) -> String {
        self.0.as_ref().map_or_else(|| name.to_owned(), |folder| folder.join(name).display().to_string())
    }

    /// Builds the program of the vectors.
    pub fn build(&self, core: &Core, program: &Path) -> anyhow::Result<()> {
        let headers = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
        let mut compiler = Command::new(self.program(&format!("{}gcc", core.prefix)));
        compiler
            .args(core.options)
            .args([
                "-DSHUNT_SINGLE_CORE",
                "-O2",
                "-ffreestanding",
                "-nostdlib",
                "-static",
                "-fno-strict-aliasing",
            ])
            .args([
                "-Wall",
                "-Wextra",
                "-Werror",
                "-Wno-unknown-pragmas",
                "-I",
                "bpf",
                "-I",
                "bpf/external/host",
            ])
            .args(["-idirafter", "/usr/include", "-idirafter", &headers, "-o"])
            .arg(program)
            .args(super::sources())
            // Division of 64-bit numbers: part of the compiler.
            .arg("-lgcc");
        let status = compiler.status().context("the cross compiler does not start")?;
        ensure!(status.success(), "{}gcc cannot build the engine", core.prefix);
        Ok(())
    }

    /// The emulator, about to run a program.
    pub fn emulator(&self, core: &Core, program: &Path) -> Command {
        let mut command = Command::new(self.program(core.emulator));
        command.arg(program);
        command
    }

    /// Bytes of code and constants, in words.
    pub fn size(&self, core: &Core, program: &Path) -> anyhow::Result<String> {
        let table = tool(&self.program(&format!("{}size", core.prefix)), &[&program.to_string_lossy()])?;
        let code = table.lines().nth(1).and_then(|line| line.split_whitespace().next());
        Ok(format!("{} bytes of code", code.context("size prints no table")?))
    }
}
