//! Addresses and ports of connections.

use std::net::{IpAddr, SocketAddr};

/// Ports of clients: those that are not reserved for services.
pub(super) const CLIENT_PORTS: (u16, u32) = (1024, 64_512);
/// Ports of the server. Each has a connection from every client port.
pub(super) const SERVER_PORTS: (u16, u32) = (5001, 16);

/// One client address and one server address.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peers {
    pub(super) client: IpAddr,
    pub(super) server: IpAddr,
    /// Distance of the first client port from the lowest: another one for each run, so that a router does not take the
    /// connections of a run for those of the last.
    pub(super) shift: u32,
}

impl Peers {
    /// Number of pairs of client and server port.
    pub(super) const MOST: u32 = CLIENT_PORTS.1 * SERVER_PORTS.1;

    /// Client and server of a connection.
    pub(super) fn of(&self, connection: u32) -> (SocketAddr, SocketAddr) {
        let (ports, servers) = (CLIENT_PORTS.1, SERVER_PORTS.1);
        let client = CLIENT_PORTS.0 + ((connection % ports + self.shift) % ports) as u16;
        let server = SERVER_PORTS.0 + (connection / ports % servers) as u16;
        (SocketAddr::new(self.client, client), SocketAddr::new(self.server, server))
    }

    /// The connection between these; None if there is none.
    pub(super) fn connection(&self, client: SocketAddr, server: SocketAddr) -> Option<u32> {
        let ports = CLIENT_PORTS.1;
        let low = u32::from(client.port().checked_sub(CLIENT_PORTS.0)?);
        let high = u32::from(server.port().checked_sub(SERVER_PORTS.0)?);
        let known = client.ip() == self.client && server.ip() == self.server && high < SERVER_PORTS.1;
        known.then(|| high * ports + (low + ports - self.shift % ports) % ports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_has_ports_of_its_own_by_which_it_is_found() {
        let peers = Peers { client: [192, 0, 2, 1].into(), server: [192, 0, 2, 2].into(), shift: 64_000 };
        let mut seen = std::collections::HashSet::new();
        for connection in [0, 1, 511, 512, 64_511, 64_512, Peers::MOST - 1] {
            let (client, server) = peers.of(connection);
            assert_eq!(peers.connection(client, server), Some(connection));
            assert!(seen.insert((client, server)) && client.port() >= 1024);
        }
        let (client, server) = peers.of(5);
        for (client, server) in [
            (server, client),
            (SocketAddr::new(client.ip(), 1023), server),
            (client, SocketAddr::new(server.ip(), 5017)),
            (SocketAddr::new(server.ip(), client.port()), server),
        ] {
            assert_eq!(peers.connection(client, server), None, "{client} {server}");
        }
    }
}
