//! The daemon's scheduling priority: above all ordinary threads, but within a budget of CPU time, so that a storm of
//! changes cannot take a whole CPU.

use shunt_bpf::schedule;
use std::time::Duration;

/// CPU time that the daemon may use at SCHED_RR between two ticks, which are half a second apart.
const BUDGET: Duration = Duration::from_millis(100);

/// The scheduling policy of the daemon's thread.
#[derive(Debug, Default)]
pub(crate) struct Priority {
    budget: Budget,
    /// Whether the kernel lets the daemon use SCHED_RR.
    allowed: bool,
}

impl Priority {
    /// Asks for SCHED_RR, so that changes in Linux take effect at once on a busy router too.
    pub(crate) fn raise() -> Self {
        let allowed = match schedule::go_first() {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(
                    "cannot use SCHED_RR ({error}): on a busy machine, changes may take effect late; grant CAP_SYS_NICE"
                );
                false
            }
        };
        Self { budget: Budget::from(schedule::used()), allowed }
    }

    /// Gives up SCHED_RR if the budget has been spent. To be called after some work.
    pub(crate) fn spend(&mut self) {
        if self.allowed && self.budget.becomes_overdrawn(schedule::used()) {
            tracing::info!(
                "changes take more than {BUDGET:?} of CPU time per tick; running at normal priority until there are fewer"
            );
            self.apply(schedule::go_ordinary());
        }
    }

    /// Begins a new budget, and returns to SCHED_RR if changes have become fewer. To be called at each tick.
    pub(crate) fn renew(&mut self) {
        if self.allowed && self.budget.renew(schedule::used()) {
            tracing::info!("running at SCHED_RR again");
            self.apply(schedule::go_first());
        }
    }

    fn apply(&mut self, result: std::io::Result<()>) {
        if let Err(error) = result {
            tracing::warn!("cannot change the scheduling policy: {error}");
            self.allowed = false;
        }
    }
}

/// The arithmetic of the budget. Times are CPU time of the thread.
#[derive(Debug, Default)]
struct Budget {
    /// CPU time at the beginning of the present period.
    since: Duration,
    overdrawn: bool,
}

impl From<Duration> for Budget {
    fn from(since: Duration) -> Self {
        Self { since, overdrawn: false }
    }
}

impl Budget {
    /// Whether the budget is overdrawn for the first time since the last quiet period.
    fn becomes_overdrawn(&mut self, used: Duration) -> bool {
        let was = self.overdrawn;
        self.overdrawn |= used.saturating_sub(self.since) > BUDGET;
        self.overdrawn && !was
    }

    /// Begins a period. Returns whether the last one used at most half the budget, after one that overdrew the budget.
    fn renew(&mut self, used: Duration) -> bool {
        let spent = used.saturating_sub(self.since);
        let was = self.overdrawn;
        self.since = used;
        self.overdrawn &= spent > BUDGET / 2;
        was && !self.overdrawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_overdrawn_once_and_restored_by_a_quiet_period() {
        let ms = Duration::from_millis;
        let mut budget = Budget::from(ms(1000));
        assert!(!budget.becomes_overdrawn(ms(1100)));
        assert!(!budget.renew(ms(1100)), "nothing to restore");
        assert!(!budget.becomes_overdrawn(ms(1200)));
        assert!(budget.becomes_overdrawn(ms(1201)));
        assert!(!budget.becomes_overdrawn(ms(1300)), "reported already");
        assert!(!budget.renew(ms(1300)));
        assert!(!budget.renew(ms(1360)), "60 ms");
        assert!(budget.renew(ms(1410)), "50 ms");
        assert!(!budget.renew(ms(1410)));
        assert!(!budget.becomes_overdrawn(ms(1510)));
        assert!(budget.becomes_overdrawn(ms(1511)));
    }
}
