//! Rest: while nothing is to be learned, ports have no program on egress, and a shorter one on ingress.

use crate::{
    DataPlane, Error,
    attach::{self, AttachMode, Hook},
    ingress::ingress_name,
    object::{TC_WATCH, program},
    pending::AttachedTc,
};
use std::os::fd::{AsFd, OwnedFd};

/// An exchange of a port's tc programs, still to be made. Dropping it detaches them.
#[derive(Debug)]
pub struct TcExchange {
    ifindex: u32,
    tc: AttachedTc,
    ingress: OwnedFd,
    /// The program on egress; `None` to detach it.
    egress: Option<OwnedFd>,
}

impl TcExchange {
    /// Exchanges the program on ingress in its place, so that each packet meets one; attaches the one on egress before
    /// that, or detaches it afterwards. If the kernel refuses, the port stays as it was. Waits for the RTNL lock.
    pub fn make(self) -> (AttachedTc, Result<(), Error>) {
        let Self { ifindex, mut tc, ingress, egress } = self;
        let failed = |hook| move |source| Error::Attach { ifindex, hook, source };
        let rests = egress.is_none();
        let attached = egress.map(|egress| attach::link(&egress, ifindex, Hook::Egress)).transpose();
        let egress = match attached.map_err(failed(Hook::Egress)) {
            Ok(egress) => egress,
            Err(error) => return (tc, Err(error)),
        };
        if let Err(source) = tc.ingress.replace(&ingress) {
            return (tc, Err(failed(Hook::Ingress)(source)));
        }
        (tc.egress, tc.rests) = (egress, rests);
        (tc, Ok(()))
    }
}

impl DataPlane {
    /// The exchange of a port's tc programs for those of a data plane that rests, or for the usual ones. `None` if
    /// there is nothing to exchange. The outcome belongs to [`DataPlane::tc_exchanged`].
    ///
    /// # Errors
    /// If a descriptor cannot be duplicated.
    pub fn tc_exchange(&mut self, ifindex: u32, rests: bool) -> Result<Option<TcExchange>, Error> {
        let flags = self.flags(ifindex);
        let ingress = self.ingress(flags, rests)?;
        let Some(watch) = &self.watch else { return Ok(None) };
        let egress = program(watch, &TC_WATCH, "shunt_out")?;
        let egress = (!rests).then(|| egress.as_fd().try_clone_to_owned()).transpose();
        let egress = egress.map_err(Error::Descriptor)?;
        let Some(port) = self.ports.get_mut(&ifindex) else { return Ok(None) };
        let tc = port.tc.take_if(|tc| tc.mode == AttachMode::Tcx && tc.rests != rests);
        Ok(tc.map(|tc| TcExchange { ifindex, tc, ingress, egress }))
    }

    /// Keeps the tc programs of a port after an exchange.
    pub fn tc_exchanged(&mut self, ifindex: u32, tc: AttachedTc) {
        if let Some(port) = self.ports.get_mut(&ifindex) {
            port.tc = Some(tc);
        }
    }

    /// The program on ingress of a port with layer 2 while the data plane rests.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn program_at_rest(&mut self) -> Result<OwnedFd, Error> {
        self.ingress(0, true)
    }

    /// The program on ingress of a port with these flags (`PORT_*`).
    pub(crate) fn ingress(&mut self, flags: u16, rests: bool) -> Result<OwnedFd, Error> {
        let program = self.tc.need(ingress_name(flags, rests), self.size, &mut self.maps)?;
        program.try_clone_to_owned().map_err(Error::Descriptor)
    }

    /// Whether a port has the tc programs of a data plane that rests.
    pub fn rests(&self, ifindex: u32) -> bool {
        self.ports.get(&ifindex).and_then(|port| port.tc.as_ref()).is_some_and(|tc| tc.rests)
    }
}
