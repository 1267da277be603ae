//! The real kernel.

use crate::{
    ConntrackTimeouts, Error, Forwarding, Liberal, XdpSupport,
    channel::Channel,
    conntrack::Conntrack,
    genl::Netdev,
    packet::PacketSockets,
    route::{self, EGRESS, INGRESS, ROOT},
    sysctl,
    wire::{AF_BRIDGE, AF_UNSPEC, Message},
};
use netlink_sys::protocols::{NETLINK_GENERIC, NETLINK_ROUTE};
use shunt_core::{BridgeCalls, Connection, Event, Qdisc, Silent};
use std::collections::BTreeSet;

/// The kernel of the network namespace in which [`Linux::open`] was called. The sysctls are those of the namespace of
/// the calling thread, so both should be the same.
pub struct Linux {
    pub(crate) route: Channel,
    generic: Channel,
    netdev: Option<Netdev>,
    /// Opened when it is first needed: a kernel without netfilter has everything else.
    conntrack: Option<Conntrack>,
    packet_sockets: Option<PacketSockets>,
}

impl Linux {
    /// Open the sockets.
    ///
    /// # Errors
    /// When the kernel has no rtnetlink or no generic netlink, or the process may not use them.
    pub fn open() -> Result<Self, Error> {
        let mut generic = Channel::open(NETLINK_GENERIC, "NETLINK_GENERIC")?;
        Ok(Self {
            route: Channel::open(NETLINK_ROUTE, "NETLINK_ROUTE")?,
            netdev: Netdev::find(&mut generic)?,
            generic,
            conntrack: None,
            packet_sockets: None,
        })
    }

    /// Everything that is there, as events: links, XDP features, addresses, neighbours, bridges' stations, qdiscs, and
    /// for each device, direction and kind of tc filters one [`Event::Filter`]. Links come before what belongs to them.
    ///
    /// # Errors
    /// When the kernel refuses, or its tables change faster than they can be read.
    pub fn dump(&mut self) -> Result<Vec<Event>, Error> {
        let mut events = self.table("RTM_GETLINK", route::RTM_GETLINK, &[AF_UNSPEC; 16])?;
        if let Some(netdev) = self.netdev {
            events.extend(netdev.dump(&mut self.generic)?);
        }
        events.extend(self.table("RTM_GETADDR", route::RTM_GETADDR, &[AF_UNSPEC; 8])?);
        events.extend(self.table("RTM_GETNEIGH", route::RTM_GETNEIGH, &[AF_UNSPEC; 12])?);
        let mut bridges = [0; 12];
        bridges[0] = AF_BRIDGE;
        events.extend(self.table("RTM_GETNEIGH of bridges", route::RTM_GETNEIGH, &bridges)?);
        let qdiscs = self.table("RTM_GETQDISC", route::RTM_GETQDISC, &[AF_UNSPEC; 20])?;
        let filters = self.filters(&qdiscs)?;
        events.extend(qdiscs);
        events.extend(filters);
        Ok(events)
    }

