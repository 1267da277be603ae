//! A kernel for tests: it has what it is given.

use crate::{ConntrackTimeouts, Error, Forwarding, Kernel, Liberal, XdpSupport};
use shunt_core::{BridgeCalls, Connection, Event, Proto, Silent};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

/// A kernel that is a value. Everything can be set before, and looked at after.
#[derive(Debug, Clone, Default)]
pub struct Fake {
    /// What [`Kernel::dump`] gives.
    pub state: Vec<Event>,
    /// What XDP can do, by ifindex; [`XdpSupport::Unknown`] for others.
    pub xdp: BTreeMap<u32, XdpSupport>,
    /// Drivers by ifindex.
    pub drivers: BTreeMap<u32, String>,
    /// What [`Kernel::forwarding`] gives.
    pub forwarding: Forwarding,
    /// Conntrack's timeouts; none where there is no conntrack.
    pub conntrack: Option<ConntrackTimeouts>,
    /// What [`Kernel::bridge_calls`] gives.
    pub bridge_calls: Option<BridgeCalls>,
    /// What [`Kernel::captured`] gives.
    pub captured: BTreeSet<u32>,
    /// The connections that exist; others are gone.
    pub connections: BTreeSet<Connection>,
    /// The connections whose silence was told.
    pub silent: BTreeSet<Silent>,
    /// The connections that were made liberal.
    pub liberal: BTreeSet<Connection>,
}

impl Kernel for Fake {
    fn dump(&mut self) -> Result<Vec<Event>, Error> {
        Ok(self.state.clone())
    }

    fn xdp_features(&mut self, ifindex: u32) -> Result<XdpSupport, Error> {
        let unknown = || XdpSupport::Unknown(format!("device {ifindex} was given no features"));
        Ok(self.xdp.get(&ifindex).cloned().unwrap_or_else(unknown))
    }

    fn driver(&mut self, ifindex: u32) -> Result<Option<String>, Error> {
        Ok(self.drivers.get(&ifindex).cloned())
    }

    fn forwarding(&self) -> Result<Forwarding, Error> {
        Ok(self.forwarding)
    }

    fn conntrack_present(&self) -> bool {
        self.conntrack.is_some()
    }

    fn conntrack_timeouts(&self) -> Result<ConntrackTimeouts, Error> {
        let path = "/proc/sys/net/netfilter".to_owned();
        self.conntrack.ok_or(Error::Sysctl { path, source: io::ErrorKind::NotFound.into() })
    }

    fn bridge_calls(&self) -> Option<BridgeCalls> {
        self.bridge_calls
    }

    fn captured(&mut self) -> Result<BTreeSet<u32>, Error> {
        Ok(self.captured.clone())
    }

    fn keep_silent(&mut self, silent: &[Silent]) -> Result<(), Error> {
        self.silent.extend(silent);
        Ok(())
    }

    fn set_be_liberal(&mut self, connections: &[Connection]) -> Vec<Result<Liberal, Error>> {
        let set = |connection: &Connection| match connection.proto {
            Proto::Udp => Err(Error::NotTcp(*connection)),
            Proto::Tcp if self.connections.contains(connection) => {
                self.liberal.insert(*connection);
                Ok(Liberal::Set)
            }
            Proto::Tcp => Ok(Liberal::Gone),
        };
        connections.iter().map(set).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_connections_that_exist_become_liberal() {
        let [here, gone] = [1, 2].map(|port| Connection {
            proto: Proto::Tcp,
            src: ([192, 0, 2, 1], port).into(),
            dst: ([198, 51, 100, 1], 80).into(),
        });
        let udp = Connection { proto: Proto::Udp, ..here };
        let mut fake = Fake { connections: [here].into(), ..Fake::default() };
        let results = fake.set_be_liberal(&[gone, here, udp]);
        assert!(matches!(results[..], [Ok(Liberal::Gone), Ok(Liberal::Set), Err(Error::NotTcp(_))]));
        assert_eq!(fake.liberal, [here].into());
    }
}
