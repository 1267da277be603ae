//! Reads and changes the state of one network namespace.

use crate::{
    Error, Forwarding, Liberal, XdpSupport,
    conntrack::Conntrack,
    ethtool::Ethtool,
    netdev::Netdev,
    netlink_channel::Channel,
    netlink_message::{AF_UNSPEC, Message},
    packet_sockets::PacketSockets,
    rtnetlink::{self, EGRESS, INGRESS, ROOT},
    sysctl,
};
use netlink_sys::protocols::{NETLINK_GENERIC, NETLINK_ROUTE};
use shunt_core::{BridgeCalls, Connection, Correction, Event, Qdisc, TrackedDirection};
use std::collections::BTreeSet;

/// The network namespace in which [`Linux::open`] was called. Sysctls are read in the namespace of the calling thread,
/// which should be the same.
pub struct Linux {
    pub(crate) route: Channel,
    generic: Channel,
    netdev: Option<Netdev>,
    ethtool: Option<Ethtool>,
    /// Opened when first needed: the kernel may lack netfilter.
    conntrack: Option<Conntrack>,
    packet_sockets: Option<PacketSockets>,
}

impl Linux {
    /// Opens the sockets.
    ///
    /// # Errors
    /// When the kernel has no rtnetlink or no generic netlink, or the process may not use them.
    pub fn open() -> Result<Self, Error> {
        let mut generic = Channel::open(NETLINK_GENERIC, "NETLINK_GENERIC")?;
        Ok(Self {
            route: Channel::open(NETLINK_ROUTE, "NETLINK_ROUTE")?,
            netdev: Netdev::find(&mut generic)?,
            ethtool: Ethtool::find(&mut generic)?,
            generic,
            conntrack: None,
            packet_sockets: None,
        })
    }

