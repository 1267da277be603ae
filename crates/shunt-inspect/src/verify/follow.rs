//! Follows the packets of one flow through the router: pairs each packet that entered with the one that left. No I/O
//! and no clock.

use super::{
    compare::{self, Treatments},
    fault::{Fault, Way},
    segment::{Segment, Segments},
};
use std::collections::{BTreeMap, VecDeque};

/// Packets on their way, and packets that left unexpectedly, that are kept for a flow.
const KEPT: usize = 4096;
/// Changes of the path that are kept: packets are given up soon after they entered.
const WAYS: usize = 256;
/// Times that are kept for their median.
const TIMES: usize = 20_000;

/// A packet with a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) fault: Fault,
    pub(crate) way: Way,
    pub(crate) entered: Segment,
    /// None if it is lost.
    pub(crate) left: Option<Segment>,
}

/// Counts of one path.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) faults: BTreeMap<Fault, u64>,
    /// Packets with TCP payload.
    pub(crate) data: u64,
    /// Those with payload that had been sent before.
    pub(crate) repeated: u64,
    /// Those with payload that were not seen leaving.
    data_lost: u64,
    pub(crate) in_router_ns: Vec<f64>,
    pub(crate) round_trip_ns: Vec<f64>,
}

#[derive(Debug)]
struct Pending {
    index: u64,
    at_ns: u64,
    is_repeated: bool,
    /// Whether it was seen where Linux receives packets. False before XDP.
    is_received: bool,
    segment: Segment,
}

/// A packet that left and is like none that entered.
#[derive(Debug)]
struct Stray {
    at_ns: u64,
    /// The last packet, of those that entered, that had left before; none had if it is None.
    after: Option<u64>,
    way: Way,
    segment: Segment,
}

/// A segment of TCP whose acknowledgement is awaited.
#[derive(Debug, Clone, Copy)]
struct Awaited {
    end: u32,
    since_ns: u64,
    way: Way,
}

/// How a packet was dropped: the path that it took, if that is known, and Linux's reason, if Linux did it.
type Drop = (Option<Way>, Option<u32>);

/// Whether packets are on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Waits {
    /// All have left.
    No,
    /// Linux was seen to drop as many as have not left.
    ForDropped,
    /// Some have neither left nor been dropped.
    Yes,
}

/// What the acknowledgement of a packet that left may end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Acknowledged {
    pub(crate) number: u32,
    pub(crate) at_ns: u64,
}

impl Acknowledged {
    fn by(segment: &Segment, at_ns: u64) -> Option<Self> {
        segment.stream.map(|stream| Self { number: stream.acknowledgement, at_ns })
    }
}

/// One direction of a connection.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    pending: VecDeque<Pending>,
    strays: VecDeque<Stray>,
    entered: u64,
    /// The number of packets that had entered when the observer began to look, after a gap.
    first: u64,
    /// The last packet of each path that has left, by its place among those that entered.
    latest: BTreeMap<Way, u64>,
    /// The paths of packets that left, each from a place on, oldest first: a packet that is lost shows none.
    ways: VecDeque<(u64, Way)>,
    sent_to: Option<u32>,
    awaited: Option<Awaited>,
    /// The shortest round trip so far, from this router to the receiver and back.
    shortest_ns: Option<u64>,
    pub(crate) tallies: BTreeMap<Way, Tally>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) treatments: Treatments,
    /// Packets that were overtaken by packets of the other path.
    pub(crate) overtaken: u64,
    /// Packets whose end could not be seen, since they were cut or the observer lost records.
    pub(crate) unseen: u64,
    /// The path that packets should take now.
    pub(crate) period: Option<Way>,
    /// When packets entered that were seen before XDP and nowhere else, while Linux forwarded all packets of the flow:
    /// the observer missed them.
    pub(crate) missed_ns: Vec<u64>,
    /// Likewise, while XDP forwarded the flow. XDP lost them, or Linux got them and the observer missed them.
    suspects: Vec<Pending>,
    /// Packets that were dropped, and that no finding has taken yet.
    dropped: BTreeMap<Drop, u64>,
    /// Packets that entered and that Linux dropped, by path and reason.
    pub(crate) by_linux: BTreeMap<(Way, u32), u64>,
}

impl Follower {
    /// Packets enter the router, where Linux receives them.
    pub(crate) fn enter(&mut self, at_ns: u64, segments: Segments) {
        self.add(at_ns, segments, true);
    }

