//! The one list of kernels that Shunt is tried on.

use anyhow::{Context, bail};
use std::fmt::Write;

/// A kernel of Debian's, by the package that always needs its latest build.
#[derive(Debug)]
pub struct Kernel {
    /// How it is asked for.
    pub name: &'static str,
    /// The label of the archive that has it, as `apt-cache policy` shows it.
    pub archive: &'static str,
    /// The suite in that archive.
    pub suite: &'static str,
    /// The package.
    pub package: &'static str,
    /// The last day of the suite's support, long-term support included. A newer kernel may replace it before.
    pub supported_until: &'static str,
}

/// From old to new.
pub const KERNELS: [Kernel; 3] = [
    Kernel {
        name: "6.1",
        archive: "Debian-Security",
        suite: "bookworm-security",
        package: "linux-image-cloud-amd64",
        supported_until: "2028-06-30",
    },
    Kernel {
        name: "6.12",
        archive: "Debian-Security",
        suite: "bookworm-security",
        package: "linux-image-6.12-cloud-amd64",
        supported_until: "2028-06-30",
    },
    Kernel {
        name: "newest",
        archive: "Debian",
        suite: "trixie-backports",
        package: "linux-image-cloud-amd64",
        supported_until: "2028-08-09",
    },
];

impl Kernel {
    /// The kernel of this name.
    pub fn named(name: &str) -> anyhow::Result<&'static Self> {
        let found = KERNELS.iter().find(|kernel| kernel.name == name);
        found.with_context(|| format!("there is no kernel `{name}` in the list:\n{}", table()))
    }

    /// Whether it is still looked after, on a day of the form 2026-11-22.
    pub fn demand_support(&self, today: &str) -> anyhow::Result<()> {
        if today > self.supported_until {
            bail!(
                "the support of kernel {} ended on {}: take another one into the list, xtask/src/vm/kernels.rs",
                self.name,
                self.supported_until
            );
        }
        Ok(())
    }
}

/// The list, for people.
pub fn table() -> String {
    KERNELS.iter().fold(String::new(), |mut table, kernel| {
        let Kernel { name, suite, package, supported_until, .. } = kernel;
        let _ = writeln!(table, "{name:7} {suite}: {package}, supported until {supported_until}");
        table
    })
}
