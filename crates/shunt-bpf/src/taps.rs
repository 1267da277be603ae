//! Programs of others that see the frames which XDP forwards, for a time: one in the place of the program of a port,
//! which it calls, and one that runs for each frame before the driver of the egress port gets it. Without them, no
//! packet costs more.

use crate::{DataPlane, Error, pending::XdpProgram, xdp_exchange::XdpExchange};
use std::os::fd::OwnedFd;

impl DataPlane {
    /// The id of a port's XDP program, if the engine `xdp` uses it.
    pub fn forwarding_program_id(&self, ifindex: u32) -> Option<u32> {
        let xdp = self.ports.get(&ifindex)?.xdp.as_ref()?;
        (xdp.program != XdpProgram::External).then_some(xdp.id)
    }

    /// The exchange of a port's XDP program, if it has this id, for another one. The outcome belongs to
    /// [`DataPlane::xdp_exchanged`].
    pub fn tap_exchange(&mut self, ifindex: u32, instead_of: u32, next: OwnedFd) -> Option<XdpExchange> {
        let port = self.ports.get_mut(&ifindex)?;
        let xdp = port.xdp.take_if(|xdp| xdp.id == instead_of)?;
        Some(XdpExchange { form: xdp.form, xdp, next })
    }

    /// Runs a program for each frame that XDP sends to a port; with `None`, no more.
    ///
    /// # Errors
    /// If the kernel refuses the program. Then none runs.
    pub fn set_exit_program(&mut self, program: Option<OwnedFd>) -> Result<(), Error> {
        self.exit_program = program;
        let write = |plane: &Self| {
            plane.ports.iter().try_for_each(|(ifindex, port)| plane.write_exit(*ifindex, port.slot))
        };
        let written = write(self);
        if written.is_err() && self.exit_program.take().is_some() {
            write(self)?;
        }
        written
    }
}
