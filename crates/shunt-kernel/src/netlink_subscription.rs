//! Subscriptions to netlink notifications: reports changes of kernel state as they happen.

use crate::{
    Error,
    ethtool::Ethtool,
    netdev::{self, Netdev},
    netlink_channel::Channel,
    netlink_message::{Message, Messages, NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP, NLMSG_OVERRUN},
    nftables::{self, ChangedObjects},
    rtnetlink,
};
use netlink_sys::{
    Socket,
    protocols::{NETLINK_GENERIC, NETLINK_NETFILTER, NETLINK_ROUTE, NETLINK_XFRM},
};
use nix::{
    libc,
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags},
        socket::{setsockopt, sockopt},
    },
};
use shunt_core::{Event, EventSource};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};
use tokio::io::{Interest, unix::AsyncFd};

/// The size of the receive buffer: larger than any notification, which the kernel builds in a page or in what one
/// object needs.
const BUFFER_BYTES: usize = 64 << 10;

/// Datagrams that are read from one socket before the other sockets have their turn.
const TURN_DATAGRAMS: usize = 64;

/// A lower bound for what a datagram takes of the receive buffer. The kernel doubles the size of the buffer that was
/// requested.
const DATAGRAM_BYTES_MIN: usize = 256;

const NFNLGRP_NFTABLES: u32 = 7;
/// XFRMNLGRP_EXPIRE, XFRMNLGRP_SA, XFRMNLGRP_POLICY.
const XFRM_GROUPS: [u32; 3] = [2, 3, 4];

/// Receives notifications about changes in a network namespace.
pub struct NetlinkSubscription {
    sources: Vec<Subscribed>,
    /// What has changed in the ruleset since [`NetlinkSubscription::take_changed_rules`].
    changed_rules: ChangedObjects,
    missing: Vec<EventSource>,
    ready: AsyncFd<OwnedFd>,
}

/// Translates a message into an event; `None` if the policy does not need the message.
type Translate = Box<dyn Fn(&Message) -> Option<Event> + Send + Sync>;

/// A source of notifications, and its socket.
struct Subscribed {
    source: EventSource,
    protocol: &'static str,
    socket: Socket,
    buffer: Vec<u8>,
    /// More datagrams than the receive buffer can hold.
    queue_max: usize,
    translate: Translate,
}

impl NetlinkSubscription {
    /// Subscribes to all sources, in the network namespace of the calling thread. All changes from now on are reported.
    /// The kernel queues about `buffer_bytes` of notifications on each socket until they are read.
    ///
    /// # Errors
    /// When the process cannot subscribe to rtnetlink, or may not subscribe to another source. A source that the kernel
    /// lacks is not an error; [`NetlinkSubscription::missing`] lists such sources.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O.
    pub fn open(buffer_bytes: usize) -> Result<Self, Error> {
        let subscribe = |source, number, protocol, groups: &[u32], translate| {
            Subscribed::open(buffer_bytes, source, number, protocol, groups, translate)
        };
        let mut sources = vec![subscribe(
            EventSource::Route,
            NETLINK_ROUTE,
            "NETLINK_ROUTE",
            &rtnetlink::GROUPS,
            Box::new(rtnetlink::event) as Translate,
        )?];
        let mut missing = Vec::new();
        let mut add = |source, subscribed: Result<Option<Subscribed>, Error>| {
            match subscribed {
                Ok(Some(subscribed)) => sources.push(subscribed),
                Ok(None) => missing.push(source),
                Err(Error::Socket { source: e, .. }) if is_unsupported(&e) => missing.push(source),
                Err(e) => return Err(e),
            }
            Ok(())
        };
        add(
            EventSource::Nftables,
            subscribe(
                EventSource::Nftables,
                NETLINK_NETFILTER,
                "NETLINK_NETFILTER",
                &[NFNLGRP_NFTABLES],
                Box::new(ruleset_event),
            )
            .map(Some),
        )?;
        add(
            EventSource::Xfrm,
            subscribe(EventSource::Xfrm, NETLINK_XFRM, "NETLINK_XFRM", &XFRM_GROUPS, Box::new(ipsec_event))
                .map(Some),
        )?;
        let mut channel = Channel::open(NETLINK_GENERIC, "NETLINK_GENERIC")?;
        let ethtool = Ethtool::find(&mut channel)?;
        let subscribe_to_devices = |netdev: Netdev| {
            let groups: Vec<u32> = [netdev.mgmt].into_iter().chain(ethtool.map(|it| it.monitor)).collect();
            let translate = move |message: &Message| match ethtool {
                Some(ethtool) if message.kind == ethtool.family => ethtool.event(message),
                _ => netdev::event(message),
            };
            let translate = Box::new(translate);
            subscribe(EventSource::Netdev, NETLINK_GENERIC, "NETLINK_GENERIC", &groups, translate)
        };
        add(EventSource::Netdev, Netdev::find(&mut channel)?.map(subscribe_to_devices).transpose())?;
        let ready = readable_or_failed(sources.iter().map(|subscribed| subscribed.socket.as_fd()))
            .map_err(Error::Wait)?;
        Ok(Self { sources, changed_rules: ChangedObjects::default(), missing, ready })
    }

