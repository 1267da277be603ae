//! The Internet checksum (RFC 1071): a ones' complement sum of 16-bit words.

use serde::{Deserialize, Serialize};

/// What stands in a checksum field.
///
/// A parser answers `Good` only when the field agrees with the bytes that it covers; so a packet that was built with
/// `Value` of the right number comes back as `Good`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Checksum {
    /// The right one.
    #[default]
    Good,
    /// No checksum: the field is zero. Only IPv4 UDP allows it.
    Zero,
    /// This number, which is not the right one.
    Value(u16),
}

/// A ones' complement sum under way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// The sum of nothing.
    pub const fn new() -> Self {
        Self(0)
    }

    /// Adds bytes that begin at an even offset; an odd last byte is padded with zero.
    #[must_use]
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        for word in bytes.chunks(2) {
            let low = word.get(1).copied().unwrap_or(0);
            self.0 += u64::from(u16::from_be_bytes([word[0], low]));
        }
        self
    }

    /// Adds one word.
    #[must_use]
    pub const fn word(self, word: u16) -> Self {
        Self(self.0 + word as u64)
    }

    /// The sum in 16 bits, not inverted.
    pub const fn folded(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    /// What goes into the field: the inverted sum.
    pub const fn finished(self) -> u16 {
        !self.folded()
    }
}

/// The ones' complement sum of `bytes`, folded and not inverted. 0xffff over a range that includes its checksum means
/// that the checksum is right.
pub fn ones_complement_sum(bytes: &[u8]) -> u16 {
    Sum::new().bytes(bytes).folded()
}

/// The checksum after `old` became `new` in a field that it covers (RFC 1624, equation 3).
pub const fn adjusted(checksum: u16, old: u16, new: u16) -> u16 {
    Sum(!checksum as u64 + !old as u64 + new as u64).finished()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 1071, section 3.
    #[test]
    fn the_example_of_rfc_1071_adds_up() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(ones_complement_sum(&bytes), 0xddf2);
        assert_eq!(Sum::new().bytes(&bytes).finished(), !0xddf2);
    }

    #[test]
    fn an_odd_byte_counts_as_the_high_half() {
        assert_eq!(ones_complement_sum(&[0x12]), 0x1200);
    }

    #[test]
    fn carries_wrap_around() {
        assert_eq!(ones_complement_sum(&[0xff, 0xff, 0x00, 0x01]), 1);
        assert_eq!(Sum::new().word(0xffff).word(0xffff).folded(), 0xffff);
    }

    /// The example of RFC 1624, section 4.
    #[test]
    fn an_adjusted_checksum_equals_one_computed_anew() {
        assert_eq!(adjusted(0xdd2f, 0x5555, 0x3285), 0x0000);
        for (old, new) in [(0, 1), (0xffff, 0), (0x1234, 0xfedc), (0x8000, 0x7fff)] {
            let rest = Sum::new().word(0x4500).word(0xabcd);
            assert_eq!(adjusted(rest.word(old).finished(), old, new), rest.word(new).finished());
        }
    }
}
