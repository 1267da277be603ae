//! Shunt's generator beside other generators: received 64-byte packets per second over a veth without a router.

pub mod table;

use crate::rig::iperf::received_packets;
use anyhow::{Context, ensure};
use serde_json::Value;
use shunt_gen::{Shape, Sizes};
use shunt_lab::{Conditions, Doubt, Reading, Results, ResultsFile};
use shunt_testkit::{
    NetNs,
    tree::{built, target},
};
use shunt_traffic::{Generator, Sink};
use shunt_wire::Mac;
use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

/// Compares generators.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The xdp-trafficgen program of xdp-tools, built from source; without it only iperf3 is compared
    #[arg(long, value_name = "PROGRAM")]
    xdp_trafficgen: Option<PathBuf>,
    /// Number of runs of each generator; they take turns
    #[arg(long, default_value_t = 7)]
    rounds: u32,
    /// File for the results [default: generators.json in the target directory]
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
}

const SHUNT: &str = "shunt gen";
const SENDER: &str = "the sender of shunt gen";
const TRAFFICGEN: &str = "xdp-trafficgen udp";
const IPERF: &str = "iperf3 -u";

const FROM: Mac = Mac([2, 0, 0, 0, 0, 1]);
const TO: Mac = Mac([2, 0, 0, 0, 0, 2]);

/// Duration of sending. Programs that start and end are measured in the middle of it.
const TIME: Duration = Duration::from_secs(3);
const BEGIN: Duration = Duration::from_millis(700);
const MIDDLE: Duration = Duration::from_secs(2);

/// Two veths: one with both ends in the same namespace, as `shunt gen` uses it, and one to a host with its own stack.
struct Wires {
    near: NetNs,
    far: NetNs,
}

/// Measures all generators in turn.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let path = options.keep.clone().unwrap_or_else(|| target().join("generators.json"));
    if options.keep.is_none() {
        fs::create_dir_all(target())?;
    }
    let results = Results::new("64-byte packets of generators", Conditions::of_this_machine());
    let mut file = ResultsFile::begin(path.clone(), results)?;
    let wires = Wires::new()?;
    for round in 1..=options.rounds {
        file.add(SHUNT, "pps", wires.shunt()?)?;
        file.add(SENDER, "pps", wires.sender()?)?;
        if let Some(program) = &options.xdp_trafficgen {
            file.add(TRAFFICGEN, "pps", wires.trafficgen(program)?)?;
        }
        file.add(IPERF, "pps", wires.iperf()?)?;
        file.save()?;
        eprintln!("round {round} of {}", options.rounds);
    }
    for name in [SHUNT, SENDER, TRAFFICGEN, IPERF] {
        file.add_doubt(name, Doubt::VirtualLinks);
    }
    for (own, other) in [(SHUNT, TRAFFICGEN), (SENDER, TRAFFICGEN), (SHUNT, IPERF)] {
        let readings = &file.results().readings;
        let both = readings.get(own).zip(readings.get(other));
        if let Some(ratio) = both.and_then(|(own, other)| Reading::ratio(own, other)) {
            file.insert(&format!("{own} / {other}"), ratio);
        }
    }
    for (name, Reading { value, spread, unit, .. }) in &file.finish()?.readings {
        let unit = if unit == "1" { "times" } else { unit };
        println!("{name:32} {value:12.2} {unit:5}  {:.2} to {:.2}", spread.low, spread.high);
    }
    println!("results: {}", path.display());
    Ok(())
}

impl Wires {
    fn new() -> anyhow::Result<Self> {
        let wires = Self { near: NetNs::new("near"), far: NetNs::new("far") };
        let far = wires.far.name();
        wires.near.try_run(&format!(
            "ip link add g0 type veth peer name g1 && ethtool -K g1 gro on && ip link set g0 up && ip link set g1 up &&
             ip link set g0 address {FROM} && ip link set g1 address {TO} &&
             ip address add 198.51.100.1/24 dev g0 && ip address add 203.0.113.1/24 dev g1 &&
             ip link add n0 type veth peer name f0 netns {far} && ip address add 192.0.2.1/24 dev n0 && ip link set n0 up"
        ))?;
        wires.far.try_run("ip address add 192.0.2.2/24 dev f0 && ip link set f0 up")?;
        Ok(wires)
    }

    /// The whole generator: each packet has a number and a stamp, and is checked on arrival.
    fn shunt(&self) -> anyhow::Result<f64> {
        let words = format!(
            "gen --tx g0 --rx g1 --size 64 --rate max --time {} --no-floor --json",
            humantime::format_duration(TIME)
        );
        let said = self.near.try_run(&format!("{} {words}", built("shunt")?.display()))?;
        let report: Value = serde_json::from_str(&said)?;
        let number = |name: &str| {
            report[name].as_f64().with_context(|| format!("`{name}` is missing in the JSON of shunt gen"))
        };
        Ok(number("received")? / number("seconds")?)
    }

    /// The sender alone, into the same counting sink as other generators.
    fn sender(&self) -> anyhow::Result<f64> {
        let [from, to] = ["g0", "g1"].map(|name| self.near.ifindex(name));
        let ends = [1024, 5001].map(|port| SocketAddr::from((Ipv4Addr::new(198, 51, 100, 1), port)));
        let traffic = Shape::udp(ends[0], ends[1], Sizes::fixed(64)?).traffic(FROM, TO)?;
        self.near.within(|| {
            let sink = Sink::attach(to)?;
            let mut generator = Generator::new(&traffic, from)?;
            generator.run_for(BEGIN)?;
            let (began, before) = (Instant::now(), sink.count()?.packets);
            generator.run_for(MIDDLE)?;
            Ok((sink.count()?.packets - before) as f64 / began.elapsed().as_secs_f64())
        })
    }

    fn trafficgen(&self, program: &Path) -> anyhow::Result<f64> {
        let sink = self.near.within(|| Sink::attach(self.near.ifindex("g1")))?;
        let line = format!("{} udp -m {TO} -s 64 g0", program.display());
        self.sending(&line, || Ok(sink.count()?.packets))
    }

    /// iperf3 with 64-byte frames, FCS included.
    fn iperf(&self) -> anyhow::Result<f64> {
        let _server = self.far.spawn("iperf3 -s -1");
        self.far.try_run("for i in $(seq 50); do ss -Hltn | grep -q :5201 && break; sleep 0.1; done")?;
        let received = || received_packets(&self.far, "f0");
        let seconds = TIME.as_secs() + 1;
        self.sending(&format!("iperf3 -c 192.0.2.2 -u -b 0 -l 18 -t {seconds}"), received)
    }

    /// Received packets per second in the middle of a program's run.
    fn sending(&self, line: &str, count: impl Fn() -> anyhow::Result<u64>) -> anyhow::Result<f64> {
        let _sender = self.near.spawn(line);
        sleep(BEGIN);
        let (began, before) = (Instant::now(), count()?);
        sleep(MIDDLE);
        let arrived = count()? - before;
        ensure!(arrived > 0, "`{line}`: no packet arrives; run the command by hand to see why");
        Ok(arrived as f64 / began.elapsed().as_secs_f64())
    }
}
