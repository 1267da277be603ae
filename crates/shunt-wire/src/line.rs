//! Line-rate arithmetic: the most that a link can carry, in frames and in bytes of each layer.

use crate::{encap, quantity};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Overhead of a frame on the wire: preamble and start delimiter (8), gap between frames (12).
pub const WIRE_OVERHEAD_BYTES: u32 = 20;
/// The frame check sequence. Frame sizes include it, as in RFC 2544; those of `tcpdump` do not.
pub const FCS_BYTES: u32 = 4;
/// The shortest frame, including FCS.
pub const MIN_FRAME_BYTES: u32 = 64;
/// The TCP options that Linux sends in each segment of an established connection: two NOPs and timestamps.
pub const TCP_TIMESTAMPS_BYTES: u32 = 12;

/// The PPPoE header and the PPP protocol (RFC 2516).
const PPPOE_BYTES: u32 = 8;
const MAX_IP_BYTES: u32 = 65_535;
const MAX_TCP_OPTIONS_BYTES: u32 = 40;

/// A version of IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpVersion {
    /// IPv4 without options.
    V4,
    /// IPv6 without extension headers.
    V6,
}

/// The transport layer of an IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum L4 {
    /// UDP.
    Udp,
    /// TCP.
    Tcp {
        /// Bytes of options in the header; [`TCP_TIMESTAMPS_BYTES`] for segments that Linux sends.
        options_bytes: u32,
    },
}

/// The headers around a payload. Displayed outermost first: `VLAN/IPv4/UDP`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encapsulation {
    /// Number of VLAN tags, 0 to 2; two are QinQ.
    pub tags: u32,
    /// Whether IP is carried in PPPoE.
    pub pppoe: bool,
    /// The IP version.
    pub ip: IpVersion,
    /// The transport layer.
    pub l4: L4,
}

/// The sizes of a frame, its packet and its payload, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// The frame, from the MAC addresses to the FCS, including tags.
    pub frame: u32,
    /// The IP packet.
    pub l3: u32,
    /// The payload of UDP or TCP.
    pub l4_payload: u32,
}

/// The speed of a link in bit/s, never 0. Parsed and displayed as 100M or 2.5G.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct LinkSpeed(u64);

/// The reason why a packet or a link speed is impossible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Impossible(String);

impl Encapsulation {
    /// The sizes of a full IP packet on a link or PPP session with this MTU.
    ///
    /// # Errors
    /// If the MTU is out of range, or the headers do not fit.
    pub fn in_mtu(self, mtu: u32) -> Result<Sizes, Impossible> {
        let least = self.ip.least_mtu();
        if mtu < least {
            return Err(Impossible(format!(
                "{self}: an MTU of {mtu} is too small: {} needs {least}",
                self.ip
            )));
        }
        self.in_frame(mtu.saturating_add(self.l2_bytes()))
    }

    /// The sizes of a frame with this size, including FCS, that is filled with payload.
    ///
    /// # Errors
    /// If the size is out of range, or the headers do not fit.
    pub fn in_frame(self, frame: u32) -> Result<Sizes, Impossible> {
        self.l4.check()?;
        if self.tags > 2 {
            return Err(Impossible(format!("{} VLAN tags: a frame can have at most 2 (QinQ)", self.tags)));
        }
        if frame < MIN_FRAME_BYTES {
            return Err(Impossible(format!(
                "a frame of {frame} bytes is too short: Ethernet needs {MIN_FRAME_BYTES}, including FCS"
            )));
        }
        let least = self.l2_bytes() + self.ip.header_bytes() + self.l4.header_bytes();
        if frame < least {
            return Err(Impossible(format!(
                "{self}: a frame of {frame} bytes is too short: headers and FCS need {least}"
            )));
        }
        let l3 = frame - self.l2_bytes();
        if l3 > MAX_IP_BYTES {
            return Err(Impossible(format!(
                "{self}: an IP packet of {l3} bytes is too long: the maximum is {MAX_IP_BYTES}"
            )));
        }
        Ok(Sizes { frame, l3, l4_payload: frame - least })
    }

