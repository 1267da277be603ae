//! `shunt bench nat`: a stateful NAT by RFC 9693.

mod args;
pub(crate) mod view;

use super::{
    testbed::{self, TRIAL_OVERHEAD, TestbedArgs},
    traffic::{conntrack_max, udp_traffic},
};
use crate::{
    commands::measure::{MeasureContext, Measurement, begin},
    failure::{traffic_failed, usage},
    render::Answer,
};
pub(super) use args::{NatArgs, connection_count};
use shunt_api::Failure;
use shunt_gen::FLOWS_MAX;
use shunt_lab::{
    nat::{CapacitySearch, Effort, NatMetric, NatPlan},
    search::Range,
};
use shunt_wire::line::IpVersion;
use std::{path::PathBuf, time::Duration};

/// Numbers of connections, and of sessions.
const CONNECTIONS: u32 = 100_000;
const SESSIONS: [u32; 3] = [1000, 10_000, 100_000];
/// The same with --quick, and the greatest capacity that it tries.
const QUICK_CONNECTIONS: u32 = 10_000;
const QUICK_SESSIONS: [u32; 2] = [1000, 10_000];
const QUICK_CAPACITY: u32 = 10_000;
/// The least capacity to try.
const CAPACITY_MIN: u32 = 1000;
/// Distance of the capacity's bounds at the end of a search, unless the hint is right.
const WIDTH: f64 = 0.005;
/// Estimates: trials of a search for a rate, by default and with --quick; the rate at which connections are opened.
const TRIALS: u32 = 25;
const QUICK_TRIALS: u32 = 8;
const OPENED_PPS: f64 = 50_000.0;

/// A resolved `shunt bench nat`.
#[derive(Debug)]
pub(crate) struct NatBench {
    plan: NatPlan,
    keep: Option<PathBuf>,
    quick: bool,
}

impl NatBench {
    pub(super) fn resolve(typed: &NatArgs) -> anyhow::Result<Self> {
        let nics = typed.testbed.nics();
        let own = nics.is_none();
        if !own {
            check_other_router(typed)?;
        }
        let (testbed, engines) = testbed::resolve(nics, &typed.engines)?;
        let table = if own { conntrack_max() } else { None };
        let fits = |number: &u32| table.is_none_or(|table| *number <= table);
        let quick = typed.quick;
        let default = if quick { QUICK_CONNECTIONS } else { CONNECTIONS };
        let connections = typed.connections.unwrap_or_else(|| default.min(table.unwrap_or(default)));
        let sessions = match (&typed.sessions[..], quick) {
            ([], true) => QUICK_SESSIONS.into_iter().filter(fits).collect(),
            ([], false) => SESSIONS.into_iter().filter(fits).collect(),
            (given, _) => given.to_vec(),
        };
        for (option, number) in
            sessions.iter().map(|n| ("--sessions", *n)).chain([("--connections", connections)])
        {
            check_number(option, number, table)?;
        }
        let max = if quick { QUICK_CAPACITY } else { FLOWS_MAX };
        let hint = typed.table.or(table).map(|hint| hint.min(max)).or(quick.then_some(max));
        let min = hint.map_or(CAPACITY_MIN, |hint| hint.min(CAPACITY_MIN));
        let capacity = CapacitySearch { min, max, hint, width: WIDTH, held: None, failed: None };
        let range = Range { min_pps: typed.min_load, max_pps: typed.max_load };
        check_rates(typed)?;
        let mut spec = udp_traffic(IpVersion::V4, typed.testbed.speed, true, typed.size.clone());
        spec.shape.listed = true;
        spec.shape.flows = Some(1);
        let plan = NatPlan {
            spec,
            testbed,
            engines,
            metrics: typed.what.iter().copied().map(NatMetric::from).collect(),
            connections,
            sessions,
            capacity,
            range,
            open_pps: typed.open_rate,
            nat: typed.nat_address,
            empty: typed.empty.clone(),
            effort: if quick { Effort::QUICK } else { Effort::USUAL },
            runs: typed.runs,
            seed: typed.seed,
        };
        Ok(Self { plan, keep: typed.keep.clone(), quick })
    }
}

impl Measurement for NatBench {
    fn expected_duration(&self) -> Duration {
        let NatPlan { metrics, connections, sessions, capacity, effort, runs, engines, .. } = &self.plan;
        // Connections are opened at a rate, and validated at a lower one.
        let opening = |connections: u32| Duration::from_secs_f64(3.0 * f64::from(connections) / OPENED_PPS);
        let trials = if self.quick { QUICK_TRIALS } else { TRIALS };
        let one = |metric: &NatMetric| match metric {
            NatMetric::Establishment => (opening(*connections) + 2 * TRIAL_OVERHEAD) * trials,
            NatMetric::TearDown => opening(*connections),
            NatMetric::Capacity => 2 * (opening(capacity.hint.unwrap_or(*connections)) + 2 * TRIAL_OVERHEAD),
            NatMetric::Throughput => {
                let trial = Duration::from_secs_f64(effort.throughput.final_s) + TRIAL_OVERHEAD;
                sessions.iter().map(|sessions| opening(*sessions) + trial * trials).sum()
            }
        };
        metrics.iter().map(one).sum::<Duration>() * *runs * engines.len() as u32
    }

