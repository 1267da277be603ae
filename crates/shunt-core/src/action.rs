//! Actions: what the daemon must do.

use crate::{Bridged, Cause, Connection, Correction, Scope, TrackedDirection, Traffic};
use shunt_api::Engine;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Something that the daemon must do. Actions are performed in the order in which the policy returns them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Move the epoch: no flow's action is used until it is proved again.
    MoveEpoch(Cause),
    /// Move the epoch if a learned flow may depend on what has changed.
    MoveEpochFor(Cause, Scope),
    /// Wait until the kernel has finished the change it is making, then report [`crate::Event::Finished`].
    AwaitKernel(Cause, Scope),
    /// Read the whole state of the kernel and report [`crate::Event::Dump`].
    Resync,
    /// Read the nftables ruleset after a pause, and report [`crate::Event::RulesetRead`] or
    /// [`crate::Event::RulesetUnread`].
    ReadRuleset {
        /// The pause from now on.
        after: Duration,
    },
    /// Learn nothing from packets of this traffic, and learn from packets of other traffic again.
    Hold(Traffic),
    /// Attach the tc programs to a device.
    Attach(PortSetting),
    /// Change the setting of a port.
    Set(PortSetting),
    /// Detach from a device.
    Detach {
        /// The ifindex of the device.
        ifindex: u32,
    },
    /// Tell the data plane which devices are on top of which ports: the ifindexes of the ports, by the ifindex of the
    /// upper device. Nothing is learned from a packet that Linux last received by any other device.
    SetUppers(BTreeMap<u32, BTreeSet<u32>>),
    /// Let the external engine serve these ports, which are attached, and report [`crate::Event::External`].
    Serve(ExternalPorts),
    /// Set BE_LIBERAL on both directions of a connection.
    SetLiberal(Connection),
    /// Find the devices on which packet sockets capture, and report [`crate::Event::Captures`].
    FindCaptures,
    /// Find the TCX programs of others on these devices, and report [`crate::Event::Programs`].
    FindPrograms(BTreeSet<u32>),
    /// Read the offloads of this NIC, and report [`crate::Event::Offloads`].
    FindOffloads(u32),
    /// Begin or end a survey of the packets that ports receive.
    Survey(bool),
    /// Read what surveys have counted, and report [`crate::Event::Surveyed`].
    FindSurveyed,
    /// Read the sysctls of br_netfilter and report [`crate::Event::BridgeCalls`].
    FindBridgeCalls,
    /// Find the sessions of PPPoE and report [`crate::Event::Sessions`].
    FindSessions,
    /// Give a connection the conntrack timeout that it would have if conntrack had seen all its packets.
    KeepSilent(TrackedDirection),
    /// Correct the conntrack entry of a connection, after conntrack has seen the packet in question.
    Correct(Correction),
    /// Update the heartbeat.
    Beat,
    /// Retire idle flows, and remove retired ones.
    Sweep,
}

/// The ports for the external engine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExternalPorts {
    /// Their ifindexes.
    pub ports: BTreeSet<u32>,
    /// Those whose driver has no AF_XDP with zero copy. The sockets of all ports share their memory, and the kernel
    /// lets such sockets have one mode only: with any port here, all sockets copy packets.
    pub copied: BTreeSet<u32>,
}

/// How the data plane treats a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortSetting {
    /// The ifindex of the device.
    pub ifindex: u32,
    /// The engine by which fast packets leave the port.
    pub engine: Engine,
    /// Whether packets have no header before their IP header.
    pub no_l2: bool,
    /// Whether an XDP program runs on the port, for packets that come in.
    pub xdp_in: bool,
    /// That program gives packets to the external engine, if the engine runs and serves the port.
    pub xdp_external: bool,
    /// Whether the XDP program must ask the driver for VLAN tags, which are not in the frames.
    pub xdp_tags: bool,
    /// Whether XDP may redirect frames in several buffers to the port.
    pub xdp_frags: bool,
    /// Whether its driver may hand up packets with unfinished checksums.
    pub partial: bool,
    /// Whether the device is up and has a carrier.
    pub up: bool,
    /// Whether a packet socket captures on the port, so that its flows must take the slow path.
    pub captured: bool,
    /// Whether packets that arrive on the port go through tc filters or TCX programs of others.
    pub filtered: bool,
    /// Whether packets that leave through the port go through TCX programs of others, or through qdiscs or filters of a
    /// device on top of it.
    pub filtered_out: bool,
    /// The traffic that may be learned from packets that arrive on the port and are bridged.
    pub bridged: Bridged,
    /// Whether a bridge that floods packets sends copies of packets that leave through the port through devices that
    /// are no ports.
    pub floods_unseen: bool,
    /// Whether a qdisc of the port treats packets by the socket that they belong to.
    pub paced: bool,
}
