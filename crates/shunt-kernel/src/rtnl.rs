//! The RTNL lock, under which the kernel changes links, addresses and routes.

use crate::{Error, netlink_channel::Channel, rtnetlink::RTM_SETLINK};
use netlink_sys::protocols::NETLINK_ROUTE;

/// Waits for the RTNL lock. Belongs to the network namespace in which [`Rtnl::open`] was called.
pub struct Rtnl(Channel);

impl Rtnl {
    /// Opens a socket.
    ///
    /// # Errors
    /// When the process may not use rtnetlink.
    pub fn open() -> Result<Self, Error> {
        Channel::open(NETLINK_ROUTE, "NETLINK_ROUTE").map(Self)
    }

    /// Waits until the changes that the kernel was making at the time of the call are finished. May block for seconds,
    /// for example while many devices are removed.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn wait(&mut self) -> Result<(), Error> {
        // A request to change a device takes the lock before it fails because the device does not exist.
        let mut no_device = [0; 16];
        no_device[4..8].copy_from_slice(&i32::MAX.to_ne_bytes());
        match self.0.request("RTM_SETLINK", RTM_SETLINK, &no_device, |_| {}) {
            Ok(_) | Err(Error::Refused { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
