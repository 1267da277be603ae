//! `shunt bench tcp`: TCP connections with requests and responses; both ends are the lab's own.

mod args;
pub(crate) mod view;

use super::{
    testbed::{self, TRIAL_OVERHEAD},
    traffic::conntrack_max,
};
use crate::{
    commands::measure::{MeasureContext, Measurement, begin},
    failure::{traffic_failed, usage},
    render::Answer,
};
pub(super) use args::TcpArgs;
use shunt_api::Failure;
use shunt_gen::tcp::{Fleet, Profile};
use shunt_lab::tcp::{TcpPlan, WHAT};
use std::{path::PathBuf, time::Duration};

/// Estimate: payload of all connections at once, in bytes/s.
const PAYLOAD_RATE: f64 = 50e6;

/// A resolved `shunt bench tcp`.
#[derive(Debug)]
pub(crate) struct TcpBench {
    plan: TcpPlan,
    keep: Option<PathBuf>,
}

impl TcpBench {
    pub(super) fn resolve(typed: &TcpArgs) -> anyhow::Result<Self> {
        let nics = typed.testbed.nics();
        let own = nics.is_none();
        if typed.testbed.dut_agent.is_some() {
            let why = "this measurement does not read the load of the router; leave out --dut-agent";
            return Err(usage(why).into());
        }
        if !own && !typed.testbed.has_both_gateways() && typed.testbed.has_one_gateway() {
            let why = "both ends send; give --gateway and --rx-gateway, or neither for a cable or a bridge";
            return Err(usage(format!("--tx and --rx: {why}")).into());
        }
        check_connections(typed.connections, conntrack_max().filter(|_| own))?;
        let (testbed, engines) = testbed::resolve(nics, &typed.engines)?;
        let plan = TcpPlan {
            profile: Profile {
                request: typed.request,
                response: typed.response,
                exchanges: typed.exchanges,
                think: typed.think,
            },
            connections: typed.connections,
            per_second: typed.rate,
            ip: typed.ip,
            nat: typed.nat.is_some_and(|nat| nat.0),
            patience: typed.patience,
            testbed,
            engines,
            runs: typed.runs,
            seed: typed.seed,
        };
        Ok(Self { plan, keep: typed.keep.clone() })
    }
}

fn check_connections(connections: u32, table: Option<u32>) -> Result<(), Failure> {
    if let Some(table) = table.filter(|table| connections > *table) {
        return Err(usage(format!(
            "--connections {connections}: conntrack tracks at most {table}; `sysctl -w net.netfilter.nf_conntrack_max={connections}` raises that"
        )));
    }
    match connections <= Fleet::CONNECTIONS_MAX {
        true => Ok(()),
        false => Err(usage(format!(
            "--connections {connections}: at most {} have ports of their own",
            Fleet::CONNECTIONS_MAX
        ))),
    }
}

impl Measurement for TcpBench {
    fn expected_duration(&self) -> Duration {
        let TcpPlan { profile, connections, per_second, runs, engines, .. } = &self.plan;
        let connections = f64::from(*connections);
        let exchange = profile.request.mean() + profile.response.mean();
        let bytes = connections * f64::from(profile.exchanges) * exchange;
        let opening = connections / per_second;
        let one = Duration::from_secs_f64(opening.max(bytes / PAYLOAD_RATE).min(1e9));
        let pauses = profile.think.saturating_mul(profile.exchanges - 1);
        (one.saturating_add(pauses) + TRIAL_OVERHEAD).saturating_mul(*runs * engines.len() as u32)
    }

    fn measure(
        self: Box<Self>,
        MeasureContext { stop, mut conditions, show }: MeasureContext,
    ) -> anyhow::Result<Box<dyn Answer + Send>> {
        conditions.seed = Some(self.plan.seed);
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

    fn resolve(words: &str) -> Result<TcpBench, String> {
        let typed = parse_args(words).map_err(|error| error.to_string())?;
        TcpBench::resolve(&typed).map_err(|error| error.to_string())
    }

    #[test]
    fn a_profile_is_read_as_people_type_it() {
        let words =
            "--request 200 --response 1k..100k --exchanges 5 --connections 2k --rate 500/s --think 10ms";
        let TcpPlan { profile, connections, per_second, .. } = resolve(words).unwrap().plan;
        assert_eq!(
            (profile.request.to_string(), profile.response.to_string()),
            ("200".into(), "1000..100000".into())
        );
        assert_eq!((profile.exchanges, connections, per_second), (5, 2000, 500.0));
        assert_eq!(profile.think, Duration::from_millis(10));
        let [short, long] = ["--connections 100", words].map(|words| resolve(words).unwrap());
        assert!(short.expected_duration() < long.expected_duration() / 3);
    }

    #[test]
    fn impossible_requests_are_refused_with_a_possible_one() {
        for (words, why) in [
            ("--request 7", "sizes are from 8 bytes"),
            ("--response 100..10", "the smaller one first"),
            ("--exchanges 0", "0 is not in 1.."),
            ("--rate 0", "expected connections/s above 0, such as 500/s"),
            ("--rate 1kpps", "expected connections/s above 0, such as 500/s"),
            ("--connections 0", "0 connections: 1 to"),
            ("--patience 0s", "expected 1ms or more"),
            ("--tx lo --rx lo --gateway 192.0.2.1", "give --gateway and --rx-gateway, or neither"),
        ] {
            let error = resolve(words).unwrap_err();
            assert!(error.contains(why), "{words}: {error}");
        }
        let table = check_connections(2001, Some(2000)).unwrap_err().to_string();
        assert!(table.contains("nf_conntrack_max=2001"), "{table}");
        let ports = check_connections(Fleet::CONNECTIONS_MAX + 1, None).unwrap_err().to_string();
        assert!(ports.contains("at most 1032192 have ports of their own"), "{ports}");
    }
}
