//! The external engine's queues beside Linux's on the same traffic: one shaped link, one class that goes first.

use super::{probes, wait_for_external};
use crate::rig::shunt;
use anyhow::ensure;
use shunt_lab::ResultsFile;
use shunt_testkit::{Shuntd, Topology, rulesets, silent_router};
use std::{collections::BTreeMap, time::Duration};

/// 20 Mbit/s: a packet of 1,242 bytes takes 0.5 ms.
const BYTES_PER_S: f64 = 2.5e6;
/// Bulk traffic, by the rate of the link.
const OVERLOAD: f64 = 1.5;
const TIME: Duration = Duration::from_secs(4);

/// Who forwards and who queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    External,
    HtbBehindTc,
    Htb,
    Tbf,
}

pub const QUEUES: [(&str, Queue); 4] = [
    ("external engine", Queue::External),
    ("tc engine and HTB", Queue::HtbBehindTc),
    ("Linux and HTB", Queue::Htb),
    ("Linux and TBF", Queue::Tbf),
];

const CONFIG: &str = r#"
[qos.r1]
rate = "20M"
[[qos.r1.class]]
name = "first"
dscp = ["ef"]
[[qos.r1.class]]
name = "rest"
priority = 1
limit = "124200"
target = "0s"
"#;

const HTB: &str = "tc qdisc add dev r1 root handle 1: htb default 20
    tc class add dev r1 parent 1: classid 1:1 htb rate 20mbit ceil 20mbit
    tc class add dev r1 parent 1:1 classid 1:10 htb rate 5mbit ceil 20mbit prio 0
    tc class add dev r1 parent 1:1 classid 1:20 htb rate 15mbit ceil 20mbit prio 1
    for n in 10 20; do tc qdisc add dev r1 parent 1:$n pfifo limit 100; done
    tc filter add dev r1 parent 1: protocol ip prio 1 u32 match ip dsfield 0xb8 0xfc flowid 1:10";

const TBF: &str = "tc qdisc add dev r1 root tbf rate 20mbit burst 5kb limit 124200";

/// Measures each queue in turn, and adds the runs to the results.
pub fn measure(file: &mut ResultsFile, rounds: u32, cpu: usize, core: usize) -> anyhow::Result<()> {
    for round in 1..=rounds {
        for (name, queue) in QUEUES {
            run(file, name, queue, cpu, core)?;
        }
        eprintln!("queues, round {round} of {rounds}");
    }
    Ok(())
}

fn run(file: &mut ResultsFile, name: &str, queue: Queue, cpu: usize, core: usize) -> anyhow::Result<()> {
    let lab = silent_router(rulesets::OPEN);
    let shuntd = queue.start(&lab, core)?;
    if let Some(shuntd) = &shuntd {
        probes::learn(&lab, shuntd)?;
    }
    let alone = probes::send(&lab, cpu, 0.0, TIME)?;
    let beside = probes::send(&lab, cpu, OVERLOAD * BYTES_PER_S, TIME)?;
    ensure!(alone.lost == 0, "{name}: {} probes were lost without other traffic", alone.lost);
    file.add(&format!("rate error {name}"), "%", (beside.bytes_per_s / BYTES_PER_S - 1.0) * 100.0)?;
    file.add(&format!("probes lost under overload {name}"), "packets", beside.lost as f64)?;
    for (load, seen) in [("alone", &alone), ("under overload", &beside)] {
        for (share, text) in [(0.5, "p50"), (0.99, "p99")] {
            file.add(&format!("probe {text} {load} {name}"), "us", seen.quantile_us(share)?)?;
        }
    }
    file.save()?;
    shuntd.map_or(Ok(()), shunt::stop)
}

impl Queue {
    fn start(self, lab: &Topology, core: usize) -> anyhow::Result<Option<Shuntd>> {
        match self {
            Self::External => {
                let config = format!("external_core = {core}\n{CONFIG}");
                let shuntd = shunt::start(lab.router(), "external", &config)?;
                wait_for_external(&shuntd)?;
                Ok(Some(shuntd))
            }
            Self::HtbBehindTc => {
                lab.router().try_run(&format!("set -e\n{HTB}"))?;
                Ok(Some(shunt::start(lab.router(), "tc", "")?))
            }
            Self::Htb => lab.router().try_run(&format!("set -e\n{HTB}")).map(|_| None).map_err(Into::into),
            Self::Tbf => lab.router().try_run(TBF).map(|_| None).map_err(Into::into),
        }
    }
}

/// Prints a row for each queue.
pub fn print(figures: &BTreeMap<String, f64>) {
    if figures.is_empty() {
        return;
    }
    println!("\n{:20}  rate error  probes alone      under 1.5 times the rate  lost", "20 Mbit/s");
    for (name, _) in QUEUES {
        let figure = |of: &str| figures.get(&format!("{of} {name}")).copied().unwrap_or(f64::NAN);
        println!(
            "{name:20}  {:8.2} %  {:6.0} / {:6.0} us  {:10.0} / {:8.0} us  {:4.0}",
            figure("rate error"),
            figure("probe p50 alone"),
            figure("probe p99 alone"),
            figure("probe p50 under overload"),
            figure("probe p99 under overload"),
            figure("probes lost under overload"),
        );
    }
}
