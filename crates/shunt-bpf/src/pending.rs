//! Attaching and detaching programs. Each call waits for the kernel's RTNL lock, which others can hold for seconds, and
//! a driver may take as long to accept an XDP program. So the calls are values that any thread can make, apart from the
//! data plane.

use crate::{
    Error,
    attach::{self, AttachMode, Attachment, Hook},
    maps::Maps,
    object::{CompiledObject, Loading, Size, load_for, program},
    owner::Owner,
    xdp_form::XdpForm,
};
use nix::libc::EINVAL;
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

/// The tc programs of a port, still to be attached.
#[derive(Debug)]
pub struct TcPrograms {
    pub(crate) ifindex: u32,
    pub(crate) ingress: OwnedFd,
    pub(crate) egress: Option<OwnedFd>,
    /// Whether TCX may be used.
    pub(crate) tcx: bool,
    pub(crate) filter_handle: u32,
    pub(crate) owner: Option<Arc<Owner>>,
}

/// The tc programs of a port. Dropping it detaches them.
#[derive(Debug)]
pub struct AttachedTc {
    pub(crate) mode: AttachMode,
    pub(crate) ingress: Attachment,
    pub(crate) egress: Option<Attachment>,
    /// Whether they are those of a data plane that rests: see [`crate::TcExchange`].
    pub(crate) rests: bool,
}

impl AttachedTc {
    /// How the programs are attached.
    pub fn mode(&self) -> AttachMode {
        self.mode
    }
}

impl TcPrograms {
    /// Attaches the programs. Waits for the RTNL lock.
    ///
    /// # Errors
    /// If the kernel refuses an attachment.
    pub fn attach(self) -> Result<AttachedTc, Error> {
        let Self { ifindex, ref ingress, ref egress, tcx, .. } = self;
        let failed = |hook| move |source| Error::Attach { ifindex, hook, source };
        let by_link = if tcx {
            attach::link(ingress, ifindex, Hook::Ingress)
        } else {
            Err(io::Error::from_raw_os_error(EINVAL))
        };
        let (mode, ingress) = match by_link {
            Ok(link) => (AttachMode::Tcx, link),
            // Kernels before 6.6 do not know the attach type.
            Err(e) if e.raw_os_error() == Some(EINVAL) => {
                (AttachMode::Clsact, self.filter(ingress, Hook::Ingress)?)
            }
            Err(e) => return Err(failed(Hook::Ingress)(e)),
        };
        let egress = match (egress, mode) {
            (None, _) => None,
            (Some(egress), AttachMode::Tcx) => {
                Some(attach::link(egress, ifindex, Hook::Egress).map_err(failed(Hook::Egress))?)
            }
            (Some(egress), AttachMode::Clsact) => Some(self.filter(egress, Hook::Egress)?),
        };
        Ok(AttachedTc { mode, ingress, egress, rests: false })
    }

    fn filter(&self, program: &OwnedFd, hook: Hook) -> Result<Attachment, Error> {
        if let Some(owner) = &self.owner {
            let failed = |source| Error::Attach { ifindex: self.ifindex, hook, source };
            owner.bind(program.as_fd()).map_err(failed)?;
        }
        attach::filter(program, self.ifindex, hook, self.filter_handle)
    }
}

/// An XDP program of Shunt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XdpProgram {
    /// Forwards: the engine `xdp`.
    Forward,
    /// Forwards, and asks the driver for the VLAN tags that it has taken out of the frames (Linux 6.8).
    ForwardTags,
    /// Gives packets to the external engine.
    External,
}

/// The XDP program of a port. Dropping it detaches the program.
#[derive(Debug)]
pub struct AttachedXdp {
    pub(crate) program: XdpProgram,
    pub(crate) id: u32,
    pub(crate) attachment: Attachment,
    /// The form of the program, if it is [`XdpProgram::Forward`].
    pub(crate) form: XdpForm,
}

/// A change of a port's XDP program, still to be made. Dropping it detaches the program.
#[derive(Debug)]
pub struct XdpChange {
    pub(crate) ifindex: u32,
    pub(crate) former: Option<Attachment>,
    pub(crate) next: Option<NextXdp>,
    /// The form of the next program.
    pub(crate) form: XdpForm,
}

/// The XDP program that a port gets.
#[derive(Debug)]
pub(crate) enum NextXdp {
    Loaded(XdpProgram, OwnedFd),
    /// A program that may call functions of the device's driver, to be loaded for the device.
    ForDevice {
        source: &'static CompiledObject,
        size: Size,
        maps: Maps,
    },
}

impl XdpChange {
    /// Loads the next program, unless it is loaded.
    ///
    /// # Errors
    /// If the kernel or the driver refuses the program. The former program is detached then.
    pub fn load(self) -> Result<Self, Error> {
        let Some(NextXdp::ForDevice { source, size, mut maps }) = self.next else { return Ok(self) };
        let how = Loading { device: Some(self.ifindex), ..Loading::default() };
        let object = load_for(source, size, &mut maps, &how)?;
        let fd = program(&object, source, "shunt_xdp")?.as_fd().try_clone_to_owned();
        let next = NextXdp::Loaded(XdpProgram::ForwardTags, fd.map_err(Error::Descriptor)?);
        Ok(Self { next: Some(next), ..self })
    }

    /// The id of the next program. `None` if there is none, or it is not loaded.
    pub fn program_id(&self) -> Option<u32> {
        match &self.next {
            Some(NextXdp::Loaded(_, fd)) => attach::program_id(fd.as_fd()),
            Some(NextXdp::ForDevice { .. }) | None => None,
        }
    }

    /// Attaches the next program in the place of the former one. Waits for the RTNL lock and for the driver.
    ///
    /// # Errors
    /// If the device does not accept the program. It has no XDP program then.
    pub fn make(self) -> Result<Option<AttachedXdp>, Error> {
        let loaded = self.load()?;
        let id = loaded.program_id().unwrap_or_default();
        let Self { ifindex, former, next, form } = loaded;
        let Some(NextXdp::Loaded(which, fd)) = next else { return Ok(None) };
        let failed = |source| Error::Attach { ifindex, hook: Hook::Xdp, source };
        // Without a moment in which the device has no program, if the driver accepts the next one.
        let replaced = former.filter(|former| former.replace(&fd).is_ok());
        let attachment =
            replaced.map_or_else(|| attach::link(&fd, ifindex, Hook::Xdp), Ok).map_err(failed)?;
        Ok(Some(AttachedXdp { program: which, id, attachment, form }))
    }
}

/// A port.
pub(crate) struct AttachedPort {
    pub(crate) slot: u16,
    /// `None` while the programs are being attached.
    pub(crate) tc: Option<AttachedTc>,
    /// `None` also while the program is being attached.
    pub(crate) xdp: Option<AttachedXdp>,
}

/// A former port, with its programs. Dropping it detaches them.
pub struct LeavingPort(pub(crate) AttachedPort);

impl LeavingPort {
    /// Detaches the programs. Waits for the RTNL lock.
    pub fn detach(self) -> FreeSlot {
        FreeSlot(self.0.slot)
    }
}

/// The slot of a former port whose programs are detached.
#[derive(Debug)]
pub struct FreeSlot(pub(crate) u16);
