//! Programs on the hooks of ports that do as little as a program can, to measure what the hooks and a redirect cost by
//! themselves.

use crate::{Error, load, missing, open, set_rodata};
use libbpf_rs::Object;
use shunt_bpf::attach::{self, Hook};
use std::{ffi::OsStr, os::fd::OwnedFd};

const OBJECT: &str = "hooks";

/// Programs that return at once, or count tuples, until this is dropped.
#[derive(Debug)]
pub struct Hooks {
    _object: Object,
    _links: Vec<OwnedFd>,
}

impl Hooks {
    /// Attaches a program to each of these hooks of each device. The devices are in the calling thread's network
    /// namespace.
    ///
    /// # Errors
    /// When the kernel refuses a program, or lacks a hook.
    pub fn attach(devices: &[u32], hooks: &[Hook]) -> Result<Self, Error> {
        let named = hooks.iter().map(|hook| match hook {
            Hook::Ingress => (*hook, "hook_ingress"),
            Hook::Egress => (*hook, "hook_egress"),
            Hook::Xdp | Hook::GenericXdp => (*hook, "hook_xdp"),
        });
        Self::attach_named(devices, named)
    }

    /// Attaches a program to tc ingress of each device that parses packets and counts their tuples.
    ///
    /// # Errors
    /// When the kernel refuses the program, or has no TCX.
    pub fn count(devices: &[u32]) -> Result<Self, Error> {
        Self::attach_named(devices, [(Hook::Ingress, "hook_count")])
    }

    fn attach_named(
        devices: &[u32],
        programs: impl IntoIterator<Item = (Hook, &'static str)>,
    ) -> Result<Self, Error> {
        let object = load(OBJECT, open(OBJECT, include_bytes!(concat!(env!("OUT_DIR"), "/hooks.o")))?)?;
        let mut links = Vec::new();
        for (hook, name) in programs {
            let program = object.progs_mut().find(|program| program.name() == OsStr::new(name));
            let program = program.ok_or_else(|| missing(name))?;
            for ifindex in devices {
                let link = attach::link_fd(&program, *ifindex, hook).map_err(|cause| Error {
                    doing: format!("{OBJECT}: attaching {name} to interface {ifindex}"),
                    cause: cause.into(),
                })?;
                links.push(link);
            }
        }
        Ok(Self { _object: object, _links: links })
    }
}

/// A tc program that redirects every packet without reading it, until this is dropped.
#[derive(Debug)]
pub struct BareTcRedirect {
    _object: Object,
    _link: OwnedFd,
}

impl BareTcRedirect {
    /// Attaches to tc ingress of `in_ifindex`, and redirects to `out_ifindex`.
    ///
    /// # Errors
    /// When the kernel refuses the program, or has no TCX.
    pub fn attach(in_ifindex: u32, out_ifindex: u32) -> Result<Self, Error> {
        let name = "tc_bare";
        let mut open = open(name, include_bytes!(concat!(env!("OUT_DIR"), "/tc_bare.o")))?;
        set_rodata(&mut open, &out_ifindex.to_ne_bytes());
        let object = load(name, open)?;
        let program = object.progs_mut().next().ok_or_else(|| missing(name))?;
        let link = attach::link_fd(&program, in_ifindex, Hook::Ingress).map_err(|cause| Error {
            doing: format!("{name}: attaching to interface {in_ifindex}"),
            cause: cause.into(),
        })?;
        Ok(Self { _object: object, _link: link })
    }
}
