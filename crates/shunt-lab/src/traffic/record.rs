//! Recording of received frames to a pcapng file.

use super::{Directed, Error, Recorded, stream::Stream};
use pcap_file::{
    Endianness, PcapError, TsResolution,
    pcap::{PcapHeader, PcapPacket, PcapWriter},
};
use shunt_api::cannot_write;
use shunt_traffic::{CaptureBuffer, now_ns};
use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, SystemTime},
};

/// Interval at which an idle recorder checks whether it should end.
const GLANCE: Duration = Duration::from_millis(20);

/// A capture file to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PcapOut {
    /// Path of the file, which is overwritten.
    pub path: PathBuf,
    /// Largest number of frames to record.
    pub limit: u64,
}

/// A capture file that was opened before anything is sent.
pub(super) struct Recording<'o> {
    out: &'o PcapOut,
    file: File,
}

/// A capture file and the frames received so far.
pub(super) struct Listening<'o> {
    recording: Recording<'o>,
    handed: CaptureBuffer<'static>,
    frames: mpsc::Receiver<Stamped>,
    seen: Arc<AtomicU64>,
}

/// A frame and the time of its arrival in ns.
type Stamped = (u64, Vec<u8>);

impl<'o> Recording<'o> {
    pub(super) fn begin(out: &'o PcapOut) -> Result<Self, Error> {
        let file = File::create(&out.path).map_err(|error| {
            Error::Asked(format!("{}: {}", out.path.display(), cannot_write(&out.path, &error)))
        })?;
        Ok(Self { out, file })
    }

    /// Makes the receiver of a stream pass on its frames.
    pub(super) fn listen(self, stream: &Stream<'_>) -> Result<Listening<'o>, Error> {
        let (tx, rx) = mpsc::channel::<Stamped>();
        let (limit, seen) = (self.out.limit, Arc::new(AtomicU64::new(0)));
        let counted = seen.clone();
        let handed = stream.handed_on(move |at_ns, bytes| {
            if counted.fetch_add(1, Ordering::Relaxed) < limit {
                // Sending cannot fail: the receiving end of the channel lives longer.
                let _ = tx.send((at_ns, bytes.to_vec()));
            }
        })?;
        Ok(Listening { recording: self, handed, frames: rx, seen })
    }

    /// `seen` is the number of frames passed on, `came` the number that arrived.
    fn write(self, frames: &[Stamped], seen: u64, came: u64) -> Recorded {
        let failure = write_frames(BufWriter::new(self.file), frames).err().map(|error| error.to_string());
        let written = frames.len() as u64;
        let (beyond_limit, dropped) = (seen - written, came.saturating_sub(seen));
        Recorded { file: self.out.path.clone(), frames: written, beyond_limit, dropped, failure }
    }
}

impl Listening<'_> {
    /// Collects frames until the run has ended.
    pub(super) fn during(
        self,
        run: impl FnOnce() -> Result<Vec<Directed>, Error>,
    ) -> Result<(Vec<Directed>, Recorded), Error> {
        let Self { recording, handed, frames, seen } = self;
        let over = AtomicBool::new(false);
        let directed = thread::scope(|scope| {
            let reading = scope.spawn(|| read(handed, &over));
            let directed = run();
            over.store(true, Ordering::Relaxed);
            reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            directed
        })?;
        let mut frames: Vec<Stamped> = frames.into_iter().collect();
        // Each CPU passes on its own frames, so they arrive out of order.
        frames.sort_by_key(|(at_ns, _)| *at_ns);
        let came: u64 = directed.iter().map(|one| one.packets).sum();
        let recorded = recording.write(&frames, seen.load(Ordering::Relaxed), came);
        Ok((directed, recorded))
    }
}

fn read(handed: CaptureBuffer<'_>, over: &AtomicBool) -> Result<(), Error> {
    while !over.load(Ordering::Relaxed) {
        handed.poll(GLANCE)?;
    }
    // Take the frames that arrived before the run ended.
    Ok(handed.consume()?)
}

fn write_frames(file: impl Write, frames: &[Stamped]) -> io::Result<()> {
    let header = PcapHeader {
        ts_resolution: TsResolution::NanoSecond,
        endianness: Endianness::native(),
        ..PcapHeader::default()
    };
    let mut writer = PcapWriter::with_header(file, header).map_err(cause)?;
    let real = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let started = real.saturating_sub(Duration::from_nanos(now_ns()));
    for (at_ns, bytes) in frames {
        let packet = PcapPacket::new(started + Duration::from_nanos(*at_ns), bytes.len() as u32, bytes);
        writer.write_packet(&packet).map_err(cause)?;
    }
    writer.into_writer().flush()
}

/// The crate reports every I/O error as an incomplete read; its source has the cause.
fn cause(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(cause) => cause,
        other => io::Error::other(other),
    }
}
