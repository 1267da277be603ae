//! Running the data plane's programs on frames of one's own, with `BPF_PROG_TEST_RUN`. Nothing is sent.
//!
//! Interface indexes are those of the calling thread's network namespace.

use crate::{
    DataPlane, Entry, Error, Key,
    abi::{self, Flow, Key4, Key6, Plain},
    attach::Hook,
    core::{Ends, translate},
    plane::CONTROL,
};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use shunt_wire::{Network, Packet, Tag};
use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

/// `XDP_DROP`.
pub const XDP_DROP: u32 = 1;
/// `XDP_PASS`.
pub const XDP_PASS: u32 = 2;
/// `XDP_REDIRECT`.
pub const XDP_REDIRECT: u32 = 4;
/// `TCX_NEXT`: up to Linux, unless another program objects.
pub const TC_NEXT: u32 = u32::MAX;
/// `TC_ACT_SHOT`.
pub const TC_DROP: u32 = 2;
/// `TC_ACT_REDIRECT`.
pub const TC_REDIRECT: u32 = 7;

/// Room for tags that a program puts on.
const ROOM: usize = 64;

/// A program and the port that its frames come in at.
#[derive(Debug, Clone, Copy)]
pub struct TestRun<'p> {
    program: BorrowedFd<'p>,
    hook: Hook,
    ifindex: u32,
}

/// What a program made of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What it returned.
    pub verdict: u32,
    /// The frame afterwards. A tag that tc pushes last is beside the frame and not shown here.
    pub frame: Vec<u8>,
    /// `skb->mark` afterwards; 0 for XDP.
    pub mark: u32,
    /// `skb->priority` afterwards; 0 for XDP.
    pub priority: u32,
}

/// What an skb says of the segments that it will be cut into.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Segments {
    /// How many.
    pub count: u32,
    /// L4 payload of each.
    pub bytes: u32,
}

macro_rules! context {
    ($(#[$doc:meta])* $name:ident = $size:literal { $($field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Default)]
        struct $name { $($field: $type,)* }
        const _: () = assert!(size_of::<$name>() == $size);
        // SAFETY: repr(C), integers only, and their sizes add up to that of the whole.
        unsafe impl Plain for $name {}
    };
}

context! {
    /// `struct xdp_md`.
    XdpMd = 24 {
        data: u32,
        data_end: u32,
        data_meta: u32,
        ingress_ifindex: u32,
        rx_queue_index: u32,
        egress_ifindex: u32,
    }
}

context! {
    /// `struct __sk_buff`, of which a test run takes the fields that have a name here.
    SkBuff = 192 {
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
}

const _: () = assert!(std::mem::offset_of!(SkBuff, ifindex) == 40);
const _: () = assert!(std::mem::offset_of!(SkBuff, gso_segs) == 164);
const _: () = assert!(std::mem::offset_of!(SkBuff, gso_size) == 176);

impl<'p> TestRun<'p> {
    /// A loaded program, for frames that come in at this port.
    pub fn new(plane: &'p DataPlane, hook: Hook, ifindex: u32) -> Result<Self, Error> {
        let name = match hook {
            Hook::Ingress => "shunt_in",
            Hook::Egress => "shunt_out",
            Hook::Xdp | Hook::GenericXdp => "shunt_xdp",
        };
        let program = plane.program_fd(hook).ok_or(Error::Lacks { object: "loaded", name })?;
        Ok(Self { program, hook, ifindex })
    }

    /// Runs it once on a frame, which has at least an Ethernet header.
    pub fn run(&self, frame: &[u8]) -> io::Result<Outcome> {
        self.run_segments(frame, Segments::default())
    }

    /// Runs it once on an aggregate. XDP does not know of segments.
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
            repeat: 1,
            ..libbpf_sys::bpf_test_run_opts::default()
        };
        // SAFETY: every pointer is to memory of the size that stands beside it, and all of it outlives the call.
        let err = unsafe { libbpf_sys::bpf_prog_test_run_opts(self.program.as_raw_fd(), &raw mut options) };
        if err != 0 {
            return Err(io::Error::from_raw_os_error(-err));
        }
        out.truncate(options.data_size_out as usize);
        Ok((Outcome { verdict: options.retval, frame: out, mark: 0, priority: 0 }, after))
    }
}

