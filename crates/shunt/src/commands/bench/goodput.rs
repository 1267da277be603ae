//! `shunt bench matrix` and `shunt bench rxtx`: goodput by iperf3.

pub(super) mod args;
pub(crate) mod view;

use super::testbed::{self, TRIAL_OVERHEAD, connect_dut, require_device};
use crate::{
    commands::measure::{MeasureContext, Measurement, begin},
    failure::{traffic_failed, usage},
    render::Answer,
};
use args::{IperfArgs, RouterArgs};
pub(super) use args::{MatrixArgs, RxtxArgs};
use shunt_api::Failure;
use shunt_lab::{
    Nic,
    dut::Dut,
    goodput::{Cell, Column, DevicePair, GoodputPlan, Protocol, Report, Wired},
    iperf::Direction,
    throughput::Engine,
};
use shunt_wire::line::{IpVersion, LinkSpeed};
use std::{collections::BTreeSet, path::PathBuf, time::Duration};
use view::{Matrix, Rxtx};

const SECONDS: u32 = 2;
/// The payload of a datagram of iperf3 on a link with the usual MTU.
const DATAGRAM_BITS: u64 = 1448 * 8;
/// The number of runs from which on a difference can be told.
const RUNS: u32 = shunt_lab::statistics::RUNS_WANTED as u32;

/// A resolved `shunt bench matrix` or `shunt bench rxtx`.
#[derive(Debug)]
pub(crate) struct GoodputBench {
    plan: GoodputPlan,
    keep: Option<PathBuf>,
}

impl GoodputBench {
    pub(super) fn resolve_matrix(typed: &MatrixArgs) -> anyhow::Result<Self> {
        let (_, engines) = testbed::resolve(None, &typed.engines)?;
        let column = |(name, engine)| Column { name, engine, command: None };
        let columns: Vec<Column> = match typed.iperf.router.tx {
            Some(_) => vec![column(("dut".to_owned(), None))],
            None => engines.into_iter().map(column).collect(),
        };
        require_distinct(&columns, "--engine")?;
        let rounds = if typed.quick { 1 } else { typed.runs.unwrap_or(RUNS) };
        Self::new("goodput matrix", columns, cells(typed), rounds, typed.quick, &typed.iperf)
    }

    pub(super) fn resolve_rxtx(typed: &RxtxArgs) -> anyhow::Result<Self> {
        let engine = typed.engine.clone().unwrap_or_else(|| "slow".to_owned());
        let (_, engines) = testbed::resolve(None, &[engine])?;
        let engine: Option<Engine> = engines.into_iter().find_map(|(_, engine)| engine);
        let column = |(name, command): &(String, String)| Column {
            name: name.clone(),
            engine: engine.clone(),
            command: Some(command.clone()).filter(|command| !command.is_empty()),
        };
        let columns: Vec<Column> = typed.variants.iter().map(column).collect();
        require_distinct(&columns, "--variant")?;
        let rounds = typed.runs.unwrap_or(RUNS);
        let udp_bps = typed.udp_rate.bits_per_second();
        let seconds = if typed.quick { 1 } else { typed.iperf.time.unwrap_or(SECONDS) };
        if udp_bps * u64::from(seconds) < DATAGRAM_BITS {
            return Err(usage(format!(
                "--udp-rate {udp_bps} is less than one datagram in {seconds}s: raise the rate or the time; 100M is 100 Mbit/s"
            ))
            .into());
        }
        let both_ways = |(protocol, rate_bps)| {
            [Direction::Forward, Direction::Reverse].map(|direction| Cell {
                protocol,
                v6: typed.ip == IpVersion::V6,
                direction,
                rate_bps,
                ..Cell::PLAIN
            })
        };
        let cells =
            [(Protocol::Tcp, None), (Protocol::Udp, Some(udp_bps))].into_iter().flat_map(both_ways).collect();
        Self::new("goodput by variant", columns, cells, rounds, typed.quick, &typed.iperf)
    }

    fn new(
        what: &str,
        columns: Vec<Column>,
        cells: Vec<Cell>,
        rounds: u32,
        quick: bool,
        typed: &IperfArgs,
    ) -> anyhow::Result<Self> {
        let seconds = if quick { 1 } else { typed.time.unwrap_or(SECONDS) };
        let dut = || connect_dut(typed.dut_agent.as_deref(), typed.dut_token_file.as_deref());
        let between = typed.router.resolve(dut)?;
        let devices = between.iter().flat_map(|between| [&between.lan, &between.wan]);
        let speeds =
            devices.filter_map(|wired| LinkSpeed::new(Nic::read(&wired.device).speed_mbps? * 1_000_000));
        let (speed, load) = (typed.speed.or_else(|| speeds.min()), !typed.no_load);
        let plan =
            GoodputPlan { what: what.to_owned(), between, columns, cells, rounds, seconds, speed, load };
        Ok(Self { plan, keep: typed.keep.clone() })
    }

