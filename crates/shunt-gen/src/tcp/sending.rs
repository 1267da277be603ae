//! The stream that an end sends: retransmission (RFC 6298), slow start and fast retransmit (RFC 5681, RFC 6582).
//!
//! Places count from the own SYN, which is 0; the first byte is 1, and FIN follows the last byte.

use std::time::Duration;

/// Time until a segment is repeated while no round-trip time is known. RFC 6298 says 1 s; a lost SYN would then hide
/// the times of everything else.
const FIRST_TIMEOUT: Duration = Duration::from_millis(250);
const TIMEOUT_MIN: Duration = Duration::from_millis(200);
const TIMEOUT_MAX: Duration = Duration::from_secs(2);
/// Segments before the first acknowledgement (RFC 6928).
const FIRST_SEGMENTS: u64 = 10;
const DUPLICATES: u32 = 3;

/// The sent part of a stream.
#[derive(Debug)]
pub(super) struct Sending {
    /// The sequence number of the own SYN.
    first: u32,
    /// The place of the first byte that is not acknowledged.
    unacknowledged: u64,
    /// The place of the next byte to send.
    next: u64,
    /// The place behind everything that was sent at least once.
    highest: u64,
    /// The place behind the last byte that there is to send.
    end: u64,
    /// Whether FIN follows.
    fin: bool,
    /// The peer's window in bytes.
    window: u64,
    /// Most bytes in a segment.
    pub(super) segment_bytes: u64,
    congestion_window: u64,
    threshold: u64,
    duplicates: u32,
    /// In fast recovery: everything before this place was sent before the loss was noticed.
    recover: Option<u64>,
    /// The first unacknowledged segment is to be repeated.
    repeat: bool,
    round_trip: Option<(Duration, Duration)>,
    timeout: Duration,
    /// The place whose acknowledgement gives a round-trip time, and when it was sent.
    timed: Option<(u64, Duration)>,
    due: Option<Duration>,
    /// When the peer last acknowledged something new.
    progress: Duration,
    /// Number of segments that repeat bytes, SYN or FIN.
    pub(super) retransmitted: u64,
}

/// A part of the stream that is to be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) place: u64,
    pub(super) bytes: u64,
    pub(super) syn: bool,
    pub(super) fin: bool,
}

/// How an acknowledgement fits the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Acknowledged {
    /// Something new, or nothing.
    Valid,
    /// Something that was never sent.
    Unsent,
}

impl Sending {
    pub(super) fn new(first: u32, segment_bytes: u64, now: Duration) -> Self {
        Self {
            first,
            unacknowledged: 0,
            next: 0,
            highest: 0,
            end: 1,
            fin: false,
            window: 0,
            segment_bytes,
            congestion_window: FIRST_SEGMENTS * segment_bytes,
            threshold: u64::MAX,
            duplicates: 0,
            recover: None,
            repeat: false,
            round_trip: None,
            timeout: FIRST_TIMEOUT,
            timed: None,
            due: None,
            progress: now,
            retransmitted: 0,
        }
    }

    pub(super) fn sequence(&self, place: u64) -> u32 {
        self.first.wrapping_add(place as u32)
    }

    /// The sequence number that the peer expects next, as far as its acknowledgements say.
    pub(super) fn acknowledged_sequence(&self) -> u32 {
        self.sequence(self.unacknowledged)
    }

    /// The sequence number of the next new byte.
    pub(super) fn next_sequence(&self) -> u32 {
        self.sequence(self.highest)
    }

    /// Adds bytes to send.
    pub(super) fn write(&mut self, bytes: u64, now: Duration) {
        if self.unacknowledged == self.end {
            self.progress = now;
        }
        self.end += bytes;
    }

    /// Sends a FIN behind all data.
    pub(super) fn close(&mut self, now: Duration) {
        self.write(0, now);
        self.fin = true;
    }

    pub(super) fn is_closing(&self) -> bool {
        self.fin
    }

    /// Whether the peer has acknowledged everything, FIN included.
    pub(super) fn is_finished(&self) -> bool {
        self.fin && self.unacknowledged > self.end
    }

    /// Sends SYN again, since the peer repeats its own.
    pub(super) fn repeat_syn(&mut self) {
        if self.unacknowledged == 0 {
            self.next = 0;
        }
    }