/// The static flow by which packets like `before`, coming in at `ifindex`, become packets like `after`. None unless
/// both are TCP or both are UDP of one family, with at most two tags. With the same TTL it is a bridged one.
///
/// It is put together from what the packets say of themselves, not by the packet core's parser.
pub fn flow_between(before: &Packet, after: &Packet, ifindex: u32) -> Option<(Key, Entry)> {
    let tags = &after.ethernet.tags;
    let l2_bytes = 14 + 4 * tags.len();
    if before.ethernet.tags.len() > 2 || tags.len() > 2 || before.protocol() != after.protocol() {
        return None;
    }
    let mut flow = Flow {
        state: abi::FLOW_ACTIVE,
        flags: abi::FLOW_STATIC,
        out_tags: tags.len() as u8,
        max_l3_bytes: 1500,
        class_bits: class_of(before)?,
        in_ttl: before.hop_limit()?,
        in_dmac: before.ethernet.destination.0,
        ..Flow::default()
    };
    if before.hop_limit() == after.hop_limit() {
        flow.flags |= abi::FLOW_BRIDGED;
    }
    flow.l2[..l2_bytes].copy_from_slice(&after.to_bytes()[..l2_bytes]);
    let mut entry = Entry { flow, ..Entry::default() };
    translate(&ends_of(before)?, &ends_of(after)?, &mut entry);
    Some((key_of(before, ifindex)?, entry))
}

/// The key of a packet that comes in at `ifindex`; none unless it is TCP or UDP with at most two tags.
pub fn key_of(packet: &Packet, ifindex: u32) -> Option<Key> {
    let (sport, dport) = packet.ports()?;
    let (sport_be, dport_be) = (sport.to_be_bytes(), dport.to_be_bytes());
    let l4_proto = packet.protocol()?.into();
    let tags = key_tags(&packet.ethernet.tags)?;
    match &packet.network {
        Network::V4(ip) => {
            let (src_be, dst_be) = (ip.source.octets(), ip.destination.octets());
            Some(Key::V4(Key4 { src_be, dst_be, sport_be, dport_be, ifindex, tags, l4_proto }))
        }
        Network::V6(ip) => {
            let (src_be, dst_be) = (ip.source.octets(), ip.destination.octets());
            Some(Key::V6(Key6 { src_be, dst_be, sport_be, dport_be, ifindex, tags, l4_proto }))
        }
        Network::Other(_) => None,
    }
}

/// DSCP and VLAN priorities of a packet, as `class_bits` has them.
pub fn class_of(packet: &Packet) -> Option<u16> {
    let dscp = match &packet.network {
        Network::V4(ip) => ip.tos,
        Network::V6(ip) => ip.traffic_class,
        Network::Other(_) => return None,
    };
    let priority = |n: usize| packet.ethernet.tags.get(n).map_or(0, |tag| tag.control() >> 12);
    Some(u16::from(dscp & 0xfc) | priority(0) << 8 | priority(1) << 12)
}

fn key_tags(tags: &[Tag]) -> Option<[u16; 2]> {
    let mut key = [0; 2];
    if tags.len() > key.len() {
        return None;
    }
    for (bits, tag) in key.iter_mut().zip(tags) {
        let service = if tag.tpid == 0x88a8 { abi::TAG_8021AD } else { 0 };
        *bits = abi::TAG_PRESENT | service | tag.vid & abi::TAG_VID;
    }
    Some(key)
}

fn ends_of(packet: &Packet) -> Option<Ends> {
    let (sport, dport) = packet.ports()?;
    let ports = [sport.to_be_bytes(), dport.to_be_bytes()].concat();
    match &packet.network {
        Network::V4(ip) => {
            let bytes = [&ip.source.octets()[..], &ip.destination.octets(), &ports].concat();
            bytes.try_into().ok().map(Ends::V4)
        }
        Network::V6(ip) => {
            let bytes = [&ip.source.octets()[..], &ip.destination.octets(), &ports].concat();
            bytes.try_into().ok().map(Ends::V6)
        }
        Network::Other(_) => None,
    }
}

/// The control block of another process that has a data plane.
///
/// # Errors
/// When it has none, or its descriptors cannot be read.
pub fn control_of(pid: u32) -> io::Result<abi::Control> {
    for entry in std::fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        let text = std::fs::read_to_string(entry?.path()).unwrap_or_default();
        let Some(id) = text.lines().find_map(|line| line.strip_prefix("map_id:")?.trim().parse().ok()) else {
            continue;
        };
        let Ok(map) = MapHandle::from_map_id(id) else { continue };
        if map.name() == CONTROL {
            let control = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(io::Error::other)?;
            return control
                .as_deref()
                .and_then(abi::Control::of)
                .ok_or_else(|| io::Error::other("too short"));
        }
    }
    Err(io::Error::from(io::ErrorKind::NotFound))
}
