//! `cargo xtask churn`: how much of the traffic stays fast while Linux changes in ways that concern no flow.

mod containers;

use crate::{
    rig::{
        router_rig::{self, Placement, Rig},
        shunt,
    },
    rows,
    table_cells::reading,
};
use anyhow::{Context, ensure};
use clap::ValueEnum;
use containers::Containers;
use serde::Serialize;
use shunt_lab::{Results, ResultsFile};
use shunt_testkit::{NetNs, Shuntd};
use std::{
    io::Write,
    process::{Child, ChildStdin, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// The table has room for both directions of every flow, and nothing else differs from the defaults.
const CONFIG: &str = "max_flows = 65536\n";
/// The time before a measurement, in which the flows are learned.
const LEARNING_S: u32 = 4;
const LEARNING_RATE: u32 = 10;
/// Other hosts whose neighbour entries change.
const HOSTS: u32 = 200;

/// What the changes need: a set that the forward chain uses, and a bridge with two ports.
const SETUP: &str = "nft add table inet churn
    nft add set inet churn blocked '{ type ipv4_addr; flags interval; }'
    nft add chain inet churn forward '{ type filter hook forward priority 1; }'
    nft add rule inet churn forward ip saddr @blocked drop
    nft add rule inet churn forward ip daddr @blocked drop
    ip link add churn0 type bridge forward_delay 0; ip link set churn0 up
    for i in 1 2; do
        ip link add churn$i type veth peer name peer$i; ip link set churn$i master churn0 up; ip link set peer$i up
    done";

/// Measures the share of fast packets with and without changes, and writes target/bench/churn.json and
/// churn-results.json.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Print the rows as JSON
    #[arg(long)]
    json: bool,
    /// Number of UDP flows through masquerade
    #[arg(long, default_value_t = 10_000)]
    flows: u32,
    /// Packets a second of each flow. May be given several times
    #[arg(long, default_value = "10", value_name = "PPS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: Vec<u32>,
    /// Number of measurements of each change at each rate
    #[arg(long, default_value_t = 1, value_name = "N")]
    rounds: u32,
    /// Duration of each measurement
    #[arg(long, default_value_t = 5, value_name = "SECONDS")]
    seconds: u32,
    /// Measure only this kind of change. May be given several times
    #[arg(long, value_enum, value_name = "CHANGE")]
    only: Vec<Change>,
    /// Measure only this engine
    #[arg(long, value_parser = ["tc", "xdp"], value_name = "ENGINE")]
    engine: Option<String>,
}

/// A kind of change that concerns no flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Change {
    /// Elements of a set that the forward chain uses, of other addresses.
    Element,
    /// Routes to other networks.
    Route,
    /// Moves of other stations between two ports of a bridge.
    Station,
    /// MACs of other neighbours, of both families.
    Neighbour,
    /// Services of a host of containers: each is a chain that translates, and the element that leads to it.
    Service,
    /// Containers of the same host: each is a veth in a bridge.
    Container,
}

/// The result for one kind of change and one engine.
#[derive(Debug, Serialize)]
struct Row {
    change: Change,
    /// Changes a second, as achieved.
    per_second: f64,
    engine: String,
    /// Share of fast packets during the changes.
    fast_share: f64,
    /// Share of fast packets right before, without changes.
    fast_share_quiet: f64,
    /// How often the epoch moved during the changes.
    epoch_moves: u32,
    flows: u64,
    /// Packets a second of each flow.
    rate: u32,
}

/// Runs the measurement.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let mut file = rows::begin("churn", "share of fast packets while Linux changes")?;
    let mut rows = Vec::new();
    for engine in ["tc", "xdp"] {
        if options.engine.as_deref().is_none_or(|only| only == engine) {
            measure(engine, options, &mut file, &mut rows)?;
        }
    }
    file.finish()?;
    rows::show("churn.json", &rows, options.json, print)
}

fn measure(
    engine: &str,
    options: &Options,
    file: &mut ResultsFile,
    rows: &mut Vec<Row>,
) -> anyhow::Result<()> {
    let chosen: Vec<Change> = Change::value_variants()
        .iter()
        .copied()
        .filter(|change| options.only.is_empty() || options.only.contains(change))
        .collect();
    for of_host in [false, true] {
        let changes: Vec<_> = chosen.iter().filter(|change| change.is_of_host() == of_host).collect();
        if !changes.is_empty() {
            let measured = measure_on(engine, of_host, &changes, options)?;
            for row in &measured {
                let quiet = reading_name(engine, row.rate, row.change, true);
                file.add(&quiet, "", row.fast_share_quiet)?;
                file.add(&reading_name(engine, row.rate, row.change, false), "", row.fast_share)?;
            }
            file.save()?;
            rows.extend(measured);
        }
    }
    Ok(())
}

