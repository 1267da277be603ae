//! What conntrack has counted: the counters of all entries, and the final ones of each entry that ends.

use super::table::{FIXED, GET, counts};
use crate::{
    Error,
    netlink_channel::{Channel, Dump},
    netlink_message::{AF_UNSPEC, Messages, NLMSG_OVERRUN},
    netlink_subscription::{readable_or_failed, set_buffer},
};
use netlink_sys::{Socket, protocols::NETLINK_NETFILTER};
use nix::libc;
use shunt_api::{Tracked, TrackedDirection};
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};
use tokio::io::unix::AsyncFd;

const PROTOCOL: &str = "NETLINK_NETFILTER";
/// NFNLGRP_CONNTRACK_DESTROY.
const DESTROY: u32 = 3;
/// NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_DELETE.
const DELETED: u16 = 1 << 8 | 2;
/// The kernel sends one entry per datagram, of a few hundred bytes.
const BUFFER_BYTES: usize = 16 << 10;
/// Entries that are read at a time.
const BATCH: usize = 1024;

/// An entry with its counters, which are absent if conntrack did not count when the entry was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedEntry {
    /// The number by which the kernel tells entries apart, also after one with the same tuple has ended.
    pub id: u32,
    /// The IP protocol number.
    pub protocol: u8,
    /// The original direction.
    pub orig: TrackedDirection,
    /// The reply direction.
    pub reply: TrackedDirection,
}

impl CountedEntry {
    /// Whether it has counters.
    #[must_use]
    pub const fn is_counted(&self) -> bool {
        self.orig.count.is_some() || self.reply.count.is_some()
    }
}

/// The entries of the calling thread's network namespace, read a few hundred at a time.
pub struct ConntrackCounts(Dump);

/// Starts to read all entries with their counters.
///
/// # Errors
/// When the kernel has no ctnetlink, or the process may not use it.
pub fn conntrack_counts() -> Result<ConntrackCounts, Error> {
    let channel = Channel::open(NETLINK_NETFILTER, PROTOCOL)?;
    channel.start_dump("IPCTNL_MSG_CT_GET", GET, &[AF_UNSPEC; FIXED]).map(ConntrackCounts)
}

impl ConntrackCounts {
    /// Passes the next entries to `each`, without those that are ending: [`ConntrackEnds`] has them. An entry that
    /// comes or goes meanwhile may be missing, and one may come twice. Returns whether more may follow.
    ///
    /// # Errors
    /// When the kernel ends the answer with an error.
    pub fn next_piece(&mut self, mut each: impl FnMut(CountedEntry)) -> Result<bool, Error> {
        self.0.next_piece(|message| {
            if let Some((entry, status)) = entry(message.payload)
                && status & Tracked::DYING == 0
            {
                each(entry);
            }
        })
    }
}

fn entry(payload: &[u8]) -> Option<(CountedEntry, u32)> {
    let (id, orig, reply, protocol, status) = counts(payload)?;
    Some((CountedEntry { id, protocol, orig, reply }, status))
}

/// What [`ConntrackEnds::next`] has read.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Entries that have ended, with their final counters.
    pub entries: Vec<CountedEntry>,
    /// Whether the kernel has dropped some, because they were not read in time.
    pub overrun: bool,
}

/// Receives the entries that end.
pub struct ConntrackEnds {
    socket: Socket,
    buffer: Vec<u8>,
    ready: AsyncFd<OwnedFd>,
}

impl ConntrackEnds {
    /// Subscribes, in the network namespace of the calling thread. The kernel queues about `buffer_bytes` until they
    /// are read.
    ///
    /// # Errors
    /// When the kernel reports no ends of connections, or the process may not subscribe.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O.
    pub fn open(buffer_bytes: usize) -> Result<Self, Error> {
        let open = || {
            let mut socket = Socket::new(NETLINK_NETFILTER)?;
            socket.set_non_blocking(true)?;
            set_buffer(&socket, buffer_bytes);
            socket.bind_auto()?;
            socket.add_membership(DESTROY)?;
            Ok(socket)
        };
        let socket = open().map_err(|source| Error::Socket { protocol: PROTOCOL, source })?;
        let ready = readable_or_failed([socket.as_fd()].into_iter()).map_err(Error::Wait)?;
        Ok(Self { socket, buffer: Vec::with_capacity(BUFFER_BYTES), ready })
    }

    /// Waits until something has ended, and reads some of it. May be dropped at any time.
    ///
    /// # Errors
    /// When the socket fails with an error other than an overrun.
    pub async fn next(&mut self) -> Result<Ended, Error> {
        let mut ready = self.ready.readable().await.map_err(Error::Wait)?;
        let mut ended = Ended::default();
        if read(&self.socket, &mut self.buffer, &mut ended)? {
            ready.clear_ready();
        }
        Ok(ended)
    }

    /// Reads some of what has ended, without waiting; nothing if nothing is left.
    ///
    /// # Errors
    /// As those of [`Self::next`].
    pub fn read_now(&mut self) -> Result<Ended, Error> {
        let mut ended = Ended::default();
        read(&self.socket, &mut self.buffer, &mut ended)?;
        Ok(ended)
    }
}

/// Reads at most [`BATCH`] datagrams. Returns whether nothing is left.
fn read(socket: &Socket, buffer: &mut Vec<u8>, ended: &mut Ended) -> Result<bool, Error> {
    for _ in 0..BATCH {
        buffer.clear();
        match socket.recv(buffer, 0) {
            Ok(_) => translate(buffer, ended),
            Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => ended.overrun = true,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(Error::Socket { protocol: PROTOCOL, source }),
        }
    }
    Ok(false)
}

fn translate(datagram: &[u8], ended: &mut Ended) {
    for message in Messages(datagram) {
        match message {
            Ok(message) if message.kind == DELETED => {
                ended.entries.extend(entry(message.payload).map(|(entry, _)| entry));
            }
            Ok(message) => ended.overrun |= message.kind == NLMSG_OVERRUN,
            Err(_) => ended.overrun = true,
        }
    }
}