    /// The sources that this kernel lacks.
    pub fn missing(&self) -> &[EventSource] {
        &self.missing
    }

    /// The sockets, for BPF programs that see notifications while the kernel sends them.
    pub fn sockets(&self) -> impl Iterator<Item = (EventSource, BorrowedFd<'_>)> {
        self.sources.iter().map(|subscribed| (subscribed.source, subscribed.socket.as_fd()))
    }

    /// The tables, chains, rules and sets, in words, that changes of the ruleset were about since the last call, as far
    /// as [`NetlinkSubscription::next`] has returned them.
    pub fn take_changed_rules(&mut self) -> Option<String> {
        self.changed_rules.take()
    }

    /// Waits for changes, and returns all that can be read at once: at least one event. May be dropped at any time
    /// without losing an event.
    ///
    /// When an [`Event::Overrun`] is returned, the kernel queues notifications again: a dump from then on misses
    /// nothing.
    ///
    /// # Errors
    /// When a socket fails with an error other than an overrun.
    pub async fn next(&mut self) -> Result<Vec<Event>, Error> {
        loop {
            let mut ready = self.ready.readable().await.map_err(Error::Wait)?;
            let mut events = Vec::new();
            let mut drained = true;
            // Reading all of them keeps the sources in step: otherwise a change of the ruleset could be reported well
            // after routes that were changed later.
            for source in &mut self.sources {
                drained &= source.read_turn(&mut events, &mut self.changed_rules)?;
            }
            if drained {
                ready.clear_ready();
            }
            if !events.is_empty() {
                return Ok(events);
            }
        }
    }
}

impl Subscribed {
    fn open(
        buffer_bytes: usize,
        source: EventSource,
        number: isize,
        protocol: &'static str,
        groups: &[u32],
        translate: Translate,
    ) -> Result<Self, Error> {
        let open = || {
            let mut socket = Socket::new(number)?;
            socket.set_non_blocking(true)?;
            set_buffer(&socket, buffer_bytes);
            socket.bind_auto()?;
            for group in groups {
                socket.add_membership(*group)?;
            }
            Ok(socket)
        };
        let socket = open().map_err(|source| Error::Socket { protocol, source })?;
        let queue_max = TURN_DATAGRAMS.max(2 * buffer_bytes / DATAGRAM_BYTES_MIN);
        Ok(Self { source, protocol, socket, buffer: Vec::with_capacity(BUFFER_BYTES), queue_max, translate })
    }

    fn read(&mut self) -> io::Result<()> {
        self.buffer.clear();
        self.socket.recv(&mut self.buffer, 0).map(drop)
    }

    /// Reads for one turn, without waiting. Returns whether nothing is left to read.
    fn read_turn(&mut self, events: &mut Vec<Event>, changed: &mut ChangedObjects) -> Result<bool, Error> {
        let mut overrun = false;
        let mut datagrams = 0;
        let drained = loop {
            match self.read() {
                Ok(()) => overrun |= !self.translate_datagram(events, changed),
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => overrun = true,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break true,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(Error::Socket { protocol: self.protocol, source }),
            }
            datagrams += 1;
            // After it has lost one message the kernel drops all others too, without another error, until the queue has
            // been empty. Only a dump after that is sure to be complete.
            if datagrams >= if overrun { self.queue_max } else { TURN_DATAGRAMS } {
                break false;
            }
        };
        if overrun {
            events.push(Event::Overrun(self.source));
        }
        Ok(drained)
    }

