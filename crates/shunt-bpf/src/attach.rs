//! Attaches programs to devices. An attachment is a link, which the kernel closes with its owner, or a clsact filter on
//! kernels without TCX.

pub use crate::hook::Hook;

use crate::{Error, owner::owner_by, verifier};
use libbpf_rs::{TC_EGRESS, TC_INGRESS, TcHookBuilder};
use std::{
    ffi::CStr,
    fmt, io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

/// How the tc programs of a port are attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachMode {
    /// By TCX (Linux 6.6).
    Tcx,
    /// By filters of a clsact qdisc.
    Clsact,
}

impl fmt::Display for AttachMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcx => "tcx",
            Self::Clsact => "clsact",
        })
    }
}

/// A program attached to a device. Dropping it detaches the program.
#[derive(Debug)]
pub enum Attachment {
    /// A link, which ends with its last descriptor or when it is detached.
    Link(DeviceLink),
    /// A clsact filter, which stays until it is removed.
    Filter(Filter),
}

/// A link of a program to a device. Dropping it detaches the program, whoever else has a descriptor of the link.
#[derive(Debug)]
pub struct DeviceLink(OwnedFd);

impl DeviceLink {
    /// The link behind a descriptor.
    pub(crate) fn new(link: OwnedFd) -> Self {
        Self(link)
    }
}

impl Drop for DeviceLink {
    fn drop(&mut self) {
        // Fails if the device is gone, and its attachments with it.
        // SAFETY: the descriptor is open. One that is not that of a link is refused.
        unsafe { libbpf_sys::bpf_link_detach(self.0.as_raw_fd()) };
    }
}

/// A clsact filter of Shunt. Dropping it removes the filter.
#[derive(Debug)]
pub struct Filter {
    ifindex: i32,
    hook: Hook,
    handle: u32,
}

impl Filter {
    /// Removes the filter. Returns whether there was one.
    fn remove(&self) -> bool {
        let mut hook = libbpf_sys::bpf_tc_hook::default();
        hook.sz = size_of_val(&hook) as libbpf_sys::size_t;
        hook.ifindex = self.ifindex;
        hook.attach_point = self.hook.attach_point();
        let options = filter_options(self.handle);
        // SAFETY: both structures are initialised and outlive the call.
        unsafe { libbpf_sys::bpf_tc_detach(&raw const hook, &raw const options) == 0 }
    }
}

impl Filter {
    /// Puts a program in the place of the filter's, without a moment when the device has none.
    pub(crate) fn replace(&self, program: &impl AsFd) -> Result<(), Error> {
        let ifindex = u32::try_from(self.ifindex).unwrap_or_default();
        set_filter(program, ifindex, self.hook, self.handle).map(drop)
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        // The device may have been removed, and its filters with it.
        self.remove();
    }
}

/// Attaches a program by a link.
///
/// # Errors
/// The kernel's error: EINVAL if it does not know the hook, EBUSY if the device has another XDP program.
pub fn link(program: &impl AsFd, ifindex: u32, hook: Hook) -> io::Result<Attachment> {
    link_fd(program, ifindex, hook).map(|link| Attachment::Link(DeviceLink(link)))
}

/// Attaches a program by a link, and returns the link's descriptor.
///
/// # Errors
/// As for [`link`].
pub fn link_fd(program: &impl AsFd, ifindex: u32, hook: Hook) -> io::Result<OwnedFd> {
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

impl Attachment {
    /// The clsact filter that another daemon has attached. `None` if there is no such device.
    pub(crate) fn filter(ifindex: u32, hook: Hook, handle: u32) -> Option<Self> {
        let ifindex = i32::try_from(ifindex).ok()?;
        Some(Self::Filter(Filter { ifindex, hook, handle }))
    }

    /// The descriptor of a link.
    pub(crate) fn link(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Link(link) => Some(link.0.as_fd()),
            Self::Filter(_) => None,
        }
    }

    /// Puts a program in the place of the attached one, without a moment when the device has none. Drivers then keep
    /// their link and their rings.
    ///
    /// # Errors
    /// The kernel's error: the driver does not accept the program, or this is not a link. The former program stays.
    pub fn replace(&self, program: &impl AsFd) -> io::Result<()> {
        let Self::Link(link) = self else { return Err(io::Error::from(io::ErrorKind::Unsupported)) };
        let (link, program) = (link.0.as_raw_fd(), program.as_fd().as_raw_fd());
        // SAFETY: both descriptors are open, and no options are given.
        let err = unsafe { libbpf_sys::bpf_link_update(link, program, std::ptr::null()) };
        if err < 0 { Err(io::Error::from_raw_os_error(-err)) } else { Ok(()) }
    }
}