    /// The next part that windows allow; it counts as sent.
    pub(super) fn next_piece(&mut self, now: Duration) -> Option<Piece> {
        let piece = self.piece()?;
        let end = piece.place + piece.bytes + u64::from(piece.syn) + u64::from(piece.fin);
        if piece.place < self.highest {
            self.retransmitted += 1;
            // An acknowledgement may be that of the first transmission (Karn's algorithm).
            self.timed = None;
        } else if self.timed.is_none() {
            self.timed = Some((end, now));
        }
        if !std::mem::take(&mut self.repeat) {
            self.next = end;
        }
        self.highest = self.highest.max(end);
        self.due.get_or_insert(now + self.timeout);
        Some(piece)
    }

    fn piece(&mut self) -> Option<Piece> {
        if self.next == 0 {
            return Some(Piece { place: 0, bytes: 0, syn: true, fin: false });
        }
        if self.unacknowledged == 0 {
            return None;
        }
        let (place, usable) = match self.repeat {
            true => (self.unacknowledged, self.highest),
            false => (self.next, self.unacknowledged + self.window.min(self.congestion_window)),
        };
        let bytes = self.end.saturating_sub(place).min(usable.saturating_sub(place)).min(self.segment_bytes);
        let fin = self.fin && place + bytes == self.end;
        // Wait for a window of a whole segment, unless nothing is on the way (RFC 1122).
        let is_silly =
            bytes < self.segment_bytes.min(self.end.saturating_sub(place)) && place > self.unacknowledged;
        if (bytes == 0 || is_silly) && !fin {
            self.repeat = false;
            return None;
        }
        Some(Piece { place, bytes, syn: false, fin })
    }

    /// Takes an acknowledgement number and a window. `bare` says that the segment has neither bytes nor FIN.
    pub(super) fn acknowledge(
        &mut self,
        number: u32,
        window: u64,
        bare: bool,
        now: Duration,
    ) -> Acknowledged {
        let ahead = number.wrapping_sub(self.sequence(self.unacknowledged)) as i32;
        let Some(place) = self.unacknowledged.checked_add_signed(ahead.into()) else {
            return Acknowledged::Unsent;
        };
        if place > self.highest {
            return Acknowledged::Unsent;
        }
        if place > self.unacknowledged {
            self.advance(place, now);
        } else if place == self.unacknowledged && bare && window == self.window && place < self.next {
            self.duplicate();
        }
        if place == self.unacknowledged {
            self.window = window;
        }
        Acknowledged::Valid
    }

    fn advance(&mut self, place: u64, now: Duration) {
        let (is_syn, news) = (self.unacknowledged == 0, place - self.unacknowledged);
        self.unacknowledged = place;
        self.next = self.next.max(place);
        (self.progress, self.duplicates) = (now, 0);
        if let Some((_, sent)) = self.timed.take_if(|(timed, _)| *timed <= place) {
            self.time(now.saturating_sub(sent));
        }
        self.timeout = self.usual_timeout();
        let segment = self.segment_bytes;
        match self.recover {
            Some(recover) if place < recover => {
                // Another segment of the same window is missing.
                self.repeat = true;
                self.congestion_window = self.congestion_window.saturating_sub(news).max(segment) + segment;
            }
            Some(_) => (self.congestion_window, self.recover) = (self.threshold, None),
            None if is_syn => {}
            None if self.congestion_window < self.threshold => self.congestion_window += news.min(segment),
            None => self.congestion_window += (segment * segment / self.congestion_window).max(1),
        }
        self.due = (place < self.next).then(|| now + self.timeout);
    }

    fn duplicate(&mut self) {
        self.duplicates += 1;
        if self.recover.is_some() {
            self.congestion_window += self.segment_bytes;
        } else if self.duplicates == DUPLICATES {
            self.threshold = self.half_in_flight();
            self.congestion_window = self.threshold + u64::from(DUPLICATES) * self.segment_bytes;
            (self.recover, self.repeat) = (Some(self.highest), true);
        }
    }

    fn half_in_flight(&self) -> u64 {
        ((self.highest - self.unacknowledged) / 2).max(2 * self.segment_bytes)
    }

    fn time(&mut self, took: Duration) {
        self.round_trip = Some(match self.round_trip {
            None => (took, took / 2),
            Some((mean, deviation)) => ((mean * 7 + took) / 8, (deviation * 3 + mean.abs_diff(took)) / 4),
        });
    }

    fn usual_timeout(&self) -> Duration {
        let usual = self.round_trip.map_or(FIRST_TIMEOUT, |(mean, deviation)| mean + deviation * 4);
        usual.clamp(TIMEOUT_MIN, TIMEOUT_MAX)
    }

