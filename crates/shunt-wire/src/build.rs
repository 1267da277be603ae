//! Builds packets: start with [`Packet::udp_between`] or [`Packet::tcp_between`], then change the parts that matter.

use crate::{Checksum, Ethernet, Ipv4, Ipv6, Mac, Network, Packet, Tag, Tcp, Transport, Udp};
use std::net::{IpAddr, SocketAddr};

impl Packet {
    /// A UDP packet with TTL 64 and no payload.
    ///
    /// # Panics
    /// If one address is IPv4 and the other IPv6.
    #[track_caller]
    pub fn udp_between(source: SocketAddr, destination: SocketAddr) -> Self {
        let udp = Udp { source: source.port(), destination: destination.port(), checksum: Checksum::Good };
        Self::between(source.ip(), destination.ip(), Transport::Udp(udp))
    }

    /// A TCP packet with TTL 64 and no payload.
    ///
    /// # Panics
    /// If one address is IPv4 and the other IPv6.
    #[track_caller]
    pub fn tcp_between(source: SocketAddr, destination: SocketAddr, flags: u8) -> Self {
        let tcp = Tcp {
            source: source.port(),
            destination: destination.port(),
            sequence: 0,
            acknowledgement: 0,
            flags,
            window: 0xffff,
            urgent: 0,
            options: Vec::new(),
            checksum: Checksum::Good,
        };
        Self::between(source.ip(), destination.ip(), Transport::Tcp(tcp))
    }

    /// An IP packet with TTL 64 and no payload.
    ///
    /// # Panics
    /// If one address is IPv4 and the other IPv6.
    #[track_caller]
    pub fn between(source: IpAddr, destination: IpAddr, transport: Transport) -> Self {
        let network = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Network::V4(Ipv4 {
                source,
                destination,
                ttl: 64,
                tos: 0,
                id: 0,
                dont_fragment: false,
                more_fragments: false,
                fragment_offset: 0,
                options: Vec::new(),
                checksum: Checksum::Good,
            }),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Network::V6(Ipv6 {
                source,
                destination,
                hop_limit: 64,
                traffic_class: 0,
                flow_label: 0,
                extensions: Vec::new(),
            }),
            _ => panic!("{source} and {destination} are of different families"),
        };
        Self { ethernet: Ethernet::default(), network, transport, payload: Vec::new(), trailer: Vec::new() }
    }

    /// A frame that is not IP.
    pub fn other(ethertype: u16, payload: impl Into<Vec<u8>>) -> Self {
        Self {
            ethernet: Ethernet::default(),
            network: Network::Other(ethertype),
            transport: Transport::None,
            payload: payload.into(),
            trailer: Vec::new(),
        }
    }

    /// Sets the MAC addresses.
    #[must_use]
    pub fn macs(mut self, source: Mac, destination: Mac) -> Self {
        self.ethernet.source = source;
        self.ethernet.destination = destination;
        self
    }

    /// Adds a VLAN tag inside the existing ones.
    #[must_use]
    pub fn tagged(mut self, tag: Tag) -> Self {
        self.ethernet.tags.push(tag);
        self
    }

    /// Replaces all VLAN tags, outermost first.
    #[must_use]
    pub fn with_tags(mut self, tags: &[Tag]) -> Self {
        self.ethernet.tags = tags.to_vec();
        self
    }

    /// Sets the payload.
    #[must_use]
    pub fn payload(mut self, payload: impl Into<Vec<u8>>) -> Self {
        self.payload = payload.into();
        self
    }

    /// Extends the payload with zeros, or truncates it, so that the frame has `bytes` bytes without FCS.
    ///
    /// # Panics
    /// If the headers alone are larger.
    #[must_use]
    #[track_caller]
    pub fn frame_bytes(mut self, bytes: usize) -> Self {
        self.trailer.clear();
        let headers = self.to_bytes().len() - self.payload.len();
        assert!(bytes >= headers, "a frame of {bytes} bytes is too short: headers need {headers}");
        self.payload.resize(bytes - headers, 0);
        self
    }

    /// Pads the frame with zeros after the IP packet to at least `bytes` bytes without FCS.
    #[must_use]
    pub fn padded_to(mut self, bytes: usize) -> Self {
        let missing = bytes.saturating_sub(self.to_bytes().len());
        self.trailer.resize(self.trailer.len() + missing, 0);
        self
    }

    /// Sets the TTL or hop limit.
    #[must_use]
    pub fn with_hop_limit(mut self, hops: u8) -> Self {
        match &mut self.network {
            Network::V4(ip) => ip.ttl = hops,
            Network::V6(ip) => ip.hop_limit = hops,
            Network::Other(_) => {}
        }
        self
    }

    /// Sets the DSCP and ECN byte.
    #[must_use]
    pub fn with_class(mut self, class: u8) -> Self {
        match &mut self.network {
            Network::V4(ip) => ip.tos = class,
            Network::V6(ip) => ip.traffic_class = class,
            Network::Other(_) => {}
        }
        self
    }

    /// Sets the IPv4 identification. Does nothing for IPv6.
    #[must_use]
    pub fn with_id(mut self, id: u16) -> Self {
        if let Network::V4(ip) = &mut self.network {
            ip.id = id;
        }
        self
    }

    /// Sets the L4 checksum.
    #[must_use]
    pub fn with_l4_checksum(mut self, checksum: Checksum) -> Self {
        match &mut self.transport {
            Transport::Udp(udp) => udp.checksum = checksum,
            Transport::Tcp(tcp) => tcp.checksum = checksum,
            Transport::Other(_) | Transport::None => {}
        }
        self
    }

    /// Sets the IPv4 header checksum. Does nothing for IPv6.
    #[must_use]
    pub fn with_header_checksum(mut self, checksum: Checksum) -> Self {
        if let Network::V4(ip) = &mut self.network {
            ip.checksum = checksum;
        }
        self
    }

    /// Sets the source address and port, as SNAT does.
    ///
    /// # Panics
    /// If the address is of the other family.
    #[must_use]
    #[track_caller]
    pub fn with_source(mut self, source: SocketAddr) -> Self {
        match (&mut self.network, source.ip()) {
            (Network::V4(ip), IpAddr::V4(address)) => ip.source = address,
            (Network::V6(ip), IpAddr::V6(address)) => ip.source = address,
            _ => panic!("{source} is of another family than the packet"),
        }
        match &mut self.transport {
            Transport::Udp(udp) => udp.source = source.port(),
            Transport::Tcp(tcp) => tcp.source = source.port(),
            Transport::Other(_) | Transport::None => {}
        }
        self
    }

    /// Sets the destination address and port, as DNAT does.
    ///
    /// # Panics
    /// If the address is of the other family.
    #[must_use]
    #[track_caller]
    pub fn with_destination(mut self, destination: SocketAddr) -> Self {
        match (&mut self.network, destination.ip()) {
            (Network::V4(ip), IpAddr::V4(address)) => ip.destination = address,
            (Network::V6(ip), IpAddr::V6(address)) => ip.destination = address,
            _ => panic!("{destination} is of another family than the packet"),
        }
        match &mut self.transport {
            Transport::Udp(udp) => udp.destination = destination.port(),
            Transport::Tcp(tcp) => tcp.destination = destination.port(),
            Transport::Other(_) | Transport::None => {}
        }
        self
    }
}
