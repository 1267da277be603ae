//! Exchanging the XDP program of a port for another form of it.

use crate::{
    DataPlane, Error,
    attach::program_id,
    maps::Maps,
    object::{CompiledObject, Size, load_only, program},
    pending::{AttachedXdp, XdpProgram},
    xdp_form::XdpForm,
};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

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
