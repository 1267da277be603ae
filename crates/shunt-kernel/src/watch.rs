//! Changes in the kernel, as they happen.

use crate::{
    Error,
    channel::Channel,
    genl::{self, Netdev},
    route, ruleset,
    wire::{Message, Messages, NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP, NLMSG_OVERRUN},
};
use netlink_sys::{
    AsyncSocket, Socket, TokioSocket,
    protocols::{NETLINK_GENERIC, NETLINK_NETFILTER, NETLINK_ROUTE, NETLINK_XFRM},
};
use nix::{
    libc,
    sys::socket::{setsockopt, sockopt},
};
use shunt_core::{Event, Source};
use std::{
    future::poll_fn,
    io,
    os::fd::{AsFd, BorrowedFd},
    task::{Context, Poll, ready},
};

/// Longer than any notification: the kernel builds them in buffers of at most a page or what one object needs.
const BUFFER_BYTES: usize = 64 << 10;

/// How many datagrams of one socket are read before the others have their turn.
const TURN: usize = 64;

/// What each datagram is charged at least of a receive buffer, which is twice what was asked for. In truth it is more.
const DATAGRAM_BYTES: usize = 256;

const NFNLGRP_NFTABLES: u32 = 7;
const XFRMNLGRP_POLICY: u32 = 4;

/// Hears what changes in a network namespace.
pub struct Watcher {
    feeds: Vec<Feed>,
    missing: Vec<Source>,
}

/// What a message says, if it is of concern.
type Understand = fn(&Message) -> Option<Event>;

/// One source and its socket.
struct Feed {
    source: Source,
    protocol: &'static str,
    socket: TokioSocket,
    heard: Vec<u8>,
    /// More datagrams than its queue can hold.
    queue: usize,
    event: Understand,
}

impl Watcher {
    /// Subscribe to everything, in the network namespace of the calling thread. What changes from now on will be told; of
    /// what is not read in time the kernel queues about `buffer_bytes` on each socket.
    ///
    /// # Errors
    /// When rtnetlink cannot be heard, or the process may not hear another. Sources that the kernel lacks are no error;
    /// [`Watcher::missing`] lists them.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O.
    pub fn open(buffer_bytes: usize) -> Result<Self, Error> {
        let feed = |source, number, protocol, groups: &[u32], event| {
            Feed::open(buffer_bytes, source, number, protocol, groups, event)
        };
        let mut feeds = vec![feed(
            Source::Route,
            NETLINK_ROUTE,
            "NETLINK_ROUTE",
            &route::GROUPS,
            route::event as Understand,
        )?];
        let mut missing = Vec::new();
        let mut add = |source, feed: Result<Option<Feed>, Error>| {
            match feed {
                Ok(Some(feed)) => feeds.push(feed),
                Ok(None) => missing.push(source),
                Err(Error::Socket { source: e, .. }) if is_unsupported(&e) => missing.push(source),
                Err(e) => return Err(e),
            }
            Ok(())
        };
        add(
            Source::Nftables,
            feed(Source::Nftables, NETLINK_NETFILTER, "NETLINK_NETFILTER", &[NFNLGRP_NFTABLES], rules)
                .map(Some),
        )?;
        add(
            Source::Xfrm,
            feed(Source::Xfrm, NETLINK_XFRM, "NETLINK_XFRM", &[XFRMNLGRP_POLICY], policy).map(Some),
        )?;
        let netdev = Netdev::find(&mut Channel::open(NETLINK_GENERIC, "NETLINK_GENERIC")?)?;
        let mgmt = |netdev: Netdev| {
            feed(Source::Netdev, NETLINK_GENERIC, "NETLINK_GENERIC", &[netdev.mgmt], genl::event)
        };
        add(Source::Netdev, netdev.map(mgmt).transpose())?;
        Ok(Self { feeds, missing })
    }

    /// The sources that this kernel does not have.
    pub fn missing(&self) -> &[Source] {
        &self.missing
    }

    /// The sockets, for programs that are to see messages while the kernel sends them.
    pub fn sockets(&self) -> impl Iterator<Item = (Source, BorrowedFd<'_>)> {
        self.feeds.iter().map(|feed| (feed.source, feed.socket.socket_ref().as_fd()))
    }

    /// Wait until something happens, and give all of it that can be read at once. Never empty. May be dropped at any
    /// time without losing an event.
    ///
    /// After an [`Event::Overrun`] the kernel queues again; what is asked of it from then on misses nothing.
    ///
    /// # Errors
    /// When a socket fails other than by an overrun.
    pub async fn next(&mut self) -> Result<Vec<Event>, Error> {
        poll_fn(|cx| {
            let mut events = Vec::new();
            for feed in &mut self.feeds {
                // A turn without events must be followed by another, until the socket has our waker.
                while let Poll::Ready(turn) = feed.hear(cx, &mut events) {
                    turn?;
                    if !events.is_empty() {
                        break;
                    }
                }
            }
            if events.is_empty() {
                return Poll::Pending;
            }
            // The runtime may not have looked at every socket yet. Asking them all keeps sources together: without it a
            // ruleset could be told well after routes that were changed later.
            for feed in &mut self.feeds {
                feed.catch_up(&mut events)?;
            }
            Poll::Ready(Ok(events))
        })
        .await
    }
}

