//! The clock by which round-trip times are reported: the NICs', the kernel's or the program's.

use super::probe::Probe;
use std::{fmt, time::Duration};

/// Share of the answered probes that a clock must have stamped at both ends.
const STAMPED_WANTED: f64 = 0.99;

/// A clock for round-trip times, from the best to the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// The clocks of both NICs: from wire to wire.
    Nic,
    /// The kernel's time stamps: from driver to driver.
    Kernel,
    /// The programs' clock: the times that both hosts' programs take to wake up are included.
    Program,
}

/// The clock of a measurement, and why no better one was used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChosenClock {
    pub(super) clock: Clock,
    /// A reason for each better clock.
    pub(super) not_better: Vec<String>,
}

impl Clock {
    const ALL: [Self; 3] = [Self::Nic, Self::Kernel, Self::Program];

    /// The clock with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|clock| clock.name() == name)
    }

    /// The name: `nic`, `kernel`, `program`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nic => "nic",
            Self::Kernel => "kernel",
            Self::Program => "program",
        }
    }

    /// The round trip of a probe by this clock.
    pub(super) fn rtt(self, probe: &Probe) -> Option<Duration> {
        match self {
            Self::Nic => probe.nic_rtt,
            Self::Kernel => probe.kernel_rtt,
            Self::Program => probe.rtt,
        }
    }

    /// Why this clock cannot time these probes; None if it can.
    pub(super) fn lack(self, probes: &[Probe]) -> Option<String> {
        let answered = probes.iter().filter(|probe| probe.rtt.is_some());
        let (answered, stamped) = answered
            .fold((0, 0), |(all, own), probe| (all + 1, own + usize::from(self.rtt(probe).is_some())));
        let enough = stamped as f64 >= STAMPED_WANTED * f64::from(answered);
        let stamps = match self {
            Self::Nic => "the NICs",
            Self::Kernel => "the kernel",
            Self::Program => return None,
        };
        (!enough).then(|| format!("{stamps} stamped {stamped} of {answered} answered probes at both ends"))
    }
}

impl ChosenClock {
    /// The best clock that can time these probes, or the one that is wanted.
    ///
    /// # Errors
    /// Why the clock that is wanted cannot be used.
    pub(super) fn new(
        wanted: Option<Clock>,
        no_nic_clock: Option<&str>,
        probes: &[Probe],
    ) -> Result<Self, String> {
        let lack = |clock: Clock| match (clock, no_nic_clock) {
            (Clock::Nic, Some(why)) => Some(why.to_owned()),
            _ => clock.lack(probes),
        };
        if let Some(clock) = wanted {
            return match lack(clock) {
                None => Ok(Self { clock, not_better: Vec::new() }),
                Some(why) => Err(refusal(clock, &why)),
            };
        }
        let mut not_better = Vec::new();
        for clock in Clock::ALL {
            match lack(clock) {
                None => return Ok(Self { clock, not_better }),
                Some(why) => not_better.push(why),
            }
        }
        Ok(Self { clock: Clock::Program, not_better })
    }
}

/// The message that a clock that was asked for cannot be used.
pub(super) fn refusal(clock: Clock, why: &str) -> String {
    format!("--clock {}: {why}; --clock auto takes another clock", clock.name())
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nic => "the NICs' clocks, from wire to wire",
            Self::Kernel => "the kernel's time stamps, from driver to driver",
            Self::Program => "the programs' clock, with the time that they take to wake up",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A hundred answered probes and a lost one; each clock has the times of so many.
    fn probes(kernel: usize, nic: usize) -> Vec<Probe> {
        let one = |n: usize| Probe {
            at: Duration::ZERO,
            rtt: (n < 100).then_some(3 * MS),
            kernel_rtt: (n < kernel).then_some(2 * MS),
            nic_rtt: (n < nic).then_some(MS),
        };
        (0..=100).map(one).collect()
    }

    #[test]
    fn the_best_clock_that_stamped_nearly_all_probes_is_used_and_the_reason_is_said() {
        let choose = |kernel, nic, no_nic| ChosenClock::new(None, no_nic, &probes(kernel, nic)).unwrap();
        let chosen = choose(100, 99, None);
        assert_eq!((chosen.clock, chosen.not_better.len()), (Clock::Nic, 0));
        let chosen = choose(100, 98, None);
        assert_eq!(chosen.clock, Clock::Kernel);
        assert_eq!(chosen.not_better, ["the NICs stamped 98 of 100 answered probes at both ends"]);
        let chosen = choose(0, 0, Some("eth0: none"));
        assert_eq!(chosen.clock, Clock::Program);
        assert_eq!(
            chosen.not_better,
            ["eth0: none", "the kernel stamped 0 of 100 answered probes at both ends"]
        );
    }

    #[test]
    fn a_clock_that_is_asked_for_is_used_or_refused() {
        let choose = |clock, no_nic| ChosenClock::new(Some(clock), no_nic, &probes(100, 5));
        assert_eq!(choose(Clock::Kernel, None).unwrap().clock, Clock::Kernel);
        assert_eq!(choose(Clock::Program, Some("none")).unwrap().clock, Clock::Program);
        assert_eq!(
            choose(Clock::Nic, Some("eth0: none")).unwrap_err(),
            "--clock nic: eth0: none; --clock auto takes another clock"
        );
        assert!(choose(Clock::Nic, None).unwrap_err().contains("stamped 5 of 100"));
        let all = Clock::ALL.map(|clock| Clock::from_name(clock.name()));
        assert_eq!((all, Clock::from_name("tsc")), (Clock::ALL.map(Some), None));
    }
}
