//! What the kernel can be asked.

use crate::Error;
use shunt_core::{BridgeCalls, Connection, Event, Silent};
use std::{collections::BTreeSet, time::Duration};

/// The kernel, of one network namespace.
pub trait Kernel {
    /// Everything that is there, as events: links, XDP features, addresses, neighbours, bridges' stations, qdiscs, and
    /// for each device, direction and kind of tc filters one [`Event::Filter`]. Links come before what belongs to them.
    ///
    /// # Errors
    /// When the kernel refuses, or its tables change faster than they can be read.
    fn dump(&mut self) -> Result<Vec<Event>, Error>;

    /// What XDP can do with a device.
    ///
    /// # Errors
    /// When there is no such device.
    fn xdp_features(&mut self, ifindex: u32) -> Result<XdpSupport, Error>;

    /// The name of a device's driver; for one that is made by software its kind (`veth`, `bridge`, ...), and none for
    /// the rest.
    ///
    /// # Errors
    /// When there is no such device.
    fn driver(&mut self, ifindex: u32) -> Result<Option<String>, Error>;

    /// Whether Linux forwards at all.
    ///
    /// # Errors
    /// When the sysctls cannot be read.
    fn forwarding(&self) -> Result<Forwarding, Error>;

    /// Whether this namespace has connection tracking.
    fn conntrack_present(&self) -> bool;

    /// How long conntrack remembers a silent connection.
    ///
    /// # Errors
    /// When there is no connection tracking.
    fn conntrack_timeouts(&self) -> Result<ConntrackTimeouts, Error>;

    /// Which bridged packets br_netfilter hands to iptables, by its sysctls; none where it is not there.
    fn bridge_calls(&self) -> Option<BridgeCalls>;

    /// The devices on which packet sockets capture what is forwarded; 0 is all devices.
    ///
    /// # Errors
    /// When the kernel does not list its packet sockets.
    fn captured(&mut self) -> Result<BTreeSet<u32>, Error>;

    /// Have conntrack accept every sequence number of these TCP connections, in both directions, and change nothing
    /// else of them. One result for each, in their order.
    fn set_be_liberal(&mut self, connections: &[Connection]) -> Vec<Result<Liberal, Error>>;

    /// Of these TCP connections, have conntrack take those for acknowledged that are established and that it would forget
    /// early for want of an acknowledgement.
    ///
    /// # Errors
    /// When conntrack cannot be asked.
    fn keep_silent(&mut self, silent: &[Silent]) -> Result<(), Error>;
}

/// What XDP can do with a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum XdpSupport {
    /// The kernel said.
    Known {
        /// Native programs can run on it and may redirect from it.
        native: bool,
        /// Frames can be redirected to it.
        target: bool,
        /// AF_XDP works on it without a copy.
        zero_copy: bool,
    },
    /// It cannot be asked, and why.
    Unknown(String),
}

/// For which protocols Linux forwards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Forwarding {
    /// IPv4, from at least one device.
    pub v4: bool,
    /// IPv6, from at least one device.
    pub v6: bool,
}

/// How long conntrack remembers a silent connection, where no rule sets a timeout of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConntrackTimeouts {
    /// UDP in one direction, or for less than two seconds.
    pub udp: Duration,
    /// UDP in both directions.
    pub udp_stream: Duration,
    /// Established TCP.
    pub tcp_established: Duration,
    /// The same while data is not acknowledged, or was sent again and again.
    pub tcp_unacknowledged: Duration,
}

impl ConntrackTimeouts {
    /// The time within which each connection must be seen.
    pub fn shortest(&self) -> Duration {
        self.udp.min(self.udp_stream).min(self.tcp_established).min(self.tcp_unacknowledged)
    }
}

/// What became of a connection that was to be liberal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liberal {
    /// It is.
    Set,
    /// It has ended.
    Gone,
}
