//! The list of kernels on which Shunt is tested.

use crate::{
    arch::{AMD64, ARM64, Arch},
    debian::Suite,
};
use anyhow::{Context, bail};
use std::fmt::{self, Write};

/// A kernel of Debian, named by the metapackage that depends on its latest build.
#[derive(Debug)]
pub struct Kernel {
    /// Name on the command line.
    pub name: &'static str,
    /// Architecture of the kernel.
    pub arch: &'static Arch,
    /// Suite that has the package.
    pub suite: Suite,
    /// Name of the metapackage.
    pub package: &'static str,
    /// Last day of the suite's support, including long-term support. A newer kernel may replace this one before.
    pub supported_until: &'static str,
}

/// Debian 12 with security updates.
pub const SECURITY: Suite = Suite { archive: "Debian-Security", name: "bookworm-security" };
/// The newest kernels that Debian has for a stable release.
pub const BACKPORTS: Suite = Suite { archive: "Debian", name: "trixie-backports" };

/// The kernels of each architecture, from old to new.
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

/// A kernel with the drivers of physical NICs, for `cargo xtask nics`.
pub static WITH_DRIVERS: Kernel = Kernel {
    name: "drivers",
    arch: &AMD64,
    suite: BACKPORTS,
    package: "linux-image-amd64",
    supported_until: "2028-08-09",
};

impl Kernel {
    /// Finds a kernel by its name.
    pub fn named(name: &str, arch: &Arch) -> anyhow::Result<&'static Self> {
        let found =
            KERNELS.iter().chain([&WITH_DRIVERS]).find(|kernel| kernel.name == name && kernel.arch == arch);
        found.with_context(|| format!("no kernel `{name}` for {} in the list:\n{}", arch.name, table()))
    }

    /// Checks that the kernel is still supported on a day such as 2026-11-22.
    pub fn require_support(&self, today: &str) -> anyhow::Result<()> {
        if today > self.supported_until {
            bail!(
                "the support of kernel {self} ended on {}: replace it in the list, xtask/src/vm/kernels.rs",
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

/// The list as text, one line per kernel.
pub fn table() -> String {
    KERNELS.iter().chain([&WITH_DRIVERS]).fold(String::new(), |mut table, kernel| {
        let Kernel { name, arch, suite, package, supported_until } = kernel;
        let _ = writeln!(
            table,
            "{name:7} {:5} {}: {package}, supported until {supported_until}",
            arch.name, suite.name
        );
        table
    })
}
