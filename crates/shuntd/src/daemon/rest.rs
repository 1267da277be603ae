//! The rest of the data plane: while there are no flows and nothing to learn, ports have no hook that is not needed.

use super::{Daemon, blocking::BlockingThread};
use shunt_bpf::attach::AttachMode;
use shunt_core::Event;
use std::time::{Duration, Instant};

/// How long the programs have nothing to learn, though they look for it, before hooks go. Longer than a candidate can
/// still be learned from, and than most refused tuples are left alone.
const ASKING: Duration = Duration::from_secs(2);
/// The longest time without flows before a rest. Doubled up to here by each rest that ended for nothing.
const PATIENCE_MAX: Duration = Duration::from_secs(16 * 60);

/// When to rest. Knows no clock.
#[derive(Debug, Default)]
pub(super) struct Rest {
    stage: Stage,
    /// The rests in a row that ended without a flow.
    in_vain: u32,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Awake,
    /// Without flows since then.
    Quiet(Instant),
    /// The programs keep no candidates and report what they could learn; every hook is there. Since then.
    Asking(Instant),
    /// Ports have only the hooks that look for something to learn.
    Resting,
    /// The hooks come back.
    Waking,
}

/// What the data plane must do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Leave programs and hooks as they are.
    Stay,
    /// Keep no candidates, and report what could be learned.
    Ask,
    /// Keep candidates again.
    Learn,
    /// Take the hooks off.
    Rest,
    /// Put the hooks back.
    Wake,
}

impl Rest {
    /// Takes note of whether the data plane could rest: there are no flows, and nothing else needs the hooks. `after`
    /// is the time after which it rests; 0 never does.
    fn note(&mut self, now: Instant, could_rest: bool, has_flows: bool, after: Duration) -> Step {
        if has_flows {
            self.in_vain = 0;
        }
        if !could_rest || after.is_zero() {
            return self.end();
        }
        let patience = after.saturating_mul(1 << self.in_vain.min(16)).min(PATIENCE_MAX.max(after));
        let (stage, step) = match self.stage {
            Stage::Awake => (Stage::Quiet(now), Step::Stay),
            Stage::Quiet(since) if now.duration_since(since) >= patience => (Stage::Asking(now), Step::Ask),
            Stage::Asking(since) if now.duration_since(since) >= ASKING => (Stage::Resting, Step::Rest),
            stage => (stage, Step::Stay),
        };
        self.stage = stage;
        step
    }

    /// There is something to learn.
    fn wake(&mut self) -> Step {
        if matches!(self.stage, Stage::Asking(_) | Stage::Resting) {
            self.in_vain = self.in_vain.saturating_add(1);
        }
        self.end()
    }

    fn end(&mut self) -> Step {
        let (stage, step) = match self.stage {
            Stage::Awake | Stage::Quiet(_) => (Stage::Awake, Step::Stay),
            Stage::Asking(_) => (Stage::Awake, Step::Learn),
            Stage::Resting => (Stage::Waking, Step::Wake),
            Stage::Waking => (Stage::Waking, Step::Stay),
        };
        self.stage = stage;
        step
    }

    /// All hooks are back, or not all could be put back.
    fn woken(&mut self, all: bool) {
        self.stage = if all { Stage::Awake } else { Stage::Resting };
    }

    /// Whether every port has its hooks.
    pub(super) fn is_awake(&self) -> bool {
        matches!(self.stage, Stage::Awake | Stage::Quiet(_) | Stage::Asking(_))
    }
}

impl Daemon {
    /// Begins a rest if the data plane needs no hooks but those that look for something to learn, or ends it.
    pub(super) fn review_rest(&mut self) {
        let Ok(usage) = self.plane.usage() else { return };
        let has_flows = usage.entries != [0, 0];
        let could_rest = !has_flows && self.could_exchange_hooks();
        let step = self.rest.note(Instant::now(), could_rest, has_flows, self.config.rest_after);
        self.take(step);
    }

    /// The programs report something to learn.
    pub(super) fn wake(&mut self) {
        let step = self.rest.wake();
        self.take(step);
    }