/// The priority of Shunt's clsact filters, by which it recognises them.
pub const FILTER_PRIORITY: u32 = 0x5348;

/// Attaches a program as a clsact filter, for kernels without TCX. The handle identifies the instance; a filter with
/// the same handle is replaced.
///
/// # Errors
/// If the qdisc cannot be created, or the kernel refuses the filter.
pub fn filter(program: &impl AsFd, ifindex: u32, hook: Hook, handle: u32) -> Result<Attachment, Error> {
    let target = set_filter(program, ifindex, hook, handle)?;
    Ok(Attachment::Filter(Filter { ifindex: target, hook, handle }))
}

/// Attaches a filter, or replaces the one with this handle. Returns the device as libbpf names it.
fn set_filter(program: &impl AsFd, ifindex: u32, hook: Hook, handle: u32) -> Result<i32, Error> {
    let attach = |e| Error::Attach { ifindex, hook, source: io::Error::other(e) };
    let target =
        i32::try_from(ifindex).map_err(|e| Error::Attach { ifindex, hook, source: io::Error::other(e) })?;
    let mut tc = TcHookBuilder::new(program.as_fd())
        .ifindex(target)
        .replace(true)
        .handle(handle)
        .priority(FILTER_PRIORITY)
        .hook(hook.attach_point());
    tc.create().map_err(attach)?;
    tc.attach().map_err(attach)?;
    Ok(target)
}

/// The tc programs on ingress: of ports with an Ethernet header, of ports without layer 2, and of the former while the
/// data plane rests.
pub(crate) const INGRESS: [&str; 3] = ["shunt_in", "shunt_in_l3", "shunt_in_rest"];

/// Whether a device is a port of Shunt, by TCX.
pub fn is_port(ifindex: u32) -> bool {
    tcx_programs(ifindex, Hook::Ingress).iter().any(|name| INGRESS.contains(&name.as_str()))
}

/// The names of the programs on a device's TCX hook. Empty on a kernel without TCX.
pub fn tcx_programs(ifindex: u32, hook: Hook) -> Vec<String> {
    tcx_ids(ifindex, hook).into_iter().filter_map(program_name).collect()
}

/// The ids of the programs on a device's TCX hook, in execution order. Empty on a kernel without TCX.
pub(crate) fn tcx_ids(ifindex: u32, hook: Hook) -> Vec<u32> {
    query_tcx(ifindex, hook).unwrap_or_default()
}

/// Whether the kernel has TCX (Linux 6.6). Attaches nothing.
pub fn has_tcx() -> bool {
    const LOOPBACK: u32 = 1;
    query_tcx(LOOPBACK, Hook::Ingress).is_some()
}

/// The ids of the programs on a device's TCX hook. None without TCX or without the device.
fn query_tcx(ifindex: u32, hook: Hook) -> Option<Vec<u32>> {
    // A hook has at most 64 programs.
    let mut ids = [0u32; 64];
    let mut options = libbpf_sys::bpf_prog_query_opts::default();
    options.sz = size_of_val(&options) as libbpf_sys::size_t;
    options.prog_ids = ids.as_mut_ptr();
    options.__bindgen_anon_1.count = ids.len() as u32;
    let target = i32::try_from(ifindex).ok()?;
    // SAFETY: `ids` has room for `count` ids, and both outlive the call.
    let err = unsafe { libbpf_sys::bpf_prog_query_opts(target, hook.attach_type(), &raw mut options) };
    if err != 0 {
        return None;
    }
    // SAFETY: the kernel has set the count, and both arms of the union are a u32.
    let count = unsafe { options.__bindgen_anon_1.count } as usize;
    Some(ids.iter().take(count).copied().collect())
}

