//! What the stored descriptors are for: a file in memory, which the daemon writes again when something changes.
//!
//! A daemon may be killed while it writes. So the file begins with a checksum, its length, and when the daemon was
//! last alive.

use crate::handover::PortMessage;
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use shunt_core::Findings;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::FileExt,
    },
};

const HEAD: usize = 24;
/// Where the head has the time.
const ALIVE_AT: u64 = 16;
const LONGEST: u64 = 1 << 20;

/// The file's contents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Contents {
    /// The next daemon must begin without flows, and why.
    Unusable(String),
    /// What the next daemon needs.
    Usable(Box<Record>),
}

/// What the next daemon needs, and what must agree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The layout of what maps contain ([`shunt_bpf::layout`]).
    pub(crate) layout: u64,
    /// The configuration with the command line, by key.
    pub(crate) config: BTreeMap<String, Value>,
    /// The inode number of the network namespace.
    pub(crate) netns: u64,
    /// The kernel's numbers of the maps, by name.
    pub(crate) maps: BTreeMap<String, u32>,
    /// The most flows of each address family.
    pub(crate) max_flows: u32,
    /// The seed of the tables' hash.
    pub(crate) seed: u64,
    pub(crate) findings: Findings,
    /// The number of hand-overs since the data plane was loaded.
    pub(crate) generation: u64,
    /// Since when packets are counted, on the monotonic clock; absent if that is not known.
    #[serde(default)]
    pub(crate) counting_since_ns: Option<u64>,
    /// The ports, with the kernel's numbers of their links.
    pub(crate) ports: Vec<(PortMessage, Vec<u32>)>,
    /// The devices whose clsact qdisc Shunt has made.
    pub(crate) clsacts: BTreeSet<u32>,
    /// The daemon has just taken over from the store. If it dies, what it has taken over may be the cause.
    pub(crate) on_trial: bool,
}

/// The file, as its daemon writes it.
#[derive(Debug)]
pub(super) struct RecordFile {
    file: File,
    written: Option<Contents>,
}

impl RecordFile {
    pub(super) fn create() -> io::Result<Self> {
        let file = memfd_create(c"shunt-record", MFdFlags::MFD_CLOEXEC)?;
        Ok(Self { file: file.into(), written: None })
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(super) fn is_usable(&self) -> bool {
        matches!(self.written, Some(Contents::Usable(_)))
    }

    pub(super) fn write(&mut self, contents: &Contents, now_ns: u64) -> io::Result<()> {
        if self.written.as_ref() != Some(contents) {
            self.written = None;
            let text = serde_json::to_vec(contents)?;
            let head =
                [checksum(&text).to_ne_bytes(), (text.len() as u64).to_ne_bytes(), now_ns.to_ne_bytes()];
            self.file.write_all_at(&[0; HEAD], 0)?;
            self.file.write_all_at(&text, HEAD as u64)?;
            self.file.write_all_at(head.as_flattened(), 0)?;
            self.written = Some(contents.clone());
        }
        self.file.write_all_at(&now_ns.to_ne_bytes(), ALIVE_AT)
    }
}

/// Reads a file, and when its daemon was last alive. `None` if it is damaged or something else.
pub(super) fn read(file: &File) -> Option<(Contents, u64)> {
    let mut head = [[0; 8]; 3];
    file.read_exact_at(head.as_flattened_mut(), 0).ok()?;
    let [sum, length, alive_ns] = head.map(u64::from_ne_bytes);
    let mut text = vec![0; usize::try_from(length).ok().filter(|_| length <= LONGEST)?];
    file.read_exact_at(&mut text, HEAD as u64).ok()?;
    let contents = (checksum(&text) == sum).then(|| serde_json::from_slice(&text).ok())??;
    Some((contents, alive_ns))
}

/// FNV-1a, which shows that a file is whole. It is no protection from forgery: only root can write the file.
fn checksum(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_unless_a_byte_differs() {
        let mut record = RecordFile::create().unwrap();
        let contents = Contents::Unusable("a port is being changed".to_owned());
        record.write(&contents, 7).unwrap();
        assert_eq!(read(&record.file), Some((contents.clone(), 7)));
        assert!(!record.is_usable());
        record.write(&contents, 8).unwrap();
        assert_eq!(read(&record.file), Some((contents.clone(), 8)));
        let shorter = Contents::Unusable("x".to_owned());
        record.write(&shorter, 9).unwrap();
        assert_eq!(read(&record.file), Some((shorter, 9)));
        record.file.write_all_at(b"y", HEAD as u64 + 3).unwrap();
        assert_eq!(read(&record.file), None);
        record.file.set_len(10).unwrap();
        assert_eq!(read(&record.file), None);
    }
}