    /// Reads the present state as events: links, XDP features, offloads of NICs, addresses, neighbours, qdiscs, and one
    /// [`Event::Filter`] for each device, direction and kind of tc filter. A link comes before everything that belongs
    /// to it.
    ///
    /// # Errors
    /// When the kernel refuses, or its tables change during every attempt to read them.
    pub fn dump(&mut self) -> Result<Vec<Event>, Error> {
        let mut events = self.table("RTM_GETLINK", rtnetlink::RTM_GETLINK, &[AF_UNSPEC; 16])?;
        if let Some(netdev) = self.netdev {
            events.extend(netdev.dump(&mut self.generic)?);
        }
        let offloads: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                Event::Link(link) if link.bus.is_some() => self.offloads(link.ifindex),
                _ => None,
            })
            .collect();
        events.extend(offloads);
        events.extend(self.table("RTM_GETADDR", rtnetlink::RTM_GETADDR, &[AF_UNSPEC; 8])?);
        events.extend(self.table("RTM_GETNEIGH", rtnetlink::RTM_GETNEIGH, &[AF_UNSPEC; 12])?);
        let qdiscs = self.table("RTM_GETQDISC", rtnetlink::RTM_GETQDISC, &[AF_UNSPEC; 20])?;
        let filters = self.foreign_filters(&qdiscs)?;
        events.extend(qdiscs);
        events.extend(filters);
        Ok(events)
    }

    /// Reads the XDP features of a device.
    ///
    /// # Errors
    /// When the device does not exist.
    pub fn xdp_features(&mut self, ifindex: u32) -> Result<XdpSupport, Error> {
        match self.netdev {
            Some(netdev) => netdev.features(&mut self.generic, ifindex),
            None => Ok(XdpSupport::Unknown("the kernel has no netlink family netdev (Linux 6.3)".to_owned())),
        }
    }

    /// Reads the offloads of a NIC as an event; `None` if the device has gone or the kernel does not tell.
    pub fn offloads(&mut self, ifindex: u32) -> Option<Event> {
        self.ethtool?.offloads(&mut self.generic, ifindex).ok()?
    }

    /// Reads whether Linux forwards packets.
    ///
    /// # Errors
    /// When the sysctls cannot be read.
    pub fn forwarding(&self) -> Result<Forwarding, Error> {
        sysctl::forwarding()
    }

    /// Whether connection tracking is loaded.
    pub fn conntrack_present(&self) -> bool {
        sysctl::conntrack_present()
    }

    /// The number of connections that conntrack tracks now; 0 if it is not loaded.
    pub fn conntrack_count(&self) -> u64 {
        sysctl::conntrack_count()
    }

    /// The address families whose bridged packets br_netfilter hands to iptables, by its sysctls; `None` if it is
    /// not loaded.
    pub fn bridge_calls(&self) -> Option<BridgeCalls> {
        sysctl::bridge_calls()
    }

    /// The names of the devices that carry a session of PPPoE.
    pub fn session_devices(&self) -> BTreeSet<String> {
        crate::pppoe::devices()
    }

    /// The devices on which packet sockets capture forwarded packets; 0 stands for all devices.
    ///
    /// # Errors
    /// When the packet sockets cannot be listed.
    pub fn captured(&mut self) -> Result<BTreeSet<u32>, Error> {
        match &mut self.packet_sockets {
            Some(sockets) => sockets.captured(),
            unopened => unopened.insert(PacketSockets::open()?).captured(),
        }
    }

    /// Makes conntrack accept every sequence number of these TCP connections, in both directions, and changes nothing
    /// else. Returns one result for each connection, in the same order.
    pub fn set_be_liberal(&mut self, connections: &[Connection]) -> Vec<Result<Liberal, Error>> {
        match self.conntrack() {
            Ok(conntrack) => conntrack.set_be_liberal(connections),
            Err(e) => fail_all(connections, &e),
        }
    }

    /// Marks the data of these TCP connections as acknowledged in conntrack, if they are established and would expire
    /// early because conntrack has not seen the acknowledgement.
    ///
    /// # Errors
    /// When conntrack cannot be read or changed.
    pub fn keep_silent(&mut self, silent: &[TrackedDirection]) -> Result<(), Error> {
        let timeouts = sysctl::conntrack_timeouts()?;
        self.conntrack()?.keep_silent(silent, timeouts)
    }

    /// Corrects the conntrack entries of the TCP connections in `due`. Entries in `later` may say that such a
    /// connection has ended meanwhile.
    ///
    /// # Errors
    /// When conntrack cannot be read or changed.
    pub fn correct(&mut self, due: &[Correction], later: &[Correction]) -> Result<(), Error> {
        let timeouts = sysctl::conntrack_timeouts()?;
        self.conntrack()?.correct(due, later, timeouts)
    }

    fn table(&mut self, request: &'static str, kind: u16, fixed: &[u8]) -> Result<Vec<Event>, Error> {
        let answers = self.route.dump(request, kind, fixed)?;
        Ok(answers
            .iter()
            .filter_map(|a| {
                rtnetlink::event(&Message { kind: a.kind, flags: 0, seq: 0, payload: &a.payload })
            })
            .collect())
    }

    /// The devices, directions and kinds of tc filters that are not Shunt's.
    fn foreign_filters(&mut self, qdiscs: &[Event]) -> Result<Vec<Event>, Error> {
        let mut found = BTreeSet::new();
        for event in qdiscs {
            let Event::Qdisc(qdisc) = event else { continue };
            for (parent, egress) in filter_parents(qdisc) {
                let filters = self.filters_at(qdisc.ifindex, *parent)?;
                let others = filters.iter().filter(|filter| !rtnetlink::is_own_filter(filter));
                found.extend(others.map(|filter| (qdisc.ifindex, *egress, rtnetlink::filter_kind(filter))));
            }
        }
        let event = |(ifindex, egress, kind)| Event::Filter { ifindex, egress, kind, change: None };
        Ok(found.into_iter().map(event).collect())
    }

    fn conntrack(&mut self) -> Result<&mut Conntrack, Error> {
        match &mut self.conntrack {
            Some(conntrack) => Ok(conntrack),
            unopened => Ok(unopened.insert(Conntrack::open()?)),
        }
    }
}

/// The tcm_parent of each hook of a qdisc that can have filters, and whether the hook is on egress.
fn filter_parents(qdisc: &Qdisc) -> &'static [(u32, bool)] {
    match qdisc.kind.as_str() {
        "clsact" => &[(INGRESS, false), (EGRESS, true)],
        "ingress" => &[(INGRESS, false)],
        // 0 is the root. Inner qdiscs are below a root qdisc that counts as a classifier already.
        _ if qdisc.parent == ROOT && qdisc.handle != 0 => &[(0, true)],
        _ => &[],
    }
}

fn fail_all(connections: &[Connection], error: &Error) -> Vec<Result<Liberal, Error>> {
    let failure = |_| {
        let source = match error {
            Error::Socket { source, .. } => source.raw_os_error().map(std::io::Error::from_raw_os_error),
            _ => None,
        };
        let source = source.unwrap_or_else(|| std::io::Error::other(error.to_string()));
        Err(Error::Socket { protocol: "NETLINK_NETFILTER", source })
    };
    connections.iter().map(failure).collect()
}