/// Opens a loaded program.
///
/// # Errors
/// The kernel's error: ENOENT if no program has this id, EPERM without CAP_SYS_ADMIN.
pub fn program_by_id(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes a number and returns a descriptor or an error.
    let fd = unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The name of a loaded program. None if no program has this id.
pub fn program_name(id: u32) -> Option<String> {
    let info = program_info(program_by_id(id).ok()?.as_fd(), &mut [])?;
    // SAFETY: the kernel ends the name with a zero byte within the array.
    let name = unsafe { CStr::from_ptr(info.name.as_ptr()) };
    Some(name.to_string_lossy().into_owned())
}

/// The id of a loaded program. None if the kernel does not answer.
pub fn program_id(fd: BorrowedFd<'_>) -> Option<u32> {
    Some(program_info(fd, &mut [])?.id)
}

/// How often the kernel skipped a tracing program because it interrupted a run of the same program on the same CPU.
/// None if the kernel does not answer.
pub fn program_misses(fd: BorrowedFd<'_>) -> Option<u64> {
    Some(program_info(fd, &mut [])?.recursion_misses)
}

/// How often a program ran while the kernel counted, and for how many nanoseconds. None if there is no such program.
pub(crate) fn program_runs(id: u32) -> Option<(u64, u64)> {
    let info = program_info(program_by_id(id).ok()?.as_fd(), &mut [])?;
    Some((info.run_cnt, info.run_time_ns))
}

/// Describes a program, and its maps as far as there is room.
fn program_info(fd: BorrowedFd<'_>, map_ids: &mut [u32]) -> Option<libbpf_sys::bpf_prog_info> {
    let mut info = libbpf_sys::bpf_prog_info {
        nr_map_ids: map_ids.len() as u32,
        map_ids: map_ids.as_mut_ptr() as u64,
        ..libbpf_sys::bpf_prog_info::default()
    };
    let mut len = size_of_val(&info) as u32;
    // SAFETY: `info` is zeroed but for room for map ids, which outlives the call, and `len` is its size.
    let err = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(fd.as_raw_fd(), &raw mut info, &raw mut len) };
    (err == 0).then_some(info)
}

/// A device's clsact filters with this handle, by hook: whether there is one, and the instance that it names, if any.
fn filters_with(ifindex: u32, handle: u32) -> Vec<(libbpf_sys::bpf_tc_hook, Option<String>)> {
    let Ok(target) = i32::try_from(ifindex) else { return Vec::new() };
    // libbpf prints an error for each filter that is absent.
    verifier::capture_log();
    let mut found = Vec::new();
    for point in [TC_INGRESS, TC_EGRESS] {
        let mut hook = libbpf_sys::bpf_tc_hook::default();
        hook.sz = size_of_val(&hook) as libbpf_sys::size_t;
        hook.ifindex = target;
        hook.attach_point = point;
        let mut options = filter_options(handle);
        // SAFETY: both structures are initialised and outlive the call.
        if unsafe { libbpf_sys::bpf_tc_query(&raw const hook, &raw mut options) } == 0 {
            found.push((hook, owner_of(options.prog_id)));
        }
    }
    found
}

/// The instance that a program names, if any.
fn owner_of(program_id: u32) -> Option<String> {
    let program = program_by_id(program_id).ok()?;
    let mut maps = [0u32; 64];
    let info = program_info(program.as_fd(), &mut maps)?;
    owner_by(maps.get(..info.nr_map_ids as usize)?)
}

fn filter_options(handle: u32) -> libbpf_sys::bpf_tc_opts {
    let mut options = libbpf_sys::bpf_tc_opts::default();
    options.sz = size_of_val(&options) as libbpf_sys::size_t;
    options.handle = handle;
    options.priority = FILTER_PRIORITY;
    options
}

/// Whether a device has a clsact filter with this handle that belongs to another instance.
pub fn has_filter_of_another(ifindex: u32, handle: u32, instance: &str) -> bool {
    filters_with(ifindex, handle)
        .iter()
        .any(|(_, owner)| owner.as_deref().is_some_and(|name| name != instance))
}

/// Removes clsact filters with this handle, which a killed daemon of the instance left on a device. Returns whether
/// there were any.
pub fn remove_filters(ifindex: u32, handle: u32, instance: &str) -> bool {
    let mut removed = false;
    for (hook, owner) in filters_with(ifindex, handle) {
        // A filter of an earlier version names no instance.
        if owner.is_none_or(|name| name == instance) {
            let options = filter_options(handle);
            // SAFETY: both structures are initialised and outlive the call.
            removed |= unsafe { libbpf_sys::bpf_tc_detach(&raw const hook, &raw const options) } == 0;
        }
    }
    removed
}
