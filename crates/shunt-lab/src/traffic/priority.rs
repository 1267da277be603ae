//! The priority of the threads that send.
//!
//! Beside other work, an ordinary thread is held up for milliseconds at a time. A thread of SCHED_DEADLINE is not, but
//! it may hold up what forwards packets on the same machine. So threads are ordinary until a sender was held up.

use nix::sys::utsname::uname;
use shunt_traffic::schedule;
use std::time::Duration;

/// From Linux 6.4 on (d15121be7485), softirqs run on return to the sender although ksoftirqd waits for the CPU, so a
/// sender that runs before others does not keep a router on this machine from forwarding. Only the release tells.
const SOFTIRQS_RUN: (u32, u32) = (6, 4);

/// A sender runs for this time in each period. The kernel ends it at a tick, up to 10 ms later, and the pause grows
/// with that; it must be shorter than the time within which a sender catches up.
const RUNTIME: Duration = Duration::from_micros(980);
const PERIOD: Duration = Duration::from_millis(1);

#[derive(Debug, Clone, Copy)]
pub(super) struct Priority {
    may_rise: bool,
    before_others: bool,
}

impl Priority {
    pub(super) fn ordinary() -> Self {
        let release = uname().ok().and_then(|uname| version(uname.release().to_str()?));
        Self { may_rise: release.is_some_and(|version| version >= SOFTIRQS_RUN), before_others: false }
    }

    /// Makes senders ordinary threads for good.
    pub(super) fn stay_ordinary(&mut self) {
        *self = Self { may_rise: false, before_others: false };
    }

    /// Takes the other priority, if it may: that of ordinary threads, or before all of them. The kernel pauses a thread
    /// that runs before others, which a sender at the highest rates does not catch up.
    pub(super) fn change(&mut self) {
        self.before_others = self.may_rise && !self.before_others;
    }

    /// Gives this priority to the calling thread.
    pub(super) fn apply(self) {
        if self.before_others {
            // A second sender of SCHED_DEADLINE has no room on two CPUs. The kernel stops one of SCHED_RR for 50 ms
            // each second if others wait. Without permission, the thread stays ordinary.
            let _ = schedule::go_by_deadline(RUNTIME, PERIOD).or_else(|_| schedule::go_first());
        }
    }
}

/// Major and minor version of a release such as `6.12.48-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|other: char| !other.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_run_before_others_only_where_softirqs_run_all_the_same() {
        let releases = ["6.12.48-amd64", "6.4-rc1", "6.1.0", "5.15.0-91-generic", "linux"].map(version);
        assert_eq!(releases, [Some((6, 12)), Some((6, 4)), Some((6, 1)), Some((5, 15)), None]);
        let mut priority = Priority { may_rise: true, before_others: false };
        priority.change();
        assert!(priority.before_others);
        priority.change();
        assert!(!priority.before_others);
        priority.stay_ordinary();
        priority.change();
        assert!(!priority.before_others);
    }
}
