//! Arguments and value parsers that several commands share.

use super::hosts::{KnownHosts, names_of_this_machine};
use crate::{
    client::{candidates, control::Client},
    failure::usage,
};
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use clap_complete::engine::ArgValueCandidates;
use serde::de::{DeserializeOwned, IntoDeserializer, value::Error as ValueError};
use shunt_api::{Failure, HostNames, Network, Proto, Selection};
use shunt_wire::{line::IpVersion, quantity};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

/// The heading of options that choose connections.
pub(super) const WHICH: &str = "Which connections";

#[derive(Debug, Args)]
pub(crate) struct SelectionArgs {
    /// Only this source address, or the addresses of a network such as 192.0.2.0/24. The four filters for addresses and
    /// ports match either direction of a connection, original or reply, as conntrack prints it.
    #[arg(help_heading = WHICH, short, long, value_name = "ADDR[/LEN]", add = ArgValueCandidates::new(candidates::sources))]
    src: Option<Network>,
    /// Only this destination address, or the addresses of a network.
    #[arg(help_heading = WHICH, short, long, value_name = "ADDR[/LEN]", add = ArgValueCandidates::new(candidates::destinations))]
    dst: Option<Network>,
    /// Only this source port.
    #[arg(help_heading = WHICH, long, value_name = "PORT")]
    sport: Option<u16>,
    /// Only this destination port.
    #[arg(help_heading = WHICH, long, value_name = "PORT")]
    dport: Option<u16>,
    /// Only this protocol.
    #[arg(help_heading = WHICH, short, long, value_parser = name_of::<Proto>(&["tcp", "udp"]))]
    proto: Option<Proto>,
}

impl SelectionArgs {
    pub(crate) fn selection(&self) -> Selection {
        let Self { src, dst, sport, dport, proto } = *self;
        Selection { src, dst, sport, dport, proto }
    }
}

/// Connections, by words or by options.
#[derive(Debug, Args)]
pub(crate) struct ConnectionArgs {
    /// A short form of --proto, --src and --dst, in this order: tcp or udp, then ADDR, ADDR:PORT, [ADDR6]:PORT,
    /// ADDR/LEN or the name of a host, as in `shunt usage`.
    #[arg(value_name = "PROTO|SRC|DST", num_args = 0..=3)]
    words: Vec<String>,
    #[command(flatten)]
    selection: SelectionArgs,
}

/// Connections whose ends may be named by hosts, which are still to be looked up.
#[derive(Debug)]
pub(crate) struct NamedConnections {
    /// The other conditions.
    rest: Selection,
    /// The names of the source and of the destination.
    hosts: [Option<String>; 2],
    /// As they were typed.
    words: String,
}

impl ConnectionArgs {
    /// One selection: a host with several addresses is refused.
    pub(crate) fn selection(&self) -> Result<Selection, Failure> {
        self.selection_with(names_of_this_machine)
    }

    fn selection_with(&self, names: impl Fn() -> HostNames) -> Result<Selection, Failure> {
        self.named()?.single(|name| names().addresses(name))
    }

    /// The connections, with names that are still to be looked up.
    pub(crate) fn named(&self) -> Result<NamedConnections, Failure> {
        let mut selection = self.selection.selection();
        let options = selection.words();
        let typed = self.words.iter().map(String::as_str).chain((!options.is_empty()).then_some(&*options));
        let typed = typed.collect::<Vec<_>>().join(" ");
        let mut hosts = [None, None];
        let mut words = self.words.as_slice();
        if let [first, rest @ ..] = words {
            let is_meant = |proto: &Proto| proto.to_string().eq_ignore_ascii_case(first);
            let proto = [Proto::Tcp, Proto::Udp].into_iter().find(is_meant);
            if let Some(proto) = proto {
                selection.proto = Some(proto);
                words = rest;
            }
        }
        for (n, word) in words.iter().enumerate() {
            let Some(host) = hosts.get_mut(n) else {
                let why = "expected at most a source and a destination, after an optional tcp or udp";
                return Err(usage(format!("`{word}`: {why}")));
            };
            match address_and_port(word) {
                Ok((network, port)) if n == 0 => {
                    (selection.src, selection.sport) = (Some(network), port.or(selection.sport));
                }
                Ok((network, port)) => {
                    (selection.dst, selection.dport) = (Some(network), port.or(selection.dport));
                }
                Err(_) if is_word(word) => *host = Some(word.clone()),
                Err(why) => return Err(usage(why)),
            }
        }
        Ok(NamedConnections { rest: selection, hosts, words: typed })
    }
}

