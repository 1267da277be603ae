//! The boards on which Shunt is tested.

pub mod board_report;

use super::{
    kernels::{BACKPORTS, Kernel, SECURITY},
    machine::{Machine, Serial},
};
use crate::{
    arch::{ARM64, ARMV7},
    debian::STABLE,
};
use anyhow::Context;
use std::fmt::Write;

/// A board whose SoC and Ethernet QEMU emulates.
#[derive(Debug)]
pub struct Board {
    /// Name on the command line.
    pub name: &'static str,
    /// Full name, with the SoC.
    pub title: &'static str,
    /// Driver of the Ethernet.
    pub driver: &'static str,
    pub machine: Machine,
    pub kernel: Kernel,
}

/// The other end of a board's Ethernet: an emulated host that echoes on TCP port 7.
macro_rules! network {
    () => {
        "-nic user,ipv6=off,restrict=on,guestfwd=tcp:10.0.2.100:7-cmd:cat"
    };
}

/// All boards.
pub static BOARDS: [Board; 4] = [
    Board {
        name: "sabrelite",
        title: "SABRE Lite (i.MX6Q)",
        driver: "fec",
        machine: Machine {
            qemu: "qemu-system-arm",
            arguments: concat!("-M sabrelite -smp 1 -m 1024 ", network!()),
            // Without gpio-mxc the PHY is not found, and without the watchdog the board cannot reboot.
            kernel: "console=ttymxc1,115200 PORTS=one MODULES=gpio-mxc,imx2_wdt,anatop-regulator,micrel,fec",
            device_tree: Some("imx6q-sabrelite.dtb"),
            serial: Serial::Shared(1),
        },
        kernel: ARMMP,
    },
    Board {
        name: "orangepi-pc",
        title: "Orange Pi PC (H3)",
        driver: "dwmac-sun8i",
        machine: Machine {
            qemu: "qemu-system-arm",
            arguments: concat!("-M orangepi-pc ", network!()),
            kernel: "console=ttyS0,115200 PORTS=one MODULES=sunxi_wdt,dwmac-sun8i",
            device_tree: Some("sun8i-h3-orangepi-pc.dtb"),
            serial: Serial::Shared(0),
        },
        kernel: ARMMP,
    },
    Board {
        name: "imx8mp-evk",
        title: "i.MX 8M Plus EVK",
        driver: "fec",
        machine: Machine {
            qemu: "qemu-system-aarch64",
            arguments: concat!("-M imx8mp-evk -smp 1 -m 2048 ", network!()),
            kernel: "console=ttymxc1,115200 PORTS=one COLDPLUG=yes MODULES=at803x,fec",
            device_tree: Some("freescale/imx8mp-evk.dtb"),
            serial: Serial::Shared(1),
        },
        kernel: Kernel {
            name: "newest",
            arch: &ARM64,
            suite: BACKPORTS,
            package: "linux-image-arm64",
            supported_until: "2028-08-09",
        },
    },
    Board {
        name: "versal",
        title: "Versal (Cadence GEM)",
        driver: "macb",
        machine: Machine {
            qemu: "qemu-system-aarch64",
            arguments: concat!("-M xlnx-versal-virt -m 2048 ", network!()),
            kernel: "console=ttyAMA0 PORTS=one MODULES=macb",
            device_tree: None,
            serial: Serial::Shared(0),
        },
        kernel: Kernel {
            name: "6.12",
            arch: &ARM64,
            suite: SECURITY,
            package: "linux-image-6.12-arm64",
            supported_until: "2028-06-30",
        },
    },
];

/// Debian's kernel for boards with 32-bit ARM cores.
const ARMMP: Kernel = Kernel {
    name: "6.1",
    arch: &ARMV7,
    suite: STABLE,
    package: "linux-image-armmp",
    supported_until: "2028-06-30",
};

impl Board {
    /// Finds a board by its name.
    pub fn named(name: &str) -> anyhow::Result<&'static Self> {
        let found = BOARDS.iter().find(|board| board.name == name);
        found.with_context(|| format!("no board `{name}` in the list:\n{}", table()))
    }
}

/// The list as text, one line per board.
pub fn table() -> String {
    BOARDS.iter().fold(String::new(), |mut table, board| {
        let Board { name, title, driver, kernel, .. } = board;
        let _ = writeln!(table, "{name:13} {title}, {driver}, kernel {kernel}");
        table
    })
}
