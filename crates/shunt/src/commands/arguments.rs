//! Arguments and value parsers that several commands share.

use crate::client::candidates;
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use clap_complete::engine::ArgValueCandidates;
use serde::de::{DeserializeOwned, IntoDeserializer, value::Error as ValueError};
use shunt_api::{Network, Proto, Selection};
use shunt_wire::{line::IpVersion, quantity};
use std::time::Duration;

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

/// Accepts one of `names` and reads it as the messages of the control socket spell it.
pub(crate) fn name_of<T>(names: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: DeserializeOwned + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names)
        .try_map(|name| T::deserialize(IntoDeserializer::<ValueError>::into_deserializer(name)))
}

pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| "expected a duration such as 500ms or 2s".to_owned())
}

/// As iperf3 does, takes a number without a unit as seconds.
pub(crate) fn duration_or_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.map_or_else(|| duration(text), Ok)
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