    fn l2_bytes(self) -> u32 {
        let pppoe = if self.pppoe { PPPOE_BYTES } else { 0 };
        encap::header_bytes(self.tags as usize) as u32 + pppoe + FCS_BYTES
    }
}

impl IpVersion {
    fn header_bytes(self) -> u32 {
        match self {
            Self::V4 => 20,
            Self::V6 => 40,
        }
    }

    /// The minimum MTU (RFC 791, RFC 8200). Linux disables IP on a device with a smaller one.
    fn least_mtu(self) -> u32 {
        match self {
            Self::V4 => 68,
            Self::V6 => 1280,
        }
    }
}

impl L4 {
    /// Checks the size of TCP options.
    ///
    /// # Errors
    /// If the options do not fit a TCP header, or are not a multiple of four bytes.
    pub fn check(self) -> Result<(), Impossible> {
        match self {
            Self::Tcp { options_bytes }
                if options_bytes > MAX_TCP_OPTIONS_BYTES || options_bytes % 4 != 0 =>
            {
                Err(Impossible(format!(
                    "{options_bytes} bytes of TCP options: expected a multiple of 4, at most {MAX_TCP_OPTIONS_BYTES}"
                )))
            }
            _ => Ok(()),
        }
    }

    fn header_bytes(self) -> u32 {
        match self {
            Self::Udp => 8,
            Self::Tcp { options_bytes } => 20 + options_bytes,
        }
    }
}

impl Sizes {
    /// Bytes on the wire, including the overhead up to the next frame.
    pub fn wire(self) -> u32 {
        self.frame + WIRE_OVERHEAD_BYTES
    }
}

impl LinkSpeed {
    /// A link speed. None if `bits_per_second` is 0.
    pub fn new(bits_per_second: u64) -> Option<Self> {
        (bits_per_second > 0).then_some(Self(bits_per_second))
    }

    /// The speed in bit/s.
    pub fn bits_per_second(self) -> u64 {
        self.0
    }

    /// The most frames per second of this size, or of this mean size. The size includes FCS.
    pub fn frames_per_second(self, frame_bytes: impl Into<f64>) -> f64 {
        self.0 as f64 / (8.0 * (frame_bytes.into() + f64::from(WIRE_OVERHEAD_BYTES)))
    }
}

impl TryFrom<u64> for LinkSpeed {
    type Error = Impossible;

    fn try_from(bits_per_second: u64) -> Result<Self, Impossible> {
        Self::new(bits_per_second)
            .ok_or_else(|| Impossible("0 bit/s is not a rate; expected a form such as 300M or 1G".to_owned()))
    }
}

impl From<LinkSpeed> for u64 {
    fn from(speed: LinkSpeed) -> Self {
        speed.0
    }
}

impl FromStr for LinkSpeed {
    type Err = Impossible;

    fn from_str(text: &str) -> Result<Self, Impossible> {
        let bits = quantity::bit_rate(text).map_err(|why| Impossible(why.to_string()))?;
        // Round, since 2.3 * 1e9 is not exactly 2300000000 in floating point.
        Self::try_from(bits.round() as u64)
    }
}

impl fmt::Display for IpVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

impl fmt::Display for Encapsulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.tags {
            0 => "",
            1 => "VLAN/",
            _ => "QinQ/",
        })?;
        f.write_str(if self.pppoe { "PPPoE/" } else { "" })?;
        let l4 = match self.l4 {
            L4::Udp => "UDP",
            L4::Tcp { .. } => "TCP",
        };
        write!(f, "{}/{l4}", self.ip)
    }
}

impl fmt::Display for LinkSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_000_000_000, "G"), (1_000_000, "M"), (1000, "k")];
        match units.iter().find(|(unit, _)| self.0 >= *unit) {
            Some((unit, name)) => write!(f, "{}{name}", self.0 as f64 / *unit as f64),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Impossible {}

#[cfg(test)]
mod tests;
