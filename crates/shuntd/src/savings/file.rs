//! The file of the savings: JSON.

use super::{
    DatedRound,
    hours::{Hours, OwnTime, Packets},
    round::Round,
    traffic::Traffic,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, VecDeque},
    io::{self, Write},
};

/// More than a week with all kinds of traffic takes.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 20;
/// The version of the format. A change that an older daemon would misread has the next number.
const FORMAT: u32 = 1;

/// What is kept.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Kept {
    /// The machine, kernel and daemon on which the rounds were made.
    pub(super) machine: String,
    pub(super) rounds: BTreeMap<Traffic, VecDeque<DatedRound>>,
    pub(super) hours: Hours,
}

#[derive(Serialize, Deserialize)]
struct File {
    format: u32,
    machine: String,
    rounds: BTreeMap<String, Vec<FileRound>>,
    hours: Vec<FileHour>,
}

#[derive(Serialize, Deserialize)]
struct FileRound {
    at: u64,
    #[serde(flatten)]
    round: Round,
}

#[derive(Serialize, Deserialize)]
struct FileHour {
    at: u64,
    s: f64,
    all: u64,
    packets: BTreeMap<String, u64>,
    /// Absent from files of earlier versions.
    #[serde(default)]
    own: OwnTime,
}

pub(super) fn encode(kept: &Kept, out: &mut dyn Write) -> io::Result<()> {
    let rounds = |rounds: &VecDeque<DatedRound>| {
        rounds.iter().map(|DatedRound { at, round }| FileRound { at: *at, round: *round }).collect()
    };
    let hour = |(at, hour): &(u64, Packets)| FileHour {
        at: *at,
        s: hour.seconds,
        all: hour.all,
        packets: hour.by_traffic.iter().map(|(traffic, count)| (traffic.to_string(), *count)).collect(),
        own: hour.own,
    };
    let file = File {
        format: FORMAT,
        machine: kept.machine.clone(),
        rounds: kept.rounds.iter().map(|(traffic, list)| (traffic.to_string(), rounds(list))).collect(),
        hours: kept.hours.0.iter().map(hour).collect(),
    };
    serde_json::to_writer(&mut *out, &file)?;
    writeln!(out)
}

pub(super) fn decode(bytes: &[u8]) -> Result<Kept, String> {
    let file: File = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if file.format > FORMAT {
        return Err(format!("format {} is newer than this daemon, which knows {FORMAT}", file.format));
    }
    let rounds = |(traffic, list): (String, Vec<FileRound>)| {
        let dated = |FileRound { at, round }| DatedRound { at, round };
        Ok((traffic.parse()?, list.into_iter().map(dated).collect()))
    };
    let hour = |FileHour { at, s, all, packets, own }| {
        let parse = |(traffic, count): (String, u64)| Ok::<_, String>((traffic.parse()?, count));
        let by_traffic = packets.into_iter().map(parse).collect::<Result<_, _>>()?;
        Ok::<_, String>((at, Packets { all, by_traffic, seconds: s, own }))
    };
    Ok(Kept {
        machine: file.machine,
        rounds: file.rounds.into_iter().map(rounds).collect::<Result<_, String>>()?,
        hours: Hours(file.hours.into_iter().map(hour).collect::<Result<_, _>>()?),
    })
}
