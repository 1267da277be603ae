//! Writes the log to standard error, and drops what cannot be written: a full disk or a closed pipe must not end the
//! daemon.

use nix::sys::stat::{SFlag, fstat};
use std::{
    io::{self, Write},
    os::fd::AsFd,
    sync::atomic::{AtomicU64, Ordering},
};

/// The size of a log file from which on its lines are dropped: `shunt up` starts a new file each time, and keeps the
/// former one.
const FILE_BYTES_MAX: u64 = 16 << 20;

static LOST: AtomicU64 = AtomicU64::new(0);

/// The number of lines that were dropped.
pub(crate) fn lost_lines() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Standard error. Each write is one line; none fails.
#[derive(Debug)]
pub(crate) struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut stderr = io::stderr().lock();
        if is_full_file(&stderr) || stderr.write_all(line).is_err() {
            LOST.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn is_full_file(file: impl AsFd) -> bool {
    fstat(file.as_fd()).is_ok_and(|stat| {
        let is_regular = stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFREG.bits();
        is_regular && u64::try_from(stat.st_size).is_ok_and(|bytes| bytes >= FILE_BYTES_MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_that_has_reached_the_limit_is_full() {
        let file = tempfile::tempfile().unwrap();
        for (bytes, full) in [(0, false), (FILE_BYTES_MAX - 1, false), (FILE_BYTES_MAX, true)] {
            file.set_len(bytes).unwrap();
            assert_eq!(is_full_file(&file), full, "{bytes}");
        }
        let (_reader, pipe) = nix::unistd::pipe().unwrap();
        assert!(!is_full_file(&pipe));
    }
}
