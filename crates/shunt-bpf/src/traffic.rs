//! The lab's traffic: a generator of live XDP frames, a receiver that accounts for each packet, a sink that only counts, and
//! the bare redirect that Shunt is compared with.
//!
//! Interface indexes mean what they mean in the network namespace of the calling thread, so construct, attach and run
//! these on a thread that is inside the right one.

mod abi;
mod host;
mod live;
mod receiver;
mod sink;

pub use abi::{Arrival, State};
pub use host::{Maker, Replayer};
pub use live::{Generator, takes_frames};
pub use receiver::{HandedOn, Histogram, Mode, Received, Receiver, Wanted};
pub use sink::{BareRedirect, Count, Reflector, Sink};

use libbpf_rs::{Map, MapCore, Object, ObjectBuilder, OpenObject};
use nix::{libc, time::ClockId};
use std::{fmt, io, time::Duration};

/// What could not be done, and why.
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
    /// What the kernel said, where it was the kernel.
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
    // ELF readers want the alignment that an allocation has and an included file has not.
    let aligned = bytes.to_vec();
    let opened = ObjectBuilder::default().name(name).and_then(|builder| builder.open_memory(&aligned));
    opened.map_err(|e| told(format!("{name}: opening the object"), e))
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
        Some(mut map) => map.set_max_entries(entries).map_err(|e| told(format!("{name}: sizing the map"), e)),
        None => Err(missing(name)),
    }
}

fn load(name: &str, open: OpenObject) -> Result<Object, Error> {
    open.load().map_err(|e| told(format!("{name}: loading"), e))
}

/// The map whose name ends so.
fn map<'o>(object: &'o Object, ending: &str) -> Result<Map<'o>, Error> {
    let found = object.maps().find(|map| map.name().to_string_lossy().ends_with(ending));
    found.ok_or_else(|| missing(ending))
}

fn missing(name: &str) -> Error {
    let cause = io::Error::from_raw_os_error(libc::ENOENT);
    Error { doing: format!("{name}: looking for it in the object"), cause: cause.into() }
}

fn told(doing: impl fmt::Display, cause: libbpf_rs::Error) -> Error {
    Error { doing: doing.to_string(), cause: cause.into() }
}
