//! `shunt bench latency`: latency under load.

pub(crate) mod view;

use super::{
    goodput::{
        args::{RouterArgs, Switch, direction, on_or_off, whole_seconds},
        require_distinct,
    },
    testbed::{self, ENGINES},
};
use crate::{
    commands::{
        arguments::{duration, ip_version},
        measure::{MeasureContext, Measurement, begin},
    },
    failure::{traffic_failed, usage},
    render::Answer,
};
use clap::Args;
use shunt_lab::{
    goodput::Column,
    iperf::Direction,
    latency::{Clock, LatencyPlan, WHAT},
};
use shunt_wire::line::IpVersion;
use std::{path::PathBuf, time::Duration};

const SECONDS: u32 = 10;
const QUICK_SECONDS: u32 = 2;
const RUNS: u32 = shunt_lab::statistics::RUNS_WANTED as u32;
const IDLE: Duration = Duration::from_secs(2);
const QUICK_IDLE: Duration = Duration::from_millis(500);
/// The time that a run takes in addition to its load and the idle time before: setting up, iperf3, and the idle time
/// after.
const RUN_OVERHEAD: Duration = Duration::from_secs(4);
/// Fewer probes have no 99th percentile.
const INTERVAL_LEAST: Duration = Duration::from_millis(100);

/// Without --tx and --rx, a LAN host, a router with a stateful firewall and a WAN host are made in network namespaces,
/// new ones for each engine and round.
#[derive(Debug, Args)]
pub(crate) struct LatencyArgs {
    /// The direction of the load: forward is from the LAN to the WAN, reverse is from the WAN to the LAN, duplex is
    /// both at once.
    #[arg(long, value_name = "forward|reverse|duplex", value_parser = direction, default_value = "duplex")]
    direction: Direction,
    /// The clock of the round-trip times: nic is the hardware time stamps of both NICs, kernel is the kernel's, program
    /// includes the time that a program takes to wake up; auto takes the best one that stamps the probes, and says why
    /// it is not a better one.
    #[arg(long, value_name = "auto|nic|kernel|program", value_parser = clock, default_value = "auto")]
    clock: ClockChoice,
    /// Number of TCP streams in each direction.
    #[arg(long, value_name = "N", default_value = "4", value_parser = clap::value_parser!(u32).range(1..=128))]
    streams: u32,
    /// The IP version.
    #[arg(long, value_name = "4|6", default_value = "4", value_parser = ip_version)]
    ip: IpVersion,
    /// Whether the router in a namespace masquerades traffic to the WAN.
    #[arg(long, value_name = "on|off", value_parser = on_or_off, default_value = "off", conflicts_with = "tx")]
    nat: Switch,
    /// An engine to measure in the router's namespace; slow is Linux alone; external is a process that polls. May be
    /// given several times [default: slow, tc and xdp].
    #[arg(long = "engine", value_name = "slow|tc|xdp|external", value_parser = ENGINES, hide_possible_values = true,
        conflicts_with = "tx")]
    engines: Vec<String>,
    #[command(flatten)]
    router: RouterArgs,
    /// Duration of the load, in whole seconds [default: 10s].
    #[arg(long, visible_alias = "for", value_name = "TIME", value_parser = whole_seconds)]
    time: Option<u32>,
    /// Idle time before the load [default: 2s].
    #[arg(long, value_name = "TIME", value_parser = duration)]
    idle: Option<Duration>,
    /// Length of an interval of the curves.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "500ms")]
    interval: Duration,
    /// Number of runs of each engine; at least six are needed to tell a difference [default: 6].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: Option<u32>,
    /// Measure faster and less exactly: one run with 500ms of idle time and 2s of load for each engine.
    #[arg(long, conflicts_with_all = ["time", "idle", "runs"])]
    quick: bool,
    /// Keep the results in this file, for `shunt compare` and `shunt report`; if the file exists, the runs are added to
    /// it.
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
}

/// A clock, or None for the best one.
#[derive(Debug, Clone, Copy)]
struct ClockChoice(Option<Clock>);