impl NamedConnections {
    /// The words and options that name these connections.
    pub(crate) fn words(&self) -> &str {
        &self.words
    }

    /// Whether there is no condition.
    pub(crate) fn are_all(&self) -> bool {
        self.rest == Selection::default() && self.hosts.iter().all(Option::is_none)
    }

    /// The source, if it is a single address and the only condition.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        let address = self.rest.src?.only()?;
        let alone = Selection { src: self.rest.src, ..Selection::default() };
        (self.rest == alone && self.hosts.iter().all(Option::is_none)).then_some(address)
    }

    /// A selection for each address of the hosts. The ends of a connection have the same address family.
    pub(crate) async fn look_up(&self, client: &Client) -> Result<Vec<Selection>, Failure> {
        if self.hosts.iter().all(Option::is_none) {
            return Ok(vec![self.rest.clone()]);
        }
        let known = KnownHosts::read(client).await;
        self.with(|name| known.addresses(name))
    }

    fn single(&self, addresses: impl Fn(&str) -> Vec<IpAddr>) -> Result<Selection, Failure> {
        for name in self.hosts.iter().flatten() {
            if let several @ [_, _, ..] = addresses(name).as_slice() {
                let several: Vec<String> = several.iter().map(IpAddr::to_string).collect();
                return Err(usage(format!(
                    "`{name}` is the name of several addresses; name one of {}",
                    several.join(", ")
                )));
            }
        }
        self.with(addresses).map(|mut selections| selections.swap_remove(0))
    }

    fn with(&self, addresses: impl Fn(&str) -> Vec<IpAddr>) -> Result<Vec<Selection>, Failure> {
        let [source, destination] = &self.hosts;
        let sources = ends(source.as_deref(), self.rest.src, &addresses)?;
        let destinations = ends(destination.as_deref(), self.rest.dst, &addresses)?;
        let mut selections = Vec::new();
        for src in &sources {
            for dst in &destinations {
                let families = [src, dst].map(|end| end.map(|network| network.parts().0.is_ipv4()));
                let differ = families[0].zip(families[1]).is_some_and(|(src, dst)| src != dst);
                if !differ || (source.is_none() && destination.is_none()) {
                    selections.push(Selection { src: *src, dst: *dst, ..self.rest.clone() });
                }
            }
        }
        if selections.is_empty() {
            return Err(usage(format!("`{}`: the two have no address of the same family", self.words)));
        }
        Ok(selections)
    }
}

/// The addresses of an end: those of the host with this name, or what was given without a name.
fn ends(
    name: Option<&str>,
    given: Option<Network>,
    addresses: impl Fn(&str) -> Vec<IpAddr>,
) -> Result<Vec<Option<Network>>, Failure> {
    let Some(name) = name else { return Ok(vec![given]) };
    match addresses(name).as_slice() {
        [] => Err(usage(format!(
            "`{name}` is neither tcp nor udp, nor a host that this machine knows (`shunt usage` lists them), nor an \
             address such as 192.0.2.1 or 2001:db8::1"
        ))),
        found => Ok(found.iter().map(|address| Some(Network::from(*address))).collect()),
    }
}

/// Reads an address, a network, or an address with a port.
fn address_and_port(word: &str) -> Result<(Network, Option<u16>), String> {
    match word.parse::<SocketAddr>() {
        Ok(both) => Ok((both.ip().into(), Some(both.port()))),
        Err(_) => match word.rsplit_once(':').filter(|(address, _)| is_address(address)) {
            Some((_, port)) => Err(format!("`{word}`: `{port}` is not a port; expected 0 to 65535")),
            None => Ok((word.parse()?, None)),
        },
    }
}

/// Whether this can be the name of a host, and no address with a mistake.
fn is_word(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

/// Whether this is what may stand before a port.
fn is_address(text: &str) -> bool {
    let bracketed = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    text.parse::<Ipv4Addr>().is_ok() || bracketed.is_some_and(|text| text.parse::<Ipv6Addr>().is_ok())
}

/// Accepts one of `names` and reads it as the messages of the control socket spell it.
pub(crate) fn name_of<T>(names: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: DeserializeOwned + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names)
        .try_map(|name| T::deserialize(IntoDeserializer::<ValueError>::into_deserializer(name)))
}

pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| "expected a number with its unit, such as 30s, 10m or 2h".to_owned())
}

/// As iperf3 does, takes a number without a unit as seconds.
pub(crate) fn duration_or_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.map_or_else(|| duration(text), Ok)
}

/// Reads a time within these bounds by one of the functions above.
pub(crate) fn time_within(
    read: fn(&str) -> Result<Duration, String>,
    shortest: Duration,
    longest: Duration,
) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |text| {
        let [from, to] = [shortest, longest].map(readable);
        let time = read(text).map_err(|why| format!("{why}; {from} to {to}"))?;
        if (shortest..=longest).contains(&time) { Ok(time) } else { Err(format!("expected {from} to {to}")) }
    }
}

/// A time as one would type it: days as such, since humantime makes months of them.
fn readable(time: Duration) -> String {
    const DAY: u64 = 86_400;
    match time.as_secs() {
        seconds @ DAY.. if seconds.is_multiple_of(DAY) => format!("{}d", seconds / DAY),
        _ => humantime::format_duration(time).to_string(),
    }
}

/// How many things to show.
pub(crate) fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "expected a number from 1 on".to_owned())
}

/// An IP address.
pub(crate) fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| "expected an address, such as 192.0.2.1 or 2001:db8::1".to_owned())
}

/// A number of bytes, such as 1500 or 9k.
pub(crate) fn bytes(text: &str) -> Result<u32, String> {
    let bytes = quantity::bytes(text).map_err(|why| why.to_string())?;
    u32::try_from(bytes).map_err(|_| format!("{bytes} bytes: at most {} are possible", u32::MAX))
}

/// The size of a frame with FCS.
pub(crate) fn frame_bytes(text: &str) -> Result<u32, String> {
    let bytes = bytes(text)?;
    match bytes {
        64..=9018 => Ok(bytes),
        _ => Err(format!("a frame of {bytes} bytes: 64 to 9018, FCS included, can be sent")),
    }
}

pub(crate) fn ip_version(text: &str) -> Result<IpVersion, String> {
    match text {
        "4" => Ok(IpVersion::V4),
        "6" => Ok(IpVersion::V6),
        _ => Err("expected 4 or 6".to_owned()),
    }
}

/// An address with a port.
pub(crate) fn endpoint(text: &str) -> Result<SocketAddr, String> {
    let wanted = "expected an address and a port, such as 192.0.2.1:5000 or [2001:db8::1]:5000";
    text.parse().map_err(|_| wanted.to_owned())
}

/// The name of a network device, as the kernel accepts it.
pub(crate) fn port_name(text: &str) -> Result<String, String> {
    let wrong =
        text.is_empty() || text.contains(|c: char| c.is_whitespace() || c == '/') || text.starts_with('-');
    if wrong { Err("not the name of a port".to_owned()) } else { Ok(text.to_owned()) }
}

