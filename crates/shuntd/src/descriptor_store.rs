//! The service manager's store of descriptors (FDSTORE=1, sd_pid_notify_with_fds(3)). It keeps maps, links and the
//! sockets with filters open while no daemon runs, and gives them to the next one, which checks them before it uses
//! them.
//!
//! | name | descriptor |
//! | --- | --- |
//! | `shunt-map-ID` | a map; the kernel's number of it |
//! | `shunt-link-ID` | the link of a program to a port |
//! | `shunt-hook-INODE` | a netlink socket whose filter ends flows while the kernel reports a change |
//! | `shunt-record-INODE` | a file in memory that says what the others are for |
//!
//! Invariant: a link is detached by the daemon before it leaves the store, or by the service manager, which closes the
//! last descriptor of it when the service has stopped.

mod received;
mod record;

pub(crate) use received::{Received, Stored};
pub(crate) use record::{Contents, Record};

use crate::handover::has_ended;
use nix::sys::stat::fstat;
use record::RecordFile;
use sd_notify::NotifyState;
use std::{
    collections::BTreeSet,
    env, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

const PREFIX: &str = "shunt-";

/// The name of a map in the store.
pub(crate) fn map_name(id: u32) -> String {
    format!("{PREFIX}map-{id}")
}

/// The name of a link in the store.
pub(crate) fn link_name(id: u32) -> String {
    format!("{PREFIX}link-{id}")
}

fn inode_name(kind: &str, fd: BorrowedFd<'_>) -> io::Result<String> {
    Ok(format!("{PREFIX}{kind}-{}", fstat(fd)?.st_ino))
}

/// The store, as this daemon fills it.
#[derive(Debug)]
pub(crate) struct Store {
    record: RecordFile,
    record_name: String,
    /// Sockets whose filters must go on.
    hooks: Vec<(String, OwnedFd)>,
    /// What the service manager holds.
    held: BTreeSet<String>,
    /// How many descriptors the service manager keeps.
    room: usize,
    /// The process of the daemon before this one: until it has ended, the service manager heeds only that one.
    former: Option<OwnedFd>,
}

impl Store {
    /// The store with these descriptors in it. `None` without a service manager that has a store for this service.
    pub(crate) fn open(held: BTreeSet<String>, former: Option<OwnedFd>) -> Option<Self> {
        let room = offered_room()?;
        let made = RecordFile::create().and_then(|record| {
            let record_name = inode_name("record", record.as_fd())?;
            Ok(Self { record, record_name, hooks: Vec::new(), held, room, former })
        });
        made.inspect_err(|error| {
            tracing::warn!(
                "cannot use the service manager's descriptor store: {error}; a crash loses all flows"
            );
        })
        .ok()
    }

    /// Keeps a netlink socket with its filter.
    ///
    /// # Errors
    /// If the process has too many descriptors.
    pub(crate) fn add_hook(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.hooks.push((inode_name("hook", socket)?, socket.try_clone_to_owned()?));
        Ok(())
    }

    /// Whether the service manager does not heed this process yet.
    pub(crate) fn must_wait(&self) -> bool {
        self.former.as_ref().is_some_and(|former| !has_ended(former))
    }

    /// How many descriptors the service manager keeps.
    pub(crate) fn room(&self) -> usize {
        self.room
    }

    /// The names of what the service manager holds.
    pub(crate) fn held(&self) -> &BTreeSet<String> {
        &self.held
    }

    /// The service manager holds these now.
    pub(crate) fn set_held(&mut self, held: BTreeSet<String>) {
        self.held = held;
    }

    /// The descriptors of the store itself.
    pub(crate) fn own(&self) -> impl Iterator<Item = (String, BorrowedFd<'_>)> {
        let hooks = self.hooks.iter().map(|(name, socket)| (name.clone(), socket.as_fd()));
        hooks.chain([(self.record_name.clone(), self.record.as_fd())])
    }

    /// Writes what the descriptors are for, if that has changed, and that the daemon is alive at `now_ns`.
    pub(crate) fn write(&mut self, contents: &Contents, now_ns: u64) {
        if let Err(error) = self.record.write(contents, now_ns) {
            tracing::warn!(
                "cannot write what the stored descriptors are for: {error}; a crash loses all flows"
            );
        }
    }

    /// Whether the next daemon could use what the service manager holds.
    pub(crate) fn is_usable(&self) -> bool {
        self.record.is_usable() && self.held.contains(&self.record_name)
    }

    /// Has the service manager forget everything.
    pub(crate) fn clear(self) {
        if !self.must_wait() {
            for name in &self.held {
                if let Err(error) = remove(name) {
                    return tracing::warn!("cannot empty the service manager's descriptor store: {error}");
                }
            }
        }
    }
}

/// How many descriptors of this service the service manager keeps; `None` if it keeps none. systemd has set FDSTORE
/// since version 254; the unit sets it for older ones.
fn offered_room() -> Option<usize> {
    env::var_os("NOTIFY_SOCKET")?;
    env::var("FDSTORE").ok()?.parse().ok().filter(|room| *room > 0)
}

/// Has the service manager keep a descriptor. Waits until it has room for the message.
///
/// # Errors
/// If the service manager cannot be reached.
pub(crate) fn keep(name: &str, fd: BorrowedFd<'_>) -> io::Result<()> {
    // Without FDPOLL=0, the service manager drops a socket that has lost messages.
    let messages = [NotifyState::FdStore, NotifyState::FdName(name), NotifyState::Custom("FDPOLL=0")];
    sd_notify::notify_with_fds(false, &messages, &[fd])
}

/// Has the service manager forget the descriptors of this name. Waits until it has room for the message.
///
/// # Errors
/// If the service manager cannot be reached.
pub(crate) fn remove(name: &str) -> io::Result<()> {
    sd_notify::notify(false, &[NotifyState::FdStoreRemove, NotifyState::FdName(name)])
}
