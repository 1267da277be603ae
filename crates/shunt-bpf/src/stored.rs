//! Descriptors that a service manager has kept while no daemon ran.

use crate::attach::{DeviceLink, Hook};
use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
};

/// Takes a descriptor that this process was started with. To be called once for each.
///
/// # Errors
/// If no such descriptor is open.
pub fn received(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: no pointer is passed.
    if fd < 0 || unsafe { nix::libc::fcntl(fd, nix::libc::F_GETFD) } < 0 {
        return Err(io::Error::from_raw_os_error(nix::libc::EBADF));
    }
    // SAFETY: the descriptor is open. The service manager has made it for this process, and nothing else has taken it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A link, and where it attaches which program.
#[derive(Debug)]
pub struct StoredLink {
    fd: OwnedFd,
    /// The number of the link, which no other link has.
    pub id: u32,
    /// The id of the program.
    pub program: u32,
    /// Interface index of the device; 0 if the device is gone.
    pub ifindex: u32,
    /// The hook of the device.
    pub hook: Hook,
}

impl StoredLink {
    /// The number of a link.
    ///
    /// # Errors
    /// If the descriptor is not that of a link.
    pub fn id_of(link: BorrowedFd<'_>) -> io::Result<u32> {
        info(link).map(|info| info.id)
    }

    /// The link behind a descriptor. `None` if it is not a link of a program to a device.
    pub fn open(fd: OwnedFd) -> Option<Self> {
        let info = info(fd.as_fd()).ok()?;
        // SAFETY: each arm of the union is plain numbers, and the kernel has written that of the type.
        let (ifindex, hook) = unsafe {
            match info.type_ {
                libbpf_sys::BPF_LINK_TYPE_XDP => (info.__bindgen_anon_1.xdp.ifindex, Hook::Xdp),
                libbpf_sys::BPF_LINK_TYPE_TCX => {
                    let tcx = info.__bindgen_anon_1.tcx;
                    let is_ingress = tcx.attach_type == Hook::Ingress.attach_type();
                    (tcx.ifindex, if is_ingress { Hook::Ingress } else { Hook::Egress })
                }
                _ => return None,
            }
        };
        Some(Self { fd, id: info.id, program: info.prog_id, ifindex, hook })
    }

    /// The descriptor, which keeps the program attached.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// Detaches the program, whoever else has a descriptor of the link.
    pub fn detach(self) {
        drop(DeviceLink::new(self.fd));
    }
}

fn info(link: BorrowedFd<'_>) -> io::Result<libbpf_sys::bpf_link_info> {
    let mut info = libbpf_sys::bpf_link_info::default();
    let mut len = size_of_val(&info) as u32;
    // SAFETY: `info` is zeroed, `len` is its size, and both outlive the call.
    let err = unsafe { libbpf_sys::bpf_link_get_info_by_fd(link.as_raw_fd(), &raw mut info, &raw mut len) };
    if err == 0 { Ok(info) } else { Err(io::Error::from_raw_os_error(-err)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn what_is_no_link_is_told_from_one() {
        let file = || OwnedFd::from(File::open("/dev/null").unwrap());
        assert!(StoredLink::id_of(file().as_fd()).is_err());
        assert!(StoredLink::open(file()).is_none());
        assert!(received(-1).is_err());
    }
}