    /// Whether all ports have hooks that can be exchanged in their place, and nobody else needs them as they are.
    fn could_exchange_hooks(&self) -> bool {
        let by_tcx = |ifindex| self.plane.attach_mode(ifindex) == Some(AttachMode::Tcx);
        self.plane.learns()
            && !self.hand_over.is_underway()
            && !self.taps.are_attached()
            && !self.config.uses_external()
            && (!self.rest.is_awake() || self.pending_ports.is_idle())
            && self
                .core
                .ports()
                .all(|(link, _)| by_tcx(link.ifindex) || self.pending_ports.is_changing(link.ifindex))
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Stay => {}
            Step::Ask => self.plane.control().set_rest(true),
            Step::Learn => self.plane.control().set_rest(false),
            Step::Rest => {
                tracing::info!(
                    "no flows and nothing to learn: ports keep only the hooks that look for connections"
                );
                self.exchange_hooks(true);
                self.handle(Event::Rests(true));
            }
            Step::Wake => {
                tracing::info!("there is something to learn: ports get all hooks back");
                self.exchange_hooks(false);
                self.handle(Event::Rests(false));
            }
        }
    }

    /// Exchanges the tc programs of all ports. Candidates are kept again when every port has its program on egress.
    fn exchange_hooks(&mut self, rests: bool) {
        let ports = self.core.ports().map(|(link, _)| link.ifindex);
        // A port that is being changed keeps what it has until the next attempt.
        let ports: Vec<u32> = ports.filter(|port| !self.pending_ports.is_changing(*port)).collect();
        for ifindex in ports {
            let exchange = match self.plane.tc_exchange(ifindex, rests) {
                Ok(Some(exchange)) => exchange,
                Ok(None) => continue,
                Err(error) => {
                    tracing::warn!("{}: cannot exchange its hooks: {error}", self.name(ifindex));
                    continue;
                }
            };
            self.begin_change(ifindex);
            self.in_background(
                BlockingThread::Attachments,
                "exchange-hooks",
                move |_| exchange.make(),
                move |daemon, (tc, exchanged)| {
                    daemon.plane.tc_exchanged(ifindex, tc);
                    if let Err(error) = exchanged {
                        tracing::warn!("{}: cannot exchange its hooks: {error}", daemon.name(ifindex));
                    }
                    daemon.port_changed(ifindex);
                },
            );
        }
        if !rests {
            // Behind the exchanges, on the same thread.
            let nothing = |_: &mut shunt_kernel::Linux| ();
            self.in_background(BlockingThread::Attachments, "hooks-back", nothing, |daemon, ()| {
                let all = !daemon.core.ports().any(|(link, _)| daemon.plane.rests(link.ifindex));
                daemon.rest.woken(all);
                if all {
                    daemon.plane.control().set_rest(false);
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Instant {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *START.get_or_init(Instant::now) + Duration::from_secs(seconds)
    }

    fn steps(rest: &mut Rest, seconds: std::ops::Range<u64>) -> Vec<(u64, Step)> {
        let step = |second| (second, rest.note(at(second), true, false, AFTER));
        seconds.map(step).filter(|(_, step)| *step != Step::Stay).collect()
    }

    #[test]
    fn hooks_go_after_a_minute_without_flows_and_two_seconds_without_anything_to_learn() {
        let mut rest = Rest::default();
        assert_eq!(steps(&mut rest, 0..100), [(60, Step::Ask), (62, Step::Rest)]);
        assert!(!rest.is_awake());
    }

    #[test]
    fn hooks_stay_if_there_is_something_to_learn() {
        let mut rest = Rest::default();
        assert_eq!(steps(&mut rest, 0..61), [(60, Step::Ask)]);
        assert_eq!(rest.wake(), Step::Learn);
        assert!(rest.is_awake());
        // It was in vain, so the next attempt takes twice as long.
        assert_eq!(steps(&mut rest, 61..200), [(181, Step::Ask), (183, Step::Rest)]);
        assert_eq!(rest.note(at(200), false, true, AFTER), Step::Wake);
        rest.woken(true);
        assert_eq!(steps(&mut rest, 201..270), [(261, Step::Ask), (263, Step::Rest)]);
    }

    #[test]
    fn a_rest_ends_once_and_goes_on_if_a_hook_could_not_be_put_back() {
        let mut rest = Rest::default();
        steps(&mut rest, 0..63);
        assert_eq!([rest.wake(), rest.wake()], [Step::Wake, Step::Stay]);
        rest.woken(false);
        assert_eq!(rest.wake(), Step::Wake);
        rest.woken(true);
        assert!(rest.is_awake());
    }

    #[test]
    fn a_time_of_zero_never_rests_and_ends_a_rest() {
        let mut rest = Rest::default();
        steps(&mut rest, 0..63);
        assert_eq!(rest.note(at(63), true, false, Duration::ZERO), Step::Wake);
        rest.woken(true);
        let never = (64..1000).all(|second| rest.note(at(second), true, false, Duration::ZERO) == Step::Stay);
        assert!(never);
    }
}
