//! Exchanging the XDP program of a port for one that loads the entries of the next packets ahead, and back. It knows
//! the ring of one driver, veth.

use crate::{
    DataPlane, Error,
    attach::program_id,
    maps::Maps,
    object::{
        CompiledObject, Size, XDP_FORWARD, XDP_FORWARD_LOOKING_AHEAD, XDP_FORWARD_LOOKING_AHEAD_VERIFYING,
        load, program,
    },
    pending::{AttachedXdp, XdpProgram},
};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// The program that looks ahead, still to be loaded.
#[derive(Debug)]
pub struct LookAheadSource {
    source: &'static CompiledObject,
    size: Size,
    maps: Maps,
}

impl LookAheadSource {
    /// Loads the program. The kernel takes a tenth of a second to verify it.
    ///
    /// # Errors
    /// If the kernel refuses the program. Linux before 6.2 lacks the functions that it calls.
    pub fn load(self) -> Result<LookAhead, Error> {
        let Self { source, size, mut maps } = self;
        let object = load(source, size, &mut maps)?;
        let fd = program(&object, source, "shunt_xdp")?.as_fd().try_clone_to_owned();
        Ok(LookAhead(fd.map_err(Error::Descriptor)?))
    }
}

/// The program that looks ahead.
#[derive(Debug)]
pub struct LookAhead(OwnedFd);

impl LookAhead {
    /// The id of the program.
    pub fn program_id(&self) -> Option<u32> {
        program_id(self.0.as_fd())
    }
}

impl AsFd for LookAhead {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// An exchange of a port's XDP program, still to be made.
#[derive(Debug)]
pub struct XdpExchange {
    pub(crate) xdp: AttachedXdp,
    pub(crate) next: OwnedFd,
    pub(crate) ahead: bool,
}

impl XdpExchange {
    /// Exchanges the programs: each packet meets one of them. If the kernel refuses that, the former program stays.
    /// Waits for the RTNL lock.
    pub fn make(self) -> (AttachedXdp, io::Result<()>) {
        let Self { mut xdp, next, ahead } = self;
        let replaced = xdp.attachment.replace(&next);
        if replaced.is_ok() {
            xdp.ahead = ahead;
            xdp.id = program_id(next.as_fd()).unwrap_or_default();
        }
        (xdp, replaced)
    }
}

impl DataPlane {
    /// The program that looks ahead, to be loaded by any thread.
    ///
    /// # Errors
    /// If a descriptor cannot be duplicated.
    pub fn look_ahead(&self) -> Result<LookAheadSource, Error> {
        let source =
            if self.verify_xdp { &XDP_FORWARD_LOOKING_AHEAD_VERIFYING } else { &XDP_FORWARD_LOOKING_AHEAD };
        Ok(LookAheadSource { source, size: self.size, maps: self.maps.try_clone()? })
    }

    /// The exchange of a port's XDP program for the one that looks ahead, or with `None` for the one that does not.
    /// `None` if there is nothing to exchange. The outcome belongs to [`DataPlane::xdp_exchanged`].
    ///
    /// # Errors
    /// If a descriptor cannot be duplicated.
    pub fn xdp_exchange(
        &mut self,
        ifindex: u32,
        ahead: Option<&LookAhead>,
    ) -> Result<Option<XdpExchange>, Error> {
        let other =
            |xdp: &mut AttachedXdp| xdp.program == XdpProgram::Forward && xdp.ahead != ahead.is_some();
        let next = match (ahead, &self.xdp) {
            (Some(LookAhead(fd)), _) => fd.as_fd().try_clone_to_owned(),
            (None, Ok(object)) => program(object, &XDP_FORWARD, "shunt_xdp")?.as_fd().try_clone_to_owned(),
            (None, Err(_)) => return Ok(None),
        };
        let next = next.map_err(Error::Descriptor)?;
        let Some(port) = self.ports.get_mut(&ifindex) else { return Ok(None) };
        let xdp = port.xdp.take_if(other);
        Ok(xdp.map(|xdp| XdpExchange { xdp, next, ahead: ahead.is_some() }))
    }

    /// Keeps the XDP program of a port after an exchange.
    pub fn xdp_exchanged(&mut self, ifindex: u32, xdp: AttachedXdp) {
        if let Some(port) = self.ports.get_mut(&ifindex) {
            port.xdp = Some(xdp);
        }
    }

    /// Whether the XDP program of a port looks ahead.
    pub fn looks_ahead(&self, ifindex: u32) -> bool {
        self.ports.get(&ifindex).and_then(|port| port.xdp.as_ref()).is_some_and(|xdp| xdp.ahead)
    }
}
