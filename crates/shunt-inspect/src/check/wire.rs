//! Sends numbered frames from one port to another, and reports the fate of each.

use super::{
    Fault,
    end::{End, EndSocket},
    partner::ETHERTYPE,
    port::Port,
};
use shunt_lab::net::Frame;
use shunt_wire::{Ethernet, Mac, Tag, encap};
use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Bytes of a frame up to its number: MAC addresses, EtherType, run and number.
pub(super) const SHORTEST: usize = encap::header_bytes(0) + 8;
/// Frames in flight: far fewer than a socket's queue holds.
const WINDOW: usize = 128;
/// Frames of a flood in flight: more than a NIC's interrupt delay at 1 Gbit/s, and less than 0.1 s at 10 Mbit/s.
const FLOOD_WINDOW: usize = 64;
/// A frame is lost if no frame has arrived for this long.
const PATIENCE: Duration = Duration::from_secs(2);
/// Stop sending after this many losses.
const LOSSES: usize = 16;

/// A flood has ended if no frame arrives at a partner for this long.
const IN_FLIGHT: Duration = Duration::from_millis(100);

static RUN: AtomicU32 = AtomicU32::new(0);

/// The two ends of a cable, with a raw socket on each.
pub(super) struct Wire {
    /// The port that is checked: the first end.
    pub(super) port: Port,
    pub(super) ends: [End; 2],
    pub(super) macs: [Mac; 2],
    taps: [EndSocket; 2],
}

/// A frame to send: its length without tags and FCS, its tags, and its destination.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) bytes: usize,
    pub(super) tags: Vec<Tag>,
    pub(super) to: Option<Mac>,
}

impl Sent {
    pub(super) fn long(bytes: usize) -> Self {
        Self { bytes, tags: Vec::new(), to: None }
    }
}

/// Frames that arrived one after the other, and the time that they took.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Flood {
    pub(super) frames: usize,
    pub(super) time: Duration,
}

/// The fate of the frames of one run.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    /// Frames that were sent.
    pub(super) sent: usize,
    /// Frames that arrived at least once.
    pub(super) arrived: usize,
    /// Faults, each with the frame concerned.
    pub(super) faults: Vec<String>,
    /// Short frames that arrived longer than they were sent.
    pub(super) padded: usize,
    /// Frames of other senders that arrived.
    pub(super) others: u64,
}

impl Arrived {
    /// The evidence if there is no fault, else the faults.
    pub(super) fn all(self, evidence: impl Into<String>) -> Result<String, Fault> {
        if self.faults.is_empty() {
            return Ok(evidence.into());
        }
        let more = self.faults.len().saturating_sub(5);
        let mut text = self.faults.iter().take(5).cloned().collect::<Vec<_>>().join("; ");
        if more > 0 {
            text += &format!("; and {more} more");
        }
        Err(Fault::Failed(format!("{text} (of {} frames sent)", self.sent)))
    }
}

impl Wire {
    pub(super) fn open(port: &Port, peer: &End) -> Result<Self, Fault> {
        let ends = [End::Here(port.clone()), peer.clone()];
        let mac = |end: &End| -> Result<Mac, Fault> {
            let address = end.shown().map_err(Fault::Broken)?.address;
            address
                .parse()
                .map_err(|_| Fault::Impossible(format!("{end} has no Ethernet address, only `{address}`")))
        };
        let taps = [ends[0].socket()?, ends[1].socket()?];
        Ok(Self { port: port.clone(), macs: [mac(&ends[0])?, mac(&ends[1])?], taps, ends })
    }

    pub(super) fn tap(&self, end: usize) -> &EndSocket {
        &self.taps[end]
    }

    /// The name of a direction.
    pub(super) fn direction(&self, from: usize) -> String {
        format!("{} to {}", self.ends[from], self.ends[1 - from])
    }

    /// Sends frames in both directions, one after the other.
    pub(super) fn both_ways(&self, frames: &[Sent]) -> Result<Arrived, Fault> {
        let mut sum = self.send(0, frames)?;
        let back = self.send(1, frames)?;
        sum.sent += back.sent;
        sum.arrived += back.arrived;
        sum.padded += back.padded;
        sum.others += back.others;
        sum.faults.extend(back.faults);
        Ok(sum)
    }

    /// Sends frames from an end to the other and waits for each, in windows.
    pub(super) fn send(&self, from: usize, frames: &[Sent]) -> Result<Arrived, Fault> {
        self.send_in_windows(from, frames, WINDOW, &mut |_| Ok(()))
    }

