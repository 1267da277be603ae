//! The demo: real traffic through a home gateway, without Shunt and with it.

use crate::{
    bench::{
        packets::{self, PathRig},
        path::Path,
        router_rig::{Placement, Rig, threads},
    },
    iperf::{self, Arrived},
    napi::RunTime,
    shunt::Shunt,
};
use anyhow::ensure;
use shunt_lab::iperf::Load;
use shunt_testkit::{Topology, rulesets};
use std::{fmt, time::Duration};

/// Shows the effect of Shunt on this machine.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Leave the network up with Shunt running, and print commands to look around.
    #[arg(long)]
    keep: bool,
}

/// A kind of traffic.
#[derive(Debug, Clone, Copy)]
struct Traffic {
    name: &'static str,
    v6: bool,
    load: Load,
}

/// The figures of a kind of traffic on one path.
#[derive(Debug)]
struct Row {
    traffic: &'static str,
    path: &'static str,
    arrived: Arrived,
    cpu_ns: f64,
    fast_share: Option<f64>,
}

const TRAFFIC: [Traffic; 4] = [
    Traffic { name: "TCP, IPv4", v6: false, load: Load::Tcp },
    Traffic { name: "TCP, IPv6", v6: true, load: Load::Tcp },
    Traffic { name: "UDP, IPv4", v6: false, load: Load::Udp(64) },
    Traffic { name: "UDP, IPv6", v6: true, load: Load::Udp(64) },
];
/// Name of the line with generated 64-byte XDP frames.
const GENERATED: &str = "UDP, 1k flows";
const PATHS: [&str; 3] = ["Linux alone", "Shunt tc", "Shunt xdp"];
const TIME: Duration = Duration::from_secs(2);

/// Runs the demo.
pub fn run(options: &Options) -> anyhow::Result<()> {
    ensure!(
        nix::unistd::geteuid().is_root(),
        "the demo creates network namespaces and needs root: sudo make demo"
    );
    println!(
        "A LAN host, a router (masquerade, one DNAT, stateful filter with default drop) and a WAN host."
    );
    println!("Each line is {} s of iperf3 from the LAN to the WAN.\n", TIME.as_secs());
    let mut lab = Topology::two_hosts_and_a_router();
    lab.router().nft(rulesets::HOME_GATEWAY);
    lab.try_gather(true)?;
    let mut rows = Vec::new();
    for path in PATHS {
        let engine = path.strip_prefix("Shunt ");
        let shunt = engine.map(|engine| Shunt::up(lab.router(), engine, "")).transpose()?;
        for traffic in TRAFFIC {
            eprintln!("{path}: {} ...", traffic.name);
            rows.push(measure(&lab, shunt.as_ref(), path, traffic)?);
        }
        if let Some(shunt) = shunt {
            shunt.down()?;
        }
    }
    rows.extend(generated(&lab)?);
    print(&rows);
    if options.keep {
        keep(&mut lab)?;
    } else {
        println!("\nThe network has been removed; --keep leaves it up.");
    }
    Ok(())
}

fn measure(
    lab: &Topology,
    shunt: Option<&Shunt<'_>>,
    path: &'static str,
    traffic: Traffic,
) -> anyhow::Result<Row> {
    let (router, _hosts) = threads(lab, Placement::TwoCpus)?;
    let run_time = || router.iter().try_fold(RunTime::default(), |sum, t| anyhow::Ok(sum + t.run_time()?));
    let packets = || -> anyhow::Result<(u64, u64)> {
        let Some(shunt) = shunt else { return Ok((0, 0)) };
        Ok((shunt.number("/packets/fast")?, shunt.number("/packets/slow")?))
    };
    let (time, (fast, slow)) = (run_time()?, packets()?);
    let arrived = iperf::run(lab.lan(), lab.wan(), traffic.v6, traffic.load, TIME)?;
    let (time, now) = (run_time()?.since(time), packets()?);
    let (fast, slow) = (now.0 - fast, now.1 - slow);
    Ok(Row {
        traffic: traffic.name,
        path,
        cpu_ns: time.ran_ns as f64 / (arrived.packets_per_second * arrived.seconds).max(1.0),
        arrived,
        fast_share: shunt.map(|_| fast as f64 / (fast + slow).max(1) as f64),
    })
}