    /// Adds the events of the datagram in the buffer. Returns whether the datagram was complete.
    fn translate_datagram(&self, events: &mut Vec<Event>, changed: &mut ChangedObjects) -> bool {
        for message in Messages(&self.buffer) {
            let Ok(message) = message else { return false };
            if self.source == EventSource::Nftables {
                changed.add(&message);
            }
            match message.kind {
                NLMSG_OVERRUN => return false,
                // Answers to requests: this socket sends none.
                NLMSG_NOOP | NLMSG_ERROR | NLMSG_DONE => {}
                _ => match (self.translate)(&message) {
                    // A large commit sends thousands of these; one event is enough.
                    event @ Some(Event::Rules | Event::RulesAt(_)) if events.last() == event.as_ref() => {}
                    event => events.extend(event),
                },
            }
        }
        true
    }
}

/// The event of an nftables message. Changed rules and sets come one by one, before the generation that has all of
/// them.
pub(crate) fn ruleset_event(message: &Message) -> Option<Event> {
    match message.kind {
        nftables::NEWGEN => Some(Event::Ruleset),
        _ => nftables::rules_event(message),
    }
}

fn ipsec_event(_: &Message) -> Option<Event> {
    Some(Event::IpsecPolicy)
}

/// A descriptor that is readable while one of the sockets has something to read, or an error. A socket that lost a
/// message may have nothing but the error: tokio alone would not wake a reader, and until the error is read, the kernel
/// drops all further messages.
#[allow(unsafe_code, reason = "tokio has no other registration since it deprecated the safe one")]
pub(crate) fn readable_or_failed<'a>(
    sockets: impl Iterator<Item = BorrowedFd<'a>>,
) -> io::Result<AsyncFd<OwnedFd>> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    for socket in sockets {
        // Errors are always reported.
        epoll.add(socket, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
    }
    // SAFETY: an OwnedFd is one descriptor, open until it is dropped.
    unsafe { AsyncFd::register_with_interest(epoll.0, Interest::READABLE) }.map_err(Into::into)
}

pub(crate) fn set_buffer(socket: &Socket, bytes: usize) {
    let forced = setsockopt(socket, sockopt::RcvBufForce, &bytes);
    // Without CAP_NET_ADMIN net.core.rmem_max is the limit, which only makes overruns more likely.
    if let Err(e) = forced.or_else(|_| setsockopt(socket, sockopt::RcvBuf, &bytes)) {
        tracing::debug!("cannot enlarge a netlink receive buffer, so overruns are more likely: {e}");
    }
}

/// Whether an error means that the kernel was built without the protocol or the multicast group.
fn is_unsupported(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT | libc::ENOENT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::UdpSocket, time::Duration};
    use tokio::time::timeout;

    fn message(kind: u16) -> Message<'static> {
        Message { kind, flags: 0, seq: 0, payload: &[0, 0, 0, 10] }
    }

    #[test]
    fn nftables_reports_generations_and_changes_that_may_bring_other_statements() {
        assert_eq!(ruleset_event(&message(0x0a0f)), Some(Event::Ruleset));
        // Tables, chains, rules, sets.
        for kind in [0, 2, 3, 5, 6, 8, 9, 11].map(|kind| 0x0a00 | kind) {
            assert_eq!(ruleset_event(&message(kind)), Some(Event::Rules), "{kind:#x}");
        }
        // Objects, flowtables, and other subsystems.
        for kind in [0x0a12, 0x0a14, 0x0a16, 0x0a18, 0x0103, 0x0303] {
            assert_eq!(ruleset_event(&message(kind)), None, "{kind:#x}");
        }
    }

    #[tokio::test]
    async fn an_error_alone_ends_the_wait() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let ready = readable_or_failed([socket.as_fd()].into_iter()).unwrap();
        // The refusal is the socket's only news: it is not readable.
        socket.connect(closed).unwrap();
        socket.send(b"to a closed port").unwrap();
        let waited = timeout(Duration::from_secs(10), ready.readable()).await;
        waited.expect("the error is not reported").unwrap().clear_ready();
        let refused = socket.recv(&mut [0; 1]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_protocol_that_is_not_built_is_unsupported_and_a_refusal_is_not() {
        assert!(is_unsupported(&io::Error::from_raw_os_error(libc::EPROTONOSUPPORT)));
        assert!(!is_unsupported(&io::Error::from_raw_os_error(libc::EPERM)));
    }
}
