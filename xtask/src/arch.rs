//! The architectures that Shunt is built for, and the tools that build for them.

use anyhow::{Context, ensure};
use shunt_testkit::tree::root;
use std::{
    env,
    path::Path,
    process::{Command, Stdio},
};

/// An architecture, by its names in different tools.
#[derive(Debug, PartialEq, Eq)]
pub struct Arch {
    /// Name on the command line.
    pub name: &'static str,
    /// Debian's name.
    pub debian: &'static str,
    /// Rust's target triple.
    pub target: &'static str,
    /// The C compiler's target, which is also the name of library directories.
    pub tuple: &'static str,
}

/// All architectures.
pub const ARCHES: [Arch; 3] = [AMD64, ARM64, ARMV7];

/// PCs and servers.
pub const AMD64: Arch =
    Arch { name: "amd64", debian: "amd64", target: "x86_64-unknown-linux-gnu", tuple: "x86_64-linux-gnu" };

/// Boards and servers with 64-bit ARM cores.
pub const ARM64: Arch =
    Arch { name: "arm64", debian: "arm64", target: "aarch64-unknown-linux-gnu", tuple: "aarch64-linux-gnu" };

/// Boards with 32-bit ARM cores that have an FPU.
pub const ARMV7: Arch = Arch {
    name: "armv7",
    debian: "armhf",
    target: "armv7-unknown-linux-gnueabihf",
    tuple: "arm-linux-gnueabihf",
};

impl Arch {
    /// Finds an architecture by its name on the command line.
    pub fn named(name: &str) -> anyhow::Result<&'static Self> {
        ARCHES.iter().find(|arch| arch.name == name).with_context(|| {
            let names = ARCHES.each_ref().map(|arch| arch.name);
            format!("cannot build for `{name}`; known architectures: {}", names.join(", "))
        })
    }

    /// What `uname -m` prints on such machines.
    pub fn machines(&self) -> &'static str {
        match self.debian {
            "amd64" => "x86_64",
            "arm64" => "aarch64",
            _ => "armv7l armv8l",
        }
    }

    /// Whether this machine runs programs of the architecture.
    pub fn is_of_this_machine(&self) -> bool {
        self.target.starts_with(env::consts::ARCH)
    }

    /// QEMU's program that runs those of the architecture.
    pub fn emulator(&self) -> String {
        let cpu = self.tuple.split_once('-').map_or(self.tuple, |(cpu, _)| cpu);
        format!("qemu-{cpu}-static")
    }

    /// Rust's target triple with the C library musl, for the program of small routers.
    pub fn musl_target(&self) -> String {
        self.target.replace("-gnu", "-musl")
    }

    /// The C compiler's target with musl, which is also the name of a directory in Debian's packages.
    pub fn musl_tuple(&self) -> String {
        self.tuple.replace("-gnu", "-musl")
    }

    /// Checks that this machine can build for the architecture.
    pub fn require_toolchain(&self) -> anyhow::Result<()> {
        self.require_toolchain_for(self.target)
    }

    /// As [`Arch::require_toolchain`], for a target of Rust.
    pub fn require_toolchain_for(&self, target: &str) -> anyhow::Result<()> {
        let Self { name, debian, .. } = self;
        for program in [COMPILER, LINKER] {
            let there = Command::new(program).arg("--version").stdout(Stdio::null()).status();
            ensure!(
                there.is_ok(),
                "{program}, which builds for {name}, is missing; `packaging/deps.sh --cross` installs it"
            );
        }
        if has_standard_library(target)? {
            return Ok(());
        }
        eprintln!("fetching Rust's standard library for {target}");
        let fetched =
            Command::new(root().join("packaging/deps.sh")).arg(format!("--std={target}")).status()?.success();
        ensure!(
            fetched && has_standard_library(target)?,
            "the Rust toolchain has no standard library for {name}: run `rustup target add {target}`; for Debian's toolchain, \
             install libstd-rust-dev:{debian} or libstd-rust-web-dev:{debian} in the version of rustc"
        );
        Ok(())
    }
}

/// Whether the Rust toolchain can build for a target.
fn has_standard_library(target: &str) -> anyhow::Result<bool> {
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let output = Command::new(&rustc).args(["--print", "target-libdir", "--target", target]).output();
    let output = output.with_context(|| rustc)?;
    Ok(output.status.success() && Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
}

/// Compiles for all architectures; headers and libraries come from Debian's packages.
pub const COMPILER: &str = "clang";
/// Links for all architectures.
const LINKER: &str = "ld.lld";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_with_musl_are_those_of_rust_and_debian() {
        let names = ARCHES.each_ref().map(|arch| [arch.musl_target(), arch.musl_tuple()]);
        let [amd64, arm64, armv7] = names;
        assert_eq!(amd64, ["x86_64-unknown-linux-musl", "x86_64-linux-musl"]);
        assert_eq!(arm64, ["aarch64-unknown-linux-musl", "aarch64-linux-musl"]);
        assert_eq!(armv7, ["armv7-unknown-linux-musleabihf", "arm-linux-musleabihf"]);
    }

    #[test]
    fn emulators_have_qemus_names() {
        let names = ARCHES.each_ref().map(Arch::emulator);
        assert_eq!(names, ["qemu-x86_64-static", "qemu-aarch64-static", "qemu-arm-static"]);
    }

    /// cargo names the toolchain's own cargo in its environment, and that one has no rustup next to it.
    #[test]
    fn rustup_is_found_from_within_cargo() {
        let text = |command: &mut Command| {
            let output = command.output().expect("an answer");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        // Ubuntu names the newer ones by version, and packaging/cargo.sh says which it is.
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let rustc = text(Command::new(rustc).arg("-vV"));
        let host = rustc.lines().find_map(|line| line.strip_prefix("host: ")).expect("a target");
        let has_rustup = Command::new("rustup").arg("--version").output().is_ok();
        // The library of this machine is there, so nothing is fetched.
        let fetched = Command::new(root().join("packaging/deps.sh"))
            .arg(format!("--std={host}"))
            .env("CARGO", env!("CARGO"))
            .stderr(Stdio::null())
            .status()
            .expect("a status");
        assert_eq!(fetched.success(), has_rustup, "packaging/deps.sh --std={host}");
    }

    #[test]
    fn an_unknown_architecture_is_refused_with_the_known_names() {
        assert_eq!(Arch::named("armv7").expect("a known name").debian, "armhf");
        let error = Arch::named("mips").expect_err("an unknown name").to_string();
        assert_eq!(error, "cannot build for `mips`; known architectures: amd64, arm64, armv7");
    }
}
