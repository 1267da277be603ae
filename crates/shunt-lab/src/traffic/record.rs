//! What the receiver got, as a file that other tools read.

use super::{Directed, Error, lane::Lane};
use crate::Doubt;
use pcap_file::{
    Endianness, PcapError, TsResolution,
    pcap::{PcapHeader, PcapPacket, PcapWriter},
};
use serde::{Deserialize, Serialize};
use shunt_bpf::traffic::{HandedOn, now_ns};
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

/// How often it looks whether it is over, where nothing comes.
const GLANCE: Duration = Duration::from_millis(20);

/// Where frames are to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PcapOut {
    /// The file, which is written anew.
    pub path: PathBuf,
    /// No more frames than these.
    pub limit: u64,
}

/// What is in the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// Its path.
    pub file: PathBuf,
    /// Frames that were to be in it.
    pub frames: u64,
    /// Frames that came beyond the limit.
    pub beyond_limit: u64,
    /// Frames that came faster than they could be handed on.
    pub dropped: u64,
    /// Why the file is not whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// A file that is open, before anything is sent.
pub(super) struct Recording<'o> {
    out: &'o PcapOut,
    file: File,
}

/// A file, and what is to be in it.
pub(super) struct Listening<'o> {
    recording: Recording<'o>,
    handed: HandedOn<'static>,
    frames: mpsc::Receiver<Stamped>,
    seen: Arc<AtomicU64>,
}

/// A frame, and when it came.
type Stamped = (u64, Vec<u8>);

impl<'o> Recording<'o> {
    pub(super) fn begin(out: &'o PcapOut) -> Result<Self, Error> {
        let file = File::create(&out.path)
            .map_err(|error| Error::Asked(format!("{}: {error}", out.path.display())))?;
        Ok(Self { out, file })
    }

    /// Has the receiver of a lane hand on its frames.
    pub(super) fn listen(self, lane: &Lane<'_>) -> Result<Listening<'o>, Error> {
        let (tx, rx) = mpsc::channel::<Stamped>();
        let (limit, seen) = (self.out.limit, Arc::new(AtomicU64::new(0)));
        let counted = seen.clone();
        let handed = lane.handed_on(move |at_ns, bytes| {
            if counted.fetch_add(1, Ordering::Relaxed) < limit {
                // The receiver of the channel lives longer.
                let _ = tx.send((at_ns, bytes.to_vec()));
            }
        })?;
        Ok(Listening { recording: self, handed, frames: rx, seen })
    }

    /// `seen` is how many were handed on, of those that came.
    fn write(self, frames: &[Stamped], seen: u64, came: u64) -> Recorded {
        let failure = write_frames(BufWriter::new(self.file), frames).err().map(|error| error.to_string());
        let written = frames.len() as u64;
        let (beyond_limit, dropped) = (seen - written, came.saturating_sub(seen));
        Recorded { file: self.out.path.clone(), frames: written, beyond_limit, dropped, failure }
    }
}

impl Listening<'_> {
    /// Keeps what comes until nothing is sent any more.
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
        // Each CPU hands on what came to it.
        frames.sort_by_key(|(at_ns, _)| *at_ns);
        let came: u64 = directed.iter().map(|one| one.packets).sum();
        let recorded = recording.write(&frames, seen.load(Ordering::Relaxed), came);
        Ok((directed, recorded))
    }
}

impl Recorded {
    pub(super) fn doubt(&self) -> Option<Doubt> {
        (self.dropped > 0).then_some(Doubt::NotRecorded { frames: self.dropped })
    }
}

fn read(handed: HandedOn<'_>, over: &AtomicBool) -> Result<(), Error> {
    while !over.load(Ordering::Relaxed) {
        handed.poll(GLANCE)?;
    }
    // What came before the run was over.
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

/// The crate says of any that bytes could not be read.
fn cause(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(cause) => cause,
        other => io::Error::other(other),
    }
}
