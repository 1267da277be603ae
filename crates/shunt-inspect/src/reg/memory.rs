//! Loads and stores of device registers through a mapping of `/dev/mem`.
//!
//! Accessing a register whose clock is off causes a bus error on many chips. A child process does each access, so that
//! the error ends only the child and can be reported.
#![allow(unsafe_code, reason = "maps device memory, and forks a child that touches it")]

use nix::{
    libc,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{ForkResult, Pid, SysconfVar, fork, pipe, read, sysconf},
};
use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs::{File, OpenOptions},
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    path::Path,
    ptr,
    thread::sleep,
    time::{Duration, Instant},
};

/// An address and a width in bits.
pub(super) type Access = (u64, u8);

/// Longest time that one access may take.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// A page of device memory.
struct Page {
    start: *mut libc::c_void,
    length: usize,
}

impl Page {
    fn map(file: &File, address: u64, length: usize, write: bool) -> io::Result<Self> {
        let protection = if write { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let offset = libc::off64_t::try_from(address).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: asks for a new mapping wherever the kernel likes.
        let start = unsafe {
            libc::mmap64(ptr::null_mut(), length, protection, libc::MAP_SHARED, file.as_raw_fd(), offset)
        };
        if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self { start, length }) }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's alone, and nothing refers to it any more.
        unsafe { libc::munmap(self.start, self.length) };
    }
}

/// Reads each access; the error of an access is its reason.
pub(super) fn peek(path: &Path, accesses: &[Access]) -> io::Result<Vec<Result<u64, String>>> {
    let file = open(path, false)?;
    let mut pages = BTreeMap::new();
    let page = page_bytes();
    let mut answers: Vec<Result<u64, String>> = Vec::new();
    while answers.len() < accesses.len() {
        let rest = &accesses[answers.len()..];
        let mut targets = Vec::new();
        for access in rest {
            let base = access.0 - access.0 % page;
            if let Entry::Vacant(vacant) = pages.entry(base) {
                match Page::map(&file, base, page as usize, false) {
                    Ok(mapped) => vacant.insert(mapped),
                    Err(error) => {
                        if targets.is_empty() {
                            answers.push(Err(unmapped(&error)));
                        }
                        break;
                    }
                };
            }
            targets.push((pages[&base].start as usize + (access.0 - base) as usize, access.1));
        }
        if targets.is_empty() {
            continue;
        }
        let (values, fault) = in_child(&targets, None)?;
        answers.extend(values.into_iter().map(Ok));
        answers.extend(fault.map(Err));
    }
    Ok(answers)
}

/// Writes one access.
pub(super) fn poke(path: &Path, (address, width): Access, value: u64) -> io::Result<Result<(), String>> {
    let file = open(path, true)?;
    let page = page_bytes();
    let base = address - address % page;
    let mapped = match Page::map(&file, base, page as usize, true) {
        Ok(mapped) => mapped,
        Err(error) => return Ok(Err(unmapped(&error))),
    };
    let (_, fault) = in_child(&[(mapped.start as usize + (address - base) as usize, width)], Some(value))?;
    Ok(fault.map_or(Ok(()), Err))
}

fn open(path: &Path, write: bool) -> io::Result<File> {
    // O_SYNC asks for an uncached mapping.
    OpenOptions::new().read(true).write(write).custom_flags(libc::O_SYNC).open(path)
}

fn page_bytes() -> u64 {
    let size = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    size.and_then(|size| u64::try_from(size).ok()).unwrap_or(4096)
}

fn unmapped(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM) => {
            "the kernel forbids the mapping (CONFIG_STRICT_DEVMEM, CONFIG_IO_STRICT_DEVMEM or lockdown)"
                .to_owned()
        }
        _ => format!("cannot map the address: {error}"),
    }
}

