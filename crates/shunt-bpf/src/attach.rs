//! Attaching programs to devices. Every attachment is a link that ends with its owner, but for clsact on kernels
//! without TCX.

use crate::{Error, verifier};
use libbpf_rs::{ProgramMut, TC_EGRESS, TC_INGRESS, TcAttachPoint, TcHook, TcHookBuilder};
use std::{
    ffi::CStr,
    fmt, io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

/// Where on a device a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// tc, before Linux.
    Ingress,
    /// tc, after Linux.
    Egress,
    /// Native XDP.
    Xdp,
    /// XDP on the skb, which any device can.
    GenericXdp,
}

impl Hook {
    fn attach_type(self) -> libbpf_sys::bpf_attach_type {
        match self {
            Self::Ingress => libbpf_sys::BPF_TCX_INGRESS,
            Self::Egress => libbpf_sys::BPF_TCX_EGRESS,
            Self::Xdp | Self::GenericXdp => libbpf_sys::BPF_XDP,
        }
    }

    fn attach_point(self) -> TcAttachPoint {
        if self == Self::Egress { TC_EGRESS } else { TC_INGRESS }
    }
}

/// How the tc programs of a port are attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// TCX, Linux 6.6 and later.
    Tcx,
    /// A clsact qdisc with filters.
    Clsact,
}

impl fmt::Display for Means {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcx => "tcx",
            Self::Clsact => "clsact",
        })
    }
}

/// A program on a device; it leaves when this is dropped.
pub enum Attachment {
    /// The kernel detaches the program when the last descriptor of the link is closed.
    Link(OwnedFd),
    /// A filter stays until it is taken away.
    Filter(TcHook),
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if let Self::Filter(hook) = self {
            // The device may be gone already, and its filters with it.
            let _ = hook.detach();
        }
    }
}

/// Attaches a program by a link.
pub fn link(program: &ProgramMut<'_>, ifindex: u32, hook: Hook) -> io::Result<Attachment> {
    link_fd(program, ifindex, hook).map(Attachment::Link)
}

/// The same; the descriptor is the link.
pub(crate) fn link_fd(program: &ProgramMut<'_>, ifindex: u32, hook: Hook) -> io::Result<OwnedFd> {
    let mut options = libbpf_sys::bpf_link_create_opts::default();
    options.sz = size_of_val(&options) as libbpf_sys::size_t;
    match hook {
        Hook::Xdp => options.flags = libbpf_sys::XDP_FLAGS_DRV_MODE,
        Hook::GenericXdp => options.flags = libbpf_sys::XDP_FLAGS_SKB_MODE,
        Hook::Ingress | Hook::Egress => {}
    }
    let target = i32::try_from(ifindex).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open while `program` is borrowed, and `options` is initialised and outlives the call.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_fd().as_raw_fd(),
            target,
            hook.attach_type(),
            &raw const options,
        )
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel has just given us this descriptor, and nothing else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The priority of our clsact filters. A number of our own, so that we can find them again.
pub const FILTER_PRIORITY: u32 = 0x5348;

/// Attaches a program as a clsact filter, for kernels without TCX. The handle tells whose it is; one that is there with the
/// same handle is replaced.
pub fn filter(program: &ProgramMut<'_>, ifindex: u32, hook: Hook, handle: u32) -> Result<Attachment, Error> {
    let attach = |e| Error::Attach { ifindex, hook, source: io::Error::other(e) };
    let mut tc = TcHookBuilder::new(program.as_fd())
        .ifindex(i32::try_from(ifindex).map_err(|e| Error::Attach {
            ifindex,
            hook,
            source: io::Error::other(e),
        })?)
        .replace(true)
        .handle(handle)
        .priority(FILTER_PRIORITY)
        .hook(hook.attach_point());
    tc.create().map_err(attach)?;
    tc.attach().map_err(attach)?;
    Ok(Attachment::Filter(tc))
}

/// The names of the programs on a device's TCX hook. Empty where there is no TCX.
pub fn tcx_programs(ifindex: u32, hook: Hook) -> Vec<String> {
    tcx_ids(ifindex, hook).into_iter().filter_map(program_name).collect()
}

/// The same by their ids, in the order in which they run.
pub(crate) fn tcx_ids(ifindex: u32, hook: Hook) -> Vec<u32> {
    // As many as a hook can have.
    let mut ids = [0u32; 64];
    let mut options = libbpf_sys::bpf_prog_query_opts::default();
    options.sz = size_of_val(&options) as libbpf_sys::size_t;
    options.prog_ids = ids.as_mut_ptr();
    options.__bindgen_anon_1.count = ids.len() as u32;
    let Ok(target) = i32::try_from(ifindex) else { return Vec::new() };
    // SAFETY: `ids` has the room that `count` tells, and both outlive the call.
    let err = unsafe { libbpf_sys::bpf_prog_query_opts(target, hook.attach_type(), &raw mut options) };
    if err != 0 {
        return Vec::new();
    }
    // SAFETY: the kernel has set the count, and both arms of the union are a u32.
    let count = unsafe { options.__bindgen_anon_1.count } as usize;
    ids.iter().take(count).copied().collect()
}

/// The name of a loaded program; none when it is gone.
pub fn program_name(id: u32) -> Option<String> {
    // SAFETY: takes a number and returns a descriptor or an error.
    let fd = unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) };
    if fd < 0 {
        return None;
    }
    // SAFETY: the kernel has just given us this descriptor.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let info = program_info(fd.as_fd())?;
    // SAFETY: the kernel ends the name with a zero byte within the array.
    let name = unsafe { CStr::from_ptr(info.name.as_ptr()) };
    Some(name.to_string_lossy().into_owned())
}

/// The id of a loaded program.
pub fn program_id(fd: BorrowedFd<'_>) -> Option<u32> {
    Some(program_info(fd)?.id)
}

fn program_info(fd: BorrowedFd<'_>) -> Option<libbpf_sys::bpf_prog_info> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut len = size_of_val(&info) as u32;
    // SAFETY: `info` is zeroed and `len` is its size.
    let err = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(fd.as_raw_fd(), &raw mut info, &raw mut len) };
    (err == 0).then_some(info)
}

/// Takes away the clsact filters with this handle that a killed daemon left on a device; whether there were any.
pub fn remove_filters(ifindex: u32, handle: u32) -> bool {
    let Ok(target) = i32::try_from(ifindex) else { return false };
    let mut removed = false;
    // It would print of each that it is not there.
    verifier::listen();
    for point in [TC_INGRESS, TC_EGRESS] {
        let mut hook = libbpf_sys::bpf_tc_hook::default();
        hook.sz = size_of_val(&hook) as libbpf_sys::size_t;
        hook.ifindex = target;
        hook.attach_point = point;
        let mut options = libbpf_sys::bpf_tc_opts::default();
        options.sz = size_of_val(&options) as libbpf_sys::size_t;
        options.handle = handle;
        options.priority = FILTER_PRIORITY;
        // SAFETY: both structures are initialised and outlive the call.
        removed |= unsafe { libbpf_sys::bpf_tc_detach(&raw const hook, &raw const options) } == 0;
    }
    removed
}
