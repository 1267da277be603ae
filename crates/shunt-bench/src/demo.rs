//! The demo: real traffic through a home gateway, without Shunt and with it.

use crate::rig::{
    live::{self, ALONE, GENERATED, Row, TRAFFIC, name_of},
    path::Path,
    shunt,
    tcp_stream::{RENO, congestion_control},
};
use anyhow::ensure;
use shunt_testkit::{Topology, rulesets, tree::built};
use std::{fmt, process, time::Duration};

/// Shows the effect of Shunt on this machine.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Leave the network up with Shunt running, and print commands to look around.
    #[arg(long)]
    keep: bool,
    /// Measure each engine of Shunt too, not only the one that it chooses.
    #[arg(long)]
    all: bool,
}

const TIME: Duration = Duration::from_secs(2);
/// Number of rounds; in each, every path takes its turn.
const ROUNDS: usize = 3;
/// The CPU time of a packet, as a share of Linux's, from which on nothing was gained.
const NO_GAIN: f64 = 0.97;
/// The packets/s, as a multiple of Linux's, from which on they are named: hosts and router share the CPUs, so rates
/// vary.
const FASTER: f64 = 1.05;
/// The packets/s, or the CPU time of a packet, as a share of Linux's, from which on it got worse.
const SLOWER: f64 = 0.95;
const COSTLIER: f64 = 1.05;

/// Runs the demo.
pub fn run(options: &Options) -> anyhow::Result<()> {
    ensure!(
        nix::unistd::geteuid().is_root(),
        "the demo creates network namespaces and needs root: sudo make demo"
    );
    println!(
        "A LAN host, a router (masquerade, one DNAT, stateful filter with default drop) and a WAN host."
    );
    println!(
        "Through each path in turn, iperf3 sends from the LAN to the WAN for {} s, {ROUNDS} times. The lines are medians.\n",
        TIME.as_secs()
    );
    let mut lab = Topology::two_hosts_and_a_router();
    congestion_control(&lab, RENO)?;
    lab.router().nft(rulesets::HOME_GATEWAY);
    lab.try_gather(true)?;
    let mut runs = Vec::new();
    let engines: &[Path] = if options.all { &[Path::Auto, Path::Tc, Path::Xdp] } else { &[Path::Auto] };
    let paths = [&[Path::Slow], engines].concat();
    for round in 1..=ROUNDS {
        for &path in &paths {
            let engine = path.to_string();
            let shuntd = path.is_fast().then(|| shunt::start(lab.router(), &engine, "")).transpose()?;
            for traffic in TRAFFIC {
                eprintln!("{}, round {round}: {} ...", name_of(path), traffic.name);
                runs.push(live::measure(&lab, shuntd.as_ref(), path, traffic, TIME, true)?);
            }
            shuntd.map_or(Ok(()), shunt::stop)?;
        }
    }
    let mut rows = medians(runs);
    rows.extend(live::generated(&lab, &paths)?);
    print(&rows);
    println!("\n{}", summary(&rows));
    if options.keep {
        keep(&mut lab)?;
    } else {
        println!("\nThe network has been removed; --keep leaves it up.");
    }
    Ok(())
}

/// The run with the median CPU time of each traffic and path.
fn medians(mut runs: Vec<Row>) -> Vec<Row> {
    let mut rows = Vec::new();
    runs.sort_by(|a, b| (a.traffic, a.path).cmp(&(b.traffic, b.path)).then(a.cpu_ns.total_cmp(&b.cpu_ns)));
    for same in runs.chunk_by(|a, b| (a.traffic, a.path) == (b.traffic, b.path)) {
        rows.extend(same.get(same.len() / 2).cloned());
    }
    rows
}

fn print(rows: &[Row]) {
    println!(
        "{:13} {:11} {:>12} {:>12} {:>12} {:>10} {:>10} {:>7}",
        "traffic", "path", "rate", "packets/s", "router CPU", "of Linux's", "fast path", "engine"
    );
    for traffic in TRAFFIC.map(|traffic| traffic.name).into_iter().chain([GENERATED]) {
        let of = |row: &&Row| row.traffic == traffic;
        let alone = rows.iter().filter(of).find(|row| row.path == ALONE).map_or(f64::NAN, |row| row.cpu_ns);
        for row in rows.iter().filter(of) {
            println!(
                "{:13} {:11} {:>12} {:>12} {:>9.0} ns {:>9.0}% {:>10} {:>7}",
                traffic,
                row.path,
                Scaled(row.arrived.bits_per_second, "bit/s").to_string(),
                Scaled(row.arrived.packets_per_second, "/s").to_string(),
                row.cpu_ns,
                100.0 * row.cpu_ns / alone,
                row.fast_share.map_or("-".to_owned(), |share| format!("{:.1}%", 100.0 * share)),
                if row.engine.is_empty() { "-" } else { &row.engine },
            );
        }
    }
    println!(
        "
Router CPU: run time of the router's polling threads per packet that reaches the WAN host. TCP is counted in segments
of 1,448 bytes, which Linux gathers into aggregates. Hosts and router share this machine, so CPU time says more than rates.
On a veth, the xdp engine would have to convert each packet of iperf3 into an XDP frame, so Shunt chooses tc. A NIC's
driver has XDP frames from the start; the last lines, generated as XDP frames, show that case. --all measures every engine."
    );
}