/// Measures the same router with generated frames, which reach XDP as a NIC's driver would pass them.
fn generated(lab: &Topology) -> anyhow::Result<Vec<Row>> {
    lab.try_gather(false)?;
    lab.pin_neighbours();
    let mut path_rig = [PathRig::new(Path::Slow, Rig::new(lab, 1000, Placement::OneCpu)?)];
    let mut rows = Vec::new();
    for (path, name) in [Path::Slow, Path::Tc, Path::Xdp].into_iter().zip(PATHS) {
        eprintln!("{name}: {GENERATED} ...");
        path_rig[0].path = path;
        rows.extend(packets::measure(&mut path_rig, 5)?.into_iter().map(|sample| Row {
            traffic: GENERATED,
            path: name,
            arrived: Arrived {
                bits_per_second: sample.packets_per_second() * 8.0 * sample.frame_bytes as f64,
                packets_per_second: sample.packets_per_second(),
                seconds: sample.elapsed_ns as f64 / 1e9,
            },
            cpu_ns: sample.ns_per_packet(),
            fast_share: sample.fast_share,
        }));
    }
    Ok(rows)
}

fn print(rows: &[Row]) {
    println!(
        "{:13} {:11} {:>12} {:>12} {:>12} {:>10} {:>10}",
        "traffic", "path", "rate", "packets/s", "router CPU", "of Linux's", "fast path"
    );
    for traffic in TRAFFIC.map(|traffic| traffic.name).into_iter().chain([GENERATED]) {
        let of = |row: &&Row| row.traffic == traffic;
        let alone = rows.iter().find(of).map_or(f64::NAN, |row| row.cpu_ns);
        for row in rows.iter().filter(of) {
            println!(
                "{:13} {:11} {:>12} {:>12} {:>9.0} ns {:>9.0}% {:>10}",
                traffic,
                row.path,
                Scaled(row.arrived.bits_per_second, "bit/s").to_string(),
                Scaled(row.arrived.packets_per_second, "/s").to_string(),
                row.cpu_ns,
                100.0 * row.cpu_ns / alone,
                row.fast_share.map_or("-".to_owned(), |share| format!("{:.1}%", 100.0 * share)),
            );
        }
    }
    println!(
        "
Router CPU: run time of the router's polling threads per received packet. TCP is counted in segments of 1,448 bytes,
which Linux gathers into aggregates. Hosts and router share this machine, so CPU time says more than rates.
On a veth, the xdp engine pays for converting each packet of iperf3 into an XDP frame. A NIC's driver has XDP frames
from the start; the last lines, generated as XDP frames, show that case."
    );
}

fn keep(lab: &mut Topology) -> anyhow::Result<()> {
    lab.keep();
    let mut shunt = Shunt::up(lab.router(), "auto", "")?;
    shunt.keep();
    let (lan, wan) = (lab.lan(), lab.wan());
    println!("\nThe network is up, with Shunt's engine auto. As root:");
    println!("  {}", shunt.command("status"));
    println!("  {}", shunt.command("flows"));
    println!("  ip netns exec {} nft list ruleset", lab.router().name());
    println!("  ip netns exec {} iperf3 -s -D", wan.ns.name());
    println!("  ip netns exec {} iperf3 -c {} -t 10", lan.ns.name(), wan.v4);
    println!("To remove it:");
    println!("  {}", shunt.command("down"));
    for name in [lan.ns.name(), lab.router().name(), wan.ns.name()] {
        println!("  ip netns del {name}");
    }
    Ok(())
}

/// A number with an SI prefix and three digits.
struct Scaled(f64, &'static str);

impl fmt::Display for Scaled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, prefix) = match self.0 {
            v if v >= 1e9 => (v / 1e9, "G"),
            v if v >= 1e6 => (v / 1e6, "M"),
            v if v >= 1e3 => (v / 1e3, "k"),
            v => (v, ""),
        };
        let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
        write!(f, "{value:.digits$} {prefix}{}", self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        let text = |value| Scaled(value, "bit/s").to_string();
        assert_eq!(text(9_410_000_000.0), "9.41 Gbit/s");
        assert_eq!(text(94_100_000.0), "94.1 Mbit/s");
        assert_eq!(text(941.0), "941 bit/s");
    }
}