    /// Packets enter the router, before XDP.
    pub(crate) fn enter_before_xdp(&mut self, at_ns: u64, segments: Segments) {
        self.add(at_ns, segments, false);
    }

    /// Linux receives packets that were seen before XDP.
    pub(crate) fn receive(&mut self, segments: &Segments) {
        for segment in &segments.whole {
            let same = |one: &&mut Pending| !one.is_received && one.segment.kept == segment.kept;
            if let Some(pending) = self.pending.iter_mut().find(same) {
                pending.is_received = true;
            }
        }
    }

    fn add(&mut self, at_ns: u64, segments: Segments, is_received: bool) {
        if segments.cut.is_some() {
            self.unseen += 1;
        }
        for segment in segments.whole {
            let is_repeated = self.is_repeated(&segment);
            let index = self.entered;
            self.entered += 1;
            if self.pending.len() >= KEPT {
                self.pending.pop_front();
                self.unseen += 1;
            }
            self.pending.push_back(Pending { index, at_ns, is_repeated, is_received, segment });
        }
    }

    /// Packets leave by this path. Returns what their acknowledgement may end, in the other direction.
    pub(crate) fn leave(&mut self, at_ns: u64, way: Way, segments: Segments) -> Option<Acknowledged> {
        if let Some((from, bytes)) = segments.cut {
            self.excuse(from, bytes);
        }
        let mut acknowledged = None;
        for segment in segments.whole {
            acknowledged = Acknowledged::by(&segment, at_ns);
            match self.entered_as(&segment).and_then(|at| self.pending.remove(at)) {
                Some(pending) if self.was_sent_again(&pending, at_ns, way) => {
                    self.lose(pending);
                    let tally = self.tallies.entry(way).or_default();
                    tally.data += 1;
                    tally.repeated += 1;
                    self.unseen += 1;
                }
                Some(pending) => self.finish(pending, at_ns, way, segment),
                None => {
                    if self.strays.len() >= KEPT {
                        self.strays.pop_front();
                    }
                    let after = self.latest.values().max().copied();
                    self.strays.push_back(Stray { at_ns, after, way, segment });
                }
            }
        }
        acknowledged
    }

    /// The place of the packet that entered as this one leaves: of several with the same bytes, the one with the same
    /// ID. Segments of an aggregate have IDs of their own. Of a segment that was sent twice, the first one is lost if
    /// later ones have left.
    fn entered_as(&self, left: &Segment) -> Option<usize> {
        let is_it = |one: &Pending| {
            let is_part = one.segment.is_part || left.is_part;
            one.segment.kept == left.kept && (is_part || one.segment.exact == left.exact)
        };
        let mut found = self.pending.iter().enumerate().filter(|(_, one)| is_it(one));
        let (first, one) = found.next()?;
        let is_late = self.latest.values().any(|latest| one.index < *latest);
        let is_in_turn = |one: &Pending| self.latest.values().all(|latest| one.index > *latest);
        let again = found.find(|(_, one)| is_late && is_in_turn(one));
        Some(again.map_or(first, |(at, _)| at))
    }

    /// Whether a packet of TCP that seems to leave late was lost, and what leaves was sent again: the observer has
    /// missed how that entered. The sender learns of a loss after a round trip.
    fn was_sent_again(&self, pending: &Pending, at_ns: u64, way: Way) -> bool {
        let is_late = self.latest.get(&way).is_some_and(|latest| pending.index < *latest);
        let are_dropped = self.dropped.values().any(|packets| *packets > 0);
        let later_ns = at_ns.saturating_sub(pending.at_ns);
        let is_a_round_trip_later = self.shortest_ns.is_some_and(|shortest_ns| later_ns >= shortest_ns);
        is_late && has_data(&pending.segment) && (are_dropped || is_a_round_trip_later)
    }

    /// Packets of this flow are dropped: by Linux, for this reason, or by somebody else's program.
    pub(crate) fn drop(&mut self, way: Option<Way>, by_linux: Option<u32>, packets: u64) {
        *self.dropped.entry((way, by_linux)).or_default() += packets;
    }

    /// Takes a packet that was dropped so.
    fn take_dropped(&mut self, is_so: impl Fn(&Drop) -> bool) -> Option<Drop> {
        let (drop, packets) = self.dropped.iter_mut().find(|(drop, packets)| **packets > 0 && is_so(drop))?;
        *packets -= 1;
        Some(*drop)
    }