    fn expected_duration(&self) -> Duration {
        let GoodputPlan { columns, cells, rounds, seconds, .. } = &self.plan;
        let run = Duration::from_secs(u64::from(*seconds)) + TRIAL_OVERHEAD;
        run * *rounds * (columns.len() * cells.len()) as u32
    }

    fn measure(self, MeasureContext { stop, conditions, show }: MeasureContext) -> anyhow::Result<Report> {
        let file = begin(&self.plan.what, self.keep, conditions)?;
        Ok(self.plan.perform(file, stop, show).map_err(traffic_failed)?)
    }
}

/// A resolved `shunt bench matrix`.
#[derive(Debug)]
pub(super) struct MatrixBench(pub(super) GoodputBench);

/// A resolved `shunt bench rxtx`.
#[derive(Debug)]
pub(super) struct RxtxBench(pub(super) GoodputBench);

impl Measurement for MatrixBench {
    fn expected_duration(&self) -> Duration {
        self.0.expected_duration()
    }

    fn measure(self: Box<Self>, context: MeasureContext) -> anyhow::Result<Box<dyn Answer + Send>> {
        Ok(Box::new(Matrix(self.0.measure(context)?)))
    }
}

impl Measurement for RxtxBench {
    fn expected_duration(&self) -> Duration {
        self.0.expected_duration()
    }

    fn measure(self: Box<Self>, context: MeasureContext) -> anyhow::Result<Box<dyn Answer + Send>> {
        Ok(Box::new(Rxtx(self.0.measure(context)?)))
    }
}

impl RouterArgs {
    /// The devices on both sides of the router, and its agent; none if the router is in a namespace.
    pub(super) fn resolve(
        &self,
        dut: impl FnOnce() -> Result<Option<Dut>, Failure>,
    ) -> anyhow::Result<Option<DevicePair>> {
        let Some((tx, rx)) = self.tx.as_ref().zip(self.rx.as_ref()) else { return Ok(None) };
        let wired = |device: &String, gateways: &[_]| -> Result<Wired, Failure> {
            require_device(device)?;
            Ok(Wired { device: device.clone(), gateways: gateways.to_vec() })
        };
        let (lan, wan) = (wired(tx, &self.gateways)?, wired(rx, &self.rx_gateways)?);
        if lan.device == wan.device {
            let why = "the same device as --tx; name the device on the other side of the router";
            return Err(usage(format!("--rx {}: {why}", wan.device)).into());
        }
        Ok(Some(DevicePair { lan, wan, dut: dut()? }))
    }
}

pub(super) fn require_distinct(columns: &[Column], option: &str) -> Result<(), Failure> {
    let twice =
        (1..).zip(columns).find(|(next, column)| columns[*next..].iter().any(|c| c.name == column.name));
    twice.map_or(Ok(()), |(_, column)| {
        Err(usage(format!("{option} {}: given twice; each needs a name of its own", column.name)))
    })
}

/// Every combination of the properties that were not chosen.
fn cells(typed: &MatrixArgs) -> Vec<Cell> {
    let both = |only: Option<bool>| only.map_or(vec![false, true], |only| vec![only]);
    // The options choose NAT and VLAN only for the router in a namespace; another router treats all traffic alike.
    let own_router = |only: Option<bool>| both(only.or(typed.iperf.router.tx.as_ref().map(|_| false)));
    let protocols = [Protocol::Tcp, Protocol::Udp];
    let is_chosen = |protocol: &&Protocol| {
        typed.proto.as_ref().is_none_or(|name| protocol.name().eq_ignore_ascii_case(name))
    };
    let directions = match &typed.directions[..] {
        [] => &[Direction::Forward, Direction::Reverse, Direction::Duplex],
        some => some,
    };
    let (mtus, writes) = (each(&typed.mtu), each(&typed.write));
    let mut cells = Vec::new();
    for protocol in protocols.iter().filter(is_chosen) {
        for v6 in both(typed.ip.map(|ip| ip == IpVersion::V6)) {
            for nat in own_router(typed.nat.map(|nat| nat.0)) {
                for vlan in own_router(typed.vlan.map(|vlan| vlan.0)) {
                    if typed.quick && !is_quick(typed, v6, nat, vlan) {
                        continue;
                    }
                    let cell = Cell { protocol: *protocol, v6, nat, vlan, ..Cell::PLAIN };
                    let sized = mtus.iter().flat_map(|mtu| {
                        writes.iter().map(move |bytes| Cell { mtu: *mtu, write_bytes: *bytes, ..cell })
                    });
                    cells.extend(sized.flat_map(|cell| {
                        directions.iter().map(move |direction| Cell { direction: *direction, ..cell })
                    }));
                }
            }
        }
    }
    cells
}

/// The chosen values, or one that was not chosen.
fn each(typed: &[u32]) -> Vec<Option<u32>> {
    match typed {
        [] => vec![None],
        some => some.iter().copied().collect::<BTreeSet<_>>().into_iter().map(Some).collect(),
    }
}

