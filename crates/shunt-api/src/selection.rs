//! Selections: which connections a request is about.

use crate::{
    flows::{Proto, Tuple},
    host_names::EndNames,
};
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

/// Conditions that a connection must meet. In a request, they are the parameters of the query. Absent conditions are
/// met by all connections.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams, utoipa::ToSchema), into_params(parameter_in = Query))]
#[serde(default, deny_unknown_fields)]
pub struct Selection {
    /// Source address, or a network that contains it, such as `192.0.2.0/24`.
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>), schema(value_type = Option<String>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub src: Option<Network>,
    /// Destination address, or a network that contains it, such as `192.0.2.0/24`.
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>), schema(value_type = Option<String>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dst: Option<Network>,
    /// Source port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sport: Option<u16>,
    /// Destination port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dport: Option<u16>,
    /// Transport protocol.
    #[cfg_attr(feature = "openapi", param(inline))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proto: Option<Proto>,
}

/// An IP network: an address and a prefix length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Network {
    addr: IpAddr,
    len: u8,
}

impl Selection {
    /// Whether a direction with this tuple meets the conditions for addresses and ports.
    pub fn has_ends(&self, tuple: &Tuple) -> bool {
        self.src.is_none_or(|network| network.has(tuple.src))
            && self.dst.is_none_or(|network| network.has(tuple.dst))
            && self.sport.is_none_or(|port| port == tuple.sport)
            && self.dport.is_none_or(|port| port == tuple.dport)
    }

    /// Whether the protocol matches, and one of the directions meets all conditions for addresses and ports.
    pub fn has(&self, proto: Proto, directions: &[Tuple]) -> bool {
        self.proto.is_none_or(|want| want == proto) && directions.iter().any(|tuple| self.has_ends(tuple))
    }

    /// The query of a request: `src=192.0.2.0/24&dport=53`.
    pub fn query(&self) -> String {
        let Self { src, dst, sport, dport, proto } = self;
        let given = [
            src.map(|network| format!("src={network}")),
            dst.map(|network| format!("dst={network}")),
            sport.map(|port| format!("sport={port}")),
            dport.map(|port| format!("dport={port}")),
            proto.map(|proto| format!("proto={proto}")),
        ];
        given.into_iter().flatten().collect::<Vec<_>>().join("&")
    }

    /// The words by which the command line names these connections: `tcp 192.0.2.1:1000 --dport 443`.
    pub fn words(&self) -> String {
        self.words_with(&EndNames::default())
    }

    /// The same with the names of the hosts: `tcp laptop (192.0.2.1:1000) --dport 443`.
    pub fn words_with(&self, names: &EndNames) -> String {
        let Self { src, dst, sport, dport, proto } = self;
        let mut words: Vec<String> = proto.iter().map(ToString::to_string).collect();
        for (at, (network, port, option, port_option, name)) in
            [(src, sport, "--src", "--sport", &names.src), (dst, dport, "--dst", "--dport", &names.dst)]
                .into_iter()
                .enumerate()
        {
            let named = |word: String| match name {
                Some(name) => format!("{name} ({word})"),
                None => word,
            };
            // A destination is a word only behind a source, and a port belongs to an address, not to a network.
            let is_word = at == 0 || src.is_some();
            match (network, network.and_then(Network::only), port) {
                (Some(_), Some(addr), Some(port)) if is_word => {
                    words.push(named(SocketAddr::new(addr, *port).to_string()));
                    continue;
                }
                (Some(network), ..) if is_word => words.push(named(network.to_string())),
                (Some(network), ..) => words.push(format!("{option} {}", named(network.to_string()))),
                (None, ..) => {}
            }
            words.extend(port.map(|port| format!("{port_option} {port}")));
        }
        words.join(" ")
    }

    /// The single direction that matches; none unless both addresses and both ports are given.
    pub fn tuple(&self) -> Option<Tuple> {
        let (src, dst) = (self.src?.only()?, self.dst?.only()?);
        let whole = Tuple { src, dst, sport: self.sport?, dport: self.dport? };
        (src.is_ipv4() == dst.is_ipv4()).then_some(whole)
    }
}

impl Network {
    /// Whether the network contains this address.
    pub fn has(self, addr: IpAddr) -> bool {
        let (a, b, width) = match (self.addr, addr) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits().into(), b.to_bits().into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
            _ => return false,
        };
        // Prefix length 0 contains every address; a shift by the whole width would overflow.
        (a ^ b).checked_shr(width - u32::from(self.len)).unwrap_or(0) == 0
    }

    /// The address and the prefix length.
    pub fn parts(self) -> (IpAddr, u8) {
        (self.addr, self.len)
    }

    /// The address of a network that has only one; none for larger networks.
    pub fn only(self) -> Option<IpAddr> {
        (self.len == width(self.addr)).then_some(self.addr)
    }
}

/// Why an IPv6 address with a zone, such as `fe80::1%eth0`, is not one that packets have; none for other texts.
#[must_use]
pub fn has_zone(text: &str) -> Option<String> {
    let (address, rest) = text.split_once('%')?;
    address.trim_start_matches('[').parse::<Ipv6Addr>().ok()?;
    let zone = rest.split([']', '/']).next().unwrap_or_default();
    Some(format!("`{text}`: packets carry no zone; leave out `%{zone}`"))
}

const fn width(addr: IpAddr) -> u8 {
    if addr.is_ipv4() { 32 } else { 128 }
}

