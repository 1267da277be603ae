//! The one list of kernels that Shunt is tried on.

use crate::{
    arch::{AMD64, ARM64, Arch},
    debian::Suite,
};
use anyhow::{Context, bail};
use std::fmt::{self, Write};

/// A kernel of Debian's, by the package that always needs its latest build.
#[derive(Debug)]
pub struct Kernel {
    /// How it is asked for.
    pub name: &'static str,
    /// What it runs on.
    pub arch: &'static Arch,
    /// Where it is from.
    pub suite: Suite,
    /// The package.
    pub package: &'static str,
    /// The last day of the suite's support, long-term support included. A newer kernel may replace it before.
    pub supported_until: &'static str,
}

/// Debian 12, with what was found since its last point release.
pub const SECURITY: Suite = Suite { archive: "Debian-Security", name: "bookworm-security" };
/// The newest of Debian's kernels that a stable release can have.
const BACKPORTS: Suite = Suite { archive: "Debian", name: "trixie-backports" };

/// Of each architecture, from old to new.
pub const KERNELS: [Kernel; 5] = [
    Kernel {
        name: "6.1",
        arch: &AMD64,
        suite: SECURITY,
        package: "linux-image-cloud-amd64",
        supported_until: "2028-06-30",
    },
    Kernel {
        name: "6.12",
        arch: &AMD64,
        suite: SECURITY,
        package: "linux-image-6.12-cloud-amd64",
        supported_until: "2028-06-30",
    },
    Kernel {
        name: "newest",
        arch: &AMD64,
        suite: BACKPORTS,
        package: "linux-image-cloud-amd64",
        supported_until: "2028-08-09",
    },
    Kernel {
        name: "6.1",
        arch: &ARM64,
        suite: SECURITY,
        package: "linux-image-cloud-arm64",
        supported_until: "2028-06-30",
    },
    Kernel {
        name: "6.12",
        arch: &ARM64,
        suite: SECURITY,
        package: "linux-image-6.12-cloud-arm64",
        supported_until: "2028-06-30",
    },
];

impl Kernel {
    /// The kernel of this name.
    pub fn named(name: &str, arch: &Arch) -> anyhow::Result<&'static Self> {
        let found = KERNELS.iter().find(|kernel| kernel.name == name && kernel.arch == arch);
        found.with_context(|| {
            format!("there is no kernel `{name}` for {} in the list:\n{}", arch.name, table())
        })
    }

    /// Whether it is still looked after, on a day of the form 2026-11-22.
    pub fn demand_support(&self, today: &str) -> anyhow::Result<()> {
        if today > self.supported_until {
            bail!(
                "the support of kernel {self} ended on {}: take another one into the list, xtask/src/vm/kernels.rs",
                self.supported_until
            );
        }
        Ok(())
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self.arch == AMD64 {
            write!(f, "{}", self.name)
        } else {
            write!(f, "{} {}", self.name, self.arch.name)
        }
    }
}

/// The list, for people.
pub fn table() -> String {
    KERNELS.iter().fold(String::new(), |mut table, kernel| {
        let Kernel { name, arch, suite, package, supported_until } = kernel;
        let _ = writeln!(
            table,
            "{name:7} {:5} {}: {package}, supported until {supported_until}",
            arch.name, suite.name
        );
        table
    })
}