    /// An acknowledgement of this direction's data has left in the other direction.
    pub(crate) fn acknowledge(&mut self, acknowledged: Acknowledged) {
        let Some(awaited) = self.awaited else { return };
        if is_before(acknowledged.number, awaited.end) {
            return;
        }
        self.awaited = None;
        let round_trip_ns = acknowledged.at_ns.saturating_sub(awaited.since_ns);
        self.shortest_ns = Some(self.shortest_ns.map_or(round_trip_ns, |ns| ns.min(round_trip_ns)));
        let times = &mut self.tallies.entry(awaited.way).or_default().round_trip_ns;
        if times.len() < TIMES {
            times.push(round_trip_ns as f64);
        }
    }

    /// Whether packets are on their way.
    pub(crate) fn waits(&self) -> Waits {
        let by_linux = |((_, by_linux), packets): (&Drop, &u64)| by_linux.map_or(0, |_| *packets);
        let dropped: u64 = self.dropped.iter().map(by_linux).sum();
        match self.pending.len() as u64 {
            0 => Waits::No,
            pending if pending <= dropped => Waits::ForDropped,
            _ => Waits::Yes,
        }
    }

    /// Packets that entered before this time have not left, and will not.
    pub(crate) fn give_up(&mut self, before_ns: u64) {
        while self.pending.front().is_some_and(|pending| pending.at_ns < before_ns) {
            if let Some(lost) = self.pending.pop_front() {
                self.lose(lost);
            }
        }
        self.strays.retain(|stray| stray.at_ns >= before_ns);
    }

    /// Forgets what is on its way: the observer has a gap here. `is_blind` says that packets may have left unseen.
    pub(crate) fn forget(&mut self, is_blind: bool) {
        if is_blind {
            self.unseen += self.pending.len() as u64;
        }
        self.pending.clear();
        self.strays.clear();
        self.first = self.entered;
        self.awaited = None;
        self.dropped.clear();
    }

    fn is_repeated(&mut self, segment: &Segment) -> bool {
        let Some(stream) = segment.stream.filter(|stream| stream.payload > 0) else { return false };
        let end = stream.sequence.wrapping_add(stream.payload);
        let is_repeated = self.sent_to.is_some_and(|sent| !is_before(sent, end));
        if !is_repeated {
            self.sent_to = Some(end);
        }
        is_repeated
    }

    /// The payload of an aggregate that was not captured whole has left unseen.
    fn excuse(&mut self, from: u32, bytes: u32) {
        let before = self.pending.len();
        self.pending.retain(|pending| {
            let at = pending.segment.stream.map(|stream| stream.sequence.wrapping_sub(from));
            at.is_none_or(|at| at >= bytes)
        });
        self.unseen += (before - self.pending.len()) as u64;
    }

    fn finish(&mut self, pending: Pending, at_ns: u64, way: Way, left: Segment) {
        let Pending { index, at_ns: since_ns, is_repeated, segment, .. } = pending;
        self.note_way(index, way);
        let tally = self.tallies.entry(way).or_default();
        tally.packets += 1;
        tally.bytes += segment.kept.len() as u64;
        if tally.in_router_ns.len() < TIMES {
            tally.in_router_ns.push(at_ns.saturating_sub(since_ns) as f64);
        }
        if let Some(stream) = segment.stream.filter(|stream| stream.payload > 0) {
            tally.data += 1;
            tally.repeated += u64::from(is_repeated);
            let end = stream.sequence.wrapping_add(stream.payload);
            if self.awaited.is_none() && !is_repeated {
                self.awaited = Some(Awaited { end, since_ns, way });
            }
        }
        let is_late = |latest: &u64| index < *latest;
        if self.latest.get(&way).is_some_and(is_late) {
            self.note(Fault::Order, way, &segment, Some(&left));
        } else if self.latest.values().any(is_late) {
            self.overtaken += 1;
        }
        let latest = self.latest.entry(way).or_default();
        *latest = index.max(*latest);
        if let Some(fault) = compare::fault(&segment, &left) {
            self.note(fault, way, &segment, Some(&left));
        }
        self.treatments.add(way, &segment, &left);
    }