impl From<IpAddr> for Network {
    fn from(addr: IpAddr) -> Self {
        Self { addr, len: width(addr) }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (addr, len) = match text.split_once('/') {
            Some((addr, len)) => (addr, Some(len)),
            None => (text, None),
        };
        let addr: IpAddr = addr.parse().map_err(|_| {
            if let Some(why) = has_zone(text) {
                return why;
            }
            let addr = if addr.is_empty() { text } else { addr };
            format!("`{addr}` is not an IP address; expected one such as 192.0.2.1 or 2001:db8::1")
        })?;
        let width = width(addr);
        if let Some(mask) = len.and_then(|len| len.parse::<Ipv4Addr>().ok()).filter(|_| addr.is_ipv4()) {
            let len = mask.to_bits().leading_ones();
            return Err(match mask.to_bits().count_ones() == len {
                true => format!("`{text}`: write the netmask as a prefix length: {addr}/{len}"),
                false => {
                    format!("`{text}`: {mask} is not the netmask of a prefix; expected one such as {addr}/24")
                }
            });
        }
        let len = match len {
            Some(len) => len.parse().ok().filter(|len| *len <= width),
            None => Some(width),
        };
        len.map(|len| Self { addr, len })
            .ok_or_else(|| format!("`{text}`: expected a prefix length from 0 to {width} after the `/`"))
    }
}

impl TryFrom<String> for Network {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        network.to_string()
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.only() {
            Some(addr) => addr.fmt(f),
            None => write!(f, "{}/{}", self.addr, self.len),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_contains_the_addresses_with_its_prefix_and_family() {
        let has = |net: &str, addr: &str| net.parse::<Network>().unwrap().has(addr.parse().unwrap());
        assert!(has("192.0.2.1", "192.0.2.1") && !has("192.0.2.1", "192.0.2.2"));
        assert!(has("192.0.2.77/24", "192.0.2.1") && !has("192.0.2.0/24", "192.0.3.1"));
        assert!(has("0.0.0.0/0", "203.0.113.9") && !has("0.0.0.0/0", "2001:db8::1"));
        assert!(has("2001:db8::/32", "2001:db8:9::1") && !has("2001:db8::/32", "2001:db9::1"));
        assert!(has("::/0", "2001:db8::1") && !has("::/0", "192.0.2.1"));
        let masked = "192.0.2.0/255.255.255.0".parse::<Network>().unwrap_err();
        assert!(masked.ends_with("as a prefix length: 192.0.2.0/24"), "{masked}");
        let odd = "192.0.2.0/255.0.255.0".parse::<Network>().unwrap_err();
        assert!(odd.contains("255.0.255.0 is not the netmask of a prefix"), "{odd}");
        for wrong in ["", "eth0", "192.0.2.1/33", "2001:db8::/129", "192.0.2.0/-1", "192.0.2.0/"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
        for (typed, zone) in
            [("fe80::1%lan0", "%lan0"), ("[fe80::1%2]:443", "%2"), ("fe80::%br-lan/10", "%br-lan")]
        {
            let why = typed.parse::<Network>().unwrap_err();
            assert_eq!(why, format!("`{typed}`: packets carry no zone; leave out `{zone}`"));
        }
    }

    #[test]
    fn addresses_and_ports_must_match_in_the_same_direction() {
        let tuple = |src: &str, dst: &str| Tuple::new(src.parse().unwrap(), dst.parse().unwrap());
        let both =
            [tuple("192.0.2.1:1000", "198.51.100.1:443"), tuple("198.51.100.1:443", "203.0.113.1:2000")];
        let selection = |text: &str| -> Selection {
            let given = text.split('&').filter_map(|part| part.split_once('='));
            let text = |key: &str| given.clone().find(|(k, _)| *k == key).map(|(_, value)| value);
            Selection {
                src: text("src").map(|t| t.parse().unwrap()),
                dst: text("dst").map(|t| t.parse().unwrap()),
                sport: text("sport").map(|t| t.parse().unwrap()),
                dport: text("dport").map(|t| t.parse().unwrap()),
                proto: text("proto").map(|_| Proto::Tcp),
            }
        };
        for (text, expected) in [
            ("", true),
            ("src=192.0.2.0/24&dport=443", true),
            ("dst=203.0.113.1&proto=tcp", true),
            // The source of one direction and the source port of the other belong to no packet.
            ("src=192.0.2.1&sport=443", false),
            ("dst=192.0.2.1", false),
        ] {
            assert_eq!(selection(text).has(Proto::Tcp, &both), expected, "{text}");
            assert_eq!(selection(text).query(), text);
        }
        for (text, words) in [
            (
                "src=192.0.2.1&dst=198.51.100.1&sport=1000&dport=443&proto=tcp",
                "tcp 192.0.2.1:1000 198.51.100.1:443",
            ),
            ("src=192.0.2.0/24&dport=443", "192.0.2.0/24 --dport 443"),
            ("dst=203.0.113.1&dport=5", "--dst 203.0.113.1 --dport 5"),
            ("src=192.0.2.1&sport=443", "192.0.2.1:443"),
            ("dport=443", "--dport 443"),
        ] {
            assert_eq!(selection(text).words(), words);
        }
        assert!(!selection("proto=tcp").has(Proto::Udp, &both));
        assert_eq!(selection("src=192.0.2.1&dst=198.51.100.1&sport=1000&dport=443").tuple(), Some(both[0]));
        assert_eq!(selection("src=192.0.2.0/24&dst=198.51.100.1&sport=1000&dport=443").tuple(), None);
    }
}
