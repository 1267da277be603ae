//! How commands select connections: by words or by options, with the names of hosts or their addresses.

mod end;
mod swapped;

use super::{
    arguments::{l4_port, name_of},
    hosts::{KnownHosts, names_of_this_machine},
};
use crate::{
    client::{candidates, control::Client},
    failure::usage,
};
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
pub(crate) use end::End;
use end::{Place, Word};
use shunt_api::{Failure, Network, Proto, Selection, not_a_host};
use shunt_wire::Mac;
use std::{net::IpAddr, path::Path};

/// The heading of options that choose connections.
pub(super) const WHICH: &str = "Which connections";

#[derive(Debug, Args)]
pub(crate) struct SelectionArgs {
    /// Only this source: the name, MAC or address of a host, or the addresses of a network such as 192.0.2.0/24. The
    /// four filters for addresses and ports match either direction of a connection, original or reply, as conntrack
    /// prints it; so a host is a source of all its connections.
    #[arg(help_heading = WHICH, short, long, visible_alias = "host", value_name = "HOST|ADDR[/LEN]",
        add = ArgValueCandidates::new(candidates::sources))]
    pub(super) src: Option<End>,
    /// Only this destination: a host or the addresses of a network, as for --src.
    #[arg(help_heading = WHICH, short, long, value_name = "HOST|ADDR[/LEN]",
        add = ArgValueCandidates::new(candidates::destinations))]
    pub(super) dst: Option<End>,
    /// Only this source port.
    #[arg(help_heading = WHICH, long, value_name = "PORT", value_parser = l4_port)]
    pub(super) sport: Option<u16>,
    /// Only this destination port.
    #[arg(help_heading = WHICH, long, value_name = "PORT", value_parser = l4_port)]
    pub(super) dport: Option<u16>,
    /// Only this protocol.
    #[arg(help_heading = WHICH, short, long, value_parser = name_of::<Proto>(&["tcp", "udp"]))]
    pub(super) proto: Option<Proto>,
}

/// Connections, by words or by options.
#[derive(Debug, Args)]
pub(crate) struct ConnectionArgs {
    /// A short form of --proto, --src and --dst, in this order: tcp or udp, then HOST, HOST:PORT, ADDR, ADDR:PORT,
    /// [ADDR6]:PORT or ADDR/LEN. A host has the name that `shunt usage` shows.
    #[arg(value_name = "PROTO|SRC|DST", num_args = 0..=3)]
    words: Vec<Word>,
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

impl SelectionArgs {
    /// The connections, with names that are still to be looked up.
    pub(crate) fn named(&self) -> Result<NamedConnections, Failure> {
        named(&[], self)
    }

    /// The options as they were typed.
    fn typed(&self) -> Vec<String> {
        let Self { src, dst, sport, dport, proto } = self;
        let options = [
            proto.map(|proto| format!("--proto {proto}")),
            src.as_ref().map(|src| format!("--src {src}")),
            sport.map(|port| format!("--sport {port}")),
            dst.as_ref().map(|dst| format!("--dst {dst}")),
            dport.map(|port| format!("--dport {port}")),
        ];
        options.into_iter().flatten().collect()
    }
}

impl ConnectionArgs {
    /// The connections, with names that are still to be looked up.
    pub(crate) fn named(&self) -> Result<NamedConnections, Failure> {
        named(&self.words, &self.selection)
    }
}

fn named(words: &[Word], options: &SelectionArgs) -> Result<NamedConnections, Failure> {
    let typed = words.iter().map(ToString::to_string).chain(options.typed());
    let mut all = NamedConnections {
        rest: Selection {
            src: None,
            dst: None,
            sport: options.sport,
            dport: options.dport,
            proto: options.proto,
        },
        hosts: [None, None],
        words: typed.collect::<Vec<_>>().join(" "),
    };
    let ends = match words {
        [Word::Proto(proto), ends @ ..] => {
            all.rest.proto = Some(*proto);
            ends
        }
        ends => ends,
    };
    if let [Word::End(End { place: Place::Host(name), .. }), _, _, ..] = ends {
        let why = "of three words, the first is tcp or udp: no other protocol can be fast";
        return Err(usage(format!("`{name}`: {why}")));
    }
    let mut given = [options.src.as_ref(), options.dst.as_ref()];
    for (n, word) in ends.iter().enumerate() {
        let why = match word {
            Word::Proto(_) => "the protocol stands before the source and the destination",
            Word::End(end) => match given.get_mut(n) {
                Some(place @ None) => {
                    *place = Some(end);
                    continue;
                }
                Some(Some(_)) => "the same end is named by an option, too: keep one of them",
                None => "expected at most a source and a destination, after an optional tcp or udp",
            },
        };
        return Err(usage(format!("`{word}`: {why}")));
    }
    let [src, dst] = given;
    all.set_end(0, src)?;
    all.set_end(1, dst)?;
    Ok(all)
}

impl NamedConnections {
    fn set_end(&mut self, n: usize, end: Option<&End>) -> Result<(), Failure> {
        let Some(end) = end else { return Ok(()) };
        let Selection { src, dst, sport, dport, .. } = &mut self.rest;
        let (network, port) = if n == 0 { (src, sport) } else { (dst, dport) };
        match &end.place {
            Place::Network(one) => *network = Some(*one),
            Place::Host(name) => self.hosts[n] = Some(name.clone()),
        }
        match (*port, end.port) {
            (Some(option), Some(typed)) if option != typed => {
                Err(usage(format!("`{end}`: the port is {option} by an option: keep one of them")))
            }
            _ => {
                *port = end.port.or(*port);
                Ok(())
            }
        }
    }

