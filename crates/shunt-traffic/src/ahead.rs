//! Checks what XDP programs find ahead in the rings of drivers.

use crate::{
    Error, load, open,
    sink::{attach, sum_counters},
};
use libbpf_rs::{Link, Object};
use shunt_bpf::DriverRing;

/// Reads the ring of a device as a program that looks ahead does, compares what it finds with the frames that arrive
/// next, and drops them.
#[derive(Debug)]
pub struct RingReader {
    object: Object,
    _link: Link,
}

/// How many frames a [`RingReader`] received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AheadCounts {
    /// Frames that it had found before, at the same address.
    pub right: u64,
    /// Frames in place of which it had found another address.
    pub wrong: u64,
    /// Frames that were not in the ring yet when it was read.
    pub unseen: u64,
}

impl RingReader {
    /// Attaches to an interface with this ring, in the driver. The interface must receive on one CPU.
    ///
    /// # Errors
    /// If the kernel refuses the program, for one because it lacks the driver's types, or the interface has another XDP
    /// program.
    pub fn attach(ifindex: u32, ring: DriverRing) -> Result<Self, Error> {
        let (name, bytes): (_, &[u8]) = match ring {
            DriverRing::Veth => {
                ("xdp_ahead_veth", include_bytes!(concat!(env!("OUT_DIR"), "/xdp_ahead_veth.o")))
            }
            DriverRing::Virtio => {
                ("xdp_ahead_virtio", include_bytes!(concat!(env!("OUT_DIR"), "/xdp_ahead_virtio.o")))
            }
        };
        let object = load(name, open(name, bytes)?)?;
        let link = attach(name, &object, ifindex)?;
        Ok(Self { object, _link: link })
    }

    /// The frames received since this was attached.
    ///
    /// # Errors
    /// If the map cannot be read.
    pub fn counts(&self) -> Result<AheadCounts, Error> {
        let [right, wrong, unseen] = sum_counters(&self.object, "xdp_ahead", "ahead_counts")?;
        Ok(AheadCounts { right, wrong, unseen })
    }
}
