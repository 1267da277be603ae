//! The events of the last day, in bounded memory: what happens often does not push out what is rare, and what a host of
//! the network can provoke does not push out anything else.

use super::timeline::Clock;
use shunt_api::{Happening, HistoryEvent, HistoryTable};
use std::{collections::VecDeque, mem::discriminant, time::Duration};

/// The same again within this time is no further event.
const SAME: Duration = Duration::from_secs(600);

/// An event of this daemon.
#[derive(Debug, Clone)]
struct Noted {
    last: Duration,
    times: u64,
    what: Happening,
}

/// The last events, in the order in which each happened first; a bounded number of each kind.
#[derive(Debug)]
pub(super) struct EventLog {
    earlier: Vec<HistoryEvent>,
    own: Vec<(Duration, Noted)>,
    /// Events that were removed for later ones of their kind: when each was last, and how often. In the last place,
    /// further ones are added up.
    left_out: VecDeque<(Duration, u64)>,
}

/// Events that were left out are remembered one by one up to this number.
const LEFT_OUT_MAX: usize = 256;

/// Stations that have been named stay named: whoever invents others must not hide them.
const fn stays(what: &Happening) -> bool {
    matches!(what, Happening::Unstable { .. })
}

impl EventLog {
    /// Begins with the events of earlier daemons.
    pub(super) fn new(mut earlier: Vec<HistoryEvent>) -> Self {
        let mut kept = Vec::with_capacity(earlier.len());
        while let Some(event) = earlier.pop() {
            let same_kind = |other: &&HistoryEvent| discriminant(&other.what) == discriminant(&event.what);
            if kept.iter().filter(same_kind).count() < HistoryTable::OF_A_KIND_MAX {
                kept.push(event);
            }
        }
        kept.reverse();
        Self { earlier: kept, own: Vec::new(), left_out: VecDeque::new() }
    }

    /// Adds an event of now, or of a moment ago.
    pub(super) fn add(&mut self, clock: Clock, mut what: Happening) {
        let now = clock.since_boot();
        if stays(&what) && self.count(&what) + 1 >= HistoryTable::OF_A_KIND_MAX && self.find(&what).is_none()
        {
            what = Happening::Unstable { station: None };
        }
        let is_sum = what == Happening::Unstable { station: None };
        let same = self.find(&what).filter(|noted| is_sum || now.saturating_sub(noted.last) < SAME);
        if let Some(noted) = same {
            (noted.last, noted.times) = (noted.last.max(now), noted.times + 1);
            return;
        }
        if self.count(&what) >= HistoryTable::OF_A_KIND_MAX {
            if stays(&what) {
                return;
            }
            self.remove_oldest(&what, clock);
        }
        let place = self.own.partition_point(|(first, _)| *first <= now);
        self.own.insert(place, (now, Noted { last: now, times: 1, what }));
    }

    /// The last event of this daemon that is the same.
    fn find(&mut self, what: &Happening) -> Option<&mut Noted> {
        self.own.iter_mut().rev().map(|(_, noted)| noted).find(|noted| noted.what == *what)
    }

    /// The events of a kind.
    fn count(&self, what: &Happening) -> usize {
        let kind = discriminant(what);
        let earlier = self.earlier.iter().filter(|event| discriminant(&event.what) == kind).count();
        earlier + self.own.iter().filter(|(_, noted)| discriminant(&noted.what) == kind).count()
    }

    /// Removes the event of a kind that did not happen again for the longest time.
    fn remove_oldest(&mut self, what: &Happening, clock: Clock) {
        let kind = discriminant(what);
        let earlier = self.earlier.iter().enumerate();
        let of_kind = earlier.filter(|(_, event)| discriminant(&event.what) == kind);
        if let Some((at, _)) = of_kind.min_by_key(|(_, event)| event.last_at) {
            let removed = self.earlier.remove(at);
            let ago = Duration::from_secs(clock.now().saturating_sub(removed.last_at));
            self.leave_out(clock.since_boot().saturating_sub(ago), removed.times);
            return;
        }
        let own = self.own.iter().enumerate();
        let of_kind = own.filter(|(_, (_, noted))| discriminant(&noted.what) == kind);
        if let Some((at, _)) = of_kind.min_by_key(|(_, (_, noted))| noted.last) {
            let (_, removed) = self.own.remove(at);
            self.leave_out(removed.last, removed.times);
        }
    }

