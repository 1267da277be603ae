//! Programs that stand for a VLAN device, for tests on kernels that have none.

use crate::{Error, load, missing, open, set_rodata};
use libbpf_rs::Object;
use shunt_bpf::attach::{self, Hook};
use std::{ffi::OsStr, os::fd::OwnedFd};

const OBJECT: &str = "tc_tags";

/// TCX programs on a macvlan device that take a tag off what arrives and put it on what leaves, until this is dropped.
#[derive(Debug)]
pub struct Tagger {
    _object: Object,
    _links: Vec<OwnedFd>,
}

impl Tagger {
    /// Attaches the programs for this VLAN ID. The device is in the calling thread's network namespace.
    ///
    /// # Errors
    /// When the kernel refuses a program, or has no TCX.
    pub fn attach(ifindex: u32, vid: u16) -> Result<Self, Error> {
        let mut open = open(OBJECT, include_bytes!(concat!(env!("OUT_DIR"), "/tc_tags.o")))?;
        set_rodata(&mut open, &u32::from(vid).to_ne_bytes());
        let object = load(OBJECT, open)?;
        let mut links = Vec::new();
        for (hook, name) in [(Hook::Ingress, "tags_pop"), (Hook::Egress, "tags_push")] {
            let program = object.progs_mut().find(|program| program.name() == OsStr::new(name));
            let program = program.ok_or_else(|| missing(name))?;
            links.push(attach::link_fd(&program, ifindex, hook).map_err(|cause| Error {
                doing: format!("{OBJECT}: attaching {name} to interface {ifindex}"),
                cause: cause.into(),
            })?);
        }
        Ok(Self { _object: object, _links: links })
    }
}