/// --quick measures without VLAN, and NAT with IPv4 only, unless the options choose otherwise.
fn is_quick(typed: &MatrixArgs, v6: bool, nat: bool, vlan: bool) -> bool {
    (typed.vlan.is_some() || !vlan) && (typed.nat.is_some() || !(nat && v6))
}

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests {
    use super::{
        super::measurement::{BenchParser, MeasureCommand},
        *,
    };
    use clap::Parser;

    fn resolve(words: &[&str]) -> anyhow::Result<GoodputBench> {
        match BenchParser::try_parse_from(words)?.command {
            MeasureCommand::Matrix(typed) => GoodputBench::resolve_matrix(&typed),
            MeasureCommand::Rxtx(typed) => GoodputBench::resolve_rxtx(&typed),
            other => panic!("{other:?}"),
        }
    }

    fn names(words: &str) -> Vec<String> {
        let plan = resolve(&words.split_whitespace().collect::<Vec<_>>()).unwrap().plan;
        plan.cells.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn properties_that_are_not_chosen_are_all_measured() {
        let all = names("matrix");
        assert_eq!(all.len(), 2 * 2 * 2 * 2 * 3);
        assert_eq!(all[0], "TCP IPv4 forward");
        assert_eq!(all[47], "UDP IPv6 NAT VLAN duplex");
        let one = names("matrix -p udp --ip 6 --nat on --vlan off --direction reverse");
        assert_eq!(one, ["UDP IPv6 NAT reverse"]);
        assert_eq!(names("matrix --direction reverse --direction duplex").len(), 32);
    }

    #[test]
    fn each_mtu_and_each_size_of_a_write_is_a_kind_of_traffic() {
        let one = "-p udp --ip 4 --nat off --vlan off --direction forward";
        let writes = names(&format!("matrix {one} --mtu 1500,9000 --write 64,8k"));
        let want = ["1500 write 64", "1500 write 8000", "9000 write 64", "9000 write 8000"];
        assert_eq!(writes, want.map(|kind| format!("UDP IPv4 MTU {kind} forward")));
        let error =
            |words: &str| resolve(&words.split_whitespace().collect::<Vec<_>>()).unwrap_err().to_string();
        assert!(error("matrix --mtu 100").contains("576 to 9000"));
        assert!(error("matrix --write 0").contains("1 to 1048576"));
        assert!(error("matrix --write 2M").contains("1 to 1048576"));
    }

    #[test]
    fn quick_leaves_out_vlan_and_nat_of_ipv6_unless_they_are_chosen() {
        let quick = names("matrix --quick --direction forward");
        let want = ["TCP IPv4", "TCP IPv4 NAT", "TCP IPv6", "UDP IPv4", "UDP IPv4 NAT", "UDP IPv6"];
        assert_eq!(quick, want.map(|kind| format!("{kind} forward")));
        let chosen = names("matrix --quick --direction forward -p tcp --ip 6 --nat on --vlan on");
        assert_eq!(chosen, ["TCP IPv6 NAT VLAN forward"]);
        let plan = resolve(&["matrix", "--quick"]).unwrap().plan;
        assert_eq!((plan.rounds, plan.seconds, plan.columns.len()), (1, 1, 3));
    }

    #[test]
    fn each_variant_has_its_own_name_and_an_optional_command() {
        let gro = "gro-off=ethtool -K r0 gro off";
        let plan =
            resolve(&["rxtx", "--variant", "plain=", "--variant", gro, "--udp-rate", "60M"]).unwrap().plan;
        let commands: Vec<_> = plan.columns.iter().map(|c| (c.name.as_str(), c.command.as_deref())).collect();
        assert_eq!(commands, [("plain", None), ("gro-off", Some("ethtool -K r0 gro off"))]);
        let rates: Vec<_> = plan.cells.iter().map(|cell| cell.rate_bps).collect();
        assert_eq!(rates, [None, None, Some(60_000_000), Some(60_000_000)]);
        assert_eq!((plan.rounds, plan.seconds), (6, 2));
        let why = |words: &[&str]| resolve(words).unwrap_err().to_string();
        assert_eq!(
            why(&["rxtx", "--variant", "a=true", "--variant", "b=", "--variant", "a="]),
            "--variant a: given twice; each needs a name of its own"
        );
        assert_eq!(
            why(&["matrix", "--engine", "tc", "--engine", "tc"]),
            "--engine tc: given twice; each needs a name of its own"
        );
        for (words, part) in [
            (&["rxtx"][..], "--variant"),
            (&["rxtx", "--variant", "=true"], "expected a name, = and a command"),
            (&["matrix", "--time", "1.5s"], "expected whole seconds"),
            (&["matrix", "--time", "0"], "expected whole seconds"),
            (&["matrix", "--direction", "up"], "expected forward, reverse or duplex"),
            (&["matrix", "--nat", "yes"], "expected on or off"),
            (&["matrix", "--quick", "--runs", "2"], "cannot be used with"),
        ] {
            assert!(why(words).contains(part), "{}", why(words));
        }
    }
}