    /// Like [`Wire::send`], with another window size, and work before each window.
    pub(super) fn send_in_windows(
        &self,
        from: usize,
        frames: &[Sent],
        window: usize,
        before: &mut dyn FnMut(usize) -> Result<(), Fault>,
    ) -> Result<Arrived, Fault> {
        // The numbers of runs differ in many bits, so that a damaged number is not taken for that of another run.
        let run = (std::process::id().rotate_left(16) ^ RUN.fetch_add(1, Ordering::Relaxed))
            .wrapping_mul(0x9e37_79b1);
        let mut result = Arrived::default();
        let mut times = vec![0_u32; frames.len()];
        // Frames in the queue belong to an earlier run.
        while self.receive(1 - from, Duration::ZERO)?.is_some() {}
        let (source, peer) = (self.macs[from], self.macs[1 - from]);
        let content = |number: usize| {
            let frame = &frames[number];
            content(source, frame.to.unwrap_or(peer), &frame.tags, (run, number as u32), frame.bytes)
        };
        for (turn, start) in (0..frames.len()).step_by(window).enumerate() {
            before(turn)?;
            let end = (start + window).min(frames.len());
            let contents: Vec<_> = (start..end).map(content).collect();
            self.taps[from].try_send_all(&contents).map_err(|(number, error)| {
                let bytes = contents[number].len();
                Fault::Failed(format!("{} refuses a frame of {bytes} bytes: {error}", self.ends[from]))
            })?;
            result.sent += contents.len();
            let mut deadline = Instant::now() + PATIENCE;
            let mut missing = end - start;
            while missing > 0 {
                let Some(bytes) =
                    self.receive(1 - from, deadline.saturating_duration_since(Instant::now()))?
                else {
                    break;
                };
                let Some(number) = number_of(&bytes, run).filter(|number| *number < frames.len()) else {
                    result.others += 1;
                    if is_ours(&bytes) && damaged(&bytes, run) {
                        result
                            .faults
                            .push(format!("{}: a frame arrived with a damaged header", self.direction(from)));
                    }
                    continue;
                };
                self.judge(from, number, &content(number), &bytes, &mut result);
                times[number] += 1;
                if times[number] == 1 {
                    result.arrived += 1;
                    missing = missing.saturating_sub(usize::from((start..end).contains(&number)));
                    deadline = Instant::now() + PATIENCE;
                } else {
                    result.faults.push(format!(
                        "{}: frame {number} arrived {} times",
                        self.direction(from),
                        times[number]
                    ));
                }
            }
            for number in (start..end).filter(|number| times[*number] == 0) {
                let Sent { bytes, tags, .. } = &frames[number];
                let tags: String = tags.iter().map(|tag| format!(", VLAN {}", tag.vid)).collect();
                result.faults.push(format!(
                    "{}: frame {number} of {bytes} bytes{tags} was lost",
                    self.direction(from)
                ));
            }
            if result.faults.len() >= LOSSES {
                break;
            }
        }
        // Copies of the last window, if any, were sent before this frame, so they have arrived.
        while let Some(bytes) = self.receive(1 - from, Duration::from_millis(1))? {
            match number_of(&bytes, run) {
                Some(number) if number < frames.len() => {
                    let copies = times[number] + 1;
                    result
                        .faults
                        .push(format!("{}: frame {number} arrived {copies} times", self.direction(from)));
                }
                _ => result.others += 1,
            }
        }
        Ok(result)
    }

    /// The bytes of the next frame at an end.
    pub(super) fn receive(&self, at: usize, timeout: Duration) -> Result<Option<Vec<u8>>, Fault> {
        Ok(self.receive_frame(at, timeout)?.map(|frame| frame.bytes))
    }

    /// The next frame at an end.
    pub(super) fn receive_frame(&self, at: usize, timeout: Duration) -> Result<Option<Frame>, Fault> {
        match self.taps[at].receive_within(timeout) {
            Ok(frame) => Ok(frame),
            // The socket reports a link that went down once.
            Err(_) => self.taps[at]
                .receive_within(timeout)
                .map_err(|error| Fault::Broken(format!("receiving on {}: {error}", self.ends[at]))),
        }
    }

    /// Sends frames of one length from an end to the other for a while, as fast as they arrive.
    pub(super) fn flood(&self, from: usize, bytes: usize, lasting: Duration) -> Result<Flood, Fault> {
        let frame = empty(self.macs[from], self.macs[1 - from], bytes);
        while self.receive(1 - from, Duration::ZERO)?.is_some() {}
        if let End::Far(_) = self.ends[1 - from] {
            return self.flood_to_partner(from, &frame, lasting);
        }
        let (mut in_flight, mut first, mut flood) = (0, None::<Instant>, Flood::default());
        loop {
            let is_over = first.is_some_and(|first| first.elapsed() >= lasting);
            while !is_over && in_flight < FLOOD_WINDOW {
                self.taps[from].try_send(&frame).map_err(|error| {
                    Fault::Failed(format!("{} refuses a frame of {bytes} bytes: {error}", self.ends[from]))
                })?;
                in_flight += 1;
            }
            if in_flight == 0 {
                return Ok(flood);
            }
            let Some(arrived) = self.receive(1 - from, PATIENCE)? else {
                return Err(Fault::Failed(format!(
                    "{}: {in_flight} frames of {bytes} bytes were lost after {} had arrived",
                    self.direction(from),
                    flood.frames
                )));
            };
            if arrived != frame {
                continue;
            }
            in_flight -= 1;
            // The time runs from the first arrival, so that frame is not counted.
            match first {
                None => first = Some(Instant::now()),
                Some(first) => flood = Flood { frames: flood.frames + 1, time: first.elapsed() },
            }
        }
    }

