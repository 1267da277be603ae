//! New connections through a masquerading router: each packet opens a connection and is answered.

use crate::{
    net::{NetNs, wait_for},
    traffic::Error,
};
use std::{fs, time::Duration};

/// Time after which conntrack has freed deleted entries.
const FREED: Duration = Duration::from_secs(2);

/// Deletes all connections in the router, so that the next ones are new.
pub(super) fn forget(router: &NetNs) -> Result<(), Error> {
    router.try_run("conntrack -F")?;
    let none = wait_for(FREED, || (tracked(router).ok()? == 0).then_some(()));
    none.ok_or_else(|| Error::Machine("connections remain in the router after conntrack -F".to_owned()))
}

/// The number of connections that the router tracks, by the kernel's count.
pub(crate) fn tracked(router: &NetNs) -> Result<u64, Error> {
    router.within(tracked_here)
}

/// The number of connections that are tracked in the network namespace of the calling thread.
pub(crate) fn tracked_here() -> Result<u64, Error> {
    const COUNT: &str = "/proc/sys/net/netfilter/nf_conntrack_count";
    let count = fs::read_to_string(COUNT).map_err(|e| format!("{COUNT}: {e}"));
    count.and_then(|count| count.trim().parse().map_err(|e| format!("{COUNT}: {e}"))).map_err(Error::Machine)
}
