//! The file of the history: JSON, with numbers in lists, because there are many minutes.

use super::minute::{DeviceCounts, Minute};
use serde::{Deserialize, Serialize};
use shunt_api::HistoryEvent;
use std::{
    collections::BTreeMap,
    io::{self, Write},
    sync::Arc,
};

/// More than a day with 16 ports takes.
pub(crate) const FILE_BYTES_MAX: u64 = 4 << 20;
/// The version of the format. A change that an older daemon would misread has the next number.
const FORMAT: u32 = 1;

/// What is kept. All times are seconds since 1970.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Whether the daemon that wrote it was not about to end.
    pub(super) running: bool,
    pub(super) minutes: Vec<(u64, Arc<Minute>)>,
    pub(super) events: Vec<HistoryEvent>,
}

/// The file. What an older daemon did not write is empty.
#[derive(Serialize, Deserialize)]
struct File {
    format: u32,
    #[serde(default)]
    running: bool,
    #[serde(default)]
    minutes: Vec<FileMinute>,
    #[serde(default)]
    events: Vec<HistoryEvent>,
}

type Counts = [u64; 4];

#[derive(Serialize, Deserialize)]
struct FileMinute {
    at: u64,
    s: f64,
    /// Fast, slow, dropped.
    packets: [u64; 3],
    all: Counts,
    #[serde(default)]
    ports: BTreeMap<String, Counts>,
    #[serde(default)]
    reasons: Vec<(u8, u64)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    saved: Option<f64>,
}

pub(super) fn encode(kept: Kept, out: &mut dyn Write) -> io::Result<()> {
    let Kept { running, minutes, events } = kept;
    let minute = |(at, minute): (u64, Arc<Minute>)| FileMinute {
        at,
        s: minute.seconds,
        packets: [minute.fast, minute.slow, minute.dropped],
        all: to_list(minute.all),
        ports: minute.ports.iter().map(|(name, counts)| (name.to_string(), to_list(*counts))).collect(),
        reasons: minute.reasons.to_vec(),
        saved: minute.saved_core_s,
    };
    let file = File { format: FORMAT, running, minutes: minutes.into_iter().map(minute).collect(), events };
    serde_json::to_writer(&mut *out, &file)?;
    writeln!(out)
}

pub(super) fn decode(bytes: &[u8]) -> Result<Kept, String> {
    let file: File = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if file.format > FORMAT {
        return Err(format!("format {} is newer than this daemon, which knows {FORMAT}", file.format));
    }
    Ok(Kept {
        running: file.running,
        minutes: file.minutes.into_iter().map(|minute| (minute.at, Arc::new(minute.into()))).collect(),
        events: file.events,
    })
}

impl From<FileMinute> for Minute {
    fn from(minute: FileMinute) -> Self {
        let FileMinute { at: _, s, packets: [fast, slow, dropped], all, ports, reasons, saved } = minute;
        Self {
            seconds: s,
            fast,
            slow,
            dropped,
            saved_core_s: saved,
            all: from_list(all),
            ports: ports.into_iter().map(|(name, counts)| (name.into(), from_list(counts))).collect(),
            reasons: reasons.into(),
        }
    }
}

fn to_list(counts: DeviceCounts) -> Counts {
    let DeviceCounts { in_bytes, in_pkts, out_bytes, out_pkts } = counts;
    [in_bytes, in_pkts, out_bytes, out_pkts]
}

fn from_list([in_bytes, in_pkts, out_bytes, out_pkts]: Counts) -> DeviceCounts {
    DeviceCounts { in_bytes, in_pkts, out_bytes, out_pkts }
}