/// Accesses addresses in a child process. Returns the values before the first fault, and the fault.
fn in_child(targets: &[(usize, u8)], write: Option<u64>) -> io::Result<(Vec<u64>, Option<String>)> {
    let (reader, writer) = pipe()?;
    // SAFETY: the child only accesses memory, writes to the pipe and exits; none of these takes a lock.
    match unsafe { fork() }? {
        ForkResult::Child => {
            for (address, width) in targets {
                // SAFETY: the address lies in a mapping that the parent holds; the width is that of the register.
                let value = unsafe { access(*address, *width, write) };
                let bytes = value.to_ne_bytes();
                // SAFETY: writes 8 bytes of the stack to an open pipe.
                unsafe { libc::write(writer.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
            }
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent { child } => {
            drop(writer);
            let values = receive(&reader, targets.len());
            let fault = reap(child, values.len() < targets.len());
            Ok((values, fault))
        }
    }
}

/// # Safety
/// The address must be mapped, for writing if there is a value.
unsafe fn access(address: usize, width: u8, write: Option<u64>) -> u64 {
    // SAFETY: as above. Volatile: each access happens once, with the register's width.
    unsafe {
        match (width, write) {
            (8, None) => u64::from(ptr::read_volatile(address as *const u8)),
            (16, None) => u64::from(ptr::read_volatile(address as *const u16)),
            (64, None) => ptr::read_volatile(address as *const u64),
            (_, None) => u64::from(ptr::read_volatile(address as *const u32)),
            (8, Some(value)) => {
                ptr::write_volatile(address as *mut u8, value as u8);
                value
            }
            (16, Some(value)) => {
                ptr::write_volatile(address as *mut u16, value as u16);
                value
            }
            (64, Some(value)) => {
                ptr::write_volatile(address as *mut u64, value);
                value
            }
            (_, Some(value)) => {
                ptr::write_volatile(address as *mut u32, value as u32);
                value
            }
        }
    }
}

/// Receives values until the child ends or the time is over.
fn receive(reader: &OwnedFd, count: usize) -> Vec<u64> {
    let mut values = Vec::new();
    let mut bytes = [0; 8];
    while values.len() < count {
        let mut ready = [PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(ANSWER_TIME).unwrap_or(PollTimeout::MAX);
        match poll(&mut ready, timeout) {
            Err(nix::errno::Errno::EINTR) => continue,
            Ok(1) if read(reader, &mut bytes) == Ok(8) => values.push(u64::from_ne_bytes(bytes)),
            _ => break,
        }
    }
    values
}

/// Waits for the child to end, and kills it if it does not. Returns the reason of a failure.
fn reap(child: Pid, failed: bool) -> Option<String> {
    let until = Instant::now() + ANSWER_TIME;
    loop {
        match waitpid(child, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => {}
            Ok(WaitStatus::Signaled(_, Signal::SIGBUS, _)) => {
                return Some("bus error: nothing answers at the address, or its clock is off".to_owned());
            }
            Ok(WaitStatus::Signaled(_, signal, _)) => {
                return failed.then(|| format!("the access ended with {signal}"));
            }
            Ok(_) => return failed.then(|| "the access ended early".to_owned()),
            Err(error) => return failed.then(|| format!("cannot wait for the access: {error}")),
        }
        if Instant::now() > until {
            // A process that waits for the bus cannot be killed at once; nobody waits for it.
            let _ = kill(child, Signal::SIGKILL);
            let _ = waitpid(child, Some(WaitPidFlag::WNOHANG));
            return failed.then(|| "no answer within 2 s: the clock may be off".to_owned());
        }
        sleep(Duration::from_micros(200));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn places_are_read_and_written_with_their_width() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[0x64, 0x02, 0xee, 0x05, 0xff, 0, 0, 0]).unwrap();
        file.as_file().set_len(8192).unwrap();
        let read = |accesses: &[Access]| peek(file.path(), accesses).unwrap();
        assert_eq!(
            read(&[(0, 32), (0, 8), (2, 16), (0, 64), (4096, 32)]),
            [Ok(0x05ee_0264), Ok(0x64), Ok(0x05ee), Ok(0xff_05ee_0264), Ok(0)]
        );
        poke(file.path(), (2, 16), 0x1234).unwrap().unwrap();
        assert_eq!(read(&[(0, 32)]), [Ok(0x1234_0264)]);
    }

    #[test]
    fn a_bus_error_is_reported_and_the_other_places_are_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        // Accessing a page beyond the end of a file causes a bus error.
        file.as_file().set_len(4096).unwrap();
        let got = peek(file.path(), &[(0, 32), (8192, 32), (4, 32), (12288, 8)]).unwrap();
        assert_eq!((&got[0], &got[2]), (&Ok(0), &Ok(0)));
        for fault in [&got[1], &got[3]] {
            assert!(fault.as_ref().unwrap_err().starts_with("bus error"), "{fault:?}");
        }
        assert!(poke(file.path(), (8192, 32), 1).unwrap().unwrap_err().starts_with("bus error"));
        assert!(peek(Path::new("/nonexistent"), &[(0, 8)]).is_err());
    }
}
