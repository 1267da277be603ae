//! `shunt bench matrix` and `shunt bench rxtx`.

use super::{BESIDE, Setting, asked, go_on, is_there, place};
use crate::{
    cli::{IperfArgs, MatrixArgs, RxtxArgs},
    perform::told,
};
use shunt_api::{Failure, FailureCode};
use shunt_lab::{
    Kept, Nic, Results,
    goodput::{Between, Cell, Column, Plan, Protocol, Report, Wired},
    iperf::Direction,
    throughput::Engine,
};
use shunt_wire::line::{IpVersion, LinkSpeed};
use std::{path::PathBuf, time::Duration};

const SECONDS: u32 = 2;
const MATRIX_RUNS: u32 = 5;
/// As many as a difference needs.
const RXTX_RUNS: u32 = shunt_lab::PAIRS_WANTED as u32;

/// What will be measured.
#[derive(Debug)]
pub(crate) struct GoodputBench {
    plan: Plan,
    keep: Option<PathBuf>,
}

impl GoodputBench {
    pub(super) fn matrix(typed: &MatrixArgs) -> anyhow::Result<Self> {
        let (_, engines) = place(None, &typed.engines)?;
        let column = |(name, engine)| Column { name, engine, command: None };
        let columns: Vec<Column> = match typed.iperf.tx {
            Some(_) => vec![column(("dut".to_owned(), None))],
            None => engines.into_iter().map(column).collect(),
        };
        distinct(&columns, "--engine")?;
        let rounds = if typed.quick { 1 } else { typed.runs.unwrap_or(MATRIX_RUNS) };
        let what = "goodput matrix";
        Self::of(what, columns, cells(typed), rounds, typed.quick, &typed.iperf)
    }

    pub(super) fn rxtx(typed: &RxtxArgs) -> anyhow::Result<Self> {
        let named = typed.engine.clone().unwrap_or_else(|| "slow".to_owned());
        let (_, engines) = place(None, &[named])?;
        let engine: Option<Engine> = engines.into_iter().find_map(|(_, engine)| engine);
        let column = |(name, command): &(String, String)| Column {
            name: name.clone(),
            engine: engine.clone(),
            command: Some(command.clone()).filter(|command| !command.is_empty()),
        };
        let columns: Vec<Column> = typed.variants.iter().map(column).collect();
        distinct(&columns, "--variant")?;
        let rounds = typed.runs.unwrap_or(RXTX_RUNS);
        let udp_bps = typed.udp_rate.bits_per_second();
        let kind = |(protocol, rate_bps)| {
            [Direction::Forward, Direction::Reverse].map(|direction| Cell {
                protocol,
                v6: typed.ip == IpVersion::V6,
                nat: false,
                vlan: false,
                direction,
                rate_bps,
            })
        };
        let cells =
            [(Protocol::Tcp, None), (Protocol::Udp, Some(udp_bps))].into_iter().flat_map(kind).collect();
        Self::of("goodput by variant", columns, cells, rounds, typed.quick, &typed.iperf)
    }

    fn of(
        what: &str,
        columns: Vec<Column>,
        cells: Vec<Cell>,
        rounds: u32,
        quick: bool,
        typed: &IperfArgs,
    ) -> anyhow::Result<Self> {
        let seconds = if quick { 1 } else { typed.time.unwrap_or(SECONDS) };
        let between = between(typed)?;
        let devices = between.iter().flat_map(|between| [&between.lan, &between.wan]);
        let speeds =
            devices.filter_map(|wired| LinkSpeed::new(Nic::of(&wired.device).speed_mbps? * 1_000_000));
        let (speed, load) = (typed.speed.or_else(|| speeds.min()), !typed.no_load);
        let plan = Plan { what: what.to_owned(), between, columns, cells, rounds, seconds, speed, load };
        Ok(Self { plan, keep: typed.keep.clone() })
    }

    pub(super) fn expected(&self) -> Duration {
        let Plan { columns, cells, rounds, seconds, .. } = &self.plan;
        let run = Duration::from_secs(u64::from(*seconds)) + BESIDE;
        run * *rounds * (columns.len() * cells.len()) as u32
    }

    pub(super) fn perform(self, Setting { stop, conditions, show }: Setting) -> anyhow::Result<Report> {
        let results = Results::new(&self.plan.what, conditions);
        let kept = match self.keep {
            Some(path) => go_on(path, results)?,
            None => Kept::nowhere(results),
        };
        Ok(self.plan.perform(kept, stop, show).map_err(told)?)
    }
}

/// Where a router is that is not ours, if there is one.
fn between(typed: &IperfArgs) -> anyhow::Result<Option<Between>> {
    let Some((tx, rx)) = typed.tx.as_ref().zip(typed.rx.as_ref()) else { return Ok(None) };
    let wired = |device: &String, gateways: &[_]| -> Result<Wired, Failure> {
        is_there(device)?;
        Ok(Wired { device: device.clone(), gateways: gateways.to_vec() })
    };
    let (lan, wan) = (wired(tx, &typed.gateways)?, wired(rx, &typed.rx_gateways)?);
    if lan.device == wan.device {
        let why = format!("--rx {}: that is --tx too; the router is between two devices", wan.device);
        return Err(Failure::new(FailureCode::Usage, why).into());
    }
    let inside = asked(typed.dut_agent.as_deref(), typed.dut_token_file.as_deref())?;
    Ok(Some(Between { lan, wan, inside }))
}

fn distinct(columns: &[Column], option: &str) -> Result<(), Failure> {
    let twice =
        (1..).zip(columns).find(|(next, column)| columns[*next..].iter().any(|c| c.name == column.name));
    twice.map_or(Ok(()), |(_, column)| {
        let name = &column.name;
        Err(Failure::new(FailureCode::Usage, format!("{option} {name}: twice; each needs a name of its own")))
    })
}