/// The arguments of one command, read from words as a user would type them.
#[cfg(test)]
pub(crate) fn parse_args<A: Args>(words: &str) -> Result<A, clap::Error> {
    let command = A::augment_args(clap::Command::new("shunt").no_binary_name(true));
    A::from_arg_matches(&command.try_get_matches_from(words.split_whitespace())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_named_by_words_or_by_options() {
        let why = |words: &str| parse_args::<ConnectionArgs>(words).unwrap().selection();
        let whole = "src=192.0.2.1&dst=198.51.100.1&sport=1000&dport=53&proto=udp";
        assert_eq!(why("udp 192.0.2.1:1000 198.51.100.1:53").unwrap().query(), whole);
        assert_eq!(
            why("-p udp -s 192.0.2.1 --sport 1000 -d 198.51.100.1 --dport 53").unwrap().query(),
            whole
        );
        assert_eq!(
            why("192.0.2.1 [2001:db8::1]:443").unwrap().query(),
            "src=192.0.2.1&dst=2001:db8::1&dport=443"
        );
        assert_eq!(
            why("tcp 192.0.2.0/24 --dport 22").unwrap().query(),
            "src=192.0.2.0/24&dport=22&proto=tcp"
        );
        assert_eq!(why("").unwrap(), Selection::default());
        for wrong in ["eth0", "192.0.2.1 tcp", "192.0.2.1:99999", "192.0.2.1 192.0.2.2 192.0.2.3"] {
            assert!(why(wrong).is_err(), "{wrong}");
        }
        for (wrong, part) in
            [("192.0.2.1:99999", "`99999` is not a port"), ("[2001:db8::1]:x", "`x` is not a port")]
        {
            assert!(why(wrong).unwrap_err().message.contains(part), "{wrong}");
        }
    }

    #[test]
    fn a_time_out_of_bounds_is_refused_with_both_bounds() {
        let (shortest, longest) = (Duration::from_secs(3), Duration::from_secs(3600));
        let read = time_within(duration_or_seconds, shortest, longest);
        assert_eq!((read("3"), read("1h")), (Ok(shortest), Ok(longest)));
        for wrong in ["0", "0s", "2999ms", "3601s", "9999999"] {
            assert_eq!(read(wrong).unwrap_err(), "expected 3s to 1h", "{wrong}");
        }
        assert!(read("soon").unwrap_err().contains("such as 30s"));
        let long = time_within(duration, Duration::from_millis(1), Duration::from_secs(365 * 86_400));
        assert_eq!(long("0s").unwrap_err(), "expected 1ms to 365d");
    }

    #[test]
    fn a_word_that_is_no_host_is_answered_with_all_that_it_could_be() {
        let why =
            |words: &str| parse_args::<ConnectionArgs>(words).unwrap().selection_with(HostNames::default);
        assert_eq!(why("TCP 192.0.2.1").unwrap().proto, Some(Proto::Tcp));
        for wrong in ["icmp 192.0.2.1", "lan0", "www.example.com"] {
            let said = why(wrong).unwrap_err().message;
            assert!(said.contains("neither tcp nor udp, nor a host") && said.contains("192.0.2.1"), "{said}");
        }
        assert!(why("192.0.2").unwrap_err().message.contains("`192.0.2` is not an IP address"));
    }

    #[test]
    fn a_host_is_named_as_the_leases_name_it_if_that_is_one_address() {
        let hosts = "192.168.1.2 laptop\n192.168.1.3 phone\n2001:db8::3 phone\n";
        let names = || HostNames::read(|path| if path == "/etc/hosts" { hosts } else { "" }.to_owned());
        let why = |words: &str| parse_args::<ConnectionArgs>(words).unwrap().selection_with(names);
        assert_eq!(why("tcp Laptop 198.51.100.1:443").unwrap().query(), {
            "src=192.168.1.2&dst=198.51.100.1&dport=443&proto=tcp"
        });
        let several = why("phone").unwrap_err().message;
        assert!(several.ends_with("name one of 192.168.1.3, 2001:db8::3"), "{several}");
        let unknown = why("printer").unwrap_err().message;
        assert!(unknown.contains("`printer`"), "{unknown}");
    }

    #[test]
    fn a_host_is_all_its_addresses_and_both_ends_are_of_one_family() {
        let known = KnownHosts::sample();
        let queries = |words: &str| -> Vec<String> {
            let named = parse_args::<ConnectionArgs>(words).unwrap().named().unwrap();
            assert_eq!(named.words(), words);
            let found = named.with(|name| known.addresses(name));
            found.map_or_else(|why| vec![why.message], |all| all.iter().map(Selection::query).collect())
        };
        assert_eq!(queries("tv"), ["src=192.168.1.3", "src=fd00:1::3"]);
        assert_eq!(queries("tcp tv 2001:db8::1"), ["src=fd00:1::3&dst=2001:db8::1&proto=tcp"]);
        assert_eq!(queries("laptop tv"), ["src=192.168.1.4&dst=192.168.1.3"]);
        assert_eq!(queries("tv --dport 443"), ["src=192.168.1.3&dport=443", "src=fd00:1::3&dport=443"]);
        assert_eq!(queries("192.168.1.3"), ["src=192.168.1.3"]);
        assert!(queries("laptop 2001:db8::1")[0].contains("no address of the same family"));
        assert!(queries("nosuch")[0].contains("`nosuch` is neither tcp nor udp"));
    }
}