    fn leave_out(&mut self, last: Duration, times: u64) {
        let is_full = self.left_out.len() >= LEFT_OUT_MAX;
        match self.left_out.back_mut().filter(|_| is_full) {
            Some((at, sum)) => (*at, *sum) = ((*at).max(last), *sum + times),
            None => self.left_out.push_back((last, times)),
        }
    }

    /// How many events since `time`, in seconds since 1970, were removed for later ones.
    pub(super) fn left_out(&self, time: u64, clock: Clock) -> u64 {
        self.left_out.iter().filter(|(last, _)| clock.at(*last) >= time).map(|(_, times)| times).sum()
    }

    /// Removes events that ended before a time. Those that seem to be of the future stay: the clock may not be set yet.
    pub(super) fn forget_before(&mut self, time: u64, clock: Clock) {
        self.earlier.retain(|event| event.last_at >= time);
        self.own.retain(|(_, noted)| clock.at(noted.last) >= time);
        self.left_out.retain(|(last, _)| clock.at(*last) >= time);
    }

    /// All events, oldest first.
    pub(super) fn list(&self, clock: Clock) -> Vec<HistoryEvent> {
        let own = self.own.iter().map(|(first, Noted { last, times, what })| HistoryEvent {
            at: clock.at(*first),
            last_at: clock.at(*last),
            times: *times,
            text: String::new(),
            what: what.clone(),
        });
        self.earlier.iter().cloned().chain(own).collect()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        // Texts of events have about a hundred bytes.
        const TEXT: usize = 100;
        let left_out = self.left_out.capacity() * size_of::<(Duration, u64)>();
        let own = self.own.capacity() * size_of::<(Duration, Noted)>();
        let earlier = self.earlier.capacity() * size_of::<HistoryEvent>();
        own + earlier + left_out + (self.own.len() + self.earlier.len()) * TEXT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invalidated(cause: &str) -> Happening {
        Happening::Invalidated { cause: cause.to_owned(), device: None, object: None }
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
    fn the_same_again_keeps_the_place_and_the_time_of_the_first_and_leaves_those_of_others() {
        let mut log = EventLog::new(Vec::new());
        let down = Happening::PortDown { port: "wan0".to_owned() };
        let up = Happening::PortUp { port: "wan0".to_owned() };
        for (at, what) in [(10, &down), (12, &up), (20, &down), (25, &up)] {
            log.add(Clock::new(at, at + 1000), what.clone());
        }
        log.add(Clock::new(30, 1030), Happening::Released);
        // Noted a moment later than it happened.
        log.add(Clock::new(29, 1029), invalidated("fdb"));
        let list = log.list(Clock::new(30, 1030));
        let seen: Vec<_> = list.iter().map(|event| (event.at, event.last_at, event.times)).collect();
        assert_eq!(seen, [(1010, 1020, 2), (1012, 1025, 2), (1029, 1029, 1), (1030, 1030, 1)]);
        assert_eq!([&list[0].what, &list[1].what, &list[2].what], [&down, &up, &invalidated("fdb")]);
    }

    #[test]
    fn what_still_happens_is_not_removed_for_what_happened_once() {
        const MOST: u64 = HistoryTable::OF_A_KIND_MAX as u64;
        let mut log = EventLog::new(Vec::new());
        for number in 0..2 * MOST {
            log.add(Clock::new(number, number), invalidated("again and again"));
            log.add(Clock::new(number, number), invalidated(&number.to_string()));
        }
        let list = log.list(Clock::new(2 * MOST, 2 * MOST));
        assert_eq!((list[0].at, list[0].times, list.len() as u64), (0, 2 * MOST, MOST));
    }

    #[test]
    fn a_flood_of_one_kind_leaves_the_others() {
        let mut log = EventLog::new(Vec::new());
        log.add(Clock::new(1, 1), Happening::Released);
        for number in 0..10_000 {
            log.add(Clock::new(2 + number, 2 + number), invalidated(&number.to_string()));
        }
        let list = log.list(Clock::new(20_000, 20_000));
        assert_eq!((list.len(), &list[0].what), (1 + HistoryTable::OF_A_KIND_MAX, &Happening::Released));
        assert_eq!(list.last().unwrap().what, invalidated("9999"));
        // None was forgotten in silence.
        let left_out = 10_000 - HistoryTable::OF_A_KIND_MAX as u64;
        assert_eq!(log.left_out(0, Clock::new(20_000, 20_000)), left_out);
        assert_eq!(log.left_out(15_000, Clock::new(20_000, 20_000)), 0);
    }

    fn kept(at: u64, what: Happening) -> HistoryEvent {
        HistoryEvent { at, last_at: at, times: 1, text: String::new(), what }
    }

    #[test]
    fn kept_events_come_first_and_those_of_a_kind_are_bounded_across_restarts() {
        const MOST: usize = HistoryTable::OF_A_KIND_MAX;
        let stopped = Happening::Stopped { by: "x".to_owned(), flows: None };
        let released = (0..600).map(|at| kept(at, Happening::Released));
        let mut log = EventLog::new(std::iter::once(kept(0, stopped.clone())).chain(released).collect());
        log.add(Clock::new(5, 1000), invalidated("link"));
        let list = log.list(Clock::new(5, 1000));
        assert_eq!((list.len(), &list[0].what, list[1].at), (MOST + 2, &stopped, 600 - MOST as u64));
        assert_eq!(list.last().unwrap().what, invalidated("link"));
        log.add(Clock::new(6, 1001), Happening::Released);
        let list = log.list(Clock::new(6, 1001));
        assert_eq!((list.len(), list[1].at), (MOST + 2, 601 - MOST as u64));
        log.forget_before(2000, Clock::new(5, 1000));
        assert!(log.list(Clock::new(5, 1000)).is_empty());
    }

    #[test]
    fn invented_stations_hide_neither_events_nor_stations_that_were_named() {
        let unstable = |number: u64| Happening::Unstable { station: Some(format!("station {number}")) };
        let mut log = EventLog::new(vec![kept(0, unstable(0)), kept(1, Happening::Released)]);
        log.add(Clock::new(1, 1), Happening::Fault { what: "the disk is full".to_owned() });
        log.add(Clock::new(2, 2), unstable(1));
        for number in 2..10_000 {
            log.add(Clock::new(number, number), unstable(number));
        }
        let list = log.list(Clock::new(20_000, 20_000));
        let stations = list.iter().filter(|event| matches!(event.what, Happening::Unstable { .. }));
        assert_eq!(stations.count(), HistoryTable::OF_A_KIND_MAX);
        assert_eq!(list.len(), HistoryTable::OF_A_KIND_MAX + 2);
        assert!(
            list.iter().any(|event| event.what == unstable(0))
                && list.iter().any(|event| event.what == unstable(1))
        );
        let others = list.iter().find(|event| event.what == Happening::Unstable { station: None }).unwrap();
        assert_eq!(others.times, 10_000 - HistoryTable::OF_A_KIND_MAX as u64 + 1);
        // As many stations as there is room for again, after a restart.
        let mut later = EventLog::new(list);
        later.add(Clock::new(1, 30_000), unstable(20_000));
        assert!(later.list(Clock::new(1, 30_000)).iter().any(|event| event.what == unstable(1)));
    }
}
