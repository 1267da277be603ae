//! A ppp device over PPPoE for tests. There is no discovery and no negotiation: both ends know the session.

use nix::libc;
use shunt_wire::Mac;
use std::{
    fs::{File, OpenOptions},
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

/// From `linux/if_pppox.h` and `linux/ppp-ioctl.h`.
const AF_PPPOX: i32 = 24;
const PX_PROTO_OE: u32 = 0;
const PPPIOCGCHAN: libc::Ioctl = 0x8004_7437;
const PPPIOCATTCHAN: libc::Ioctl = 0x4004_7438;
const PPPIOCCONNECT: libc::Ioctl = 0x4004_743a;
const PPPIOCNEWUNIT: libc::Ioctl = 0xc004_743e;

/// A ppp device. Dropping it removes the device.
#[derive(Debug)]
pub struct PppDevice {
    /// The kernel's name of the device.
    pub name: String,
    // Closed in this order: the unit, its channel, and the session.
    _unit: File,
    _channel: File,
    _session: OwnedFd,
}

impl PppDevice {
    /// Creates a device in the calling thread's network namespace, for this session with this MAC through the device
    /// `below`, which must be up.
    ///
    /// # Errors
    /// If the kernel has no PPPoE, or refuses the session.
    pub fn over_pppoe(below: &str, session: u16, far: Mac) -> io::Result<Self> {
        // First: it loads the modules that make /dev/ppp.
        let socket = session_with(below, session, far)?;
        let channel = OpenOptions::new().read(true).write(true).open("/dev/ppp")?;
        request(&channel, PPPIOCATTCHAN, request(&socket, PPPIOCGCHAN, 0)?)?;
        let unit = OpenOptions::new().read(true).write(true).open("/dev/ppp")?;
        let number = request(&unit, PPPIOCNEWUNIT, -1)?;
        request(&channel, PPPIOCCONNECT, number)?;
        Ok(Self { name: format!("ppp{number}"), _unit: unit, _channel: channel, _session: socket })
    }
}

/// A socket of this session.
fn session_with(below: &str, session: u16, far: Mac) -> io::Result<OwnedFd> {
    // struct sockaddr_pppox, which is packed.
    let mut address = [0; 30];
    address[..2].copy_from_slice(&(AF_PPPOX as u16).to_ne_bytes());
    address[2..6].copy_from_slice(&PX_PROTO_OE.to_ne_bytes());
    address[6..8].copy_from_slice(&session.to_be_bytes());
    address[8..14].copy_from_slice(&far.0);
    if below.len() >= libc::IFNAMSIZ {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    address[14..14 + below.len()].copy_from_slice(below.as_bytes());
    // SAFETY: the call has no pointers.
    let fd = unsafe { libc::socket(AF_PPPOX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, PX_PROTO_OE as i32) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made `fd`, and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the kernel reads as many bytes from `address` as it has.
    let err = unsafe { libc::connect(socket.as_raw_fd(), address.as_ptr().cast(), address.len() as u32) };
    if err == 0 { Ok(socket) } else { Err(io::Error::last_os_error()) }
}

/// A request with a number, which it may change.
fn request(file: &impl AsRawFd, request: libc::Ioctl, number: i32) -> io::Result<i32> {
    let mut number = number;
    // SAFETY: all requests here access one int.
    let err = unsafe { libc::ioctl(file.as_raw_fd(), request, &raw mut number) };
    if err == 0 { Ok(number) } else { Err(io::Error::last_os_error()) }
}
