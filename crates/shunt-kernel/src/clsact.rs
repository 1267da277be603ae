//! clsact qdiscs, which hold Shunt's filters where there is no TCX.

use crate::{
    Error, Linux,
    route::{self, EGRESS, INGRESS},
    wire::{Message, u32_at},
};
use nix::libc;
use shunt_core::Event;

/// TC_H_CLSACT: both the parent of the qdisc and, without the minor number, its handle.
const PARENT: u32 = 0xffff_fff1;
const HANDLE: u32 = 0xffff_0000;

impl Linux {
    /// Whether a device has a clsact qdisc.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn has_clsact(&mut self, ifindex: u32) -> Result<bool, Error> {
        let answers = self.route.dump("RTM_GETQDISC", route::RTM_GETQDISC, &[0; 20])?;
        Ok(answers.iter().any(|a| {
            let message = Message { kind: a.kind, flags: 0, seq: 0, payload: &a.payload };
            matches!(route::event(&message), Some(Event::Qdisc(q)) if q.ifindex == ifindex && q.kind == "clsact")
        }))
    }

    /// The handles of Shunt's own filters on a device.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn own_filters(&mut self, ifindex: u32) -> Result<Vec<u32>, Error> {
        if !self.has_clsact(ifindex)? {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for parent in [INGRESS, EGRESS] {
            let filters = self.filters_at(ifindex, parent)?;
            let own = filters.iter().filter(|filter| route::is_own_filter(filter));
            // The first message of a priority tells of no filter but of the priority, and has no handle.
            found.extend(own.filter_map(|filter| u32_at(filter, 8)).filter(|handle| *handle != 0));
        }
        Ok(found)
    }

    /// Removes the clsact qdisc of a device if there are no filters in it; whether it did.
    ///
    /// # Errors
    /// When the kernel does not tell, or refuses.
    pub fn remove_empty_clsact(&mut self, ifindex: u32) -> Result<bool, Error> {
        if !self.has_clsact(ifindex)? {
            return Ok(false);
        }
        for parent in [INGRESS, EGRESS] {
            if !self.filters_at(ifindex, parent)?.is_empty() {
                return Ok(false);
            }
        }
        let fixed = place(ifindex, HANDLE, PARENT);
        self.route.ask("RTM_DELQDISC", route::RTM_DELQDISC, &fixed, |_| {}).map(|_| true)
    }

    /// The messages about the filters of a hook. None where there is no device or no qdisc any more.
    pub(crate) fn filters_at(&mut self, ifindex: u32, parent: u32) -> Result<Vec<Vec<u8>>, Error> {
        match self.route.dump("RTM_GETTFILTER", route::RTM_GETTFILTER, &place(ifindex, 0, parent)) {
            Ok(answers) => Ok(answers.into_iter().map(|answer| answer.payload).collect()),
            Err(Error::Refused { source, .. })
                if matches!(source.raw_os_error(), Some(libc::ENODEV | libc::EINVAL | libc::ENOENT)) =>
            {
                Ok(Vec::new())
            }
            Err(e) => Err(e),
        }
    }
}

/// struct tcmsg.
fn place(ifindex: u32, handle: u32, parent: u32) -> [u8; 20] {
    let mut fixed = [0; 20];
    fixed[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    fixed[8..12].copy_from_slice(&handle.to_ne_bytes());
    fixed[12..16].copy_from_slice(&parent.to_ne_bytes());
    fixed
}
