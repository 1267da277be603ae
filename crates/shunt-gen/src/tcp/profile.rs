//! What a connection carries: the sizes of its requests and responses, and the pauses between them.

use crate::Wrong;
use shunt_wire::quantity;
use std::{fmt, str::FromStr, time::Duration};

/// Least size of a request and of a response: both begin with the number of their connection.
pub const PAYLOAD_MIN: u64 = 8;
/// Largest size of a request or response.
const PAYLOAD_MAX: u64 = 1 << 40;

/// The payload of each connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// Sizes of requests.
    pub request: ByteRange,
    /// Sizes of responses.
    pub response: ByteRange,
    /// Number of requests; the next one is sent when the response to the last one has arrived.
    pub exchanges: u32,
    /// Pause of the client between a response and the next request.
    pub think: Duration,
}

/// Sizes in bytes between two bounds, both included: `200`, or `1k..100k`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    least: u64,
    most: u64,
}

impl ByteRange {
    /// One size.
    ///
    /// # Errors
    /// Fails if the size is out of range.
    pub fn fixed(bytes: u64) -> Result<Self, Wrong> {
        Self::between(bytes, bytes)
    }

    fn between(least: u64, most: u64) -> Result<Self, Wrong> {
        match (PAYLOAD_MIN..=PAYLOAD_MAX).contains(&least) && (least..=PAYLOAD_MAX).contains(&most) {
            true => Ok(Self { least, most }),
            false => Err(Wrong::because(format!(
                "{least}..{most} bytes: sizes are from {PAYLOAD_MIN} bytes, which hold the number of the connection, \
                 to 1T, the smaller one first"
            ))),
        }
    }

    /// The size that this random number selects.
    pub(super) fn size(&self, random: u64) -> u64 {
        self.least + random % (self.most - self.least + 1)
    }

    /// The mean of all sizes.
    pub fn mean(&self) -> f64 {
        (self.least + self.most) as f64 / 2.0
    }
}

impl FromStr for ByteRange {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        let bytes = |text: &str| quantity::bytes(text).map_err(|why| Wrong::because(why.to_string()));
        match text.split_once("..") {
            Some((least, most)) => Self::between(bytes(least)?, bytes(most)?),
            None => Self::fixed(bytes(text)?),
        }
    }
}

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.least == self.most {
            true => write!(f, "{}", self.least),
            false => write!(f, "{}..{}", self.least, self.most),
        }
    }
}

impl Profile {
    /// Sizes of the request and the response of one exchange. They depend only on these numbers.
    pub(super) fn exchange(&self, seed: u64, connection: u32, exchange: u32) -> (u64, u64) {
        let random = mix(seed ^ u64::from(connection) << 32 ^ u64::from(exchange));
        (self.request.size(random), self.response.size(mix(random)))
    }
}

/// The finalizer of SplitMix64.
pub(super) fn mix(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_one_number_or_two_bounds() {
        let range = |text: &str| text.parse::<ByteRange>().map(|range| (range.least, range.most));
        assert_eq!(range("200"), Ok((200, 200)));
        assert_eq!(range("1k..100k"), Ok((1000, 100_000)));
        assert_eq!(range("8..64KiB"), Ok((8, 65_536)));
        for (text, why) in [
            ("7", "7..7 bytes: sizes are from 8 bytes"),
            ("100..10", "the smaller one first"),
            ("1k..", "is not a size"),
            ("some", "is not a size"),
        ] {
            let said = range(text).unwrap_err().to_string();
            assert!(said.contains(why), "{text}: {said}");
        }
    }

    #[test]
    fn sizes_cover_the_range_and_are_the_same_for_the_same_exchange() {
        let (request, response) = ("8..10".parse().unwrap(), "1k..100k".parse().unwrap());
        let profile = Profile { request, response, exchanges: 3, think: Duration::ZERO };
        let all: Vec<_> = (0..300).map(|nth| profile.exchange(7, nth, 1)).collect();
        assert_eq!(all, (0..300).map(|nth| profile.exchange(7, nth, 1)).collect::<Vec<_>>());
        for size in 8..=10 {
            assert!(all.iter().any(|(request, _)| *request == size), "no request of {size} bytes");
        }
        assert!(all.iter().all(|(_, response)| (1000..=100_000).contains(response)));
        let mean = all.iter().map(|(_, response)| *response as f64).sum::<f64>() / 300.0;
        assert!((mean / response.mean() - 1.0).abs() < 0.1, "{mean}");
    }
}
