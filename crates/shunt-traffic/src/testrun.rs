//! Runs the fast path's programs on single frames by `BPF_PROG_TEST_RUN`, for tests. Nothing is sent.
//!
//! Interface indexes are those of the calling thread's network namespace.

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use shunt_bpf::{
    CONTROL_MAP, DataPlane, Error,
    abi::{self, Plain},
    attach::Hook,
};
use std::{
    io,
    mem::offset_of,
    os::fd::{AsRawFd, BorrowedFd},
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// `XDP_DROP`.
pub const XDP_DROP: u32 = 1;
/// `XDP_PASS`.
pub const XDP_PASS: u32 = 2;
/// `XDP_REDIRECT`.
pub const XDP_REDIRECT: u32 = 4;
/// `TCX_NEXT`: continue with the next program, and then with Linux.
pub const TC_NEXT: u32 = u32::MAX;
/// `TC_ACT_SHOT`.
pub const TC_DROP: u32 = 2;
/// `TC_ACT_REDIRECT`.
pub const TC_REDIRECT: u32 = 7;

/// Room for VLAN tags that a program adds.
const ROOM: usize = 64;

/// A program, and the port where its frames arrive.
#[derive(Debug, Clone, Copy)]
pub struct TestRun<'p> {
    program: BorrowedFd<'p>,
    hook: Hook,
    ifindex: u32,
    repeat: i32,
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The program's return value.
    pub verdict: u32,
    /// The frame afterwards. A VLAN tag that tc pushed last is in the skb's metadata, and not in the frame.
    pub frame: Vec<u8>,
    /// `skb->mark` afterwards; 0 for XDP.
    pub mark: u32,
    /// `skb->priority` afterwards; 0 for XDP.
    pub priority: u32,
    /// Mean duration of a run.
    pub run_ns: u32,
}

/// The segments of an aggregate, as in the skb.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Segments {
    /// Number of segments.
    pub count: u32,
    /// L4 payload per segment (`gso_size`).
    pub bytes: u32,
}

/// `struct xdp_md`.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy, FromBytes, IntoBytes, Immutable)]
struct XdpMd {
    data: u32,
    data_end: u32,
    data_meta: u32,
    ingress_ifindex: u32,
    rx_queue_index: u32,
    egress_ifindex: u32,
}

/// `struct __sk_buff`, with the fields that a test run reads.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy, FromBytes, IntoBytes, Immutable)]
struct SkBuff {
    before_mark: [u32; 2],
    mark: u32,
    before_priority: [u32; 5],
    priority: u32,
    ingress_ifindex: u32,
    ifindex: u32,
    before_gso: [u32; 30],
    gso_segs: u32,
    sk: [u32; 2],
    gso_size: u32,
    after_gso: [u32; 3],
}

const _: () = assert!(size_of::<XdpMd>() == 24 && size_of::<SkBuff>() == 192);
const _: () = assert!(offset_of!(SkBuff, ifindex) == 40);
const _: () = assert!(offset_of!(SkBuff, gso_segs) == 164);
const _: () = assert!(offset_of!(SkBuff, gso_size) == 176);

impl<'p> TestRun<'p> {
    /// The loaded program of a hook, for frames that arrive at the port `ifindex`.
    ///
    /// # Errors
    /// If the program is not loaded.
    pub fn new(plane: &'p DataPlane, hook: Hook, ifindex: u32) -> Result<Self, Error> {
        let name = match hook {
            Hook::Ingress => "shunt_in",
            Hook::Egress => "shunt_out",
            Hook::Xdp | Hook::GenericXdp => "shunt_xdp",
        };
        let program = plane.program_fd(hook).ok_or(Error::Missing { object: "loaded", name })?;
        Ok(Self::of(program, hook, ifindex))
    }

    /// A program that the data plane does not have at its hook.
    pub fn of(program: BorrowedFd<'p>, hook: Hook, ifindex: u32) -> Self {
        Self { program, hook, ifindex, repeat: 1 }
    }

    /// Repeats each run this many times on the same frame. The program must leave the frame unchanged.
    #[must_use]
    pub fn repeated(self, times: i32) -> Self {
        Self { repeat: times, ..self }
    }

    /// Runs the program on a frame, which has at least an Ethernet header.
    pub fn run(&self, frame: &[u8]) -> io::Result<Outcome> {
        self.run_segments(frame, Segments::default())
    }

    /// Runs the program on an aggregate. XDP ignores `segments`.
    pub fn run_segments(&self, frame: &[u8], segments: Segments) -> io::Result<Outcome> {
        if self.hook == Hook::Xdp {
            let md =
                XdpMd { data_end: frame.len() as u32, ingress_ifindex: self.ifindex, ..XdpMd::default() };
            return self.call(frame, md).map(|(outcome, _)| outcome);
        }
        let skb = SkBuff {
            ifindex: self.ifindex,
            gso_segs: segments.count,
            gso_size: segments.bytes,
            ..SkBuff::default()
        };
        let (outcome, skb) = self.call(frame, skb)?;
        Ok(Outcome { mark: skb.mark, priority: skb.priority, ..outcome })
    }

    fn call<C: Plain>(&self, frame: &[u8], context: C) -> io::Result<(Outcome, C)> {
        let mut out = vec![0; frame.len() + ROOM];
        let mut after = context;
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
            data_in: frame.as_ptr().cast(),
            data_size_in: frame.len() as u32,
            data_out: out.as_mut_ptr().cast(),
            data_size_out: out.len() as u32,
            ctx_in: (&raw const context).cast(),
            ctx_size_in: size_of::<C>() as u32,
            ctx_out: (&raw mut after).cast(),
            ctx_size_out: size_of::<C>() as u32,
            repeat: self.repeat,
            ..libbpf_sys::bpf_test_run_opts::default()
        };
        // SAFETY: every pointer has the size that is given with it, and its memory outlives the call.
        let err = unsafe { libbpf_sys::bpf_prog_test_run_opts(self.program.as_raw_fd(), &raw mut options) };
        if err != 0 {
            return Err(io::Error::from_raw_os_error(-err));
        }
        out.truncate(options.data_size_out as usize);
        let run_ns = options.duration;
        Ok((Outcome { verdict: options.retval, frame: out, mark: 0, priority: 0, run_ns }, after))
    }
}

/// The control block of another process that has a data plane.
///
/// # Errors
/// If the process has none, its descriptors cannot be read, or its programs have another ABI version.
pub fn control_block(pid: u32) -> io::Result<abi::Control> {
    for entry in std::fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        let text = std::fs::read_to_string(entry?.path()).unwrap_or_default();
        let Some(id) = text.lines().find_map(|line| line.strip_prefix("map_id:")?.trim().parse().ok()) else {
            continue;
        };
        let Ok(map) = MapHandle::from_map_id(id) else { continue };
        if map.name() == CONTROL_MAP {
            let control = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(io::Error::other)?;
            let control = control.as_deref().and_then(abi::Control::from_bytes);
            return control
                .filter(|control| control.abi == abi::ABI_VERSION)
                .ok_or_else(|| io::Error::other("the control block has another ABI version"));
        }
    }
    Err(io::Error::from(io::ErrorKind::NotFound))
}
