//! The forms of the XDP program that forwards, and exchanging that of a port for another. All forms do the same with
//! every packet, at different costs.

use crate::{
    DataPlane, Error,
    attach::program_id,
    maps::Maps,
    object::{
        CompiledObject, Size, XDP_FORWARD, XDP_FORWARD_LOOKING_AHEAD, XDP_FORWARD_LOOKING_AHEAD_VERIFYING,
        XDP_FORWARD_VERIFYING, load_only, program,
    },
    pending::{AttachedXdp, XdpProgram},
};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// A form of the XDP program that forwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XdpForm {
    /// For few flows that are routed and leave without tags. It finds them by hints, and leaves the others to a slower
    /// function.
    Usual,
    /// For flows of any kind and number.
    General,
    /// As [`XdpForm::General`]. Loads the entries of the next packets ahead, for many flows. It knows the ring of one
    /// driver, veth.
    LookingAhead,
}

impl XdpForm {
    /// The object and the name of the program.
    pub(crate) fn program(self, verifying: bool) -> (&'static CompiledObject, &'static str) {
        match (self, verifying) {
            (Self::Usual, false) => (&XDP_FORWARD, "shunt_xdp_usual"),
            (Self::General, false) => (&XDP_FORWARD, "shunt_xdp"),
            (Self::LookingAhead, false) => (&XDP_FORWARD_LOOKING_AHEAD, "shunt_xdp"),
            (Self::Usual | Self::General, true) => (&XDP_FORWARD_VERIFYING, "shunt_xdp"),
            (Self::LookingAhead, true) => (&XDP_FORWARD_LOOKING_AHEAD_VERIFYING, "shunt_xdp"),
        }
    }
}

/// A form of the XDP program, still to be loaded.
#[derive(Debug)]
pub struct XdpSource {
    source: &'static CompiledObject,
    name: &'static str,
    form: XdpForm,
    size: Size,
    maps: Maps,
}

impl XdpSource {
    /// Loads the program. The kernel takes a tenth of a second to verify it.
    ///
    /// # Errors
    /// If the kernel refuses the program. Linux before 6.2 lacks the functions that a program calls to look ahead.
    pub fn load(self) -> Result<LoadedXdp, Error> {
        let Self { source, name, form, size, mut maps } = self;
        let object = load_only(source, size, &mut maps, name)?;
        let fd = program(&object, source, name)?.as_fd().try_clone_to_owned();
        Ok(LoadedXdp { fd: fd.map_err(Error::Descriptor)?, form })
    }
}

/// A form of the XDP program, loaded.
#[derive(Debug)]
pub struct LoadedXdp {
    fd: OwnedFd,
    form: XdpForm,
}

impl LoadedXdp {
    /// The id of the program.
    pub fn program_id(&self) -> Option<u32> {
        program_id(self.fd.as_fd())
    }
}

impl AsFd for LoadedXdp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// An exchange of a port's XDP program, still to be made.
#[derive(Debug)]
pub struct XdpExchange {
    pub(crate) xdp: AttachedXdp,
    pub(crate) next: OwnedFd,
    pub(crate) form: XdpForm,
}

impl XdpExchange {
    /// Exchanges the programs: each packet meets one of them. If the kernel refuses that, the former program stays.
    /// Waits for the RTNL lock.
    pub fn make(self) -> (AttachedXdp, io::Result<()>) {
        let Self { mut xdp, next, form } = self;
        let replaced = xdp.attachment.replace(&next);
        if replaced.is_ok() {
            xdp.form = form;
            xdp.id = program_id(next.as_fd()).unwrap_or_default();
        }
        (xdp, replaced)
    }
}

impl DataPlane {
    /// The form that is loaded at the start, and that a port gets first.
    pub fn first_xdp_form(&self) -> XdpForm {
        if self.verify_xdp { XdpForm::General } else { XdpForm::Usual }
    }

    /// A form of the XDP program, to be loaded by any thread.
    ///
    /// # Errors
    /// If a descriptor cannot be duplicated.
    pub fn xdp_source(&self, form: XdpForm) -> Result<XdpSource, Error> {
        let (source, name) = form.program(self.verify_xdp);
        Ok(XdpSource { source, name, form, size: self.size, maps: self.maps.try_clone()? })
    }

    /// The exchange of a port's XDP program for another form, or with `None` for the first one. `None` if there is
    /// nothing to exchange. The outcome belongs to [`DataPlane::xdp_exchanged`].
    ///
    /// # Errors
    /// If a descriptor cannot be duplicated.
    pub fn xdp_exchange(
        &mut self,
        ifindex: u32,
        next: Option<&LoadedXdp>,
    ) -> Result<Option<XdpExchange>, Error> {
        let form = next.map_or(self.first_xdp_form(), |next| next.form);
        let other = |xdp: &mut AttachedXdp| xdp.program == XdpProgram::Forward && xdp.form != form;
        let next = match (next, &self.xdp) {
            (Some(next), _) => next.as_fd().try_clone_to_owned(),
            (None, Ok(object)) => {
                let (source, name) = form.program(self.verify_xdp);
                program(object, source, name)?.as_fd().try_clone_to_owned()
            }
            (None, Err(_)) => return Ok(None),
        };
        let next = next.map_err(Error::Descriptor)?;
        let Some(port) = self.ports.get_mut(&ifindex) else { return Ok(None) };
        let xdp = port.xdp.take_if(other);
        Ok(xdp.map(|xdp| XdpExchange { xdp, next, form }))
    }

    /// Keeps the XDP program of a port after an exchange.
    pub fn xdp_exchanged(&mut self, ifindex: u32, xdp: AttachedXdp) {
        if let Some(port) = self.ports.get_mut(&ifindex) {
            port.xdp = Some(xdp);
        }
    }

    /// The form of a port's XDP program. `None` if the port has none that forwards.
    pub fn xdp_form(&self, ifindex: u32) -> Option<XdpForm> {
        let xdp = self.ports.get(&ifindex)?.xdp.as_ref()?;
        (xdp.program == XdpProgram::Forward).then_some(xdp.form)
    }
}