fn clock(text: &str) -> Result<ClockChoice, String> {
    match text {
        "auto" => Ok(ClockChoice(None)),
        name => Clock::from_name(name)
            .map(|clock| ClockChoice(Some(clock)))
            .ok_or_else(|| "expected auto, nic, kernel or program".to_owned()),
    }
}

/// A resolved `shunt bench latency`.
#[derive(Debug)]
pub(crate) struct LatencyBench {
    plan: LatencyPlan,
    keep: Option<PathBuf>,
}

impl LatencyBench {
    pub(super) fn resolve(typed: &LatencyArgs) -> anyhow::Result<Self> {
        if typed.interval < INTERVAL_LEAST {
            let least = humantime::format_duration(INTERVAL_LEAST);
            let given = humantime::format_duration(typed.interval);
            return Err(usage(format!("--interval {given}: the least is {least}")).into());
        }
        let between = typed.router.resolve(|| Ok(None))?;
        let column = |(name, engine)| Column { name, engine, command: None };
        let columns: Vec<Column> = match between {
            Some(_) => vec![column(("dut".to_owned(), None))],
            None => testbed::resolve(None, &typed.engines)?.1.into_iter().map(column).collect(),
        };
        require_distinct(&columns, "--engine")?;
        let (quick_seconds, quick_idle, quick_runs) = match typed.quick {
            true => (QUICK_SECONDS, QUICK_IDLE, 1),
            false => (SECONDS, IDLE, RUNS),
        };
        let plan = LatencyPlan {
            between,
            columns,
            direction: typed.direction,
            clock: typed.clock.0,
            streams: typed.streams,
            v6: typed.ip == IpVersion::V6,
            nat: typed.nat.0,
            rounds: typed.runs.unwrap_or(quick_runs),
            idle: typed.idle.unwrap_or(quick_idle),
            seconds: typed.time.unwrap_or(quick_seconds),
            interval: typed.interval,
        };
        Ok(Self { plan, keep: typed.keep.clone() })
    }
}

impl Measurement for LatencyBench {
    fn expected_duration(&self) -> Duration {
        let LatencyPlan { columns, rounds, seconds, idle, .. } = &self.plan;
        (*idle + Duration::from_secs(u64::from(*seconds)) + RUN_OVERHEAD) * *rounds * columns.len() as u32
    }

    fn measure(
        self: Box<Self>,
        MeasureContext { stop, conditions, show }: MeasureContext,
    ) -> anyhow::Result<Box<dyn Answer + Send>> {
        let file = begin(WHAT, self.keep, conditions)?;
        Ok(Box::new(self.plan.perform(file, stop, show).map_err(traffic_failed)?))
    }
}

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::arguments::parse_args;

    fn resolve(options: &str) -> anyhow::Result<LatencyPlan> {
        Ok(LatencyBench::resolve(&parse_args(options)?)?.plan)
    }

    #[test]
    fn by_default_all_engines_are_loaded_in_both_directions() {
        let plan = resolve("").unwrap();
        let names: Vec<_> = plan.columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, ["slow", "tc", "xdp"]);
        assert_eq!((plan.direction, plan.streams, plan.rounds, plan.seconds), (Direction::Duplex, 4, 6, 10));
        let quick = resolve("--quick --engine tc --ip 6 --nat on").unwrap();
        assert_eq!((quick.columns.len(), quick.rounds, quick.seconds), (1, 1, 2));
        assert!(quick.v6 && quick.nat);
        assert_eq!(plan.clock, None);
        assert_eq!(resolve("--clock nic").unwrap().clock, Some(Clock::Nic));
        assert!(resolve("--clock tsc").is_err());
    }

    #[test]
    fn intervals_too_short_for_a_percentile_are_refused() {
        let why = resolve("--interval 50ms").unwrap_err().to_string();
        assert_eq!(why, "--interval 50ms: the least is 100ms");
        assert!(resolve("--interval 100ms").is_ok());
    }
}
