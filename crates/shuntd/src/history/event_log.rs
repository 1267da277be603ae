//! The events of the last day, in bounded memory: what happens often does not push out what is rare.

use super::timeline::{Clock, Timeline};
use shunt_api::{Happening, HistoryEvent, HistoryTable};
use std::{mem::discriminant, time::Duration};

/// The same again within this time is no further event.
const SAME: Duration = Duration::from_secs(600);
/// The most events of a kind.
const OF_A_KIND_MAX: usize = 64;

/// An event of this daemon.
#[derive(Debug, Clone)]
struct Noted {
    last: Duration,
    times: u64,
    what: Happening,
}

/// The last events, oldest first; a bounded number of each kind.
#[derive(Debug)]
pub(super) struct EventLog {
    earlier: Timeline<HistoryEvent>,
    own: Vec<(Duration, Noted)>,
}

impl EventLog {
    /// Begins with the events of earlier daemons.
    pub(super) fn new(earlier: Vec<HistoryEvent>) -> Self {
        let earlier = earlier.into_iter().map(|event| (event.at, event)).collect();
        Self { earlier: Timeline::new(HistoryTable::EVENTS_MAX, earlier), own: Vec::new() }
    }

    /// Adds an event of now.
    pub(super) fn add(&mut self, clock: Clock, what: Happening) {
        let now = clock.since_boot();
        let same = self.own.iter_mut().rev().map(|(_, noted)| noted).find(|noted| noted.what == what);
        if let Some(noted) = same.filter(|noted| now.saturating_sub(noted.last) < SAME) {
            (noted.last, noted.times) = (now, noted.times + 1);
            return;
        }
        let kind = discriminant(&what);
        let mut of_kind =
            self.own.iter().enumerate().filter(|(_, (_, noted))| discriminant(&noted.what) == kind);
        let oldest = of_kind.next().map(|(place, _)| place);
        if of_kind.count() + 1 >= OF_A_KIND_MAX
            && let Some(oldest) = oldest
        {
            self.own.remove(oldest);
        }
        self.own.push((now, Noted { last: now, times: 1, what }));
    }

    /// Removes events that ended before a time, and the oldest of too many.
    pub(super) fn forget_before(&mut self, time: u64, clock: Clock) {
        self.earlier.forget_before(time, clock);
        self.own.retain(|(_, noted)| clock.at(noted.last) >= time);
    }

    /// All events, oldest first; the last of them if there are too many.
    pub(super) fn list(&self, clock: Clock) -> Vec<HistoryEvent> {
        let own = self.own.iter().map(|(first, Noted { last, times, what })| HistoryEvent {
            at: clock.at(*first),
            last_at: clock.at(*last),
            times: *times,
            what: what.clone(),
        });
        let mut all: Vec<_> = self.earlier.iter(clock).map(|(_, event)| event.clone()).chain(own).collect();
        all.drain(..all.len().saturating_sub(HistoryTable::EVENTS_MAX));
        all
    }

    pub(super) fn memory_bytes(&self) -> usize {
        // Texts of events have about a hundred bytes.
        const TEXT: usize = 100;
        let own = self.own.capacity() * size_of::<(Duration, Noted)>();
        own + self.earlier.memory_bytes() + (self.own.len() + self.earlier.len()) * TEXT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invalidated(cause: &str) -> Happening {
        Happening::Invalidated { cause: cause.to_owned() }
    }

    #[test]
    fn the_same_again_is_counted() {
        let mut log = EventLog::new(Vec::new());
        for (at, cause) in [(10, "route"), (20, "ruleset"), (600, "route"), (1300, "route")] {
            log.add(Clock::new(at, at + 1000), invalidated(cause));
        }
        let list = log.list(Clock::new(1300, 2300));
        let seen: Vec<_> = list.iter().map(|event| (event.at, event.last_at, event.times)).collect();
        assert_eq!(seen, [(1010, 1600, 2), (1020, 1020, 1), (2300, 2300, 1)]);
    }

    #[test]
    fn a_flood_of_one_kind_leaves_the_others() {
        let mut log = EventLog::new(Vec::new());
        log.add(Clock::new(1, 1), Happening::Released);
        for number in 0..10_000 {
            log.add(Clock::new(2 + number, 2 + number), invalidated(&number.to_string()));
        }
        let list = log.list(Clock::new(20_000, 20_000));
        assert_eq!((list.len(), &list[0].what), (1 + OF_A_KIND_MAX, &Happening::Released));
        assert_eq!(list.last().unwrap().what, invalidated("9999"));
    }

    #[test]
    fn kept_events_come_first_and_all_are_bounded() {
        let kept = |at| HistoryEvent { at, last_at: at, times: 1, what: Happening::Released };
        let mut log = EventLog::new((0..600).map(kept).collect());
        log.add(Clock::new(5, 1000), invalidated("link"));
        let list = log.list(Clock::new(5, 1000));
        assert_eq!((list.len(), list[0].at), (HistoryTable::EVENTS_MAX, 89));
        assert_eq!(list.last().unwrap().what, invalidated("link"));
        log.forget_before(2000, Clock::new(5, 1000));
        assert!(log.list(Clock::new(5, 1000)).is_empty());
    }
}