    /// When to call [`Sending::on_time`] next; None if nothing waits for an acknowledgement.
    pub(super) fn due(&self) -> Option<Duration> {
        self.due
    }

    /// Repeats what was not acknowledged in time. Returns whether the peer has acknowledged nothing for so long that
    /// the connection is given up.
    pub(super) fn on_time(&mut self, now: Duration, patience: Duration) -> bool {
        if self.due.is_none_or(|due| now < due) {
            return false;
        }
        if now >= self.progress + patience {
            self.due = None;
            return true;
        }
        self.threshold = self.half_in_flight();
        self.congestion_window = self.segment_bytes;
        (self.next, self.repeat, self.recover, self.duplicates) = (self.unacknowledged, false, None, 0);
        self.timed = None;
        self.timeout = (self.timeout * 2).min(TIMEOUT_MAX);
        self.due = None;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const PATIENCE: Duration = Duration::from_secs(3);

    /// A stream whose SYN and window of a mebibyte were acknowledged.
    fn opened(bytes: u64) -> Sending {
        let mut stream = Sending::new(u32::MAX, 1000, MS);
        assert!(stream.next_piece(MS).unwrap().syn);
        assert_eq!(stream.acknowledge(0, 1 << 20, true, 2 * MS), Acknowledged::Valid);
        stream.write(bytes, 2 * MS);
        stream
    }

    fn places(stream: &mut Sending, now: Duration) -> Vec<u64> {
        std::iter::from_fn(|| stream.next_piece(now)).map(|piece| piece.place).collect()
    }

    #[test]
    fn windows_bound_what_is_sent() {
        let mut stream = opened(100_000);
        let first = places(&mut stream, 3 * MS);
        assert_eq!((first.len(), first[0], first[1]), (10, 1, 1001));
        assert_eq!(stream.acknowledge(3000, 2500, true, 4 * MS), Acknowledged::Valid);
        assert_eq!(places(&mut stream, 4 * MS), []);
        assert_eq!(stream.acknowledge(10_000, 2500, true, 5 * MS), Acknowledged::Valid);
        let some: Vec<_> =
            std::iter::from_fn(|| stream.next_piece(5 * MS)).map(|piece| piece.bytes).collect();
        assert_eq!(some, [1000, 1000]);
        assert_eq!(stream.acknowledge(12_001, 2500, true, 5 * MS), Acknowledged::Unsent);
        assert_eq!(stream.retransmitted, 0);
    }

    #[test]
    fn three_duplicates_repeat_one_segment_and_a_partial_acknowledgement_the_next() {
        let mut stream = opened(20_000);
        places(&mut stream, 3 * MS);
        for _ in 0..3 {
            assert_eq!(places(&mut stream, 4 * MS), []);
            stream.acknowledge(0, 1 << 20, true, 4 * MS);
        }
        assert_eq!(places(&mut stream, 4 * MS), [1]);
        // The second segment was lost, too. The window has room for new ones.
        stream.acknowledge(1000, 1 << 20, true, 5 * MS);
        assert_eq!(places(&mut stream, 5 * MS)[0], 1001);
        assert_eq!(stream.retransmitted, 2);
        stream.acknowledge(stream.next_sequence(), 1 << 20, true, 6 * MS);
        assert_eq!((stream.recover, stream.due()), (None, None));
    }

    #[test]
    fn silence_repeats_everything_and_ends_after_the_patience() {
        let mut stream = opened(2500);
        stream.close(3 * MS);
        assert_eq!(places(&mut stream, 3 * MS), [1, 1001, 2001]);
        let due = stream.due().unwrap();
        assert!(!stream.on_time(due - MS, PATIENCE) && places(&mut stream, due - MS).is_empty());
        assert!(!stream.on_time(due, PATIENCE));
        assert_eq!(places(&mut stream, due), [1]);
        let waits = std::iter::from_fn(|| {
            let due = stream.due()?;
            let over = stream.on_time(due, PATIENCE);
            places(&mut stream, due);
            (!over).then_some(due)
        });
        let times: Vec<Duration> = waits.collect();
        assert!(times.windows(3).all(|at| at[2] - at[1] >= at[1] - at[0]), "{times:?}");
        assert!((2..6).contains(&times.len()), "{times:?}");
        assert_eq!(stream.retransmitted as usize, times.len() + 1);
        assert!(!stream.is_finished());
        stream.acknowledge(2501, 1 << 20, true, 9000 * MS);
        assert!(stream.is_finished());
    }
}
