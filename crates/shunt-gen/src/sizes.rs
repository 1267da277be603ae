//! Frame sizes, and the order of a mix.

use crate::Wrong;
use shunt_wire::{line::WIRE_OVERHEAD_BYTES, quantity};
use std::{fmt, str::FromStr};

/// Largest number of frames in one round of a mix.
const ROUND_MAX: usize = 64;
const LARGEST: u32 = 9018;

/// Frame sizes with FCS, in the order in which they are sent over and over.
///
/// Written as one size, as `imix` (7 of 64, 4 of 570, 1 of 1518 bytes: the simple IMIX; CSIT uses 28, 16 and 4), or as
/// SIZE:WEIGHT,SIZE:WEIGHT,...
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes {
    round: Vec<u16>,
    mix: Vec<(u16, usize)>,
}

/// Frame sizes as they were typed, for headers that are known later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameSizes {
    /// The simple IMIX, whose small frames are as small as the headers allow.
    Imix,
    /// Sizes with FCS, in the order in which they are sent.
    Given(Sizes),
}

impl Sizes {
    /// One size for all frames.
    ///
    /// # Errors
    /// Fails if the size is not an Ethernet frame's.
    pub fn fixed(bytes: u32) -> Result<Self, Wrong> {
        Self::mixed(&[(bytes, 1)])
    }

    /// A mix in which each size appears as often as its weight says, evenly spread.
    ///
    /// # Errors
    /// Fails if a size is not an Ethernet frame's, or if a round would be too long.
    pub fn mixed(mix: &[(u32, usize)]) -> Result<Self, Wrong> {
        let total: usize = mix.iter().map(|(_, weight)| weight).sum();
        if total == 0 || total > ROUND_MAX {
            return Err(Wrong::because(format!(
                "the weights of the sizes add up to {total}: a round has 1 to {ROUND_MAX} frames"
            )));
        }
        let mix: Vec<(u16, usize)> = mix
            .iter()
            .map(|&(bytes, weight)| match u16::try_from(bytes) {
                Ok(size) if (64..=LARGEST).contains(&bytes) => Ok((size, weight)),
                _ => Err(Wrong::because(format!(
                    "a frame of {bytes} bytes: 64 to {LARGEST}, FCS included, can be sent"
                ))),
            })
            .collect::<Result<_, _>>()?;
        // Next comes the size that lags most behind its share.
        let mut sent = vec![0; mix.len()];
        let round = (1..=total).map(|n| {
            let lag = |i: usize| (n * mix[i].1) as i64 - (sent[i] * total) as i64;
            let next = (0..mix.len()).rev().max_by_key(|&i| lag(i)).unwrap_or_default();
            sent[next] += 1;
            mix[next].0
        });
        let round = round.collect();
        Ok(Self { round, mix })
    }

    /// The simple IMIX: 7 frames of 64 bytes, 4 of 570, 1 of 1518. Where headers need more than 64 bytes, the small
    /// frames have `least` bytes.
    ///
    /// # Errors
    /// Fails if `least` is not an Ethernet frame's size.
    pub fn imix(least: u32) -> Result<Self, Wrong> {
        Self::mixed(&[(least.max(64), 7), (570, 4), (1518, 1)])
    }

    /// The sizes of one round.
    pub fn round(&self) -> &[u16] {
        &self.round
    }

    /// The smallest size.
    pub fn smallest(&self) -> u32 {
        self.round.iter().copied().min().unwrap_or_default().into()
    }

    /// The largest size.
    pub fn largest(&self) -> u32 {
        self.round.iter().copied().max().unwrap_or_default().into()
    }

    /// Mean size of a frame with FCS.
    pub fn mean_bytes(&self) -> f64 {
        self.round.iter().copied().map(f64::from).sum::<f64>() / self.round.len() as f64
    }

    /// Mean size on the line, with preamble and gap.
    pub fn mean_wire_bytes(&self) -> f64 {
        self.mean_bytes() + f64::from(WIRE_OVERHEAD_BYTES)
    }
}

impl FromStr for FrameSizes {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        if text == "imix" { Ok(Self::Imix) } else { text.parse().map(Self::Given) }
    }
}

impl FromStr for Sizes {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        if text == "imix" {
            return Self::imix(64);
        }
        let wrong = || {
            Wrong::because(format!("`{text}` is not a frame size: expected 64, imix, or 64:7,570:4,1518:1"))
        };
        let part = |part: &str| -> Result<(u32, usize), Wrong> {
            let (bytes, weight) = part.split_once(':').unwrap_or((part, "1"));
            let bytes = quantity::bytes(bytes).ok().and_then(|bytes| u32::try_from(bytes).ok());
            Ok((bytes.ok_or_else(wrong)?, weight.parse().map_err(|_| wrong())?))
        };
        Self::mixed(&text.split(',').map(part).collect::<Result<Vec<_>, _>>()?)
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [(bytes, _)] = self.mix[..] {
            return write!(f, "{bytes}");
        }
        let parts: Vec<String> = self.mix.iter().map(|(bytes, weight)| format!("{bytes}:{weight}")).collect();
        f.write_str(&parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_has_its_shares_evenly_spread() {
        let imix: Sizes = "imix".parse().unwrap();
        assert_eq!(imix.round(), [64, 570, 64, 64, 570, 64, 1518, 64, 570, 64, 570, 64]);
        // 7 x 64 + 4 x 570 + 1518 = 4246.
        assert_eq!(imix.mean_bytes(), 4246.0 / 12.0);
        assert_eq!(imix.to_string(), "64:7,570:4,1518:1");
        assert_eq!(Sizes::imix(78).unwrap().to_string(), "78:7,570:4,1518:1");
        let csit: Sizes = "64:28,570:16,1518:4".parse().unwrap();
        assert_eq!((csit.round().len(), csit.mean_bytes()), (48, 4246.0 / 12.0));
        let count = |size| csit.round().iter().filter(|bytes| **bytes == size).count();
        assert_eq!((count(64), count(570), count(1518)), (28, 16, 4));
    }

    #[test]
    fn one_size_is_a_round_of_one() {
        let size: Sizes = "9018".parse().unwrap();
        assert_eq!((size.round(), size.mean_wire_bytes()), (&[9018][..], 9038.0));
        assert_eq!(size.to_string(), "9018");
    }

    #[test]
    fn sizes_outside_of_ethernet_are_refused() {
        for (text, why) in [
            ("63", "a frame of 63 bytes: 64 to 9018, FCS included, can be sent"),
            ("9019", "a frame of 9019 bytes: 64 to 9018, FCS included, can be sent"),
            ("70000", "a frame of 70000 bytes: 64 to 9018, FCS included, can be sent"),
            ("64:65", "the weights of the sizes add up to 65: a round has 1 to 64 frames"),
            ("64:0", "the weights of the sizes add up to 0: a round has 1 to 64 frames"),
            ("small", "`small` is not a frame size: expected 64, imix, or 64:7,570:4,1518:1"),
            ("", "`` is not a frame size: expected 64, imix, or 64:7,570:4,1518:1"),
        ] {
            assert_eq!(text.parse::<Sizes>().unwrap_err().to_string(), why);
        }
    }
}
