//! Hands TCP segments of the lab's own connections to user space.

use crate::{
    Error,
    abi::{CapturedFrame, SegmentsPlan, SegmentsPorts},
    libbpf_error, load, map, missing, open, set_rodata,
};
use libbpf_rs::{MapCore, MapFlags, Object, RingBuffer, RingBufferBuilder};
use shunt_bpf::{
    abi::Plain,
    attach::{self, Hook},
};
use shunt_gen::Ports;
use std::{fmt, os::fd::OwnedFd, time::Duration};

/// The ports of segments as they arrive.
#[derive(Debug, Clone, Copy)]
pub struct SegmentPorts {
    /// Source ports; None for all.
    pub source: Option<Ports>,
    /// Destination ports.
    pub destination: Ports,
}

/// Takes TCP segments with some ports from Linux on an interface, and copies ICMP errors.
pub struct SegmentReceiver {
    object: Object,
    _attachment: OwnedFd,
}

/// The frames of some receivers, in the order of arrival at each.
pub struct SegmentRing<'r> {
    ring: RingBuffer<'r>,
}

impl From<Ports> for SegmentsPorts {
    fn from(ports: Ports) -> Self {
        Self { first: ports.first.into(), count: ports.count.into() }
    }
}

impl SegmentReceiver {
    /// Attaches to an interface, in the driver if it supports XDP.
    ///
    /// # Errors
    /// If the kernel refuses the program, or the interface has another XDP program.
    pub fn attach(ifindex: u32, ports: SegmentPorts) -> Result<Self, Error> {
        let name = "xdp_segments";
        let mut open = open(name, include_bytes!(concat!(env!("OUT_DIR"), "/xdp_segments.o")))?;
        let any = SegmentsPorts { first: 0, count: 1 << 16 };
        let source = ports.source.map_or(any, SegmentsPorts::from);
        let plan = SegmentsPlan { source, destination: ports.destination.into() };
        set_rodata(&mut open, plan.bytes());
        let object = load(name, open)?;
        let program = || object.progs_mut().next().ok_or_else(|| missing(name));
        let attachment = match attach::link_fd(&program()?, ifindex, Hook::Xdp) {
            Err(e) if e.raw_os_error() == Some(nix::libc::EOPNOTSUPP) => {
                attach::link_fd(&program()?, ifindex, Hook::GenericXdp)
            }
            other => other,
        };
        let attachment = attachment.map_err(|cause| Error {
            doing: format!("{name}: attaching to interface {ifindex}"),
            cause: cause.into(),
        })?;
        Ok(Self { object, _attachment: attachment })
    }

    /// The number of frames that were lost because user space took too long.
    ///
    /// # Errors
    /// If the counter cannot be read.
    pub fn missed(&self) -> Result<u64, Error> {
        let value = map(&self.object, ".bss")?.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
        let value = value.map_err(|e| libbpf_error("xdp_segments: reading the counter", e))?;
        let bytes = value.as_deref().and_then(|bytes| bytes.first_chunk());
        Ok(bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes)))
    }
}

impl<'r> SegmentRing<'r> {
    /// Passes the frames of two receivers to `each`, with the receiver's place in the array, when this is polled.
    ///
    /// # Errors
    /// If the kernel refuses to map the memory.
    pub fn of(
        receivers: [&SegmentReceiver; 2],
        each: impl Fn(usize, &[u8]) + Clone + 'r,
    ) -> Result<Self, Error> {
        let doing = |e| libbpf_error("xdp_segments: mapping the ring", e);
        let maps = [map(&receivers[0].object, "segments")?, map(&receivers[1].object, "segments")?];
        let mut builder = RingBufferBuilder::new();
        for (nth, map) in maps.iter().enumerate() {
            let each = each.clone();
            let take = move |sample: &[u8]| {
                let head = CapturedFrame::from_bytes(sample);
                let bytes = head
                    .and_then(|head| sample.get(size_of::<CapturedFrame>()..)?.get(..head.bytes as usize));
                if let Some(bytes) = bytes {
                    each(nth, bytes);
                }
                0
            };
            builder.add(map, take).map_err(doing)?;
        }
        Ok(Self { ring: builder.build().map_err(doing)? })
    }

    /// Passes on the frames that have arrived.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn consume(&self) -> Result<(), Error> {
        self.ring.consume().map_err(|e| libbpf_error("xdp_segments: reading the ring", e))
    }

    /// Passes on the frames that have arrived. If there are none, waits for the first, or until the time is over or a
    /// signal arrives.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn poll(&self, timeout: Duration) -> Result<(), Error> {
        match self.ring.poll(timeout) {
            Err(e) if e.kind() == libbpf_rs::ErrorKind::Interrupted => Ok(()),
            other => other.map_err(|e| libbpf_error("xdp_segments: waiting for frames", e)),
        }
    }
}

impl fmt::Debug for SegmentReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SegmentReceiver").finish_non_exhaustive()
    }
}

impl fmt::Debug for SegmentRing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SegmentRing").finish_non_exhaustive()
    }
}
