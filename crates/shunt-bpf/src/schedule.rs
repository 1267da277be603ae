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

/// Sets SCHED_DEADLINE: in each `period`, the calling thread runs for up to `runtime` before all other threads, and
/// pauses for the rest. Its children get SCHED_OTHER.
///
/// # Errors
/// EPERM without CAP_SYS_NICE, or if the thread may not run on all CPUs; EBUSY if other threads of SCHED_DEADLINE leave
/// too little time.
pub fn go_by_deadline(runtime: Duration, period: Duration) -> io::Result<()> {
    /// The first version of `struct sched_attr`.
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime_ns: u64,
        deadline_ns: u64,
        period_ns: u64,
    }
    const RESET_ON_FORK: u64 = 1;
    let period_ns = period.as_nanos() as u64;
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_DEADLINE as u32,
        flags: RESET_ON_FORK,
        nice: 0,
        priority: 0,
        runtime_ns: runtime.as_nanos() as u64,
        deadline_ns: period_ns,
        period_ns,
    };
    // SAFETY: the call reads its parameter, whose size it is given, and keeps nothing.
    let err = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if err == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
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
    fn sched_deadline_applies_to_the_thread_and_not_to_its_children() {
        let policy = || {
            // SAFETY: it reads a number of the calling thread.
            unsafe { libc::sched_getscheduler(0) }
        };
        let seen = std::thread::spawn(move || {
            go_by_deadline(Duration::from_micros(100), Duration::from_millis(10)).ok()?;
            Some((policy(), std::thread::spawn(policy).join().ok()?))
        });
        match seen.join() {
            Ok(Some((own, of_child))) => {
                assert_eq!(
                    (own & !libc::SCHED_RESET_ON_FORK, of_child),
                    (libc::SCHED_DEADLINE, libc::SCHED_OTHER)
                );
            }
            other => eprintln!("SKIP: SCHED_DEADLINE is not permitted: {other:?}"),
        }
    }

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
