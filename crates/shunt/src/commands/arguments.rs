//! Arguments and value parsers that several commands share.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::de::{DeserializeOwned, IntoDeserializer, value::Error as ValueError};
use shunt_api::has_zone;
use shunt_wire::{line::IpVersion, quantity};
use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

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

/// A port of TCP or UDP.
pub(crate) fn l4_port(text: &str) -> Result<u16, String> {
    text.parse().ok().filter(|port| *port > 0).ok_or_else(|| "expected 1 to 65535".to_owned())
}

/// An IP address.
pub(crate) fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| {
        has_zone(text).unwrap_or_else(|| "expected an address, such as 192.0.2.1 or 2001:db8::1".to_owned())
    })
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

/// An address with a port, to send to or to listen on.
pub(crate) fn endpoint(text: &str) -> Result<SocketAddr, String> {
    let wanted = "expected an address and a port, such as 192.0.2.1:5000 or [2001:db8::1]:5000";
    text.parse().map_err(|_| match has_zone(text) {
        Some(_) => {
            "the zone of an address is a number here: the one before the device in `ip link`".to_owned()
        }
        None => wanted.to_owned(),
    })
}

/// An address with a port, as packets have it.
pub(crate) fn packet_endpoint(text: &str) -> Result<SocketAddr, String> {
    has_zone(text).map_or_else(|| endpoint(text), Err)
}

/// The name of a network device, as the kernel accepts it.
pub(crate) fn port_name(text: &str) -> Result<String, String> {
    let wrong =
        text.is_empty() || text.contains(|c: char| c.is_whitespace() || c == '/') || text.starts_with('-');
    if wrong { Err("not the name of a port".to_owned()) } else { Ok(text.to_owned()) }
}

/// The arguments of one command, read from words as a user would type them.
#[cfg(test)]
pub(crate) fn parse_args<A: clap::Args>(words: &str) -> Result<A, clap::Error> {
    let command = A::augment_args(clap::Command::new("shunt").no_binary_name(true));
    A::from_arg_matches(&command.try_get_matches_from(words.split_whitespace())?)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
