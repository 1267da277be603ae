//! What happened in the last day: traffic by minutes, and events, in bounded memory and in a
//! file across restarts.

mod event_log;
mod file;
mod minute;
mod rows;
mod timeline;

pub(crate) use file::FILE_BYTES_MAX;
pub(crate) use minute::{Counted, DeviceCounts};
pub use rows::Range;
pub(crate) use timeline::Clock;

use crate::kept_file::{KeptFile, Replacement};
use event_log::EventLog;
use file::Kept;
use minute::{Minute, PortNames};
use rows::Answer;
use shunt_api::{Failure, Happening, HistoryTable};
use std::{sync::Arc, time::Duration};
use timeline::Timeline;

/// Minutes of a day, and room for those that restarts cut short.
const MINUTES_MAX: usize = 1440 + 60;
/// A clock that differs by more from what it should show was set.
const JUMP_MS: i64 = 2000;

/// The last day by minutes, and its events.
#[derive(Debug)]
pub(crate) struct History {
    clock: Clock,
    minutes: Timeline<Arc<Minute>>,
    ports: PortNames,
    events: EventLog,
    file: KeptFile,
}

impl History {
    /// Reads what an earlier daemon has kept, and notes the start of this one.
    pub(crate) fn load(file: KeptFile, clock: Clock, version: &str) -> Self {
        let kept: Option<Kept> = file.load("the history begins now", file::decode);
        let after_crash = kept.as_ref().is_some_and(|kept| kept.running);
        let kept = kept.unwrap_or_default();
        let mut history = Self {
            clock,
            minutes: Timeline::new(MINUTES_MAX, kept.minutes),
            ports: PortNames::default(),
            events: EventLog::new(kept.events),
            file,
        };
        history.forget_old();
        history.note(Happening::Started { version: version.to_owned(), after_crash });
        history
    }

    /// Follows the clock. A clock that was set moves the minutes and events of this daemon with it.
    pub(crate) fn set_clock(&mut self, clock: Clock) {
        let by_ms = clock.offset_ms() - self.clock.offset_ms();
        self.clock = clock;
        if by_ms.abs() >= JUMP_MS {
            self.note(Happening::ClockSet { by_s: by_ms / 1000 });
        }
    }

    /// Notes an event of now.
    pub(crate) fn note(&mut self, what: Happening) {
        self.note_of(self.clock, what);
    }

    /// Notes an event of this moment, which has its place among those noted since.
    pub(crate) fn note_of(&mut self, at: Clock, what: Happening) {
        self.events.add(at, what);
    }

    /// Adds what was counted since `since`.
    pub(crate) fn add_minute(&mut self, since: Duration, counted: &Counted) {
        let minute = Minute::new(counted, &mut self.ports);
        self.minutes.push(since, Arc::new(minute));
        self.forget_old();
    }

    fn forget_old(&mut self) {
        let day = self.clock.now().saturating_sub(HistoryTable::KEPT_S);
        self.minutes.forget_before(day, self.clock);
        self.events.forget_before(day, self.clock);
    }

    /// What an answer is made of, on another thread.
    pub(crate) fn answer(&self, range: Range) -> Answer {
        Answer {
            range,
            now: self.clock.now(),
            minutes: self.minutes.iter(self.clock).map(|(at, minute)| (at, Arc::clone(minute))).collect(),
            events: self.events.list(self.clock),
            left_out: self.events.left_out(self.clock.now().saturating_sub(range.for_s), self.clock),
            memory_bytes: self.memory_bytes(),
        }
    }

    /// Answers from the file of a daemon that does not run. The present of the answer is the end of the history.
    ///
    /// # Errors
    /// As [`KeptFile::peek`].
    pub(crate) fn answer_from(file: &KeptFile, range: Range) -> Result<HistoryTable, Failure> {
        let Kept { minutes, events, .. } = file.peek(file::decode)?;
        let ends = minutes.iter().map(|(at, minute)| at + minute.seconds as u64);
        let now = ends.chain(events.iter().map(|event| event.last_at)).max().unwrap_or_default();
        Ok(Answer { range, now, minutes, events, left_out: 0, memory_bytes: 0 }.table())
    }

    /// The memory of the history, in bytes: what is allocated, apart from the allocator's overhead.
    fn memory_bytes(&self) -> u64 {
        let minutes = self.minutes.iter(self.clock).map(|(_, minute)| minute.memory_bytes()).sum::<usize>();
        let lists = self.minutes.memory_bytes();
        (minutes + lists + self.events.memory_bytes() + self.ports.memory_bytes()) as u64
    }

    /// What the file is to have now. `running` is false at a stop.
    pub(crate) fn replacement(&mut self, running: bool) -> Replacement {
        let kept = Kept {
            running,
            minutes: self.minutes.iter(self.clock).map(|(at, minute)| (at, Arc::clone(minute))).collect(),
            events: self.events.list(self.clock),
        };
        self.file.replace(move |out| file::encode(kept, out))
    }
}

#[cfg(test)]
mod tests;
