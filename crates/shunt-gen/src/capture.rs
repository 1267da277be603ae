//! Captured frames, for replay.

use pcap_file::{
    DataLink, PcapError, TsResolution,
    pcap::PcapParser,
    pcapng::{
        PcapNgParser,
        blocks::{Block, interface_description::InterfaceDescriptionOption},
    },
};
use shunt_wire::{Mac, encap};
use std::{fmt, time::Duration};

/// The first bytes of a pcapng file, and of a pcap file in either byte order with microseconds or nanoseconds.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const PCAP: [[u8; 4]; 4] =
    [[0xa1, 0xb2, 0xc3, 0xd4], [0xa1, 0xb2, 0x3c, 0x4d], [0xd4, 0xc3, 0xb2, 0xa1], [0x4d, 0x3c, 0xb2, 0xa1]];
/// The size of an Ethernet header.
const SMALLEST: usize = encap::header_bytes(0);

/// The frames of a capture file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capture {
    /// The frames in order; at least one.
    pub frames: Vec<Captured>,
}

/// A captured frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// Time since the first frame. Never less than that of the frame before.
    pub at: Duration,
    /// The frame without FCS.
    pub bytes: Vec<u8>,
}

/// The pace of a replay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// Frames at equal intervals, in packets/s; None for as fast as the sender can.
    Pps(Option<f64>),
    /// The captured intervals, at this multiple of the captured speed.
    Multiplier(f64),
}

/// The times of a replay, whose rounds follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Round {
    /// Time of each frame since the start of its round.
    pub due: Vec<Duration>,
    /// Time from the start of a round to the start of the next.
    pub period: Duration,
}

/// The reason why a file cannot be replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfit {
    /// Offset of the problem in the file, in bytes.
    pub offset: usize,
    why: String,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.offset, self.why)
    }
}

impl std::error::Error for Unfit {}

impl Capture {
    /// Parses a pcap or pcapng file.
    ///
    /// # Errors
    /// Fails if the file has another format, ends early, or has anything but whole Ethernet frames.
    pub fn parse(file: &[u8]) -> Result<Self, Unfit> {
        let mut capture = Collected::default();
        match file.first_chunk::<4>() {
            Some(start) if *start == PCAPNG => capture.pcapng(file)?,
            Some(start) if PCAP.contains(start) => capture.pcap(file)?,
            _ => return Err(unfit(0, "not a capture file: neither pcap nor pcapng")),
        }
        if capture.frames.is_empty() {
            return Err(unfit(file.len(), "the file has no frame"));
        }
        Ok(Self { frames: capture.frames })
    }

    /// Size of the largest frame without FCS.
    pub fn largest(&self) -> usize {
        self.frames.iter().map(|frame| frame.bytes.len()).max().unwrap_or_default()
    }

    /// Size of the largest L3 packet.
    pub fn l3_bytes(&self) -> usize {
        let l3 = |frame: &Captured| encap::payload(&frame.bytes).map_or(0, |(_, at)| frame.bytes.len() - at);
        self.frames.iter().map(l3).max().unwrap_or_default()
    }

    /// Mean size of a frame without FCS.
    pub fn mean_bytes(&self) -> f64 {
        self.frames.iter().map(|frame| frame.bytes.len() as f64).sum::<f64>() / self.frames.len() as f64
    }

    /// Sets the destination MAC of all frames.
    pub fn send_to(&mut self, mac: Mac) {
        self.frames.iter_mut().for_each(|frame| frame.bytes[..6].copy_from_slice(&mac.0));
    }

    /// The time of each frame. At the captured pace, the next round follows the last frame after the mean interval.
    pub fn round(&self, pace: Pace) -> Round {
        let frames = self.frames.len() as f64;
        match pace {
            Pace::Pps(None) => Round { due: vec![Duration::ZERO; self.frames.len()], period: Duration::ZERO },
            Pace::Pps(Some(pps)) => Round {
                due: (0..self.frames.len()).map(|n| Duration::from_secs_f64(n as f64 / pps)).collect(),
                period: Duration::from_secs_f64(frames / pps),
            },
            Pace::Multiplier(times) => {
                let due: Vec<_> = self.frames.iter().map(|frame| frame.at.div_f64(times)).collect();
                let last = due.last().copied().unwrap_or_default();
                Round { due, period: last.mul_f64(frames / (frames - 1.0).max(1.0)) }
            }
        }
    }
}

impl Round {
    /// Frames/s over a whole round; None if all frames are sent at once.
    pub fn pps(&self) -> Option<f64> {
        (!self.period.is_zero()).then(|| self.due.len() as f64 / self.period.as_secs_f64())
    }

    /// Number of frames that are due within a time; None if the pace is as fast as possible.
    pub fn due_within(&self, time: Duration) -> Option<u64> {
        self.pps()?;
        let rounds = (time.as_nanos() / self.period.as_nanos()) as u64;
        let rest = Duration::from_nanos((time.as_nanos() % self.period.as_nanos()) as u64);
        let partial = self.due.iter().filter(|due| **due < rest).count() as u64;
        Some(rounds * self.due.len() as u64 + partial)
    }
}

