//! Writes the log to standard error, and drops what cannot be written: a full disk or a closed pipe must not end the
//! daemon. The level can be changed.

use nix::sys::stat::{SFlag, fstat};
use shunt_api::LogLevel;
use std::{
    io::{self, Write},
    os::fd::AsFd,
    sync::atomic::{AtomicU64, Ordering},
};
use tracing_subscriber::{
    Registry, filter::LevelFilter, fmt, layer::SubscriberExt, registry, reload, util::SubscriberInitExt,
};

/// The size of a log file from which on its lines are dropped: `shunt up` starts a new file each time, and keeps the
/// former one.
const FILE_BYTES_MAX: u64 = 16 << 20;

static LOST: AtomicU64 = AtomicU64::new(0);

/// The number of lines that were dropped.
pub(crate) fn lost_lines() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// The level from which on messages are logged.
#[derive(Debug)]
pub(crate) struct LogFilter(reload::Handle<LevelFilter, Registry>);

impl LogFilter {
    /// Begins to log.
    pub(crate) fn start(level: LogLevel) -> Self {
        let (filter, handle) = reload::Layer::new(level_of(level));
        let lines = fmt::layer().with_writer(|| LogWriter).with_target(false).with_ansi(false);
        registry().with(filter).with(lines).init();
        Self(handle)
    }

    pub(crate) fn set(&self, level: LogLevel) {
        if let Err(error) = self.0.reload(level_of(level)) {
            tracing::warn!("cannot change the log level: {error}");
        }
    }
}

fn level_of(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
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
