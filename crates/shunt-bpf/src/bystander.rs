//! A program of somebody else on a port, for tests.

use crate::{
    Error,
    attach::{self, Hook},
};
use libbpf_rs::{MapCore, MapFlags, MapHandle, ObjectBuilder};
use std::{ffi::OsStr, os::fd::OwnedFd};

const OBJECT: &str = "tc_bystander";
/// What the program is called.
pub const NAME: &str = "bystander";
const SEEN: &str = "bystander_seen";

/// A TCX program that counts the frames it sees, until this is dropped.
pub struct Bystander {
    seen: MapHandle,
    _link: OwnedFd,
}

impl Bystander {
    /// Attaches it behind the programs that are there. The device is of the calling thread's network namespace.
    pub fn attach(ifindex: u32, hook: Hook) -> Result<Self, Error> {
        let failed = |source| Error::loading(OBJECT, source);
        let bytes = include_bytes!(concat!(env!("OUT_DIR"), "/tc_bystander.o"));
        let open = ObjectBuilder::default().open_memory(bytes).map_err(failed)?;
        let object = open.load().map_err(failed)?;
        let program = object
            .progs_mut()
            .find(|program| program.name() == OsStr::new(NAME))
            .ok_or(Error::Lacks { object: OBJECT, name: NAME })?;
        let link = attach::link_fd(&program, ifindex, hook).map_err(|source| Error::Attach {
            ifindex,
            hook,
            source,
        })?;
        let seen = object.maps().find(|map| map.name() == OsStr::new(SEEN));
        let seen = seen.ok_or(Error::Lacks { object: OBJECT, name: SEEN })?;
        Ok(Self { seen: MapHandle::try_from(&seen).map_err(failed)?, _link: link })
    }

    /// How many frames it has seen.
    pub fn seen(&self) -> Result<u64, Error> {
        let value = self.seen.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
        let value = value.map_err(|source| Error::Map { map: SEEN, source })?.unwrap_or_default();
        Ok(value.try_into().map(u64::from_ne_bytes).unwrap_or_default())
    }
}