/// What the rows of the chosen engine say, in words: what Shunt gained, and why where it did not. If rate or CPU time
/// got worse, both are named.
fn summary(rows: &[Row]) -> String {
    let mut text = "In short, with the engines that Shunt chose:\n".to_owned();
    for traffic in TRAFFIC.map(|traffic| traffic.name).into_iter().chain([GENERATED]) {
        let find = |path: &str| rows.iter().find(|row| row.traffic == traffic && row.path == path);
        let (Some(alone), Some(auto)) = (find(ALONE), find(name_of(Path::Auto))) else { continue };
        let (packets, cpu) =
            (auto.arrived.packets_per_second / alone.arrived.packets_per_second, auto.cpu_ns / alone.cpu_ns);
        text += &match (packets, cpu) {
            (packets, cpu) if packets <= SLOWER || cpu >= COSTLIER => {
                let [rate, before] =
                    [auto, alone].map(|row| Scaled(row.arrived.bits_per_second, "bit/s").to_string());
                let worse = if packets <= SLOWER { "slower" } else { "more CPU time" };
                format!(
                    "  {traffic}: {worse}: {rate} instead of {before}, for {:.0} % of the CPU time per packet; \
                     engine {}, because {}\n",
                    100.0 * cpu,
                    auto.engine,
                    auto.reason
                )
            }
            (_, cpu) if cpu >= NO_GAIN && traffic.starts_with("TCP") => format!(
                "  {traffic}: no clear gain: Linux gathers segments into aggregates, so little of its cost is per packet\n"
            ),
            (_, cpu) if cpu >= NO_GAIN => {
                format!("  {traffic}: no clear gain; engine {}, because {}\n", auto.engine, auto.reason)
            }
            (packets, cpu) if packets < FASTER => {
                format!(
                    "  {traffic}: {:.0} % of the CPU time per packet (engine {})\n",
                    100.0 * cpu,
                    auto.engine
                )
            }
            (packets, cpu) => format!(
                "  {traffic}: {packets:.1} times the packets/s, for {:.0} % of the CPU time per packet (engine {})\n",
                100.0 * cpu,
                auto.engine
            ),
        };
    }
    text + "The share differs by machine, NIC and ruleset; `shunt bench matrix` measures more on this machine."
}

fn keep(lab: &mut Topology) -> anyhow::Result<()> {
    lab.keep();
    let (lan, router, wan) = (lab.lan(), lab.router(), lab.wan());
    let shunt = format!("{} --instance demo-{}", built("shunt")?.display(), process::id());
    let command = |words: &str| format!("ip netns exec {} {shunt} {words}", router.name());
    router.try_run(&format!("{shunt} up --engine auto --port r0 --port r1 --config /dev/null"))?;
    println!("\nThe network is up, with Shunt's engine auto. As root:");
    println!("  {}", command("status"));
    println!("  {}", command("flows"));
    println!("  ip netns exec {} nft list ruleset", router.name());
    println!("  ip netns exec {} iperf3 -s -D", wan.ns.name());
    println!("  ip netns exec {} iperf3 -c {} -t 10", lan.ns.name(), wan.v4);
    println!("To remove it:");
    println!("  {}", command("down"));
    for name in [lan.ns.name(), router.name(), wan.ns.name()] {
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
    use crate::rig::iperf::Arrived;

    fn row(traffic: &'static str, path: &'static str, packets_per_second: f64, cpu_ns: f64) -> Row {
        Row {
            traffic,
            path,
            arrived: Arrived { bits_per_second: 1e3 * packets_per_second, packets_per_second, seconds: 2.0 },
            cpu_ns,
            machine_ns: f64::NAN,
            fast_share: None,
            engine: "tc".to_owned(),
            reason: "a qdisc shapes".to_owned(),
        }
    }

    #[test]
    fn the_summary_says_what_was_gained_and_why_not() {
        let auto = name_of(Path::Auto);
        let rows = [
            row("TCP, IPv4", ALONE, 6e5, 1000.0),
            row("TCP, IPv4", auto, 6.1e5, 700.0),
            row("TCP, IPv6", ALONE, 6e5, 1000.0),
            row("TCP, IPv6", auto, 6e5, 990.0),
            row("UDP, IPv4", ALONE, 1e5, 3000.0),
            row("UDP, IPv4", auto, 1.2e5, 2950.0),
            row(GENERATED, ALONE, 5e5, 1500.0),
            row(GENERATED, auto, 15e5, 150.0),
            row("UDP, IPv6", ALONE, 111e3, 1000.0),
            row("UDP, IPv6", auto, 90e3, 840.0),
        ];
        let text = summary(&rows);
        for line in [
            "  TCP, IPv4: 70 % of the CPU time per packet (engine tc)\n",
            "  UDP, IPv4: no clear gain; engine tc, because a qdisc shapes\n",
            "  TCP, IPv6: no clear gain: Linux gathers segments into aggregates, so little of its cost is per packet\n",
            "  UDP, IPv6: slower: 90.0 Mbit/s instead of 111 Mbit/s, for 84 % of the CPU time per packet; engine tc, because a \
             qdisc shapes\n",
            "  UDP, 1k flows: 3.0 times the packets/s, for 10 % of the CPU time per packet (engine tc)\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
        let costlier =
            summary(&[row("UDP, IPv4", ALONE, 1e5, 1000.0), row("UDP, IPv4", auto, 1.3e5, 1200.0)]);
        let line = "UDP, IPv4: more CPU time: 130 Mbit/s instead of 100 Mbit/s, for 120 % of the CPU time per packet; engine tc";
        assert!(costlier.contains(line) && !costlier.contains("UDP, IPv6"), "{costlier}");
    }

    #[test]
    fn numbers_keep_three_digits() {
        let text = |value| Scaled(value, "bit/s").to_string();
        assert_eq!(text(9_410_000_000.0), "9.41 Gbit/s");
        assert_eq!(text(94_100_000.0), "94.1 Mbit/s");
        assert_eq!(text(941.0), "941 bit/s");
    }
}
