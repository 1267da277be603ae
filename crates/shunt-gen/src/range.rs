//! Ranges of addresses and ports.

use crate::Wrong;
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// Consecutive addresses. IPv6 addresses differ in the last 32 bits only.
///
/// Written as one address, as FIRST-LAST, or as ADDRESS/LENGTH. An IPv4 network larger than /31 does not include its
/// network and broadcast addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// The first address.
    pub first: IpAddr,
    /// Number of addresses; at least one.
    pub count: u32,
}

/// Consecutive ports, written as PORT or FIRST-LAST.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// The first port.
    pub first: u16,
    /// Number of ports; at least one.
    pub count: u16,
}

impl Addresses {
    /// A single address.
    pub const fn one(address: IpAddr) -> Self {
        Self { first: address, count: 1 }
    }

    /// The part that differs: the whole IPv4 address, the last 32 bits of an IPv6 address.
    pub const fn low(&self) -> u32 {
        low(self.first)
    }

    /// Whether an address is in the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        Self::from_to(self.first, address).is_some_and(|upto| upto.count <= self.count)
    }

    fn from_to(first: IpAddr, last: IpAddr) -> Option<Self> {
        let same_start = match (first, last) {
            (IpAddr::V4(_), IpAddr::V4(_)) => true,
            (IpAddr::V6(a), IpAddr::V6(b)) => a.segments()[..6] == b.segments()[..6],
            _ => false,
        };
        let count = low(last).checked_sub(low(first))?.checked_add(1)?;
        same_start.then_some(Self { first, count })
    }

    fn network(address: IpAddr, length: u32) -> Option<Self> {
        let free = (if address.is_ipv4() { 32u32 } else { 128 }).checked_sub(length)?;
        // More addresses than a u32 can count, or all of IPv4.
        if free > 31 {
            return None;
        }
        let base = low(address) & !((1 << free) - 1);
        let (skip, count) = if address.is_ipv4() && free > 1 { (1, (1 << free) - 2) } else { (0, 1 << free) };
        Some(Self { first: with_low(address, base + skip), count })
    }
}

impl Ports {
    /// A single port.
    pub const fn one(port: u16) -> Self {
        Self { first: port, count: 1 }
    }
}

impl FromStr for Addresses {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        let wrong = || {
            Wrong::because(format!(
                "`{text}` is not a range of addresses: expected ADDRESS, FIRST-LAST, or ADDRESS/LENGTH with at most 31 free bits"
            ))
        };
        let range = if let Some((first, last)) = text.split_once('-') {
            let (first, last) = (first.parse().map_err(|_| wrong())?, last.parse().map_err(|_| wrong())?);
            Self::from_to(first, last)
        } else if let Some((address, length)) = text.split_once('/') {
            let address = address.parse().map_err(|_| wrong())?;
            Self::network(address, length.parse().map_err(|_| wrong())?)
        } else {
            Some(Self::one(text.parse().map_err(|_| wrong())?))
        };
        range.ok_or_else(wrong)
    }
}

impl FromStr for Ports {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        let wrong = || {
            Wrong::because(format!(
                "`{text}` is not a range of ports: expected PORT or FIRST-LAST, 1 to 65535"
            ))
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last): (u16, u16) =
            (first.parse().map_err(|_| wrong())?, last.parse().map_err(|_| wrong())?);
        match last.checked_sub(first) {
            Some(more) if first > 0 => Ok(Self { first, count: more + 1 }),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            1 => write!(f, "{}", self.first),
            count => write!(f, "{}-{}", self.first, with_low(self.first, self.low() + (count - 1))),
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            1 => write!(f, "{}", self.first),
            count => write!(f, "{}-{}", self.first, self.first + (count - 1)),
        }
    }
}

const fn low(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(address) => address.to_bits(),
        IpAddr::V6(address) => address.to_bits() as u32,
    }
}

fn with_low(address: IpAddr, low: u32) -> IpAddr {
    match address {
        IpAddr::V4(_) => Ipv4Addr::from_bits(low).into(),
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u32::MAX) | u128::from(low)).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_parse_and_print_alike() {
        for (text, shown, count) in [
            ("192.0.2.7", "192.0.2.7", 1),
            ("10.0.0.250-10.0.1.4", "10.0.0.250-10.0.1.4", 11),
            ("192.0.2.0/24", "192.0.2.1-192.0.2.254", 254),
            ("192.0.2.99/30", "192.0.2.97-192.0.2.98", 2),
            ("192.0.2.4/31", "192.0.2.4-192.0.2.5", 2),
            ("192.0.2.4/32", "192.0.2.4", 1),
            ("fd00::1", "fd00::1", 1),
            ("fd00::ff-fd00::1:2", "fd00::ff-fd00::1:2", 0xff04),
            ("fd00::1/112", "fd00::-fd00::ffff", 0x1_0000),
        ] {
            let range: Addresses = text.parse().unwrap();
            assert_eq!((range.to_string().as_str(), range.count), (shown, count), "{text}");
        }
        assert_eq!("5000".parse(), Ok(Ports::one(5000)));
        let ports: Ports = "1024-65535".parse().unwrap();
        assert_eq!((ports.count, ports.to_string().as_str()), (64512, "1024-65535"));
    }

    #[test]
    fn a_range_contains_the_values_between_its_ends() {
        for (range, inside, outside) in [
            ("192.0.2.9", vec!["192.0.2.9"], vec!["192.0.2.8", "192.0.2.10", "fd00::9"]),
            (
                "10.0.0.250-10.0.1.4",
                vec!["10.0.0.250", "10.0.1.0", "10.0.1.4"],
                vec!["10.0.0.249", "10.0.1.5"],
            ),
            (
                "fd00::ff00-fd00::1:2",
                vec!["fd00::ff00", "fd00::1:2"],
                vec!["fd00::1:3", "fd00:0:1::ff01", "fd01::ff01"],
            ),
        ] {
            let range: Addresses = range.parse().unwrap();
            assert!(inside.iter().all(|address| range.contains(address.parse().unwrap())), "{range}");
            assert!(!outside.iter().any(|address| range.contains(address.parse().unwrap())), "{range}");
        }
    }

    #[test]
    fn invalid_ranges_are_refused() {
        for text in [
            "",
            "10.0.0.2-10.0.0.1",
            "10.0.0.1-fd00::1",
            "fd00::1-fd01::2",
            "0.0.0.0/0",
            "::/64",
            "10.0.0.0/33",
            "10.0.0.1-",
            "eth0",
        ] {
            let wrong = text.parse::<Addresses>().unwrap_err();
            assert!(wrong.to_string().starts_with(&format!("`{text}` is not a range")), "{wrong}");
        }
        for text in ["0", "0-5", "9-8", "65536", "-", "x"] {
            assert!(text.parse::<Ports>().is_err(), "{text}");
        }
    }
}