/// The frames read so far.
#[derive(Default)]
struct Collected {
    frames: Vec<Captured>,
    first: Option<Duration>,
}

impl Collected {
    fn pcap(&mut self, file: &[u8]) -> Result<(), Unfit> {
        let (mut rest, parser) = PcapParser::new(file).map_err(|e| damaged(0, &e))?;
        let header = parser.header();
        ethernet(header.datalink, 0)?;
        while !rest.is_empty() {
            let offset = file.len() - rest.len();
            let (after, packet) = parser.next_raw_packet(rest).map_err(|e| damaged(offset, &e))?;
            let fraction = u64::from(packet.ts_frac);
            let fraction = match header.ts_resolution {
                TsResolution::MicroSecond => Duration::from_micros(fraction),
                TsResolution::NanoSecond => Duration::from_nanos(fraction),
            };
            self.add(
                offset,
                Duration::from_secs(packet.ts_sec.into()) + fraction,
                packet.orig_len,
                &packet.data,
            )?;
            rest = after;
        }
        Ok(())
    }

    fn pcapng(&mut self, file: &[u8]) -> Result<(), Unfit> {
        let (mut rest, mut parser) = PcapNgParser::new(file).map_err(|e| damaged(0, &e))?;
        while !rest.is_empty() {
            let offset = file.len() - rest.len();
            let (after, block) = parser.next_block(rest).map_err(|e| damaged(offset, &e))?;
            match block {
                Block::InterfaceDescription(interface) => ethernet(interface.linktype, offset)?,
                Block::EnhancedPacket(packet) => {
                    let interface = parser.packet_interface(&packet);
                    let interface =
                        interface.ok_or_else(|| unfit(offset, "the packet's interface is not described"))?;
                    // The library returns the file's timestamp as nanoseconds, whatever its unit is.
                    let ticks = packet.timestamp.as_nanos() as u64;
                    self.add(offset, time(ticks, &interface.options), packet.original_len, &packet.data)?;
                }
                Block::SimplePacket(_) | Block::Packet(_) => {
                    let why = "a block of the kind `simple packet` or `packet` (obsolete), which may have no time; convert the file: \
                               `editcap -F pcap IN OUT`";
                    return Err(unfit(offset, why));
                }
                _ => {}
            }
            rest = after;
        }
        Ok(())
    }

    fn add(&mut self, offset: usize, at: Duration, size: u32, bytes: &[u8]) -> Result<(), Unfit> {
        let nth = self.frames.len() + 1;
        if bytes.len() < size as usize {
            let why = format!(
                "frame {nth} was cut from {size} to {} bytes when it was captured; capture with `-s 0`",
                bytes.len()
            );
            return Err(unfit(offset, why));
        }
        if bytes.len() < SMALLEST {
            return Err(unfit(
                offset,
                format!("frame {nth} has {} bytes, fewer than an Ethernet header", bytes.len()),
            ));
        }
        let first = *self.first.get_or_insert(at);
        // Clocks are set back, and captures of several interfaces are not always sorted.
        let before = self.frames.last().map_or(Duration::ZERO, |frame| frame.at);
        let at = at.saturating_sub(first).max(before);
        self.frames.push(Captured { at, bytes: bytes.to_vec() });
        Ok(())
    }
}

/// A timestamp in the resolution of the interface: 10^-n s or 2^-n s, or 10^-6 s by default.
fn time(ticks: u64, options: &[InterfaceDescriptionOption]) -> Duration {
    let resolution = options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfTsResol(resolution) => Some(*resolution),
        _ => None,
    });
    let resolution = resolution.unwrap_or(6);
    let exponent = u32::from(resolution & 0x7f);
    let per_second =
        if resolution & 0x80 == 0 { 10u128.checked_pow(exponent) } else { 1u128.checked_shl(exponent) };
    let nanoseconds = per_second.map_or(0, |per_second| u128::from(ticks) * 1_000_000_000 / per_second);
    Duration::from_nanos(nanoseconds as u64)
}

fn ethernet(link: DataLink, offset: usize) -> Result<(), Unfit> {
    match link {
        DataLink::ETHERNET => Ok(()),
        other => Err(unfit(offset, format!("its frames are not of Ethernet, but of {other:?}"))),
    }
}

fn damaged(offset: usize, error: &PcapError) -> Unfit {
    match error {
        PcapError::IncompleteBuffer => unfit(offset, "the file ends early; copy it again, or capture again"),
        other => unfit(offset, format!("damaged capture: {other}")),
    }
}

fn unfit(offset: usize, why: impl Into<String>) -> Unfit {
    Unfit { offset, why: why.into() }
}

#[cfg(test)]
mod tests;
