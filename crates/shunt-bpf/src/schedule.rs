//! When the calling thread gets a CPU.

use nix::libc;
use std::io;

/// Has the calling thread run as soon as it has something to do, before all ordinary ones (SCHED_RR at its lowest
/// priority). What it starts is ordinary.
///
/// # Errors
/// When the process may not, for which it needs CAP_SYS_NICE.
pub fn go_first() -> io::Result<()> {
    // struct sched_param of the kernel. The C library of some systems has the call only in name.
    let priority: libc::c_int = 1;
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the call reads its parameter and keeps nothing; 0 is the calling thread.
    let said = unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) };
    if said == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_goes_first_and_its_children_do_not() {
        let policy = || {
            // SAFETY: it reads a number of the calling thread.
            unsafe { libc::sched_getscheduler(0) }
        };
        let seen = std::thread::spawn(move || {
            go_first().ok()?;
            Some((policy(), std::thread::spawn(policy).join().ok()?))
        });
        match seen.join() {
            Ok(Some(seen)) => {
                assert_eq!(seen, (libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, libc::SCHED_OTHER));
            }
            other => eprintln!("SKIP: this process may not: {other:?}"),
        }
    }
}
