//! The stream that an end receives: what has arrived, in order or not.
//!
//! Places count from the peer's SYN, which is 0; the first byte is 1, and FIN follows the last byte.

use std::collections::BTreeMap;

/// The receive window in bytes. Data is consumed as it arrives, so the window never shrinks.
pub(super) const WINDOW: u64 = 1 << 18;
/// The window scale that the end announces (RFC 7323).
pub(super) const WINDOW_SCALE: u8 = 3;

/// The received part of a stream.
#[derive(Debug)]
pub(super) struct Receiving {
    /// The sequence number of the peer's SYN.
    first: u32,
    /// The place of the first byte that has not arrived.
    next: u64,
    /// Ranges that arrived before bytes in front of them: end by start.
    early: BTreeMap<u64, u64>,
    /// The place of the peer's FIN.
    fin: Option<u64>,
}

/// How a segment fits the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// It has no bytes and no FIN.
    Empty,
    /// It has the next bytes, and nothing is missing now.
    Next,
    /// Something is missing before or after it.
    Gap,
    /// All of it had arrived.
    Repeated,
}

impl Receiving {
    /// A stream whose SYN has this sequence number.
    pub(super) fn from_syn(first: u32) -> Self {
        Self { first, next: 1, early: BTreeMap::new(), fin: None }
    }

    /// The acknowledgement number.
    pub(super) fn acknowledgement(&self) -> u32 {
        self.first.wrapping_add(self.next as u32)
    }

    /// The place of a sequence number; None if it is before the stream or beyond the window.
    pub(super) fn place_of(&self, sequence: u32) -> Option<u64> {
        let ahead = i64::from(sequence.wrapping_sub(self.acknowledgement()) as i32);
        let place = self.next.checked_add_signed(ahead)?;
        (ahead <= WINDOW as i64 && ahead >= -2 * WINDOW as i64).then_some(place)
    }

    /// Number of bytes that have arrived in order.
    pub(super) fn bytes(&self) -> u64 {
        self.next - 1 - u64::from(self.is_finished())
    }

    /// Whether everything up to FIN has arrived.
    pub(super) fn is_finished(&self) -> bool {
        self.fin.is_some_and(|fin| self.next > fin)
    }

    /// Adds a segment at a place.
    pub(super) fn add(&mut self, place: u64, bytes: u64, fin: bool) -> Fit {
        let end = place + bytes + u64::from(fin);
        if end == place {
            return Fit::Empty;
        }
        if fin {
            self.fin = Some(place + bytes);
        }
        if end <= self.next {
            return Fit::Repeated;
        }
        if place > self.next {
            let known = self.early.entry(place).or_insert(end);
            *known = end.max(*known);
            return Fit::Gap;
        }
        self.next = end;
        while let Some(first) = self.early.first_entry().filter(|first| *first.key() <= self.next) {
            self.next = self.next.max(first.remove());
        }
        if self.early.is_empty() { Fit::Next } else { Fit::Gap }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_once_and_in_order() {
        let first = u32::MAX - 5;
        let mut stream = Receiving::from_syn(first);
        assert_eq!(stream.acknowledgement(), first.wrapping_add(1));
        assert_eq!(stream.add(1, 10, false), Fit::Next);
        assert_eq!((stream.bytes(), stream.acknowledgement()), (10, first.wrapping_add(11)));
        assert_eq!(stream.add(1, 10, false), Fit::Repeated);
        assert_eq!(stream.add(21, 10, true), Fit::Gap);
        assert_eq!(stream.add(16, 5, false), Fit::Gap);
        assert_eq!(stream.bytes(), 10);
        assert!(!stream.is_finished());
        // The missing bytes, and some that are there.
        assert_eq!(stream.add(8, 9, false), Fit::Next);
        assert_eq!((stream.bytes(), stream.is_finished()), (30, true));
        assert_eq!(stream.add(31, 0, false), Fit::Empty);
        assert_eq!(stream.add(31, 0, true), Fit::Repeated);
        assert_eq!(stream.acknowledgement(), first.wrapping_add(32));
    }

    #[test]
    fn a_sequence_number_far_from_the_window_has_no_place() {
        let mut stream = Receiving::from_syn(1000);
        stream.add(1, 5000, false);
        let at = |ahead: i32| stream.place_of(stream.acknowledgement().wrapping_add_signed(ahead));
        assert_eq!((at(0), at(-5000), at(WINDOW as i32)), (Some(5001), Some(1), Some(5001 + WINDOW)));
        assert_eq!((at(WINDOW as i32 + 1), at(-5002), at(i32::MIN)), (None, None, None));
    }
}
