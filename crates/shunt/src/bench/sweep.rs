//! `shunt bench sweep`.

use super::{BESIDE, Setting, between, inside, is_there, measured, place, wanted};
use crate::cli::SweepArgs;
use shunt_api::{Failure, FailureCode};
use shunt_lab::sweep::{Plan, Report};
use shunt_wire::line::LinkSpeed;
use std::{path::PathBuf, time::Duration};

/// In bit/s, where no other is asked for.
const HIGHEST: u64 = 1_000_000_000;
/// More steps take hours.
const STEPS_MAX: u64 = 1000;

/// What will be measured.
#[derive(Debug)]
pub(crate) struct SweepBench {
    plan: Plan,
    keep: Option<PathBuf>,
}

impl SweepBench {
    pub(super) fn resolve(typed: &SweepArgs) -> anyhow::Result<Self> {
        let usage = |why: String| Failure::new(FailureCode::Usage, why);
        let [from, by] = [typed.from, typed.step].map(|rate| rate.bits_per_second());
        let wanted = wanted(typed.place.speed, !typed.one_way, typed.size.clone());
        let named = typed.engine.clone().unwrap_or_else(|| "slow".to_owned());
        let (place, engines) = place(between(&typed.place), &[named])?;
        let carries =
            |line: LinkSpeed| line.frames_per_second(typed.size.mean_bytes()) * 8.0 * typed.size.mean_bytes();
        let most = place.speed(wanted.speed).map_or(HIGHEST, |line| HIGHEST.min(carries(line) as u64));
        let to = typed.to.map_or(most.max(from), |to| to.bits_per_second());
        if to < from {
            return Err(
                usage(format!("from {from} to {to} bit/s: the highest rate is below the lowest")).into()
            );
        }
        let steps = (to - from) / by + 1;
        if steps > STEPS_MAX {
            return Err(
                usage(format!("{steps} steps: {STEPS_MAX} are the most; give a larger --step")).into()
            );
        }
        let step = match typed.quick {
            true => Duration::from_millis(500),
            false => typed.time.unwrap_or(Duration::from_secs(2)),
        };
        typed.watch.iter().try_for_each(|name| is_there(name))?;
        let engine = engines.into_iter().next().and_then(|(_, engine)| engine);
        let rates_bps = (0..steps).map(|n| from + n * by).collect();
        let dut = inside(&typed.place)?;
        let plan = Plan { wanted, place, engine, rates_bps, step, watched: typed.watch.clone(), dut };
        Ok(Self { plan, keep: typed.keep.clone() })
    }

    pub(super) fn expected(&self) -> Duration {
        (self.plan.step + BESIDE) * self.plan.rates_bps.len() as u32
    }

    pub(super) fn perform(self, setting: Setting) -> anyhow::Result<Report> {
        let stop = setting.stop.clone();
        measured("UDP rate sweep", self.keep, setting, |kept, conditions, show| {
            self.plan.perform(kept, conditions, &stop, show)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{BenchCommand, Cli, Command, Measuring};
    use clap::Parser;

    fn rates(words: &str) -> Vec<u64> {
        let words = ["shunt", "bench", "sweep"].into_iter().chain(words.split_whitespace());
        let typed = match Cli::parse_from(words).command {
            Command::Bench(Measuring::Once(typed)) => *typed,
            other => panic!("{other:?}"),
        };
        let BenchCommand::Sweep(typed) = typed else { panic!("{typed:?}") };
        SweepBench::resolve(&typed).unwrap().plan.rates_bps
    }

    #[test]
    fn a_sweep_ends_with_what_the_line_carries_unless_it_is_told_where() {
        let last = |words: &str| *rates(words).last().unwrap();
        assert_eq!((rates("").len(), last("")), (20, 1_000_000_000));
        // Of 1518-byte frames 1 Gbit/s carries 987 Mbit/s.
        assert_eq!(last("--speed 1G"), 950_000_000);
        assert_eq!(last("--speed 10G"), 1_000_000_000);
        assert_eq!(rates("--speed 10M"), [50_000_000], "which is refused before anything is sent");
        assert_eq!(last("--speed 1G --to 2G"), 2_000_000_000);
    }
}
