//! The output of `shuntd --dry-run` and `shuntd --probe`: the effects of a start on this machine, found out without
//! attaching anything.

use crate::{
    config::UnusedKey,
    engine::Engine,
    failure::Failure,
    qos::UnusedQueues,
    reload::Reload,
    status::{Attach, PortFilter, Probe, RulesetStatus, SlowCause},
};
use serde::{Deserialize, Serialize};

/// The ports that `shunt up` would attach to with the same options, and the causes of slow traffic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DryRun {
    /// The version of the daemon.
    pub version: String,
    /// The name of the instance that would start.
    pub instance: String,
    /// Whether the instance runs: then the rest is about a start with these options after its end.
    #[serde(default)]
    pub running: bool,
    /// The ports that it would attach to, in the order of their ifindex.
    pub ports: Vec<PlannedPort>,
    /// The lasting causes that would keep traffic on the slow path, those that concern most traffic first.
    pub slow_causes: Vec<SlowCause>,
    /// Queues of the configuration that would not be in use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unused_queues: Vec<UnusedQueues>,
    /// Keys of the configuration that would have no effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unused_keys: Vec<UnusedKey>,
    /// The firewall rules that would stop learning, and those that fast packets would bypass.
    pub ruleset: RulesetStatus,
    /// The features of the kernel.
    pub kernel: Vec<Probe>,
    /// If the instance runs: which keys differ from what runs, and what a reload would do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reload: Option<Reload>,
}

/// A port that Shunt would attach to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedPort {
    /// The name of the device.
    pub name: String,
    /// The interface index of the device.
    pub ifindex: u32,
    /// The engine that would send packets out of this port at first.
    pub engine: Engine,
    /// The reason for the engine, in one sentence.
    pub engine_reason: String,
    /// How the tc programs would be attached.
    pub attach: Attach,
    /// Whether the XDP program would be attached, too.
    pub xdp_attached: bool,
    /// Whether a packet socket captures on the port, so that its flows would take the slow path.
    pub captured: bool,
    /// tc filters, TCX programs and qdiscs of others that would keep packets of the port from being learned.
    pub filters: Vec<PortFilter>,
}

/// The features of this machine that Shunt needs or uses, and the expected gain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// The version of the daemon.
    pub version: String,
    /// The release of the kernel, as `uname -r` prints it.
    pub kernel_release: String,
    /// The failures of `shunt up`, in the order in which it would find them; empty if it would start.
    pub obstacles: Vec<Failure>,
    /// The features of the kernel.
    pub kernel: Vec<Probe>,
    /// The settings of the router that Shunt depends on: forwarding, bridges, connection tracking.
    pub router: Vec<Probe>,
    /// The devices except for loopback devices, in the order of their ifindex.
    pub devices: Vec<DeviceReport>,
    /// The lasting causes that would keep traffic on the slow path, those that concern most traffic first.
    pub slow_causes: Vec<SlowCause>,
    /// The firewall rules that would stop learning, and those that fast packets would bypass.
    pub ruleset: RulesetStatus,
    /// The expected gain, one sentence each.
    pub gain: Vec<String>,
}

/// A device, and what Shunt could do with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceReport {
    /// The name of the device.
    pub name: String,
    /// The interface index of the device.
    pub ifindex: u32,
    /// `veth`, `bridge`, `vlan`, ...; absent for most physical devices.
    pub kind: Option<String>,
    /// Whether the device is up and has a carrier.
    pub up: bool,
    /// Whether native XDP programs can run on the device; absent if the kernel does not say.
    pub xdp_native: Option<bool>,
    /// Whether XDP can redirect frames to the device; absent if the kernel does not say. Some drivers accept frames
    /// only while an XDP program is attached.
    pub xdp_target: Option<bool>,
    /// The kinds of its qdiscs, `clsact` and `ingress` included.
    pub qdiscs: Vec<String>,
    /// The port that Shunt would make of it; absent if it would not attach to the device.
    pub port: Option<PlannedPort>,
    /// Why the device would not be a port; absent if it would be one.
    pub no_port: Option<String>,
}
