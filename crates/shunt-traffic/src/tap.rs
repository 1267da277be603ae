//! A TAP or tun device for tests: this process reads what the kernel sends.

use nix::libc;
use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::fs::OpenOptionsExt,
    },
};

/// From `linux/if_tun.h`.
const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
const TUNSETQUEUE: libc::Ioctl = 0x4004_54d9;

/// A TAP device, or a tun device, whose packets have no Ethernet header. Dropping it removes the device.
#[derive(Debug)]
pub struct TapDevice {
    file: File,
}

impl TapDevice {
    /// Creates a device in the calling thread's network namespace.
    ///
    /// # Errors
    /// If /dev/net/tun cannot be opened, or the kernel refuses the device.
    pub fn create(name: &str) -> io::Result<Self> {
        Self::open(name, libc::IFF_TAP)
    }

    /// Creates a tun device in the calling thread's network namespace.
    ///
    /// # Errors
    /// As for [`TapDevice::create`].
    pub fn create_tun(name: &str) -> io::Result<Self> {
        Self::open(name, libc::IFF_TUN)
    }

    fn open(name: &str, kind: i32) -> io::Result<Self> {
        let file =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
        let device = Self { file };
        device.request(TUNSETIFF, name, kind | libc::IFF_NO_PI | libc::IFF_MULTI_QUEUE)?;
        Ok(device)
    }

    /// Detaches or re-attaches the device's only queue. Without a queue, the driver refuses redirected frames with
    /// ENXIO, and the link stays up.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_queue(&self, on: bool) -> io::Result<()> {
        self.request(TUNSETQUEUE, "", if on { libc::IFF_ATTACH_QUEUE } else { libc::IFF_DETACH_QUEUE })
    }

    fn request(&self, request: libc::Ioctl, name: &str, flags: i32) -> io::Result<()> {
        // struct ifreq: a name that ends with a zero byte, and flags.
        let mut ifreq = [0u8; size_of::<libc::ifreq>()];
        if name.len() >= libc::IFNAMSIZ {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        ifreq[..name.len()].copy_from_slice(name.as_bytes());
        ifreq[libc::IFNAMSIZ..libc::IFNAMSIZ + 2].copy_from_slice(&(flags as u16).to_ne_bytes());
        // SAFETY: both requests access a struct ifreq, and `ifreq` has its size.
        let err = unsafe { libc::ioctl(self.file.as_raw_fd(), request, ifreq.as_mut_ptr()) };
        if err == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The next frame, or packet of a tun device, that the kernel sent. None if there is none yet.
    ///
    /// # Errors
    /// If the device cannot be read.
    pub fn next(&self) -> io::Result<Option<Vec<u8>>> {
        let mut frame = vec![0; 70_000];
        match (&self.file).read(&mut frame) {
            Ok(bytes) => {
                frame.truncate(bytes);
                Ok(Some(frame))
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Hands a frame, or a packet of a tun device, to the kernel, as if it had been received.
    ///
    /// # Errors
    /// EIO if the device is down, EINVAL if a packet is neither IPv4 nor IPv6.
    pub fn receive(&self, frame: &[u8]) -> io::Result<()> {
        (&self.file).write(frame).map(drop)
    }
}

impl AsFd for TapDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