/// Measures on a router, or on one that is a host of containers as well.
fn measure_on(
    engine: &str,
    is_host: bool,
    changes: &[&Change],
    options: &Options,
) -> anyhow::Result<Vec<Row>> {
    let lab = router_rig::topology();
    lab.router().run(SETUP);
    let mut rig = Rig::new(&lab, options.flows, Placement::OneCpu)?;
    let host = is_host.then(|| Containers::on(lab.router())).transpose()?;
    let shuntd = if host.is_some() {
        let shuntd = shunt::start_on_its_ports(lab.router(), engine, CONFIG)?;
        containers::await_ports(&shuntd)?;
        shuntd
    } else {
        shunt::start(lab.router(), engine, CONFIG)?
    };
    rig.settle()?;
    rig.establish()?;
    send(&mut rig, LEARNING_RATE, LEARNING_S)?;
    let seconds = options.seconds;
    let mut rows = Vec::new();
    let settings = options.rate.iter().flat_map(|rate| changes.iter().map(move |change| (*rate, **change)));
    for (rate, change) in (0..options.rounds).flat_map(|_| settings.clone()) {
        eprintln!("{engine}: {change:?} ...");
        let fast_share_quiet = fast_share(&shuntd, || send(&mut rig, rate, seconds))?;
        let before = shuntd.try_status()?.epoch;
        let mut per_second = 0.0;
        let fast_share = fast_share(&shuntd, || {
            let done = AtomicBool::new(false);
            thread::scope(|scope| {
                let changes = scope.spawn(|| change.repeat(lab.router(), host.as_ref(), &done));
                let sent = send(&mut rig, rate, seconds);
                done.store(true, Ordering::Relaxed);
                per_second = changes.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
                sent
            })
        })?;
        let epoch_moves = shuntd.try_status()?.epoch.wrapping_sub(before);
        let (engine, flows) = (engine.to_owned(), rig.flows());
        rows.push(Row { change, per_second, engine, fast_share, fast_share_quiet, epoch_moves, flows, rate });
    }
    shunt::stop(shuntd)?;
    Ok(rows)
}

fn reading_name(engine: &str, rate: u32, change: Change, before: bool) -> String {
    let time = if before { "before" } else { "during" };
    format!("{engine}, {rate} packets/s per flow, {time} {change:?}").to_lowercase()
}

/// The table of a host of containers.
pub fn containers_table(results: &Results) -> anyhow::Result<String> {
    let rates = [10, 100];
    let mut text = String::from("| change |");
    text += &rates.map(|rate| format!(" flows of {rate} packets a second |")).concat();
    text += "\n| --- | --- | --- |";
    for (what, change, before) in [
        ("none", Change::Service, true),
        ("ten commits a second that add or remove a service", Change::Service, false),
        ("a container starts and ends each second", Change::Container, false),
    ] {
        text += &format!("\n| {what} |");
        for rate in rates {
            let share = reading(results, &reading_name("tc", rate, change, before))?.value;
            text += &format!(" {:.0} % |", 100.0 * share);
        }
    }
    Ok(text)
}

/// Sends packets of each flow at this rate, or as fast as the rig can.
fn send(rig: &mut Rig<'_>, rate: u32, seconds: u32) -> anyhow::Result<()> {
    let (began, length, round) =
        (Instant::now(), Duration::from_secs(seconds.into()), Duration::from_secs(1) / rate);
    let mut next = Duration::ZERO;
    while next < length {
        rig.send(rig.flows())?;
        next = (next + round).max(began.elapsed());
        thread::sleep(next.saturating_sub(began.elapsed()));
    }
    Ok(())
}

/// The share of fast packets among those that the router received during some work.
fn fast_share(shuntd: &Shuntd, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let packets = || {
        let packets = shuntd.try_status()?.packets;
        anyhow::Ok((packets.fast as f64, packets.slow as f64))
    };
    let before = packets()?;
    work()?;
    let after = packets()?;
    let fast = after.0 - before.0;
    Ok(fast / (fast + after.1 - before.1).max(1.0))
}

