//! Scheduling of threads.

use nix::{
    libc,
    time::{ClockId, clock_gettime},
    unistd::Pid,
};
use std::{io, time::Duration};

/// Sets SCHED_RR at its lowest priority, so that the thread runs before all threads of SCHED_OTHER. Its children get
/// SCHED_OTHER.
///
/// # Errors
/// EPERM without CAP_SYS_NICE.
pub fn go_first() -> io::Result<()> {
    schedule(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, 1)
}

/// Sets SCHED_OTHER.
///
/// # Errors
/// If the kernel refuses.
pub fn go_ordinary() -> io::Result<()> {
    schedule(0, libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK, 0)
}

/// Sets SCHED_FIFO at its lowest priority for a thread: it runs until it waits, before all threads of SCHED_OTHER. 0 is
/// the calling thread.
///
/// # Errors
/// EPERM without CAP_SYS_NICE.
pub fn go_until_waiting(thread: Pid) -> io::Result<()> {
    schedule(thread.as_raw(), libc::SCHED_FIFO, 1)
}

/// Sets SCHED_IDLE: the calling thread runs when hardly anything else does.
///
/// # Errors
/// If the kernel refuses.
pub fn go_last() -> io::Result<()> {
    schedule(0, libc::SCHED_IDLE, 0)
}

/// The CPU time that the calling thread has used.
pub fn used() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

fn schedule(thread: libc::pid_t, policy: libc::c_int, priority: libc::c_int) -> io::Result<()> {
    // `priority` has the layout of struct sched_param. A raw system call, since musl's sched_setscheduler() is a stub.
    // SAFETY: the call reads its parameter and keeps nothing.
    let err = unsafe { libc::syscall(libc::SYS_sched_setscheduler, thread, policy, &raw const priority) };
    if err == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sched_rr_applies_to_the_thread_and_not_to_its_children() {
        let policy = || {
            // SAFETY: it reads a number of the calling thread.
            unsafe { libc::sched_getscheduler(0) }
        };
        let seen = std::thread::spawn(move || {
            go_first().ok()?;
            let first = (policy(), std::thread::spawn(policy).join().ok()?);
            go_ordinary().ok()?;
            Some((first, policy()))
        });
        match seen.join() {
            Ok(Some(seen)) => {
                let [first, ordinary] =
                    [libc::SCHED_RR, libc::SCHED_OTHER].map(|policy| policy | libc::SCHED_RESET_ON_FORK);
                assert_eq!(seen, ((first, libc::SCHED_OTHER), ordinary));
            }
            other => eprintln!("SKIP: SCHED_RR is not permitted: {other:?}"),
        }
    }
}
