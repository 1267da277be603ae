//! Line-rate arithmetic: what a link can carry at most, in frames and in the bytes of each layer.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// What a frame takes on the wire beside itself: preamble and start delimiter (8), gap between frames (12).
pub const WIRE_OVERHEAD_BYTES: u32 = 20;
/// The frame check sequence. Sizes of frames include it, as in RFC 2544; what `tcpdump` shows lacks it.
pub const FCS_BYTES: u32 = 4;
/// The shortest frame, with FCS.
pub const MIN_FRAME_BYTES: u32 = 64;
/// The options that Linux sends in each segment of an established TCP connection: two blanks and timestamps.
pub const TCP_TIMESTAMPS_BYTES: u32 = 12;

const MAC_HEADER_BYTES: u32 = 14;
const TAG_BYTES: u32 = 4;
/// The PPPoE header and the PPP protocol (RFC 2516).
const PPPOE_BYTES: u32 = 8;
const MAX_IP_BYTES: u32 = 65_535;
const MAX_TCP_OPTIONS_BYTES: u32 = 40;

/// A version of IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpVersion {
    /// Without options.
    V4,
    /// Without extension headers.
    V6,
}

/// What is in an IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum L4 {
    /// A datagram.
    Udp,
    /// A segment.
    Tcp {
        /// What its header has beside the 20 bytes that each has: [`TCP_TIMESTAMPS_BYTES`] as Linux sends it.
        options_bytes: u32,
    },
}

/// The headers around a payload. Its text is outermost first: `VLAN/IPv4/UDP`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encapsulation {
    /// VLAN tags: two are QinQ.
    pub tags: u32,
    /// IP is in PPPoE.
    pub pppoe: bool,
    /// What carries L4.
    pub ip: IpVersion,
    /// What carries the payload.
    pub l4: L4,
}

/// The bytes of one frame and of what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// From the MAC addresses to the FCS, tags included.
    pub frame: u32,
    /// The IP packet.
    pub l3: u32,
    /// What UDP or TCP carries.
    pub l4_payload: u32,
}

/// The speed of a link in bit/s; never 0. Written as 100M or 2.5G.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct LinkSpeed(u64);

/// Why a packet cannot be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Impossible(String);

impl Encapsulation {
    /// The frame of a full IP packet on a link or PPP session with this MTU.
    ///
    /// # Errors
    /// When no link has such an MTU, or the headers do not fit.
    pub fn in_mtu(self, mtu: u32) -> Result<Sizes, Impossible> {
        let least = self.ip.least_mtu();
        if mtu < least {
            return Err(Impossible(format!("{self}: the MTU is {mtu}; {} needs {least} or more", self.ip)));
        }
        self.in_frame(mtu.saturating_add(self.l2_bytes()))
    }

    /// A frame of this size, FCS included, filled with payload.
    ///
    /// # Errors
    /// When Ethernet has no such frame, or the headers do not fit.
    pub fn in_frame(self, frame: u32) -> Result<Sizes, Impossible> {
        self.l4.check()?;
        if self.tags > 2 {
            return Err(Impossible(format!("{} VLAN tags: 2 are the most, which is QinQ", self.tags)));
        }
        if frame < MIN_FRAME_BYTES {
            return Err(Impossible(format!(
                "a frame of {frame} bytes: Ethernet's shortest has {MIN_FRAME_BYTES}, FCS included"
            )));
        }
        let least = self.l2_bytes() + self.ip.header_bytes() + self.l4.header_bytes();
        if frame < least {
            return Err(Impossible(format!(
                "{self}: a frame of {frame} bytes; its headers and FCS alone take {least}"
            )));
        }
        let l3 = frame - self.l2_bytes();
        if l3 > MAX_IP_BYTES {
            return Err(Impossible(format!("{self}: {l3} bytes of IP; a packet has {MAX_IP_BYTES} at most")));
        }
        Ok(Sizes { frame, l3, l4_payload: frame - least })
    }

    fn l2_bytes(self) -> u32 {
        let pppoe = if self.pppoe { PPPOE_BYTES } else { 0 };
        MAC_HEADER_BYTES + self.tags * TAG_BYTES + pppoe + FCS_BYTES
    }
}

impl IpVersion {
    fn header_bytes(self) -> u32 {
        match self {
            Self::V4 => 20,
            Self::V6 => 40,
        }
    }

    /// Below these (RFC 791, RFC 8200) Linux has no IP on a device.
    fn least_mtu(self) -> u32 {
        match self {
            Self::V4 => 68,
            Self::V6 => 1280,
        }
    }
}

impl L4 {
    /// Whether its header can be.
    ///
    /// # Errors
    /// When TCP has no room for so many options, or they do not end with a word of its header.
    pub fn check(self) -> Result<(), Impossible> {
        match self {
            Self::Tcp { options_bytes }
                if options_bytes > MAX_TCP_OPTIONS_BYTES || options_bytes % 4 != 0 =>
            {
                Err(Impossible(format!(
                    "{options_bytes} bytes of TCP options: they take 0 to {MAX_TCP_OPTIONS_BYTES}, in steps of 4"
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
    /// What the frame takes on the wire, until the next one may begin.
    pub fn wire(self) -> u32 {
        self.frame + WIRE_OVERHEAD_BYTES
    }
}

impl LinkSpeed {
    /// None of 0.
    pub fn new(bits_per_second: u64) -> Option<Self> {
        (bits_per_second > 0).then_some(Self(bits_per_second))
    }

    /// In bit/s.
    pub fn bits_per_second(self) -> u64 {
        self.0
    }

    /// How many frames of this size, or mean size, FCS included, the link carries each second.
    pub fn frames_per_second(self, frame_bytes: impl Into<f64>) -> f64 {
        self.0 as f64 / (8.0 * (frame_bytes.into() + f64::from(WIRE_OVERHEAD_BYTES)))
    }
}

impl TryFrom<u64> for LinkSpeed {
    type Error = Impossible;

    fn try_from(bits_per_second: u64) -> Result<Self, Impossible> {
        Self::new(bits_per_second).ok_or_else(|| Impossible("a link of 0 bit/s carries nothing".to_owned()))
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
        let wrong = || Impossible(format!("`{text}` is no speed; write it as 100M or 2.5G, in bit/s"));
        let bare = text.strip_suffix("bit").unwrap_or(text);
        let (number, factor) = match bare.char_indices().last() {
            Some((at, 'k' | 'K')) => (&bare[..at], 1e3),
            Some((at, 'm' | 'M')) => (&bare[..at], 1e6),
            Some((at, 'g' | 'G')) => (&bare[..at], 1e9),
            Some((at, 't' | 'T')) => (&bare[..at], 1e12),
            _ => (bare, 1.0),
        };
        let plain = |c: char| c.is_ascii_digit() || c == '.';
        let value: f64 = match number.chars().all(plain) {
            true => number.parse().map_err(|_| wrong())?,
            false => return Err(wrong()),
        };
        // 2.3 * 1e9 is not exactly 2300000000 in floating point.
        Self::try_from((value * factor).round() as u64)
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
