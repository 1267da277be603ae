//! A broken engine, for tests of `shunt verify`.

use crate::{Error, libbpf_error, load, map, missing, open};
use libbpf_rs::{MapCore, MapFlags, Object};
use shunt_bpf::attach::{self, Hook};
use shunt_wire::Mac;
use std::os::fd::OwnedFd;

const OBJECT: &str = "faulty";

/// What is wrong with one packet of many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum EngineFault {
    /// A sound engine, to compare with.
    None = 0,
    /// A bit of the payload changes.
    Payload = 1,
    /// The packet is dropped.
    Drop = 2,
    /// The packet has the priority of [`FaultyEngine::DELAYED`], by which a qdisc can delay it.
    Delay = 3,
    /// The packet is sent to another MAC.
    Mac = 4,
}

/// A program on a device that forwards UDP over IPv4 to another device, with a fault in one packet of many, until this
/// is dropped.
#[derive(Debug)]
pub struct FaultyEngine {
    object: Object,
    _link: OwnedFd,
    plan: [u8; 32],
}

impl FaultyEngine {
    /// The class of a qdisc, 1:20, that delayed packets have as their priority.
    pub const DELAYED: u32 = 0x1_0020;

    /// Attaches the program to the ingress of a device. The devices are in the calling thread's network namespace.
    ///
    /// # Errors
    /// When the kernel refuses the program, or has no TCX.
    pub fn attach(ifindex: u32, to: (u32, Mac, Mac), fault: EngineFault, every: u32) -> Result<Self, Error> {
        let object = load(OBJECT, open(OBJECT, include_bytes!(concat!(env!("OUT_DIR"), "/faulty.o")))?)?;
        let program = object.progs_mut().next().ok_or_else(|| missing(OBJECT))?;
        let mut plan = [0; 32];
        let (out, destination, source) = to;
        let words = [out, fault as u32, every, Self::DELAYED].map(u32::to_ne_bytes).concat();
        plan[..16].copy_from_slice(&words);
        plan[16..22].copy_from_slice(&destination.0);
        plan[22..28].copy_from_slice(&source.0);
        write(&object, &plan)?;
        let link = attach::link_fd(&program, ifindex, Hook::Ingress).map_err(|cause| Error {
            doing: format!("{OBJECT}: attaching to interface {ifindex}"),
            cause: cause.into(),
        })?;
        Ok(Self { object, _link: link, plan })
    }

    /// Leaves all packets to Linux, or none.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn set_off(&self, off: bool) -> Result<(), Error> {
        let mut plan = self.plan;
        plan[28..].copy_from_slice(&u32::from(off).to_ne_bytes());
        write(&self.object, &plan)
    }
}

fn write(object: &Object, plan: &[u8]) -> Result<(), Error> {
    let written = map(object, "faulty_plan")?.update(&0u32.to_ne_bytes(), plan, MapFlags::ANY);
    written.map_err(|e| libbpf_error(format!("{OBJECT}: writing the plan"), e))
}
