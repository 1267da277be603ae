//! Names of the system calls in which threads sleep.

use nix::libc;

const fn call(number: libc::c_long, name: &'static str) -> (libc::c_long, &'static str) {
    (number, name)
}

/// Calls that exist on all architectures.
const CALLS: [(libc::c_long, &str); 27] = [
    call(libc::SYS_read, "read"),
    call(libc::SYS_readv, "readv"),
    call(libc::SYS_pread64, "pread64"),
    call(libc::SYS_write, "write"),
    call(libc::SYS_writev, "writev"),
    call(libc::SYS_pwrite64, "pwrite64"),
    call(libc::SYS_fsync, "fsync"),
    call(libc::SYS_fdatasync, "fdatasync"),
    call(libc::SYS_openat, "openat"),
    call(libc::SYS_flock, "flock"),
    call(libc::SYS_recvfrom, "recvfrom"),
    call(libc::SYS_recvmsg, "recvmsg"),
    call(libc::SYS_recvmmsg, "recvmmsg"),
    call(libc::SYS_sendto, "sendto"),
    call(libc::SYS_sendmsg, "sendmsg"),
    call(libc::SYS_sendmmsg, "sendmmsg"),
    call(libc::SYS_connect, "connect"),
    call(libc::SYS_accept, "accept"),
    call(libc::SYS_accept4, "accept4"),
    call(libc::SYS_ppoll, "ppoll"),
    call(libc::SYS_pselect6, "pselect6"),
    call(libc::SYS_epoll_pwait, "epoll_pwait"),
    call(libc::SYS_io_uring_enter, "io_uring_enter"),
    call(libc::SYS_wait4, "wait4"),
    call(libc::SYS_futex, FUTEX),
    call(libc::SYS_nanosleep, "nanosleep"),
    call(libc::SYS_clock_nanosleep, "clock_nanosleep"),
];
/// Calls that newer architectures no longer have.
#[cfg(target_arch = "x86_64")]
const OLDER: [(libc::c_long, &str); 3] = [
    call(libc::SYS_poll, "poll"),
    call(libc::SYS_select, "select"),
    call(libc::SYS_epoll_wait, "epoll_wait"),
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: [(libc::c_long, &str); 0] = [];

/// The call with which threads wait for a lock.
pub(super) const FUTEX: &str = "futex";

/// The number of a call that nobody saw.
pub(super) const UNKNOWN: i32 = i32::MIN;

/// The name of a system call, or its number; `a page fault` if the thread was in none.
pub(super) fn name(number: i32) -> String {
    if number == UNKNOWN {
        return "an unknown system call".to_owned();
    }
    if number < 0 {
        return "a page fault".to_owned();
    }
    let all = CALLS.iter().chain(&OLDER);
    let found = all.into_iter().find(|(known, _)| *known == libc::c_long::from(number));
    found.map_or_else(|| format!("system call {number}"), |(_, name)| (*name).to_owned())
}

/// Whether a call does nothing but let time pass.
pub(super) fn sleeps(name: &str) -> bool {
    ["nanosleep", "clock_nanosleep"].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_names_and_others_keep_their_numbers() {
        let futex = i32::try_from(libc::SYS_futex).unwrap();
        assert_eq!((name(futex).as_str(), name(9999).as_str()), ("futex", "system call 9999"));
        assert_eq!(name(-1), "a page fault");
        assert!(sleeps("nanosleep") && !sleeps("futex"));
    }
}
