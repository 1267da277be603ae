//! Items by time, while the clock may be set.

use nix::time::{ClockId, clock_gettime};
use std::{
    collections::VecDeque,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A reading of both clocks: the one that shows the time and may be set, and the one that runs evenly since the boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Clock {
    since_boot: Duration,
    since_1970: Duration,
}

impl Clock {
    /// Reads the clocks.
    pub(crate) fn read() -> Self {
        // Unlike the monotonic clock, this one goes on while the machine sleeps.
        let since_boot = clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default();
        Self { since_boot, since_1970: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() }
    }

    #[cfg(test)]
    pub(super) fn new(since_boot_s: u64, since_1970_s: u64) -> Self {
        Self { since_boot: Duration::from_secs(since_boot_s), since_1970: Duration::from_secs(since_1970_s) }
    }

    pub(crate) fn since_boot(self) -> Duration {
        self.since_boot
    }

    /// Seconds since 1970.
    pub(crate) fn now(self) -> u64 {
        self.since_1970.as_secs()
    }

    /// The clock minus the time since the boot, in milliseconds. It changes only if the clock is set.
    pub(super) fn offset_ms(self) -> i64 {
        let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        ms(self.since_1970) - ms(self.since_boot)
    }

    /// What the clock would have shown at a time since the boot, in seconds since 1970.
    pub(super) fn at(self, since_boot: Duration) -> u64 {
        (self.since_1970 + since_boot).saturating_sub(self.since_boot).as_secs()
    }
}

/// Items, oldest first. Those of earlier daemons have the time that was kept with them; those of this one follow the
/// clock.
#[derive(Debug)]
pub(super) struct Timeline<T> {
    most: usize,
    earlier: VecDeque<(u64, T)>,
    own: VecDeque<(Duration, T)>,
}

impl<T> Timeline<T> {
    /// A list of at most `most` items, which begins with the last of `earlier`.
    pub(super) fn new(most: usize, earlier: Vec<(u64, T)>) -> Self {
        let mut earlier = VecDeque::from(earlier);
        earlier.drain(..earlier.len().saturating_sub(most));
        Self { most, earlier, own: VecDeque::new() }
    }

    /// Adds an item of this daemon.
    pub(super) fn push(&mut self, since_boot: Duration, item: T) {
        self.own.push_back((since_boot, item));
        if self.len() > self.most {
            self.remove_first();
        }
    }

    fn remove_first(&mut self) {
        if self.earlier.pop_front().is_none() {
            self.own.pop_front();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.earlier.len() + self.own.len()
    }

    /// Removes items that are older. Items that seem to be of the future stay: the clock may not be set yet.
    pub(super) fn forget_before(&mut self, time: u64, clock: Clock) {
        while self.earlier.front().is_some_and(|(at, _)| *at < time) {
            self.earlier.pop_front();
        }
        while self.own.front().is_some_and(|(since_boot, _)| clock.at(*since_boot) < time) {
            self.own.pop_front();
        }
    }

    /// The items with their times, in seconds since 1970, in the order in which they were added.
    pub(super) fn iter(&self, clock: Clock) -> impl Iterator<Item = (u64, &T)> {
        let earlier = self.earlier.iter().map(|(at, item)| (*at, item));
        earlier.chain(self.own.iter().map(move |(since_boot, item)| (clock.at(*since_boot), item)))
    }

    /// The memory of the list, without what its items point to.
    pub(super) fn memory_bytes(&self) -> usize {
        self.earlier.capacity() * size_of::<(u64, T)>() + self.own.capacity() * size_of::<(Duration, T)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(line: &Timeline<char>, clock: Clock) -> Vec<(u64, char)> {
        line.iter(clock).map(|(at, item)| (at, *item)).collect()
    }

    #[test]
    fn a_clock_that_is_set_moves_the_items_of_this_daemon_alone() {
        let mut line = Timeline::new(10, vec![(5000, 'a')]);
        // At boot the clock shows 1970.
        line.push(Duration::from_secs(30), 'b');
        line.push(Duration::from_secs(90), 'c');
        assert_eq!(times(&line, Clock::new(100, 100)), [(5000, 'a'), (30, 'b'), (90, 'c')]);
        assert_eq!(times(&line, Clock::new(160, 6060)), [(5000, 'a'), (5930, 'b'), (5990, 'c')]);
        assert_eq!(times(&line, Clock::new(160, 60)), [(5000, 'a'), (0, 'b'), (0, 'c')]);
    }

    #[test]
    fn the_oldest_items_go_first_and_none_that_seems_to_be_of_the_future() {
        let mut line = Timeline::new(3, vec![(1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')]);
        assert_eq!(times(&line, Clock::new(0, 0)), [(2, 'b'), (3, 'c'), (4, 'd')]);
        line.push(Duration::from_secs(1), 'e');
        line.push(Duration::from_secs(2), 'f');
        assert_eq!(times(&line, Clock::new(2, 12)), [(4, 'd'), (11, 'e'), (12, 'f')]);
        line.forget_before(12, Clock::new(2, 12));
        assert_eq!(times(&line, Clock::new(2, 12)), [(12, 'f')]);
        let mut line = Timeline::new(3, vec![(900, 'a')]);
        line.forget_before(100, Clock::new(0, 200));
        assert_eq!(line.len(), 1);
    }
}
