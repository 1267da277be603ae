//! Other readings of words that name no connection: ends in the other order, an IPv6 address whose last group is meant
//! as a port.

use super::NamedConnections;
use shunt_api::{Network, Selection};
use std::net::{IpAddr, Ipv6Addr};

impl NamedConnections {
    /// The connections that may have been meant instead, each with the words that name it.
    pub(crate) fn other_readings(&self) -> Vec<Self> {
        let with_ports = self.with_ports();
        let swapped = self.swapped();
        let both = with_ports.as_ref().and_then(Self::swapped);
        [swapped, with_ports, both].into_iter().flatten().collect()
    }

    /// With source and destination in each other's place.
    fn swapped(&self) -> Option<Self> {
        let [source, destination] = &self.hosts;
        let Selection { src, dst, sport, dport, proto } = self.rest;
        let rest = Selection { src: dst, dst: src, sport: dport, dport: sport, proto };
        let swapped = Self::new(rest, [destination.clone(), source.clone()]);
        (rest_of(&swapped) != rest_of(self)).then_some(swapped)
    }

    /// With the last group of an IPv6 address as its port, which needs brackets.
    fn with_ports(&self) -> Option<Self> {
        let Selection { src, dst, sport, dport, proto } = self.rest;
        let [(src, sport), (dst, dport)] = [(src, sport), (dst, dport)].map(|(network, port)| {
            let read = network.filter(|_| port.is_none()).and_then(address_and_port);
            read.map_or((network, port), |(address, port)| (Some(address.into()), Some(port)))
        });
        let rest = Selection { src, dst, sport, dport, proto };
        (rest != self.rest).then(|| Self::new(rest, self.hosts.clone()))
    }

    fn new(rest: Selection, hosts: [Option<String>; 2]) -> Self {
        let words = words(&rest, &hosts);
        Self { rest, hosts, words }
    }
}

fn rest_of(connections: &NamedConnections) -> (&Selection, &[Option<String>; 2]) {
    (&connections.rest, &connections.hosts)
}

/// `2001:db8::1` and 443 of `2001:db8::1:443`.
fn address_and_port(network: Network) -> Option<(IpAddr, u16)> {
    let text = network.only()?.to_string();
    let (address, port) = text.rsplit_once(':')?;
    Some((address.parse::<Ipv6Addr>().ok()?.into(), port.parse().ok().filter(|port| *port > 0)?))
}

/// The words that name these connections.
fn words(rest: &Selection, hosts: &[Option<String>; 2]) -> String {
    if hosts.iter().all(Option::is_none) {
        return rest.words();
    }
    let mut words: Vec<String> = rest.proto.iter().map(ToString::to_string).collect();
    let ends = [(rest.src, rest.sport, "src"), (rest.dst, rest.dport, "dst")];
    for ((network, port, option), host) in ends.into_iter().zip(hosts) {
        let place = host.clone().or_else(|| network.map(|network| network.to_string()));
        words.extend(place.map(|place| format!("--{option} {place}")));
        let letter = option.chars().next().unwrap_or_default();
        words.extend(port.map(|port| format!("--{letter}port {port}")));
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use crate::commands::{arguments::parse_args, connections::ConnectionArgs};

    #[test]
    fn words_are_read_in_the_other_order_and_with_the_last_group_as_a_port() {
        let readings = |words: &str| -> Vec<String> {
            let named = parse_args::<ConnectionArgs>(words).unwrap().named().unwrap();
            named.other_readings().iter().map(|reading| reading.words().to_owned()).collect()
        };
        assert_eq!(
            readings("tcp 198.51.100.1:443 192.168.1.2:5000"),
            ["tcp 192.168.1.2:5000 198.51.100.1:443"]
        );
        assert_eq!(readings("--dst laptop"), ["--src laptop"]);
        assert_eq!(readings("198.51.100.1:443 laptop"), ["--src laptop --dst 198.51.100.1 --dport 443"]);
        assert_eq!(
            readings("2001:db8::1:443"),
            ["--dst 2001:db8::1:443", "[2001:db8::1]:443", "--dst 2001:db8::1 --dport 443"]
        );
        assert_eq!(readings("--sport 5000"), ["--dport 5000"]);
        assert!(readings("tcp").is_empty() && readings("").is_empty());
    }
}