/// Each combination of what was not chosen.
fn cells(typed: &MatrixArgs) -> Vec<Cell> {
    let both = |only: Option<bool>| only.map_or(vec![false, true], |only| vec![only]);
    // What a router does that is not ours, it does to all traffic.
    let ours = |only: Option<bool>| both(only.or(typed.iperf.tx.as_ref().map(|_| false)));
    let protocols = [Protocol::Tcp, Protocol::Udp];
    let wanted = |protocol: &&Protocol| {
        typed.proto.as_ref().is_none_or(|name| protocol.name().eq_ignore_ascii_case(name))
    };
    let directions = match &typed.directions[..] {
        [] => &[Direction::Forward, Direction::Reverse, Direction::Duplex],
        some => some,
    };
    let mut cells = Vec::new();
    for protocol in protocols.iter().filter(wanted) {
        for v6 in both(typed.ip.map(|ip| ip == IpVersion::V6)) {
            for nat in ours(typed.nat.map(|nat| nat.0)) {
                for vlan in ours(typed.vlan.map(|vlan| vlan.0)) {
                    if typed.quick && !is_quick(typed, v6, nat, vlan) {
                        continue;
                    }
                    let of = |direction: &Direction| Cell {
                        protocol: *protocol,
                        v6,
                        nat,
                        vlan,
                        direction: *direction,
                        rate_bps: None,
                    };
                    cells.extend(directions.iter().map(of));
                }
            }
        }
    }
    cells
}

/// Unless they are chosen, no VLAN, and NAT of IPv4 only.
fn is_quick(typed: &MatrixArgs, v6: bool, nat: bool, vlan: bool) -> bool {
    (typed.vlan.is_some() || !vlan) && (typed.nat.is_some() || !(nat && v6))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        bench::Measurement,
        cli::{Cli, Command, Measuring},
    };
    use clap::Parser;

    fn resolved(words: &[&str]) -> anyhow::Result<GoodputBench> {
        let words = ["shunt", "bench"].iter().chain(words);
        match Cli::try_parse_from(words)?.command {
            Command::Bench(Measuring::Once(typed)) => match Measurement::resolve(&typed)? {
                Measurement::Matrix(bench) | Measurement::Rxtx(bench) => Ok(bench),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    fn names(words: &str) -> Vec<String> {
        let plan = resolved(&words.split_whitespace().collect::<Vec<_>>()).unwrap().plan;
        plan.cells.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_not_chosen_is_all_of_it() {
        let all = names("matrix");
        assert_eq!(all.len(), 2 * 2 * 2 * 2 * 3);
        assert_eq!(all[0], "TCP IPv4 forward");
        assert_eq!(all[47], "UDP IPv6 NAT VLAN duplex");
        let one = names("matrix -p udp --ip 6 --nat on --vlan off --direction reverse");
        assert_eq!(one, ["UDP IPv6 NAT reverse"]);
        assert_eq!(names("matrix --direction reverse --direction duplex").len(), 32);
    }

    #[test]
    fn quick_leaves_out_what_is_not_chosen() {
        let quick = names("matrix --quick --direction forward");
        let want = ["TCP IPv4", "TCP IPv4 NAT", "TCP IPv6", "UDP IPv4", "UDP IPv4 NAT", "UDP IPv6"];
        assert_eq!(quick, want.map(|kind| format!("{kind} forward")));
        let chosen = names("matrix --quick --direction forward -p tcp --ip 6 --nat on --vlan on");
        assert_eq!(chosen, ["TCP IPv6 NAT VLAN forward"]);
        let plan = resolved(&["matrix", "--quick"]).unwrap().plan;
        assert_eq!((plan.rounds, plan.seconds, plan.columns.len()), (1, 1, 3));
    }

    #[test]
    fn variants_have_a_command_and_a_name_of_their_own() {
        let gro = "gro-off=ethtool -K r0 gro off";
        let plan =
            resolved(&["rxtx", "--variant", "plain=", "--variant", gro, "--udp-rate", "60M"]).unwrap().plan;
        let commands: Vec<_> = plan.columns.iter().map(|c| (c.name.as_str(), c.command.as_deref())).collect();
        assert_eq!(commands, [("plain", None), ("gro-off", Some("ethtool -K r0 gro off"))]);
        let rates: Vec<_> = plan.cells.iter().map(|cell| cell.rate_bps).collect();
        assert_eq!(rates, [None, None, Some(60_000_000), Some(60_000_000)]);
        assert_eq!((plan.rounds, plan.seconds), (6, 2));
        let why = |words: &[&str]| resolved(words).unwrap_err().to_string();
        assert_eq!(
            why(&["rxtx", "--variant", "a=true", "--variant", "b=", "--variant", "a="]),
            "--variant a: twice; each needs a name of its own"
        );
        assert_eq!(
            why(&["matrix", "--engine", "tc", "--engine", "tc"]),
            "--engine tc: twice; each needs a name of its own"
        );
        for (words, part) in [
            (&["rxtx"][..], "--variant"),
            (&["rxtx", "--variant", "=true"], "a name, = and a command"),
            (&["matrix", "--time", "1.5s"], "whole seconds only"),
            (&["matrix", "--time", "0"], "whole seconds only"),
            (&["matrix", "--direction", "up"], "forward, reverse or duplex"),
            (&["matrix", "--nat", "yes"], "on or off"),
            (&["matrix", "--quick", "--runs", "2"], "cannot be used with"),
        ] {
            assert!(why(words).contains(part), "{}", why(words));
        }
    }
}
