//! An end of a connection, as people type it.

use super::super::arguments::l4_port;
use shunt_api::{Network, Proto, has_zone};
use shunt_wire::Mac;
use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

/// An address or a network, or the name or MAC of a host; with a port, if one was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End {
    pub(super) place: Place,
    pub(super) port: Option<u16>,
    /// As it was typed.
    typed: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Network(Network),
    /// A name or a MAC, which is still to be looked up.
    Host(String),
}

/// A word that names connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Word {
    Proto(Proto),
    End(End),
}

impl FromStr for End {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (place, port) = place_and_port(text)?;
        Ok(Self { place, port, typed: text.to_owned() })
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.typed)
    }
}

impl FromStr for Word {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match proto(text) {
            Some(proto) => Ok(Self::Proto(proto)),
            None => text.parse().map(Self::End),
        }
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Proto(proto) => proto.fmt(f),
            Self::End(end) => end.fmt(f),
        }
    }
}

fn proto(text: &str) -> Option<Proto> {
    [Proto::Tcp, Proto::Udp].into_iter().find(|proto| proto.to_string().eq_ignore_ascii_case(text))
}

fn place_and_port(text: &str) -> Result<(Place, Option<u16>), String> {
    if let Some(why) = has_zone(text) {
        return Err(why);
    }
    if let Some((_, rest)) = text.split_once("://") {
        let host = rest.split(['/', ':']).next().unwrap_or_default();
        return Err(format!("`{text}`: expected a host without `://` and a path, such as `{host}`"));
    }
    if let Some((proto, port)) = text.split_once([':', '/'])
        && self::proto(proto).is_some()
        && l4_port(port).is_ok()
    {
        return Err(format!("`{text}`: the port is a word of its own: `{proto} --dport {port}`"));
    }
    if let Ok(both) = text.parse::<SocketAddr>() {
        let port = port_of(text, &both.port().to_string())?;
        return Ok((Place::Network(both.ip().into()), Some(port)));
    }
    if is_name(text) || text.parse::<Mac>().is_ok() {
        return Ok((Place::Host(text.to_owned()), None));
    }
    match text.rsplit_once(':') {
        Some((place, port)) if is_address(place) => Err(port_of(text, port).err().unwrap_or_default()),
        Some((name, port)) if is_name(name) && !port.contains('/') => {
            Ok((Place::Host(name.to_owned()), Some(port_of(text, port)?)))
        }
        // Nine groups, or a port of five digits.
        Some((address, port))
            if is_bare(address) && l4_port(port).is_ok() && text.parse::<Ipv6Addr>().is_err() =>
        {
            Err(format!("`{text}`: an IPv6 address with a port needs brackets: [{address}]:{port}"))
        }
        _ => Ok((Place::Network(network(text)?), None)),
    }
}

/// Whether this is an IPv6 address without brackets before which and behind which nothing is missing.
fn is_bare(text: &str) -> bool {
    !text.ends_with(':') && text.parse::<Ipv6Addr>().is_ok()
}

fn network(text: &str) -> Result<Network, String> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    bare.parse()
}

fn port_of(text: &str, port: &str) -> Result<u16, String> {
    l4_port(port).map_err(|why| format!("`{text}`: `{port}` is not a port; {why}"))
}

/// Whether this can be the name of a host, and no address with a mistake.
fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

/// Whether this is what may stand before a port.
fn is_address(text: &str) -> bool {
    let bracketed = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    text.parse::<Ipv4Addr>().is_ok() || bracketed.is_some_and(|text| text.parse::<Ipv6Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_an_address_a_network_or_a_host_with_or_without_a_port() {
        let read = |text: &str| {
            let end: End = text.parse().unwrap();
            assert_eq!(end.to_string(), text);
            let place = match end.place {
                Place::Network(network) => network.to_string(),
                Place::Host(name) => format!("host {name}"),
            };
            (place, end.port)
        };
        for (text, place, port) in [
            ("192.0.2.1", "192.0.2.1", None),
            ("192.0.2.0/24", "192.0.2.0/24", None),
            ("192.0.2.1:443", "192.0.2.1", Some(443)),
            ("2001:db8::1", "2001:db8::1", None),
            ("[2001:db8::1]", "2001:db8::1", None),
            ("[2001:db8::1]:443", "2001:db8::1", Some(443)),
            ("laptop", "host laptop", None),
            ("laptop:22", "host laptop", Some(22)),
            ("02:00:00:00:00:01", "host 02:00:00:00:00:01", None),
        ] {
            assert_eq!(read(text), (place.to_owned(), port), "{text}");
        }
    }

    #[test]
    fn a_word_that_is_no_end_is_answered_with_what_is_wrong() {
        for (text, why) in [
            ("192.0.2.1:99999", "`99999` is not a port; expected 1 to 65535"),
            ("192.0.2.1:0", "`0` is not a port"),
            ("[2001:db8::1]:x", "`x` is not a port"),
            ("laptop:", "`` is not a port"),
            ("1:2:3:4:5:6:7:8:443", "needs brackets: [1:2:3:4:5:6:7:8]:443"),
            ("2001:db8::1:44300", "needs brackets: [2001:db8::1]:44300"),
            ("fe80::1%lan0", "leave out `%lan0`"),
            ("[fe80::1%2]:443", "leave out `%2`"),
            ("192.0.2", "`192.0.2` is not an IP address"),
            ("192.0.2.0/33", "0 to 32"),
            ("10m", "`10m` is not an IP address"),
            ("2001:db8:::1", "`2001:db8:::1` is not an IP address"),
            ("https://example.com/x", "without `://` and a path, such as `example.com`"),
            ("tcp:443", "`tcp --dport 443`"),
        ] {
            let said = text.parse::<End>().unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
