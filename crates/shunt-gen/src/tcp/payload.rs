//! The bytes of a connection: each byte depends on its place in the stream, so a receiver notices bytes in a wrong
//! place.

use std::sync::LazyLock;

/// Number of bytes after which the pattern repeats: a prime, so that no segment size divides it.
const PERIOD: u64 = 65_521;
/// Most bytes in a segment.
const SEGMENT_MAX: usize = 65_536;

static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let all = PERIOD as usize + SEGMENT_MAX;
    (0..all as u64).map(|at| super::profile::mix(at % PERIOD) as u8).collect()
});

/// The first bytes of both streams of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Number of the connection.
    pub(super) connection: u32,
    /// Number of the run, so that segments of another run are not taken for this one's.
    pub(super) run: u32,
}

impl Header {
    pub(super) const BYTES: usize = 8;

    fn to_bytes(self) -> [u8; Self::BYTES] {
        (u64::from(self.connection) << 32 | u64::from(self.run)).to_be_bytes()
    }

    /// The header at the start of a stream; None if there are fewer bytes.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let all = u64::from_be_bytes(*bytes.first_chunk()?);
        Some(Self { connection: (all >> 32) as u32, run: all as u32 })
    }

    /// The bytes at this place of the stream. `bytes` is at most that of a segment.
    pub(super) fn bytes_at(self, at: u64, bytes: usize) -> Vec<u8> {
        let mut payload = pattern(at, bytes).to_vec();
        if let Some(rest) = self.to_bytes().get(at as usize..) {
            let some = rest.len().min(bytes);
            payload[..some].copy_from_slice(&rest[..some]);
        }
        payload
    }

    /// Whether these bytes belong to this place of the stream.
    pub(super) fn is_at(self, at: u64, bytes: &[u8]) -> bool {
        let own = self.to_bytes();
        let head = own.get(at as usize..).unwrap_or_default();
        let some = head.len().min(bytes.len());
        bytes[..some] == head[..some] && bytes[some..] == *pattern(at + some as u64, bytes.len() - some)
    }
}

fn pattern(at: u64, bytes: usize) -> &'static [u8] {
    let start = (at % PERIOD) as usize;
    &PATTERN[start..start + bytes.min(SEGMENT_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_belong_to_one_place_of_one_connection() {
        let header = Header { connection: 70_000, run: 9 };
        let start = header.bytes_at(0, 100);
        assert_eq!(Header::parse(&start), Some(header));
        assert_eq!(Header::parse(&start[..7]), None);
        let far = 3 * PERIOD - 20;
        for (at, bytes) in [(0, 100), (0, 3), (5, 100), (8, 50), (far, 1460), (0, 0)] {
            let payload = header.bytes_at(at, bytes);
            assert_eq!(payload.len(), bytes);
            assert!(header.is_at(at, &payload), "{bytes} bytes at {at}");
            assert!(bytes == 0 || !header.is_at(at + 1, &payload), "{bytes} bytes at {at}");
        }
        // A stream that was cut into pieces is the same stream.
        let whole = header.bytes_at(0, 64);
        let pieces: Vec<u8> = (0..64).flat_map(|at| header.bytes_at(at, 1)).collect();
        assert_eq!(whole, pieces);
        let other = Header { connection: 70_001, run: 9 };
        assert!(!other.is_at(0, &start) && other.is_at(8, &start[8..]));
    }
}
