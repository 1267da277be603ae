//! `shunt bench`: measures routers, one measurement at a time or a campaign of them.

mod campaign;
mod card;
mod goodput;
mod latency;
mod measurement;
mod nat;
mod ndr;
mod size;
mod sweep;
mod tcp;
mod testbed;
mod traffic;

use crate::{
    command::{Command, Context},
    commands::measure::{Measurement, run_measurement},
    output::Show,
};
use campaign::{Campaign, RunArgs};
use clap::{Args, Subcommand};
use measurement::MeasureCommand;

/// Measure the performance of a router.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    #[command(flatten)]
    Measure(Box<MeasureCommand>),
    /// Run a campaign: the measurements of a file, one after the other.
    ///
    /// Each [[step]] of the file names a command as `bench`. Its other keys are options of that command, with the same
    /// names and values: `--runs 3` is `runs = 3`, `--both` is `both = true`, and an option that may be given several
    /// times takes a list. Keys of [common] apply to every step whose command has such an option, unless the step sets
    /// the key itself. Before the steps, the file may set `output` and `report = false`. The output directory gets one
    /// file of results for each step, and a page with all of them. Ctrl-C ends the present step and keeps its results
    /// so far. Run the same command again to measure the steps that are missing; the results of an interrupted step are
    /// kept under another name.
    Run(RunArgs),
}

/// A resolved `shunt bench`.
#[derive(Debug)]
pub(crate) enum Bench {
    Measure(Box<dyn Measurement>),
    Run(Campaign),
}

impl Command for BenchArgs {
    type Plan = Bench;
    const EXAMPLES: &str = "
        [shunt bench]
        shunt bench size --size 64 --quick # packets/s of small packets, Linux and each engine
        shunt bench run lab.toml # a whole campaign
        [shunt bench card]
        shunt bench card --quick # a card of Linux on this machine, in a minute
        shunt bench card --engine slow --engine tc --keep tc.json --output tc.html # of Linux and of an engine
        shunt bench card --tx eth1 --rx eth2 --gateway 192.0.2.1 --rx-gateway 198.51.100.1 --dut-agent ssh://root@192.0.2.1 --empty 'ssh root@192.0.2.1 conntrack -F' # of a router between two devices
        [shunt bench ndr]
        shunt bench ndr --quick # the highest rate without loss of a router in a namespace
        shunt bench ndr --tx eth1 --rx eth2 --gateway 192.0.2.1 --keep ndr.json # of a router between two devices
        [shunt bench nat]
        shunt bench nat --quick # a masquerading router in a namespace, Linux and each engine
        shunt bench nat --sessions 1k,10k,100k --keep nat.json # as many figures as RFC 9693 has
        shunt bench nat --tx eth1 --rx eth2 --gateway 192.0.2.1 --rx-gateway 198.51.100.1 --empty 'ssh root@192.0.2.1 conntrack -F' # a router between two devices
        [shunt bench tcp]
        shunt bench tcp --connections 1000 --engine slow # 1000 connections through a router in a namespace
        shunt bench tcp --request 200 --response 1k..100k --exchanges 5 --think 100ms --rate 500/s --nat # each engine, with masquerade
        shunt bench tcp --tx eth1 --rx eth2 --gateway 192.0.2.1 --rx-gateway 198.51.100.1 --keep tcp.json # a router between two devices
        [shunt bench size]
        shunt bench size --size 64,1518 --quick # two frame sizes
        [shunt bench sweep]
        shunt bench sweep --from 100M --to 1G --step 100M --engine tc # loss by offered rate, from 100 Mbit/s to 1 Gbit/s
        [shunt bench matrix]
        shunt bench matrix --quick --proto tcp --ip 4 # goodput of TCP over IPv4, each engine
        [shunt bench rxtx]
        shunt bench rxtx --variant plain= --variant 'gro-off=ethtool -K r0 gro off' # what a setting of the router changes
        [shunt bench latency]
        shunt bench latency --keep latency.json # latency under load, each engine
        shunt report latency.json -o latency.html # its curves over time
        [shunt bench run]
        shunt bench run lab.toml --output results # a campaign, into a directory
    ";

    fn resolve(self, _: &Context) -> anyhow::Result<Bench> {
        Ok(match self.command {
            BenchCommand::Measure(typed) => Bench::Measure(typed.resolve()?),
            BenchCommand::Run(typed) => Bench::Run(Campaign::resolve(&typed)?),
        })
    }

    async fn run(plan: Bench, _: &Context, show: Show<'_>) -> anyhow::Result<()> {
        match plan {
            Bench::Measure(measurement) => run_measurement(measurement, show).await,
            Bench::Run(campaign) => campaign.run(show).await,
        }
    }
}

#[cfg(test)]
mod tests;
