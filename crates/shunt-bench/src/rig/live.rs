//! Traffic of programs through a router, and its cost there: without Shunt, and with it.

use crate::rig::{
    iperf::{self, Arrived},
    packets::{self, PathRig},
    path::Path,
    router_rig::{Placement, Rig, pinned_in, threads},
    shunt::engine_of,
};
use anyhow::Context;
use shunt_lab::{iperf::Load, load::RunTime};
use shunt_testkit::{Shuntd, Topology};
use std::{fs, time::Duration};

/// A kind of traffic.
#[derive(Debug, Clone, Copy)]
pub struct Traffic {
    pub name: &'static str,
    pub v6: bool,
    pub load: Load,
    pub streams: u32,
    /// Whether every other packet has the DSCP EF.
    pub two_classes: bool,
}

/// The figures of a kind of traffic on one path.
#[derive(Debug, Clone)]
pub struct Row {
    pub traffic: &'static str,
    pub path: &'static str,
    pub arrived: Arrived,
    /// CPU time of the router's polling threads for each packet that arrived. Aggregates that a veth gets from a peer
    /// with TSO are not polled, and are missing here.
    pub cpu_ns: f64,
    /// CPU time of the whole machine for each packet that arrived; the hosts' share and that of other programs
    /// included.
    pub machine_ns: f64,
    pub fast_share: Option<f64>,
    /// The engine of the egress port; empty without Shunt.
    pub engine: String,
    /// Why the port has this engine.
    pub reason: String,
}

pub const TRAFFIC: [Traffic; 4] = [
    Traffic { name: "TCP, IPv4", v6: false, load: Load::Tcp, streams: 1, two_classes: false },
    Traffic { name: "TCP, IPv6", v6: true, load: Load::Tcp, streams: 1, two_classes: false },
    Traffic { name: "UDP, IPv4", v6: false, load: Load::Udp(64), streams: 1, two_classes: false },
    Traffic { name: "UDP, IPv6", v6: true, load: Load::Udp(64), streams: 1, two_classes: false },
];
/// Name of the line with generated 64-byte XDP frames.
pub const GENERATED: &str = "UDP, 1k flows";
/// Name of the path without Shunt.
pub const ALONE: &str = "Linux alone";

/// Has a host mark every other datagram of iperf3, as WebRTC sends two classes on one tuple.
const TWO_CLASSES: &str = "table inet classes { chain output {
    type filter hook output priority 0; meta l4proto udp numgen inc mod 2 == 0 ip dscp set ef; }; }";

/// Ticks per second in /proc/stat.
const USER_HZ: f64 = 100.0;

/// The name of a path.
pub const fn name_of(path: Path) -> &'static str {
    match path {
        Path::Tc => "Shunt tc",
        Path::Xdp => "Shunt xdp",
        Path::Auto => "Shunt auto",
        _ => ALONE,
    }
}

/// Runs iperf3 from the LAN to the WAN for some time. If the router's ports are `polled`, the hosts stay off the
/// router's CPU. Otherwise the sender's CPU does the router's work, and iperf3 runs anywhere.
pub fn measure(
    lab: &Topology,
    shuntd: Option<&Shuntd>,
    path: Path,
    traffic: Traffic,
    time: Duration,
    polled: bool,
) -> anyhow::Result<Row> {
    let (router, _hosts) = threads(lab, Placement::TwoCpus)?;
    let run_time = || router.iter().try_fold(RunTime::default(), |sum, t| anyhow::Ok(sum + t.run_time()?));
    let packets = || -> anyhow::Result<(u64, u64)> {
        let Some(shuntd) = shuntd else { return Ok((0, 0)) };
        let packets = shuntd.try_status()?.packets;
        Ok((packets.fast, packets.slow))
    };
    if traffic.two_classes {
        lab.lan().ns.nft(TWO_CLASSES);
    }
    let (before, busy, (fast, slow)) = (run_time()?, busy_ns()?, packets()?);
    let iperf3 = || iperf::run(lab.lan(), lab.wan(), traffic.v6, traffic.load, traffic.streams, time);
    let arrived = if polled { pinned_in(&lab.lan().ns, Placement::TwoCpus, iperf3)?? } else { iperf3()? };
    let (ran, busy, now) = (run_time()?.since(before), busy_ns()? - busy, packets()?);
    if traffic.two_classes {
        lab.lan().ns.try_run("nft delete table inet classes")?;
    }
    let received = (arrived.packets_per_second * arrived.seconds).max(1.0);
    let (fast, slow) = (now.0 - fast, now.1 - slow);
    let status = shuntd.map(Shuntd::try_status).transpose()?;
    let (engine, reason) = status.map(|status| engine_of(&status, "r1")).transpose()?.unwrap_or_default();
    Ok(Row {
        traffic: traffic.name,
        path: name_of(path),
        cpu_ns: ran.ran_ns as f64 / received,
        machine_ns: busy / received,
        arrived,
        fast_share: shuntd.map(|_| fast as f64 / (fast + slow).max(1) as f64),
        engine,
        reason,
    })
}

/// CPU time of the machine so far, without idle time and waiting.
fn busy_ns() -> anyhow::Result<f64> {
    let text = fs::read_to_string("/proc/stat").context("/proc/stat")?;
    let numbers = text.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let ticks: Vec<f64> = numbers.filter_map(|word| word.parse().ok()).collect();
    // user nice system idle iowait irq softirq
    let busy = ticks.iter().take(7).sum::<f64>() - ticks.iter().skip(3).take(2).sum::<f64>();
    Ok(busy * 1e9 / USER_HZ)
}

/// Measures a router with generated frames, which reach XDP as a NIC's driver would pass them.
pub fn generated(lab: &Topology, paths: &[Path]) -> anyhow::Result<Vec<Row>> {
    lab.try_gather(false)?;
    lab.pin_neighbours();
    let mut path_rig = [PathRig::new(Path::Slow, Rig::new(lab, 1000, Placement::OneCpu)?)];
    let mut rows = Vec::new();
    for &path in paths {
        eprintln!("{}: {GENERATED} ...", name_of(path));
        path_rig[0].path = path;
        for sample in packets::measure(&mut path_rig, 5)? {
            let (engine, reason) = sample.engine.clone().unwrap_or_default();
            rows.push(Row {
                traffic: GENERATED,
                path: name_of(path),
                arrived: Arrived {
                    bits_per_second: sample.packets_per_second() * 8.0 * sample.frame_bytes as f64,
                    packets_per_second: sample.packets_per_second(),
                    seconds: sample.elapsed_ns as f64 / 1e9,
                },
                cpu_ns: sample.ns_per_packet()?,
                machine_ns: f64::NAN,
                fast_share: sample.fast_share,
                engine,
                reason,
            });
        }
    }
    Ok(rows)
}