impl Change {
    /// Whether it is one of a host of containers.
    fn is_of_host(self) -> bool {
        matches!(self, Self::Service | Self::Container)
    }

    /// Changes a second.
    fn rate(self) -> u32 {
        match self {
            Self::Element => 50,
            Self::Route => 100,
            Self::Station => 20,
            Self::Neighbour => 2 * HOSTS,
            Self::Service => 10,
            Self::Container => 2,
        }
    }

    /// The nth change.
    fn command(self, containers: Option<&Containers>, n: u32) -> String {
        let host = n / 2 % 250 + 1;
        let first = n.is_multiple_of(2);
        match self {
            Self::Element => {
                let verb = if first { "add" } else { "delete" };
                format!("{verb} element inet churn blocked {{ 203.0.113.{host} }}")
            }
            Self::Route => {
                let verb = if first { "add" } else { "del" };
                format!("route {verb} 203.0.{host}.0/24 dev churn0")
            }
            Self::Station => {
                let port = n % 2 + 1;
                format!("fdb replace 02:00:00:00:77:{host:02x} dev churn{port} master dynamic")
            }
            Self::Neighbour => {
                let (host, mac) = (n % HOSTS + 1, n / HOSTS % 256);
                let address =
                    if host % 2 == 0 { format!("203.0.113.{host}") } else { format!("fe80::77:{host:x}") };
                format!(
                    "neigh replace {address} lladdr 02:00:00:{mac:02x}:78:{host:02x} dev churn0 nud reachable"
                )
            }
            Self::Service => containers::change_service(first),
            Self::Container => containers.map_or_else(String::new, |all| all.change_container(first)),
        }
    }

    /// Makes changes at the rate until `done`, and returns the rate achieved.
    fn repeat(self, router: &NetNs, host: Option<&Containers>, done: &AtomicBool) -> anyhow::Result<f64> {
        let mut commands = Commands::start(self, router)?;
        let (began, each) = (Instant::now(), Duration::from_secs(1) / self.rate());
        let mut changes = 0;
        while !done.load(Ordering::Relaxed) {
            commands.run(&self.command(host, changes))?;
            changes += 1;
            thread::sleep((each * changes).saturating_sub(began.elapsed()));
        }
        let took = began.elapsed().as_secs_f64();
        if self.is_of_host() && changes % 2 == 1 {
            // What has come goes, so that it can come in the next round.
            commands.run(&self.command(host, changes))?;
        }
        commands.finish()?;
        Ok(f64::from(changes) / took)
    }
}

/// A tool that reads commands, one a line.
struct Commands {
    tool: Child,
    input: Option<ChildStdin>,
}

impl Commands {
    fn start(change: Change, router: &NetNs) -> anyhow::Result<Self> {
        let (name, arguments): (_, &[&str]) = match change {
            Change::Element => ("nft", &["-i"]),
            Change::Station => ("bridge", &["-batch", "-"]),
            Change::Route | Change::Neighbour => ("ip", &["-batch", "-"]),
            // A transaction, or a container, for each line.
            Change::Service | Change::Container => ("sh", &["-e"]),
        };
        let mut command = router.command(name);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut tool = command.spawn().with_context(|| format!("cannot run {name}"))?;
        let input = tool.stdin.take();
        Ok(Self { tool, input })
    }

    fn run(&mut self, line: &str) -> anyhow::Result<()> {
        let input = self.input.as_mut().context("the tool has no input")?;
        writeln!(input, "{line}").context("the tool has ended; see its message above")
    }

    fn finish(mut self) -> anyhow::Result<()> {
        drop(self.input.take());
        let status = self.tool.wait()?;
        ensure!(status.success(), "the tool that makes the changes failed: {status}");
        Ok(())
    }
}

fn print(rows: &[Row]) {
    println!(
        "{:10} {:>8} {:>6} {:>9} {:>10} {:>12} {:>11}",
        "change", "a second", "engine", "flow pps", "fast share", "without", "epoch moves"
    );
    for row in rows {
        println!(
            "{:10} {:>8.0} {:>6} {:>9} {:>9.1}% {:>11.1}% {:>11}",
            format!("{:?}", row.change).to_lowercase(),
            row.per_second,
            row.engine,
            row.rate,
            100.0 * row.fast_share,
            100.0 * row.fast_share_quiet,
            row.epoch_moves
        );
    }
}