    fn measure(
        self: Box<Self>,
        MeasureContext { stop, mut conditions, show }: MeasureContext,
    ) -> anyhow::Result<Box<dyn Answer + Send>> {
        conditions.seed = Some(self.plan.seed);
        let file = begin("stateful NAT", self.keep, conditions)?;
        Ok(Box::new(self.plan.perform(file, stop, show).map_err(traffic_failed)?))
    }
}

/// Checks what a router between two devices needs.
fn check_other_router(typed: &NatArgs) -> Result<(), Failure> {
    connections_of_a_router(&typed.testbed, typed.empty.as_deref())
        .map_err(|why| usage(format!("--tx and --rx: {why}")))?;
    if typed.testbed.dut_agent.is_some() {
        let why = "this measurement does not read the load of the router; leave out --dut-agent";
        return Err(usage(why));
    }
    Ok(())
}

/// Checks that connections through the router can be opened and deleted. The error says what is missing.
pub(super) fn connections_of_a_router(
    testbed: &TestbedArgs,
    empty: Option<&str>,
) -> Result<(), &'static str> {
    if testbed.tx.is_none() {
        return Ok(());
    }
    if !testbed.has_both_gateways() {
        return Err("a NAT has an address on both sides; give --gateway and --rx-gateway");
    }
    empty.map(drop).ok_or(
        "each trial begins with an empty table; give the command that deletes all connections of the router, such \
         as --empty 'ssh root@router conntrack -F'",
    )
}

fn check_number(option: &str, number: u32, table: Option<u32>) -> Result<(), Failure> {
    if let Some(table) = table.filter(|table| number > *table) {
        return Err(usage(format!(
            "{option} {number}: conntrack tracks at most {table}; `sysctl -w net.netfilter.nf_conntrack_max={number}` raises that"
        )));
    }
    match number <= FLOWS_MAX {
        true => Ok(()),
        false => Err(usage(format!("{option} {number}: at most {FLOWS_MAX} connections can be told apart"))),
    }
}

fn check_rates(typed: &NatArgs) -> Result<(), Failure> {
    let NatArgs { min_load, max_load, open_rate, .. } = typed;
    if !(*min_load >= 1.0 && max_load.is_finite() && max_load > min_load) {
        let why = "the lowest load must be at least 1, and the highest above the lowest";
        return Err(usage(format!("--min-load {min_load} --max-load {max_load}: {why}")));
    }
    match open_rate.filter(|pps| !(pps.is_finite() && *pps > 0.0)) {
        Some(pps) => Err(usage(format!("--open-rate {pps}: expected a rate above 0"))),
        None => Ok(()),
    }
}

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::arguments::parse_args;

    fn resolve(words: &str) -> Result<NatPlan, String> {
        let typed = parse_args(words).map_err(|error| error.to_string())?;
        NatBench::resolve(&typed).map(|bench| bench.plan).map_err(|error| error.to_string())
    }

    #[test]
    fn quick_is_smaller_and_takes_less_than_a_minute_of_trials() {
        let [quick, usual] =
            ["--quick", ""].map(|words| NatBench::resolve(&parse_args(words).unwrap()).unwrap());
        assert!(quick.expected_duration() < usual.expected_duration() / 3);
        assert!(quick.plan.sessions.len() < usual.plan.sessions.len());
        assert!(quick.plan.capacity.max < usual.plan.capacity.max);
    }

    #[test]
    fn impossible_requests_are_refused_with_a_possible_one() {
        for (words, why) in [
            ("--min-load 5 --max-load 5", "the highest above the lowest"),
            ("--open-rate 0", "expected a rate above 0"),
            ("--connections 0", "1 to 4294967295 are possible"),
            ("--sessions 1k,x", "`x` is not a number"),
            ("--tx lo --rx lo --gateway 192.0.2.1", "give --gateway and --rx-gateway"),
            (
                "--tx lo --rx lo --gateway 192.0.2.1 --rx-gateway 192.0.2.2",
                "--empty 'ssh root@router conntrack -F'",
            ),
        ] {
            let error = resolve(words).unwrap_err();
            assert!(error.contains(why), "{words}: {error}");
        }
        assert!(
            check_number("--sessions", 2001, Some(2000))
                .unwrap_err()
                .to_string()
                .contains("nf_conntrack_max=2001")
        );
        assert!(
            check_number("--sessions", FLOWS_MAX + 1, None).unwrap_err().to_string().contains("told apart")
        );
        let other = "--tx lo --rx lo --gateway 192.0.2.1 --rx-gateway 192.0.2.2 --empty true";
        let plan = resolve(&format!("{other} --sessions 4M --table 65536 --what capacity")).unwrap();
        assert_eq!((&plan.sessions[..], plan.capacity.hint), (&[4_000_000][..], Some(65_536)));
        assert_eq!(plan.metrics, [NatMetric::Capacity]);
        assert_eq!(plan.engines.len(), 1);
    }
}
