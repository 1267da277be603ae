//! The machines that QEMU emulates.

use crate::arch::{AMD64, ARM64, Arch};
use anyhow::Context;
use std::path::Path;

/// A machine of QEMU and what a kernel needs to boot on it.
#[derive(Debug)]
pub struct Machine {
    /// Program name of QEMU for this architecture; packaging/deps.sh names the packages.
    pub qemu: &'static str,
    /// Arguments that select the machine.
    pub arguments: &'static str,
    /// Kernel command line, with the console at least. Variables in it are set for the first process.
    pub kernel: &'static str,
    /// File name of the device tree in the kernel's package; `None` if the machine provides one.
    pub device_tree: Option<&'static str>,
    /// Assignment of the serial ports.
    pub serial: Serial,
}

/// Which serial ports carry the console, standard output, standard error and the exit code.
#[derive(Debug)]
pub enum Serial {
    /// Each has a port of its own.
    Each,
    /// The console has the only on-board port, the others are on a PCI card.
    Card,
    /// All share the port behind this number of other ports.
    Shared(usize),
}

/// A PC, in which Debian's cloud kernels boot. On a busy machine, its timer may come too late for the kernel's check.
const PC: Machine = Machine {
    qemu: "qemu-system-x86_64",
    arguments: "-M q35 -cpu max -smp 1 -m 2048",
    kernel: "console=ttyS0 nokaslr mitigations=off random.trust_cpu=on no_timer_check",
    device_tree: None,
    serial: Serial::Each,
};

/// QEMU's virtual 64-bit ARM machine.
const VIRT: Machine = Machine {
    qemu: "qemu-system-aarch64",
    arguments: "-M virt -cpu cortex-a72 -smp 1 -m 2048",
    kernel: "console=ttyAMA0 nokaslr mitigations=off random.trust_bootloader=on",
    device_tree: None,
    serial: Serial::Card,
};

impl Machine {
    /// The machine for the kernels of an architecture.
    pub fn for_arch(arch: &Arch) -> anyhow::Result<&'static Self> {
        let known = [(&AMD64, &PC), (&ARM64, &VIRT)];
        let found = known.into_iter().find(|(known, _)| *known == arch).map(|(_, machine)| machine);
        found.with_context(|| format!("no generic machine for {}; choose a board with --board", arch.name))
    }
}

impl Serial {
    /// Arguments of QEMU that connect each port to its file.
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