    /// As [`Wire::flood`], to a partner that counts the frames. No frame waits for the arrival of another one, so a
    /// loss shows only in the rate.
    fn flood_to_partner(&self, from: usize, frame: &[u8], lasting: Duration) -> Result<Flood, Fault> {
        let (to, done) = (1 - from, AtomicBool::new(false));
        let (counted, sent) = thread::scope(|scope| {
            let counting = scope.spawn(|| {
                let counted = self.taps[to].count(frame, lasting);
                done.store(true, Ordering::Relaxed);
                counted
            });
            let mut sent = Ok(());
            while sent.is_ok() && !done.load(Ordering::Relaxed) {
                sent = self.taps[from].try_send(frame);
            }
            (counting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), sent)
        });
        let (frames, time) =
            counted.map_err(|error| Fault::Broken(format!("receiving on {}: {error}", self.ends[to])))?;
        sent.map_err(|error| {
            Fault::Failed(format!("{} refuses a frame of {} bytes: {error}", self.ends[from], frame.len()))
        })?;
        if frames == 0 {
            return Err(Fault::Failed(format!("{}: no frame arrived", self.direction(from))));
        }
        // Frames that are still in flight belong to this flood.
        while self.receive(to, IN_FLIGHT)?.is_some() {}
        Ok(Flood { frames, time })
    }

    fn judge(&self, from: usize, number: usize, sent: &[u8], arrived: &[u8], result: &mut Arrived) {
        let direction = self.direction(from);
        let mut fault = |what: String| result.faults.push(format!("{direction}: frame {number} {what}"));
        let common = sent.len().min(arrived.len());
        if let Some(at) = (0..common).find(|at| sent[*at] != arrived[*at]) {
            fault(format!(
                "of {} bytes changed: byte {at} is {:#04x}, sent {:#04x}",
                sent.len(),
                arrived[at],
                sent[at]
            ));
        }
        if arrived.len() < sent.len() {
            fault(format!("was cut from {} to {} bytes", sent.len(), arrived.len()));
        }
        if arrived.len() > sent.len() {
            let padding = &arrived[sent.len()..];
            if arrived.len() > 60 {
                fault(format!("grew from {} to {} bytes", sent.len(), arrived.len()));
            } else if let Some(byte) = padding.iter().find(|byte| **byte != 0) {
                fault(format!("of {} bytes is padded with {byte:#04x} instead of zeros", sent.len()));
            }
            result.padded += 1;
        }
    }
}

/// A frame: addresses, tags, run, number, and bytes that depend on both.
fn content(source: Mac, to: Mac, tags: &[Tag], (run, number): (u32, u32), bytes: usize) -> Vec<u8> {
    let mut frame = Ethernet { destination: to, source, tags: tags.to_vec() }.header(ETHERTYPE);
    frame.extend(run.to_be_bytes());
    frame.extend(number.to_be_bytes());
    let mut state = (u64::from(run) << 32 | u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let length = bytes + encap::TAG_BYTES * tags.len();
    while frame.len() < length {
        // xorshift64: produces every byte value and bit pattern.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        frame.push((state >> 24) as u8);
    }
    frame
}

/// A frame of this test without a tag and without contents.
pub(super) fn empty(source: Mac, to: Mac, bytes: usize) -> Vec<u8> {
    let mut frame = Ethernet { destination: to, source, tags: Vec::new() }.header(ETHERTYPE);
    frame.resize(bytes, 0);
    frame
}

/// Offset of the payload behind EtherType and tags; None if the frame is not of this test.
fn payload_at(frame: &[u8]) -> Option<usize> {
    encap::payload(frame).filter(|(ethertype, _)| *ethertype == ETHERTYPE).map(|(_, at)| at)
}

fn is_ours(frame: &[u8]) -> bool {
    payload_at(frame).is_some()
}

fn word(frame: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(frame.get(at..at + 4)?.try_into().ok()?))
}

fn number_of(frame: &[u8], run: u32) -> Option<usize> {
    let at = payload_at(frame)?;
    (word(frame, at)? == run).then_some(())?;
    Some(word(frame, at + 4)? as usize)
}

/// Whether a frame with our EtherType belongs to this run, apart from a few damaged bits.
fn damaged(frame: &[u8], run: u32) -> bool {
    let found = payload_at(frame).and_then(|at| word(frame, at));
    found.is_some_and(|found| found == run || (found ^ run).count_ones() <= 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_its_length_and_its_number_below_any_tags() {
        let (a, b) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
        for tags in [vec![], vec![Tag::vlan(7)], vec![Tag::service(5), Tag::vlan(4095)]] {
            let frame = content(a, b, &tags, (77, 5), 64);
            assert_eq!((frame.len(), number_of(&frame, 77)), (64 + 4 * tags.len(), Some(5)));
            assert_eq!(number_of(&frame, 78), None);
            assert_ne!(frame, content(a, b, &tags, (77, 6), 64));
        }
    }
}
