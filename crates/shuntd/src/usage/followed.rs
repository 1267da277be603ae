//! What was counted at the last reading, so that each packet is counted once.

use shunt_api::Counted;
use std::collections::HashMap;

/// Counters that are followed from reading to reading: by a number for each, the count that is in the ledger. Counters
/// beyond the bound enter the ledger when they end.
#[derive(Debug)]
pub(super) struct Followed {
    known: HashMap<u64, Known>,
    most: usize,
    round: u8,
}

/// A counter that is followed: its number, the bytes, and the low half of the packets.
pub(super) type KnownCounter = (u64, u64, u32);

/// There may be many, so this is small.
#[derive(Debug, Clone, Copy)]
struct Known {
    bytes: u64,
    packets: u32,
    /// The reading that saw the counter last.
    round: u8,
}

impl Followed {
    pub(super) fn new(most: usize) -> Self {
        Self { known: HashMap::new(), most, round: 0 }
    }

    /// Follows counters from earlier values on: those that [`Self::known`] has returned.
    pub(super) fn restore(&mut self, known: &[KnownCounter]) {
        for (key, bytes, packets) in known.iter().take(self.most) {
            self.known.insert(*key, Known { bytes: *bytes, packets: *packets, round: self.round });
        }
    }

    /// The counters that are followed.
    pub(super) fn known(&self) -> Vec<KnownCounter> {
        self.known.iter().map(|(key, known)| (*key, known.bytes, known.packets)).collect()
    }

    pub(super) fn has(&self, key: u64) -> bool {
        self.known.contains_key(&key)
    }

    /// Whether there may be further counters that are not followed.
    pub(super) fn is_full(&self) -> bool {
        self.known.len() >= self.most
    }

    /// Begins a reading of all counters.
    pub(super) fn begin(&mut self) {
        self.round = self.round.wrapping_add(1);
    }

    /// Forgets the counters that neither this reading nor the one before has seen. What they have counted since is
    /// lost.
    /// A single reading can miss a counter that is there: a table that is read while it changes moves entries.
    pub(super) fn finish(&mut self) {
        let round = self.round;
        self.known.retain(|_, known| round.wrapping_sub(known.round) <= 1);
        if self.known.len() < self.known.capacity() / 4 {
            self.known.shrink_to(self.known.len() * 2);
        }
    }

    /// What a counter has counted since it was last seen. A counter that is new has counted all of it, and one that has
    /// become smaller was reset.
    pub(super) fn update(&mut self, key: u64, now: Counted) -> Counted {
        let Some(known) = self.known.get_mut(&key) else {
            return if self.follow(key, now) { now } else { Counted::default() };
        };
        let since = known.since(now);
        *known = Known::new(now, self.round);
        since
    }

    /// As [`Self::update`], for the last value of a counter.
    pub(super) fn end(&mut self, key: u64, last: Counted) -> Counted {
        self.known.remove(&key).map_or(last, |known| known.since(last))
    }

    /// Follows a counter from its present value on. Returns whether there is room.
    pub(super) fn follow(&mut self, key: u64, now: Counted) -> bool {
        let has_room = self.known.len() < self.most;
        if has_room {
            self.known.insert(key, Known::new(now, self.round));
        }
        has_room
    }
}

impl Known {
    const fn new(now: Counted, round: u8) -> Self {
        // The low half is enough for the difference between two readings.
        Self { bytes: now.bytes, packets: now.packets as u32, round }
    }

    fn since(&self, now: Counted) -> Counted {
        if now.bytes < self.bytes {
            return now;
        }
        // Negative while a CPU that learns a flow again moves its packets.
        let packets = (now.packets as u32).wrapping_sub(self.packets) as i32;
        Counted { packets: packets.try_into().unwrap_or(0), bytes: now.bytes - self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn count(packets: u64) -> Counted {
        Counted { packets, bytes: packets * 100 }
    }

    #[test]
    fn each_packet_is_counted_once_whenever_a_counter_ends() {
        let mut followed = Followed::new(10);
        followed.begin();
        assert_eq!(followed.update(1, count(3)), count(3));
        assert_eq!(followed.update(1, count(3)), count(0));
        followed.finish();
        followed.begin();
        assert_eq!(followed.update(1, count(7)), count(4));
        assert_eq!(followed.end(1, count(9)), count(2));
        // One that came and went between two readings, and one with the same number afterwards.
        assert_eq!(followed.end(2, count(5)), count(5));
        assert_eq!(followed.update(1, count(1)), count(1));
    }

    #[test]
    fn a_counter_beyond_the_bound_is_counted_when_it_ends_or_when_there_is_room() {
        let mut followed = Followed::new(1);
        assert_eq!(followed.update(1, count(1)), count(1));
        assert_eq!((followed.update(2, count(5)), followed.update(3, count(6))), (count(0), count(0)));
        assert_eq!(followed.end(2, count(8)), count(8));
        assert_eq!(followed.end(1, count(1)), count(0));
        assert_eq!(followed.update(3, count(9)), count(9));
    }

    #[test]
    fn counters_are_followed_across_a_restart() {
        let mut before = Followed::new(10);
        before.update(1, count(10));
        let mut followed = Followed::new(10);
        followed.restore(&before.known());
        assert!(followed.has(1) && !followed.is_full());
        assert_eq!(followed.update(1, count(12)), count(2));
    }

    #[test]
    fn a_counter_that_was_reset_begins_again() {
        let mut followed = Followed::new(10);
        followed.update(1, count(10));
        assert_eq!(followed.update(1, count(2)), count(2));
    }

    #[test]
    fn a_counter_that_one_reading_misses_is_not_counted_again() {
        let mut followed = Followed::new(10);
        followed.begin();
        assert_eq!(followed.update(1, count(10)), count(10));
        followed.finish();
        followed.begin();
        followed.finish();
        followed.begin();
        assert_eq!(followed.update(1, count(12)), count(2));
        followed.finish();
    }

    #[test]
    fn counters_that_two_readings_have_not_seen_are_forgotten() {
        let mut followed = Followed::new(1);
        followed.begin();
        followed.update(1, count(10));
        followed.finish();
        for _ in 0..2 {
            followed.begin();
            followed.finish();
        }
        assert!(followed.follow(2, count(5)));
        assert_eq!(followed.update(2, count(6)), count(1));
    }

    #[test]
    fn packets_beyond_32_bits_are_counted() {
        let mut followed = Followed::new(10);
        let at = |packets| Counted { packets, bytes: packets };
        followed.update(1, at(u64::from(u32::MAX)));
        assert_eq!(followed.update(1, at(u64::from(u32::MAX) + 5)), at(5));
    }
}
