//! The lab's BPF programs (`bpf/lab`): a generator of live XDP frames, a receiver that accounts for each packet, one
//! that hands TCP segments to user space, a sink that only counts, a host that answers, and the bare redirect that
//! Shunt is compared with.
//!
//! Time stamps that NICs take by their own clocks (`hardware_stamps.rs`).
//!
//! For tests: single packets through the fast path's programs (`testrun`), a TAP device, a ppp device, packet sockets,
//! programs that stand for a VLAN device, a TCX program that does not belong to Shunt, and a broken engine. The daemon
//! does not depend on this crate.
//!
//! Interface indexes belong to the network namespace of the calling thread: construct, attach and run these types on a
//! thread in the right namespace.
#![allow(unsafe_code, reason = "libbpf is C, and so is the code that writes packets")]

mod abi;
mod ahead;
pub mod bystander;
mod faulty;
mod generator;
mod hardware_stamps;
mod hooks;
mod host;
mod live;
mod mix;
pub mod objects;
pub mod packets;
pub mod ppp;
mod receiver;
mod segments;
mod sink;
mod steps;
mod tagger;
pub mod tap;
pub mod testrun;

pub use abi::{Arrival, Pacing, TrafficEnds, TrafficState};
pub use ahead::{AheadCounts, RingReader};
pub use faulty::{EngineFault, EnginePlan, FaultyEngine};
pub use generator::{Generator, takes_frames};
pub use hardware_stamps::{HardwareStamps, StampedPackets, StampsError};
pub use hooks::{BareTcRedirect, Hooks};
pub use host::{FrameMaker, Replayer};
pub use mix::{Mix, MixedStream, STREAMS_MAX};
pub use receiver::{CaptureBuffer, Histogram, Mode, Received, Receiver, Selection};
pub use segments::{SegmentPorts, SegmentReceiver, SegmentRing};
pub use shunt_bpf::schedule;
pub use sink::{BareRedirect, Count, LookupRedirect, Reflector, Sink};
pub use tagger::Tagger;

use libbpf_rs::{Map, MapCore, Object, ObjectBuilder, OpenObject};
use nix::{libc, time::ClockId};
use std::{fmt, io, time::Duration};

/// An operation that failed, and its cause.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {cause}")]
pub struct Error {
    doing: String,
    #[source]
    cause: Cause,
}

#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error(transparent)]
    Libbpf(#[from] libbpf_rs::Error),
    #[error(transparent)]
    Kernel(#[from] io::Error),
}

impl Error {
    /// The errno, if the kernel refused. None for errors of libbpf.
    pub fn raw_os_error(&self) -> Option<i32> {
        match &self.cause {
            Cause::Kernel(error) => error.raw_os_error(),
            Cause::Libbpf(_) => None,
        }
    }
}

/// The clock of stamps and schedules: CLOCK_MONOTONIC in nanoseconds.
pub fn now_ns() -> u64 {
    ClockId::CLOCK_MONOTONIC.now().map_or(0, |now| Duration::from(now).as_nanos() as u64)
}

fn open(name: &str, bytes: &[u8]) -> Result<OpenObject, Error> {
    // libelf needs the alignment of an allocation; an included file may have none.
    let aligned = bytes.to_vec();
    let opened = ObjectBuilder::default().name(name).and_then(|builder| builder.open_memory(&aligned));
    opened.map_err(|e| libbpf_error(format!("{name}: opening the object"), e))
}

fn set_rodata(open: &mut OpenObject, value: &[u8]) {
    for mut map in open.maps_mut().filter(|map| map.name().to_string_lossy().ends_with(".rodata")) {
        if let Some(bytes) = map.initial_value_mut() {
            bytes[..value.len()].copy_from_slice(value);
        }
    }
}

fn set_entries(open: &mut OpenObject, name: &str, entries: u32) -> Result<(), Error> {
    match open.maps_mut().find(|map| map.name() == name) {
        Some(mut map) => {
            map.set_max_entries(entries).map_err(|e| libbpf_error(format!("{name}: sizing the map"), e))
        }
        None => Err(missing(name)),
    }
}

fn load(name: &str, open: OpenObject) -> Result<Object, Error> {
    open.load().map_err(|e| libbpf_error(format!("{name}: loading"), e))
}

/// The map whose name ends with `ending`.
fn map<'o>(object: &'o Object, ending: &str) -> Result<Map<'o>, Error> {
    let found = object.maps().find(|map| map.name().to_string_lossy().ends_with(ending));
    found.ok_or_else(|| missing(ending))
}

fn missing(name: &str) -> Error {
    let cause = io::Error::from_raw_os_error(libc::ENOENT);
    Error { doing: format!("{name}: not found in the object"), cause: cause.into() }
}

fn libbpf_error(doing: impl fmt::Display, cause: libbpf_rs::Error) -> Error {
    Error { doing: doing.to_string(), cause: cause.into() }
}