    /// A name of these that is that of a network device.
    pub(crate) fn device(&self) -> Option<&str> {
        self.hosts.iter().flatten().map(String::as_str).find(|name| is_device(name))
    }

    /// The words and options that name these connections.
    pub(crate) fn words(&self) -> &str {
        &self.words
    }

    /// Whether there is no condition.
    pub(crate) fn are_all(&self) -> bool {
        self.rest == Selection::default() && self.has_no_names()
    }

    fn has_no_names(&self) -> bool {
        self.hosts.iter().all(Option::is_none)
    }

    /// The source, if it is a single address and the only condition.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        let address = self.rest.src?.only()?;
        let alone = Selection { src: self.rest.src, ..Selection::default() };
        (self.rest == alone && self.has_no_names()).then_some(address)
    }

    /// A selection for each address of the hosts. The ends of a connection have the same address family.
    pub(crate) async fn look_up(&self, client: &Client) -> Result<Vec<Selection>, Failure> {
        if self.has_no_names() {
            return Ok(vec![self.rest.clone()]);
        }
        let known = KnownHosts::read(client).await;
        self.with(|name| known.addresses(name))
    }

    pub(super) fn with(&self, addresses: impl Fn(&str) -> Vec<IpAddr>) -> Result<Vec<Selection>, Failure> {
        let [source, destination] = &self.hosts;
        let addresses_of = |name: Option<&str>, given| {
            let found = ends(name, given, &addresses);
            found.map_err(|name| unknown_host(name, self.words.contains("--")))
        };
        let sources = addresses_of(source.as_deref(), self.rest.src)?;
        let destinations = addresses_of(destination.as_deref(), self.rest.dst)?;
        let mut selections = Vec::new();
        for src in &sources {
            for dst in &destinations {
                let families = [src, dst].map(|end| end.map(|network| network.parts().0.is_ipv4()));
                let differ = families[0].zip(families[1]).is_some_and(|(src, dst)| src != dst);
                if !differ || self.has_no_names() {
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

/// The addresses of an end: those of the host with this name, or what was given without a name. The error is a name
/// that no host has.
fn ends(
    name: Option<&str>,
    given: Option<Network>,
    addresses: impl Fn(&str) -> Vec<IpAddr>,
) -> Result<Vec<Option<Network>>, &str> {
    let Some(name) = name else { return Ok(vec![given]) };
    match addresses(name).as_slice() {
        [] => Err(name),
        found => Ok(found.iter().map(|address| Some(Network::from(*address))).collect()),
    }
}

/// Whether a network device of this namespace has this name.
fn is_device(name: &str) -> bool {
    !name.contains('/') && Path::new("/sys/class/net").join(name).exists()
}

fn unknown_host(name: &str, is_option: bool) -> Failure {
    let (what, way_out) = if is_device(name) {
        ("is a network device, not", format!("; `shunt flows --dev {name}` lists its connections"))
    } else if name.parse::<Mac>().is_ok() {
        ("is not the MAC of", String::new())
    } else if is_option {
        ("is not", String::new())
    } else {
        ("is neither tcp nor udp, nor", String::new())
    };
    usage(format!("`{name}` {what} {}{way_out}", not_a_host(names_of_this_machine().names())))
}

#[cfg(test)]
mod tests;
