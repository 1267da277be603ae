//! Broken engines, for tests of `shunt verify`.

use crate::{Error, libbpf_error, load, map, missing, open};
use libbpf_rs::{MapCore, MapFlags, Object};
use shunt_bpf::attach::{self, Attachment, Hook};
use shunt_wire::Mac;
use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

const TC: &str = "faulty";
const XDP: &str = "faulty_xdp";

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
    /// The packet has the priority of [`FaultyEngine::DELAYED`], by which a qdisc can delay it. XDP leaves it to tc.
    Delay = 3,
    /// The packet is sent to another MAC.
    Mac = 4,
}

/// What an engine does.
#[derive(Debug, Clone, Copy)]
pub struct EnginePlan {
    /// Interface index of the device to which packets go.
    pub to: u32,
    /// The destination MAC of packets that leave.
    pub destination: Mac,
    /// Their source MAC.
    pub source: Mac,
    /// What is wrong.
    pub fault: EngineFault,
    /// One packet in this number has the fault.
    pub every: u32,
}

/// A program on a device that forwards UDP over IPv4 to another device, with a fault in one packet of many, until this
/// is dropped.
#[derive(Debug)]
pub struct FaultyEngine {
    object: Object,
    link: Attachment,
    plan: EnginePlan,
}

impl FaultyEngine {
    /// The class of a qdisc, 1:20, that delayed packets have as their priority.
    pub const DELAYED: u32 = 0x1_0020;

    /// Attaches the program to the ingress of a device. The devices are in the calling thread's network namespace.
    ///
    /// # Errors
    /// When the kernel refuses the program, or has no TCX.
    pub fn on_tc(ifindex: u32, plan: EnginePlan) -> Result<Self, Error> {
        let object = load(TC, open(TC, include_bytes!(concat!(env!("OUT_DIR"), "/faulty.o")))?)?;
        Self::attach(object, ifindex, Hook::Ingress, plan)
    }

    /// As [`FaultyEngine::on_tc`], in the driver.
    ///
    /// # Errors
    /// When the kernel or the driver refuses the program.
    pub fn on_xdp(ifindex: u32, plan: EnginePlan) -> Result<Self, Error> {
        let object = load(XDP, open(XDP, include_bytes!(concat!(env!("OUT_DIR"), "/faulty_xdp.o")))?)?;
        let engine = Self::attach(object, ifindex, Hook::Xdp, plan)?;
        engine.set_exit_program(None)?;
        Ok(engine)
    }

    fn attach(object: Object, ifindex: u32, hook: Hook, plan: EnginePlan) -> Result<Self, Error> {
        let link = {
            let program = object.progs_mut().next().ok_or_else(|| missing(TC))?;
            attach::link(&program, ifindex, hook)
        };
        let link = link.map_err(|cause| Error {
            doing: format!("{TC}: attaching to interface {ifindex}"),
            cause: cause.into(),
        })?;
        let engine = Self { object, link, plan };
        engine.set_off(false)?;
        Ok(engine)
    }

    /// Leaves all packets to Linux, or none.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn set_off(&self, off: bool) -> Result<(), Error> {
        let EnginePlan { to, destination, source, fault, every } = self.plan;
        let mut plan = [0; 32];
        let words = [to, fault as u32, every, Self::DELAYED].map(u32::to_ne_bytes).concat();
        plan[..16].copy_from_slice(&words);
        plan[16..22].copy_from_slice(&destination.0);
        plan[22..28].copy_from_slice(&source.0);
        plan[28..].copy_from_slice(&u32::from(off).to_ne_bytes());
        self.write("faulty_plan", &plan)
    }

    /// Runs a program for each frame before the driver of the other device gets it, or none. For XDP only.
    ///
    /// # Errors
    /// When the kernel refuses the program.
    pub fn set_exit_program(&self, program: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        let program = program.map_or(0, |program| program.as_raw_fd());
        self.write("faulty_exit", &[self.plan.to.to_ne_bytes(), program.to_ne_bytes()].concat())
    }

    /// Puts another program in the place of this one; with `None`, puts this one back. For XDP only.
    ///
    /// # Errors
    /// When the driver refuses the program.
    pub fn set_program(&self, other: Option<&OwnedFd>) -> Result<(), Error> {
        let own = self.object.progs_mut().next().ok_or_else(|| missing(XDP))?;
        let replaced: io::Result<()> = match other {
            Some(other) => self.link.replace(other),
            None => self.link.replace(&own.as_fd()),
        };
        replaced.map_err(|cause| Error { doing: format!("{XDP}: exchanging it"), cause: cause.into() })
    }

    fn write(&self, name: &str, value: &[u8]) -> Result<(), Error> {
        let written = map(&self.object, name)?.update(&0u32.to_ne_bytes(), value, MapFlags::ANY);
        written.map_err(|e| libbpf_error(format!("{TC}: writing the map {name}"), e))
    }
}
