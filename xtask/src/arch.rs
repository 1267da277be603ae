//! The architectures that Shunt is built for, and the tools that build for them.

use anyhow::{Context, ensure};
use std::{
    env,
    path::Path,
    process::{Command, Stdio},
};

/// An architecture, by the names that others have for it.
#[derive(Debug, PartialEq, Eq)]
pub struct Arch {
    /// How it is asked for.
    pub name: &'static str,
    /// Debian's.
    pub debian: &'static str,
    /// Rust's.
    pub target: &'static str,
    /// The C compiler's, and that of the directories of libraries.
    pub tuple: &'static str,
}

/// This machine's comes first.
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
    /// The architecture of this name.
    pub fn named(name: &str) -> anyhow::Result<&'static Self> {
        ARCHES.iter().find(|arch| arch.name == name).with_context(|| {
            let names = ARCHES.each_ref().map(|arch| arch.name);
            format!("Shunt is not built for `{name}`, but for {}", names.join(", "))
        })
    }

    /// That this machine can build for it.
    pub fn demand_toolchain(&self) -> anyhow::Result<()> {
        let Self { name, debian, target, .. } = self;
        for program in [COMPILER, LINKER] {
            let there = Command::new(program).arg("--version").stdout(Stdio::null()).status();
            ensure!(
                there.is_ok(),
                "{program}, which builds for {name}, is not there; `packaging/deps.sh --cross` installs it"
            );
        }
        let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
        let said = Command::new(&rustc).args(["--print", "target-libdir", "--target", target]).output();
        let said = said.with_context(|| rustc)?;
        ensure!(
            said.status.success() && Path::new(String::from_utf8_lossy(&said.stdout).trim()).is_dir(),
            "the Rust toolchain has no standard library for {name}: `rustup target add {target}` fetches it; of a toolchain \
             of Debian's it is libstd-rust-dev:{debian} or libstd-rust-web-dev:{debian}, in the version of rustc"
        );
        Ok(())
    }
}

/// It compiles for all of them. What else a target needs comes from Debian's packages for it.
pub const COMPILER: &str = "clang";
/// It links for all of them.
const LINKER: &str = "ld.lld";

#[cfg(test)]
mod tests {
    use super::Arch;

    #[test]
    fn an_architecture_that_is_not_there_is_answered_with_those_that_are() {
        assert_eq!(Arch::named("armv7").expect("it is there").debian, "armhf");
        let said = Arch::named("mips").expect_err("it is not there").to_string();
        assert_eq!(said, "Shunt is not built for `mips`, but for amd64, arm64, armv7");
    }
}
