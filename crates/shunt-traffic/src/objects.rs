//! Checks whether the kernel still has a program, map or link, for tests of what a daemon leaves behind.

use nix::libc::ENOENT;
use std::{
    io,
    os::fd::{FromRawFd, OwnedFd},
};

/// A kind of BPF object. Each kind has its own ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    /// A loaded program.
    Program,
    /// A map.
    Map,
    /// A link, which attaches a program.
    Link,
}

/// Whether the kernel has an object of this kind and id.
///
/// # Errors
/// If the kernel refuses to answer: EPERM without CAP_SYS_ADMIN.
pub fn exists(kind: ObjectKind, id: u32) -> io::Result<bool> {
    // SAFETY: each call takes a number and returns a descriptor or a negative errno.
    let fd = unsafe {
        match kind {
            ObjectKind::Program => libbpf_sys::bpf_prog_get_fd_by_id(id),
            ObjectKind::Map => libbpf_sys::bpf_map_get_fd_by_id(id),
            ObjectKind::Link => libbpf_sys::bpf_link_get_fd_by_id(id),
        }
    };
    match fd {
        // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
        0.. => drop(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ if fd == -ENOENT => return Ok(false),
        _ => return Err(io::Error::from_raw_os_error(-fd)),
    }
    Ok(true)
}