    fn lose(&mut self, lost: Pending) {
        let changed = self.strays.iter().position(|stray| {
            stray.at_ns >= lost.at_ns
                && stray.after.is_none_or(|after| after < lost.index)
                && compare::is_changed(&lost.segment, &stray.segment)
        });
        if let Some(stray) = changed.and_then(|at| self.strays.remove(at)) {
            // Only between two others that were followed is it surely this packet. Otherwise it may be one that entered
            // before the observer looked, or after it had stopped.
            let is_behind = stray.after.is_some_and(|after| after >= self.first);
            if !is_behind || self.latest.values().all(|latest| *latest < lost.index) {
                self.unseen += 1;
                return;
            }
            let tally = self.tallies.entry(stray.way).or_default();
            tally.packets += 1;
            tally.bytes += lost.segment.kept.len() as u64;
            self.treatments.add(stray.way, &lost.segment, &stray.segment);
            self.note(Fault::Bytes, stray.way, &lost.segment, Some(&stray.segment));
            return;
        }
        if !lost.is_received {
            match self.period {
                Some(Way::Slow) => {
                    self.unseen += 1;
                    self.missed_ns.push(lost.at_ns);
                }
                _ => self.suspects.push(lost),
            }
            return;
        }
        // The packets of an aggregate are dropped at once, so any of them can be any of these.
        if let Some((way, Some(reason))) = self.take_dropped(|(_, by_linux)| by_linux.is_some()) {
            let way = way.unwrap_or_else(|| self.way_at(lost.index));
            *self.by_linux.entry((way, reason)).or_default() += 1;
            return;
        }
        let by_program = self.take_dropped(|(way, _)| way.is_some());
        let way = by_program.and_then(|(way, _)| way).unwrap_or_else(|| self.way_at(lost.index));
        self.note(Fault::Lost, way, &lost.segment, None);
        if has_data(&lost.segment) {
            self.tallies.entry(way).or_default().data_lost += 1;
        }
    }

    fn note_way(&mut self, index: u64, way: Way) {
        if self.ways.back().is_some_and(|(from, last)| *last == way || index < *from) {
            return;
        }
        if self.ways.len() >= WAYS {
            self.ways.pop_front();
        }
        let from = self.latest.values().max().map_or(index, |latest| index.min(latest + 1));
        self.ways.push_back((from, way));
    }

    /// The path that packets took when this one entered.
    fn way_at(&self, index: u64) -> Way {
        let before = self.ways.iter().rev().find(|(from, _)| *from <= index);
        before.or(self.ways.front()).map_or(Way::Fast, |(_, way)| *way)
    }

    /// Whoever sends data by TCP sends lost data again. If that happened much less often than packets were not seen
    /// leaving, the observer missed them: tracepoints can be silent for some milliseconds.
    pub(crate) fn excuse_what_was_not_sent_again(&mut self) {
        let sum = |of: fn(&Tally) -> u64| self.tallies.values().map(of).sum::<u64>();
        if 2 * sum(|tally| tally.repeated) >= sum(|tally| tally.data_lost) {
            return;
        }
        for tally in self.tallies.values_mut() {
            let missed = std::mem::take(&mut tally.data_lost);
            self.unseen += missed;
            let lost = tally.faults.remove(&Fault::Lost).unwrap_or(0).saturating_sub(missed);
            if lost > 0 {
                tally.faults.insert(Fault::Lost, lost);
            }
        }
        self.findings.retain(|finding| finding.fault != Fault::Lost || !has_data(&finding.entered));
    }

    /// When the packets entered that XDP may have lost.
    pub(crate) fn suspects_ns(&self) -> impl Iterator<Item = u64> {
        self.suspects.iter().map(|one| one.at_ns)
    }

    /// XDP lost these packets, or the observer missed them.
    pub(crate) fn settle(&mut self, are_lost: bool) {
        for suspect in std::mem::take(&mut self.suspects) {
            if are_lost {
                self.note(Fault::Lost, Way::Fast, &suspect.segment, None);
            } else {
                self.unseen += 1;
            }
        }
    }

    fn note(&mut self, fault: Fault, way: Way, entered: &Segment, left: Option<&Segment>) {
        *self.tallies.entry(way).or_default().faults.entry(fault).or_default() += 1;
        if self.findings.iter().filter(|finding| finding.fault == fault).count() < compare::EXAMPLES {
            self.findings.push(Finding { fault, way, entered: entered.clone(), left: left.cloned() });
        }
    }
}

/// Whether this is a packet of TCP with payload.
fn has_data(segment: &Segment) -> bool {
    segment.stream.is_some_and(|stream| stream.payload > 0)
}

/// Whether a sequence number is before another one.
fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

#[cfg(test)]
mod tests;
