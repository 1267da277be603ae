//! A TCX program that is not Shunt's, for tests.

use crate::{Error, libbpf_error, load, map, missing, open};
use libbpf_rs::{MapCore, MapFlags, Object};
use shunt_bpf::attach::{self, Hook};
use std::os::fd::OwnedFd;

const OBJECT: &str = "tc_bystander";
/// The name of the program.
pub const NAME: &str = "bystander";
const SEEN: &str = "bystander_seen";

/// A TCX program that counts the frames that it sees, until this is dropped.
#[derive(Debug)]
pub struct Bystander {
    object: Object,
    _link: OwnedFd,
}

impl Bystander {
    /// Attaches the program behind those that are there already. The device is in the calling thread's network
    /// namespace.
    ///
    /// # Errors
    /// When the kernel refuses the program, or has no TCX.
    pub fn attach(ifindex: u32, hook: Hook) -> Result<Self, Error> {
        let object =
            load(OBJECT, open(OBJECT, include_bytes!(concat!(env!("OUT_DIR"), "/tc_bystander.o")))?)?;
        let program = object.progs_mut().next().ok_or_else(|| missing(NAME))?;
        let link = attach::link_fd(&program, ifindex, hook).map_err(|cause| Error {
            doing: format!("{OBJECT}: attaching to interface {ifindex}"),
            cause: cause.into(),
        })?;
        Ok(Self { object, _link: link })
    }

    /// The number of frames that the program has seen.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn seen(&self) -> Result<u64, Error> {
        let value = map(&self.object, SEEN)?.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
        let value = value.map_err(|e| libbpf_error(format!("{OBJECT}: reading the counter"), e))?;
        Ok(value.unwrap_or_default().try_into().map(u64::from_ne_bytes).unwrap_or_default())
    }
}
