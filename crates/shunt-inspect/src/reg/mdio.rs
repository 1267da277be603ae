//! Registers of a PHY, through the network device to which it belongs.
#![allow(unsafe_code, reason = "the kernel offers MDIO as an ioctl only")]

use nix::libc;
use std::{
    io,
    net::UdpSocket,
    os::fd::{AsRawFd, OwnedFd},
};

const SIOCGMIIPHY: libc::Ioctl = 0x8947;
const SIOCGMIIREG: libc::Ioctl = 0x8948;
const SIOCSMIIREG: libc::Ioctl = 0x8949;

/// `struct ifreq` with `struct mii_ioctl_data` in it, as large as the kernel copies.
#[repr(C)]
#[derive(Default)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    phy: u16,
    register: u16,
    value_in: u16,
    value_out: u16,
    rest: [u64; 2],
}

/// The PHYs on the MDIO bus of a network device.
#[derive(Debug)]
pub(crate) struct MdioBus {
    socket: OwnedFd,
    port: [u8; libc::IFNAMSIZ],
    phy: u16,
}

impl MdioBus {
    /// The bus of a device, with this PHY or the device's own.
    pub(crate) fn open(port: &str, phy: Option<u16>) -> io::Result<Self> {
        let mut name = [0; libc::IFNAMSIZ];
        let short = port.len() < name.len() && !port.is_empty();
        if !short {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        name[..port.len()].copy_from_slice(port.as_bytes());
        // Any socket will do. These addresses can be bound while the loopback device is down.
        let socket = UdpSocket::bind("0.0.0.0:0").or_else(|_| UdpSocket::bind("[::]:0"))?;
        let mut bus = Self { socket: socket.into(), port: name, phy: phy.unwrap_or(0) };
        if phy.is_none() {
            bus.phy = bus.ask(SIOCGMIIPHY, 0, 0)?.phy;
        }
        Ok(bus)
    }

    pub(crate) fn read(&self, register: u16) -> io::Result<u16> {
        Ok(self.ask(SIOCGMIIREG, register, 0)?.value_out)
    }

    pub(super) fn write(&self, register: u16, value: u16) -> io::Result<()> {
        self.ask(SIOCSMIIREG, register, value).map(drop)
    }

    fn ask(&self, command: libc::Ioctl, register: u16, value_in: u16) -> io::Result<Request> {
        let mut request =
            Request { name: self.port, phy: self.phy, register, value_in, ..Request::default() };
        // SAFETY: the request is at least as large as the struct ifreq that the kernel reads and writes.
        match unsafe { libc::ioctl(self.socket.as_raw_fd(), command, &raw mut request) } {
            0 => Ok(request),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

const _: () = assert!(size_of::<Request>() >= size_of::<libc::ifreq>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_a_phy_says_so() {
        let refusal = MdioBus::open("lo", None).unwrap_err();
        assert!(
            matches!(refusal.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL | libc::EPERM)),
            "{refusal}"
        );
        for name in ["nosuchdevice", "a-name-that-is-much-too-long", ""] {
            assert!(MdioBus::open(name, None).is_err(), "{name}");
        }
    }
}
