//! The connections to make.

use super::profile::Profile;
use std::{net::IpAddr, time::Duration};

/// The connections of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FleetSpec {
    /// What each connection carries.
    pub profile: Profile,
    /// Number of connections.
    pub connections: u32,
    /// Connections opened per second.
    pub per_second: f64,
    /// Address of the clients.
    pub client: IpAddr,
    /// Address of the server.
    pub server: IpAddr,
    /// Most bytes of payload in a segment.
    pub segment_bytes: u16,
    /// Time without an acknowledgement after which a connection is given up.
    pub patience: Duration,
    /// Seed of sizes and sequence numbers.
    pub seed: u64,
    /// Number of this run: its connections have other ports than those of the last run.
    pub run: u32,
}
