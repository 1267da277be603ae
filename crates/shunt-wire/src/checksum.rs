//! The Internet checksum (RFC 1071): a ones' complement sum of 16-bit words.

use serde::{Deserialize, Serialize};

/// The contents of a checksum field.
///
/// The parser returns `Good` if the field is correct for the covered bytes. A packet that was built with the correct
/// number as `Value` is therefore parsed as `Good`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Checksum {
    /// The correct checksum.
    #[default]
    Good,
    /// No checksum: the field is zero. Only IPv4 UDP allows it.
    Zero,
    /// This number, which is not the correct checksum.
    Value(u16),
}

/// A ones' complement sum that is being computed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// The sum of no words.
    pub const fn new() -> Self {
        Self(0)
    }

    /// Adds bytes that begin at an even offset. An odd last byte is padded with zero.
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

    /// The sum folded to 16 bits, not inverted.
    pub const fn folded(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    /// The checksum: the folded sum, inverted.
    pub const fn finished(self) -> u16 {
        !self.folded()
    }
}

/// The ones' complement sum of `bytes`, folded and not inverted. The sum of a range that includes a correct checksum is
/// 0xffff.
pub fn ones_complement_sum(bytes: &[u8]) -> u16 {
    Sum::new().bytes(bytes).folded()
}

/// Updates a checksum for a covered word that changes from `old` to `new` (RFC 1624, equation 3).
pub const fn adjusted(checksum: u16, old: u16, new: u16) -> u16 {
    Sum(!checksum as u64 + !old as u64 + new as u64).finished()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 1071, section 3.
    #[test]
    fn the_sum_of_the_example_in_rfc_1071_is_correct() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(ones_complement_sum(&bytes), 0xddf2);
        assert_eq!(Sum::new().bytes(&bytes).finished(), !0xddf2);
    }

    #[test]
    fn an_odd_last_byte_is_the_high_byte_of_a_word() {
        assert_eq!(ones_complement_sum(&[0x12]), 0x1200);
    }

    #[test]
    fn carries_wrap_around() {
        assert_eq!(ones_complement_sum(&[0xff, 0xff, 0x00, 0x01]), 1);
        assert_eq!(Sum::new().word(0xffff).word(0xffff).folded(), 0xffff);
    }

    /// The example of RFC 1624, section 4.
    #[test]
    fn an_updated_checksum_equals_a_recomputed_one() {
        assert_eq!(adjusted(0xdd2f, 0x5555, 0x3285), 0x0000);
        for (old, new) in [(0, 1), (0xffff, 0), (0x1234, 0xfedc), (0x8000, 0x7fff)] {
            let rest = Sum::new().word(0x4500).word(0xabcd);
            assert_eq!(adjusted(rest.word(old).finished(), old, new), rest.word(new).finished());
        }
    }
}
