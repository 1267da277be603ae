//! The machines that QEMU is asked for.

use crate::arch::{AMD64, ARM64, Arch};
use anyhow::{Context, ensure};
use std::{
    path::Path,
    process::{Command, Stdio},
};

/// A machine, and how a kernel finds its way in it.
#[derive(Debug)]
pub struct Machine {
    /// Who makes it. The packages that have QEMU are named by packaging/deps.sh.
    pub qemu: &'static str,
    /// Arguments of QEMU's, which make it.
    pub arguments: &'static str,
    /// The kernel's command line, with the console at least. Variables in it are those of the first process.
    pub kernel: &'static str,
    /// What tells the kernel what there is, where the machine does not, by its file in the kernel's package.
    pub device_tree: Option<&'static str>,
    /// Its serial ports.
    pub serial: Serial,
}

/// What a guest's serial ports are for: the console, standard output, standard error and the exit code.
#[derive(Debug)]
pub enum Serial {
    /// Each has its own.
    Each,
    /// The console has the only one that there is, the others are on a card.
    Card,
    /// All share the one behind so many others.
    Shared(usize),
}

/// Cloud kernels boot in it.
const PC: Machine = Machine {
    qemu: "qemu-system-x86_64",
    arguments: "-M q35 -cpu max -smp 1 -m 2048",
    kernel: "console=ttyS0 nokaslr mitigations=off random.trust_cpu=on",
    device_tree: None,
    serial: Serial::Each,
};

/// A 64-bit ARM machine that exists only in QEMU.
const VIRT: Machine = Machine {
    qemu: "qemu-system-aarch64",
    arguments: "-M virt -cpu cortex-a72 -smp 1 -m 2048",
    kernel: "console=ttyAMA0 nokaslr mitigations=off random.trust_bootloader=on",
    device_tree: None,
    serial: Serial::Card,
};

impl Machine {
    /// What kernels of an architecture are tried in.
    pub fn of(arch: &Arch) -> anyhow::Result<&'static Self> {
        let known = [(&AMD64, &PC), (&ARM64, &VIRT)];
        let found = known.into_iter().find(|(known, _)| *known == arch).map(|(_, machine)| machine);
        found.with_context(|| format!("no machine for {} is known, but boards: see --board", arch.name))
    }

    /// That QEMU is there.
    pub fn demand(&self) -> anyhow::Result<()> {
        let there = Command::new(self.qemu).arg("--version").stdout(Stdio::null()).status();
        ensure!(there.is_ok(), "{} is not there; `packaging/deps.sh --vm` installs it", self.qemu);
        Ok(())
    }
}

impl Serial {
    /// Arguments of QEMU's that make each port the file that it is named after.
    pub fn arguments(&self, [console, output, errors, code]: [&Path; 4]) -> Vec<String> {
        let port = |file: &Path| ["-serial".to_owned(), format!("file:{}", file.display())];
        match self {
            Self::Each => [console, output, errors, code].into_iter().flat_map(port).collect(),
            Self::Card => {
                let mut all = port(console).to_vec();
                let mut card = "pci-serial-4x".to_owned();
                for (number, file) in [Path::new("/dev/null"), output, errors, code].iter().enumerate() {
                    let id = format!("chardev{}", number + 1);
                    all.extend(["-chardev".to_owned(), format!("file,id={id},path={}", file.display())]);
                    card += &format!(",{id}={id}");
                }
                all.extend(["-device".to_owned(), card]);
                all
            }
            Self::Shared(before) => {
                let none = ["-serial".to_owned(), "null".to_owned()];
                none.iter().cycle().take(2 * before).cloned().chain(port(console)).collect()
            }
        }
    }
}