    /// What XDP can do with a device.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn xdp_features(&mut self, ifindex: u32) -> Result<XdpSupport, Error> {
        match self.netdev {
            Some(netdev) => netdev.features(&mut self.generic, ifindex),
            None => Ok(XdpSupport::Unknown("the kernel has no netdev family (Linux 6.3)".to_owned())),
        }
    }

    /// Whether Linux forwards at all.
    ///
    /// # Errors
    /// When the sysctls cannot be read.
    pub fn forwarding(&self) -> Result<Forwarding, Error> {
        sysctl::forwarding()
    }

    /// Whether this namespace has connection tracking.
    pub fn conntrack_present(&self) -> bool {
        sysctl::conntrack_present()
    }

    /// How long conntrack remembers a silent connection.
    ///
    /// # Errors
    /// When there is no connection tracking.
    pub fn conntrack_timeouts(&self) -> Result<ConntrackTimeouts, Error> {
        sysctl::conntrack_timeouts()
    }

    /// Which bridged packets br_netfilter hands to iptables, by its sysctls; none where it is not there.
    pub fn bridge_calls(&self) -> Option<BridgeCalls> {
        sysctl::bridge_calls()
    }

    /// The devices on which packet sockets capture what is forwarded; 0 is all devices.
    ///
    /// # Errors
    /// When the kernel does not list its packet sockets.
    pub fn captured(&mut self) -> Result<BTreeSet<u32>, Error> {
        match &mut self.packet_sockets {
            Some(sockets) => sockets.captured(),
            unopened => unopened.insert(PacketSockets::open()?).captured(),
        }
    }

    /// Have conntrack accept every sequence number of these TCP connections, in both directions, and change nothing
    /// else of them. One result for each, in their order.
    pub fn set_be_liberal(&mut self, connections: &[Connection]) -> Vec<Result<Liberal, Error>> {
        match self.conntrack() {
            Ok(conntrack) => conntrack.set_be_liberal(connections),
            Err(e) => refuse_all(connections, &e),
        }
    }

    /// Of these TCP connections, have conntrack take those for acknowledged that are established and that it would forget
    /// early for want of an acknowledgement.
    ///
    /// # Errors
    /// When conntrack cannot be asked.
    pub fn keep_silent(&mut self, silent: &[Silent]) -> Result<(), Error> {
        let timeouts = self.conntrack_timeouts()?;
        self.conntrack()?.keep_silent(silent, timeouts)
    }

    fn table(&mut self, request: &'static str, kind: u16, fixed: &[u8]) -> Result<Vec<Event>, Error> {
        let answers = self.route.dump(request, kind, fixed)?;
        Ok(answers
            .iter()
            .filter_map(|a| route::event(&Message { kind: a.kind, flags: 0, seq: 0, payload: &a.payload }))
            .collect())
    }

    /// The devices, directions and kinds of the filters of others.
    fn filters(&mut self, qdiscs: &[Event]) -> Result<Vec<Event>, Error> {
        let mut found = BTreeSet::new();
        for event in qdiscs {
            let Event::Qdisc(qdisc) = event else { continue };
            for (parent, egress) in places_of_filters(qdisc) {
                let filters = self.filters_at(qdisc.ifindex, *parent)?;
                let others = filters.iter().filter(|filter| !route::is_own_filter(filter));
                found.extend(others.map(|filter| (qdisc.ifindex, *egress, route::filter_kind(filter))));
            }
        }
        let event = |(ifindex, egress, kind)| Event::Filter { ifindex, egress, kind };
        Ok(found.into_iter().map(event).collect())
    }

    fn conntrack(&mut self) -> Result<&mut Conntrack, Error> {
        match &mut self.conntrack {
            Some(conntrack) => Ok(conntrack),
            unopened => Ok(unopened.insert(Conntrack::open()?)),
        }
    }
}

/// The tcm_parent of each place where a qdisc can have filters, and whether that is on egress.
fn places_of_filters(qdisc: &Qdisc) -> &'static [(u32, bool)] {
    match qdisc.kind.as_str() {
        "clsact" => &[(INGRESS, false), (EGRESS, true)],
        "ingress" => &[(INGRESS, false)],
        // 0 is the root. Filters of inner qdiscs hang below one that classifies already.
        _ if qdisc.parent == ROOT && qdisc.handle != 0 => &[(0, true)],
        _ => &[],
    }
}

fn refuse_all(connections: &[Connection], why: &Error) -> Vec<Result<Liberal, Error>> {
    let refuse = |_| {
        let source = match why {
            Error::Socket { source, .. } => source.raw_os_error().map(std::io::Error::from_raw_os_error),
            _ => None,
        };
        let source = source.unwrap_or_else(|| std::io::Error::other(why.to_string()));
        Err(Error::Socket { protocol: "NETLINK_NETFILTER", source })
    };
    connections.iter().map(refuse).collect()
}
