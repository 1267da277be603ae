//! clsact qdiscs, which hold Shunt's filters on kernels without TCX.

use crate::{
    Error, Linux,
    netlink_message::{Message, u32_at},
    rtnetlink::{self, EGRESS, INGRESS},
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
    /// When the qdiscs cannot be read.
    pub fn has_clsact(&mut self, ifindex: u32) -> Result<bool, Error> {
        let answers = self.route.dump("RTM_GETQDISC", rtnetlink::RTM_GETQDISC, &[0; 20])?;
        Ok(answers.iter().any(|a| {
            let message = Message { kind: a.kind, flags: 0, seq: 0, payload: &a.payload };
            matches!(rtnetlink::event(&message), Some(Event::Qdisc(q)) if q.ifindex == ifindex && q.kind == "clsact")
        }))
    }

    /// The handles of Shunt's own filters on a device.
    ///
    /// # Errors
    /// When the qdiscs or filters cannot be read.
    pub fn own_filters(&mut self, ifindex: u32) -> Result<Vec<u32>, Error> {
        if !self.has_clsact(ifindex)? {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for parent in [INGRESS, EGRESS] {
            let filters = self.filters_at(ifindex, parent)?;
            let own = filters.iter().filter(|filter| rtnetlink::is_own_filter(filter));
            // The first message of a priority describes the priority, not a filter, and has no handle.
            found.extend(own.filter_map(|filter| u32_at(filter, 8)).filter(|handle| *handle != 0));
        }
        Ok(found)
    }

    /// Removes the clsact qdisc of a device if it has no filters. Returns whether it was removed.
    ///
    /// # Errors
    /// When the qdiscs or filters cannot be read, or the kernel refuses to remove the qdisc.
    pub fn remove_empty_clsact(&mut self, ifindex: u32) -> Result<bool, Error> {
        if !self.has_clsact(ifindex)? {
            return Ok(false);
        }
        for parent in [INGRESS, EGRESS] {
            if !self.filters_at(ifindex, parent)?.is_empty() {
                return Ok(false);
            }
        }
        let fixed = tcmsg(ifindex, HANDLE, PARENT);
        self.route.request("RTM_DELQDISC", rtnetlink::RTM_DELQDISC, &fixed, |_| {}).map(|_| true)
    }

    /// The payloads of the messages about the filters of a hook; empty if the device or the qdisc is gone.
    pub(crate) fn filters_at(&mut self, ifindex: u32, parent: u32) -> Result<Vec<Vec<u8>>, Error> {
        match self.route.dump("RTM_GETTFILTER", rtnetlink::RTM_GETTFILTER, &tcmsg(ifindex, 0, parent)) {
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

/// Builds a struct tcmsg.
fn tcmsg(ifindex: u32, handle: u32, parent: u32) -> [u8; 20] {
    let mut fixed = [0; 20];
    fixed[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    fixed[8..12].copy_from_slice(&handle.to_ne_bytes());
    fixed[12..16].copy_from_slice(&parent.to_ne_bytes());
    fixed
}