impl Feed {
    fn open(
        buffer_bytes: usize,
        source: Source,
        number: isize,
        protocol: &'static str,
        groups: &[u32],
        event: Understand,
    ) -> Result<Self, Error> {
        let open = || {
            let mut socket = TokioSocket::new(number)?;
            set_buffer(socket.socket_ref(), buffer_bytes);
            socket.socket_mut().bind_auto()?;
            for group in groups {
                socket.socket_ref().add_membership(*group)?;
            }
            Ok(socket)
        };
        let socket = open().map_err(|source| Error::Socket { protocol, source })?;
        let queue = TURN.max(2 * buffer_bytes / DATAGRAM_BYTES);
        Ok(Self { source, protocol, socket, heard: Vec::with_capacity(BUFFER_BYTES), queue, event })
    }

    /// Wait for something to read, and read for one turn.
    fn hear(&mut self, cx: &mut Context, events: &mut Vec<Event>) -> Poll<Result<(), Error>> {
        self.heard.clear();
        let first = ready!(self.socket.poll_recv(cx, &mut self.heard));
        Poll::Ready(self.read_on(first, events))
    }

    /// Read for one turn if there is something.
    fn catch_up(&mut self, events: &mut Vec<Event>) -> Result<(), Error> {
        let first = self.read();
        self.read_on(first, events)
    }

    fn read(&mut self) -> io::Result<()> {
        self.heard.clear();
        self.socket.socket_ref().recv(&mut self.heard, 0).map(drop)
    }

    fn read_on(&mut self, mut read: io::Result<()>, events: &mut Vec<Event>) -> Result<(), Error> {
        let mut overrun = false;
        let mut heard = 0;
        loop {
            match read {
                Ok(()) => overrun |= !self.understand(events),
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => overrun = true,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(Error::Socket { protocol: self.protocol, source }),
            }
            heard += 1;
            // Once a message was lost the kernel loses all others too, and does not say so again, until the queue has
            // been empty. Only what is asked of the kernel after that is sure to be complete.
            if heard >= if overrun { self.queue } else { TURN } {
                break;
            }
            read = self.read();
        }
        if overrun {
            events.push(Event::Overrun(self.source));
        }
        Ok(())
    }

    /// Whether the datagram was whole.
    fn understand(&self, events: &mut Vec<Event>) -> bool {
        for message in Messages(&self.heard) {
            let Ok(message) = message else { return false };
            match message.kind {
                NLMSG_OVERRUN => return false,
                // Answers; a socket that only listens gets none.
                NLMSG_NOOP | NLMSG_ERROR | NLMSG_DONE => {}
                _ => match (self.event)(&message) {
                    // One says as much as the thousands of a large commit.
                    Some(Event::Rules) if events.last() == Some(&Event::Rules) => {}
                    event => events.extend(event),
                },
            }
        }
        true
    }
}

/// Rules and sets that were changed come one by one before the generation that has them all.
fn rules(message: &Message) -> Option<Event> {
    match message.kind {
        ruleset::NEWGEN => Some(Event::Ruleset),
        _ => ruleset::concerns_rules(message).then_some(Event::Rules),
    }
}

fn policy(_: &Message) -> Option<Event> {
    Some(Event::IpsecPolicy)
}

fn set_buffer(socket: &Socket, bytes: usize) {
    let forced = setsockopt(socket, sockopt::RcvBufForce, &bytes);
    // Without CAP_NET_ADMIN net.core.rmem_max is the limit; an overrun is then only more likely.
    if let Err(e) = forced.or_else(|_| setsockopt(socket, sockopt::RcvBuf, &bytes)) {
        tracing::debug!("netlink receive buffer stays as it is: {e}");
    }
}

/// What a kernel answers that was built without a protocol, or without what would have the group.
fn is_unsupported(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT | libc::ENOENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16) -> Message<'static> {
        Message { kind, flags: 0, seq: 0, payload: &[0, 0, 0, 10] }
    }

    #[test]
    fn of_nftables_the_generation_counts_and_what_may_hold_other_statements() {
        assert_eq!(rules(&message(0x0a0f)), Some(Event::Ruleset));
        // Tables, chains, rules, sets.
        for kind in [0, 2, 3, 5, 6, 8, 9, 11].map(|kind| 0x0a00 | kind) {
            assert_eq!(rules(&message(kind)), Some(Event::Rules), "{kind:#x}");
        }
        // Objects, flowtables, and other subsystems.
        for kind in [0x0a12, 0x0a14, 0x0a16, 0x0a18, 0x0103, 0x0303] {
            assert_eq!(rules(&message(kind)), None, "{kind:#x}");
        }
    }

    #[test]
    fn a_protocol_that_was_not_built_is_unsupported_and_a_refusal_is_not() {
        assert!(is_unsupported(&io::Error::from_raw_os_error(libc::EPROTONOSUPPORT)));
        assert!(!is_unsupported(&io::Error::from_raw_os_error(libc::EPERM)));
    }
}
