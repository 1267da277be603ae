//! Arguments and value parsers that several commands share.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::de::{DeserializeOwned, IntoDeserializer, value::Error as ValueError};
use shunt_api::has_zone;
use shunt_wire::{line::IpVersion, quantity};
use std::{
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
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

/// The shortest interval between two readings: the kernel's counters advance by ticks; shorter intervals would show
/// single ticks.
pub(crate) const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

/// A time, in the form that all options take: numbers with units, or a number of seconds, as iperf3 and ping take it.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let time = seconds.map_or_else(|| humantime::parse_duration(text), Ok);
    time.map_err(|_| "expected a time such as 500ms, 30s, 10m or 2h, or a number of seconds".to_owned())
}

/// A time within these bounds.
pub(crate) fn time_within(
    shortest: Duration,
    longest: Duration,
) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    bounded(shortest..=longest, move || format!("{} to {}", readable(shortest), readable(longest)))
}

/// A time that is not too short.
pub(crate) fn time_from(shortest: Duration) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    bounded(shortest..=Duration::MAX, move || format!("{} or more", readable(shortest)))
}

fn bounded(
    allowed: RangeInclusive<Duration>,
    bounds: impl Fn() -> String + Clone,
) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |text| {
        let time = duration(text).map_err(|why| format!("{why}; {}", bounds()))?;
        if allowed.contains(&time) { Ok(time) } else { Err(format!("expected {}", bounds())) }
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
    if wrong || text.parse::<std::net::IpAddr>().is_ok() {
        return Err("not the name of a port".to_owned());
    }
    Ok(text.to_owned())
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
    fn a_number_without_a_unit_is_seconds() {
        for (text, millis) in [("2", 2000), ("0.5", 500), ("2s", 2000), ("1m 30s", 90_000), ("100ms", 100)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for wrong in ["", "-1", "nan", "inf", "5 x", "soon"] {
            assert!(duration(wrong).unwrap_err().contains("or a number of seconds"), "{wrong}");
        }
    }

    #[test]
    fn a_time_out_of_bounds_is_refused_with_both_bounds() {
        let (shortest, longest) = (Duration::from_secs(3), Duration::from_secs(3600));
        let read = time_within(shortest, longest);
        assert_eq!((read("3"), read("1h")), (Ok(shortest), Ok(longest)));
        for wrong in ["0", "0s", "2999ms", "3601s", "9999999"] {
            assert_eq!(read(wrong).unwrap_err(), "expected 3s to 1h", "{wrong}");
        }
        let wrong = read("soon").unwrap_err();
        assert_eq!(wrong, format!("{}; 3s to 1h", duration("soon").unwrap_err()));
        let long = time_within(Duration::from_millis(1), Duration::from_secs(365 * 86_400));
        assert_eq!(long("0s").unwrap_err(), "expected 1ms to 365d");
        assert_eq!(time_from(shortest)("1").unwrap_err(), "expected 3s or more");
    }
}
