//! Switches between namespaces, for networks with several routers.

use super::{
    NetNs,
    netns::{ip, ip_batch},
};
use shunt_wire::Mac;
use std::{
    io,
    sync::atomic::{AtomicU32, Ordering},
};

/// A switch that floods multicast: a bridge in a namespace of its own.
#[derive(Debug)]
pub struct Switch {
    ns: NetNs,
    plugs: AtomicU32,
}

impl Switch {
    /// Creates a switch with no ports. `label` is part of the name of its namespace.
    ///
    /// # Panics
    /// Panics if the bridge cannot be created, which needs root and iproute2.
    #[track_caller]
    pub fn new(label: &str) -> Self {
        let made = NetNs::try_new(label).and_then(|ns| {
            let bridge = "link add br0 type bridge forward_delay 0 mcast_snooping 0";
            ip_batch(&ns, &[bridge.to_owned(), "link set br0 up".to_owned()])?;
            Ok(Self { ns, plugs: AtomicU32::new(1) })
        });
        made.unwrap_or_else(|e| panic!("a switch {label}: {e}"))
    }

    /// Connects a namespace by a new interface `nic`, which is up and has no address.
    ///
    /// # Panics
    /// Panics if the interface cannot be created.
    #[track_caller]
    pub fn plug(&self, ns: &NetNs, nic: &str, mac: Mac) {
        let port = format!("p{}", self.plugs.fetch_add(1, Ordering::Relaxed));
        let plugged = cable((ns, nic, Some(mac)), (&self.ns, &port, None))
            .and_then(|()| ip_batch(&self.ns, &[format!("link set {port} master br0")]));
        plugged.unwrap_or_else(|e| panic!("{nic} of {}: {e}", ns.name()));
    }
}

impl NetNs {
    /// Connects two namespaces by a wire. Its ends are up and have no address.
    ///
    /// # Panics
    /// Panics if the interfaces cannot be created.
    #[track_caller]
    pub fn connect(&self, nic: &str, other: &Self, other_nic: &str) {
        let connected = cable((self, nic, None), (other, other_nic, None));
        connected.unwrap_or_else(|e| panic!("{nic} of {}: {e}", self.name()));
    }
}

/// Creates a veth pair, both ends up. A veth has NAPI, as a NIC has, only with GRO or an XDP program.
fn cable(one: (&NetNs, &str, Option<Mac>), other: (&NetNs, &str, Option<Mac>)) -> io::Result<()> {
    let end = |(ns, nic, mac): (&NetNs, &str, Option<Mac>)| {
        let address = mac.map_or_else(String::new, |mac| format!(" address {mac}"));
        format!("name {nic}{address} netns {}", ns.name())
    };
    ip(&format!("link add {} type veth peer {}", end(one), end(other)))?;
    for (ns, nic, _) in [one, other] {
        ip_batch(ns, &[format!("link set {nic} up")])?;
        ns.try_run(&format!("ethtool -K {nic} gro on"))?;
    }
    Ok(())
}
