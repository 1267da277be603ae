//! Changes in the kernel, as they happen.

use crate::{
    Error,
    channel::Channel,
    genl::{self, Netdev},
    route,
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
    task::{Context, Poll, ready},
};

/// What the kernel may queue for us on each socket.
const QUEUE_BYTES: usize = 4 << 20;

/// Longer than any notification: the kernel builds them in buffers of at most a page or what one object needs.
const BUFFER_BYTES: usize = 64 << 10;

/// How many datagrams of one socket are read before the others have their turn.
const TURN: usize = 64;

/// More datagrams than a queue can hold: each is charged at least 512 bytes of the doubled [`QUEUE_BYTES`].
const QUEUE: usize = 32 << 10;

const NFNLGRP_NFTABLES: u32 = 7;
/// NFNL_SUBSYS_NFTABLES, NFT_MSG_NEWGEN: the end of a commit.
const NEWGEN: u16 = 10 << 8 | 15;
const XFRMNLGRP_POLICY: u32 = 4;

/// Hears what changes in a network namespace.
pub struct Watcher {
    feeds: Vec<Feed>,
    missing: Vec<Source>,
}

/// One source and its socket.
struct Feed {
    source: Source,
    protocol: &'static str,
    socket: TokioSocket,
    heard: Vec<u8>,
    event: fn(&Message) -> Option<Event>,
}

impl Watcher {
    /// Subscribe to everything, in the network namespace of the calling thread. What changes from now on will be told.
    ///
    /// # Errors
    /// When rtnetlink cannot be heard, or the process may not hear another. Sources that the kernel lacks are no error;
    /// [`Watcher::missing`] lists them.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O.
    pub fn open() -> Result<Self, Error> {
        let mut feeds =
            vec![Feed::open(Source::Route, NETLINK_ROUTE, "NETLINK_ROUTE", &route::GROUPS, route::event)?];
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
            Feed::open(
                Source::Nftables,
                NETLINK_NETFILTER,
                "NETLINK_NETFILTER",
                &[NFNLGRP_NFTABLES],
                ruleset,
            )
            .map(Some),
        )?;
        add(
            Source::Xfrm,
            Feed::open(Source::Xfrm, NETLINK_XFRM, "NETLINK_XFRM", &[XFRMNLGRP_POLICY], policy).map(Some),
        )?;
        let netdev = Netdev::find(&mut Channel::open(NETLINK_GENERIC, "NETLINK_GENERIC")?)?;
        let mgmt = |netdev: Netdev| {
            Feed::open(Source::Netdev, NETLINK_GENERIC, "NETLINK_GENERIC", &[netdev.mgmt], genl::event)
        };
        add(Source::Netdev, netdev.map(mgmt).transpose())?;
        Ok(Self { feeds, missing })
    }

    /// The sources that this kernel does not have.
    pub fn missing(&self) -> &[Source] {
        &self.missing
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
        source: Source,
        number: isize,
        protocol: &'static str,
        groups: &[u32],
        event: fn(&Message) -> Option<Event>,
    ) -> Result<Self, Error> {
        let open = || {
            let mut socket = TokioSocket::new(number)?;
            enlarge(socket.socket_ref());
            socket.socket_mut().bind_auto()?;
            for group in groups {
                socket.socket_ref().add_membership(*group)?;
            }
            Ok(socket)
        };
        let socket = open().map_err(|source| Error::Socket { protocol, source })?;
        Ok(Self { source, protocol, socket, heard: Vec::with_capacity(BUFFER_BYTES), event })
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
            if heard >= if overrun { QUEUE } else { TURN } {
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
                _ => events.extend((self.event)(&message)),
            }
        }
        true
    }
}

/// Rules and sets that were changed come one by one before the generation that has them all.
fn ruleset(message: &Message) -> Option<Event> {
    (message.kind == NEWGEN).then_some(Event::Ruleset)
}

fn policy(_: &Message) -> Option<Event> {
    Some(Event::IpsecPolicy)
}

fn enlarge(socket: &Socket) {
    let forced = setsockopt(socket, sockopt::RcvBufForce, &QUEUE_BYTES);
    // Without CAP_NET_ADMIN net.core.rmem_max is the limit; an overrun is then only more likely.
    if let Err(e) = forced.or_else(|_| setsockopt(socket, sockopt::RcvBuf, &QUEUE_BYTES)) {
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
    fn of_nftables_only_the_generation_counts() {
        assert_eq!(ruleset(&message(0x0a0f)), Some(Event::Ruleset));
        for kind in [0, 6, 12, 18].map(|kind| 0x0a00 | kind) {
            assert_eq!(ruleset(&message(kind)), None, "{kind:#x}");
        }
    }

    #[test]
    fn a_protocol_that_was_not_built_is_unsupported_and_a_refusal_is_not() {
        assert!(is_unsupported(&io::Error::from_raw_os_error(libc::EPROTONOSUPPORT)));
        assert!(!is_unsupported(&io::Error::from_raw_os_error(libc::EPERM)));
    }
}
