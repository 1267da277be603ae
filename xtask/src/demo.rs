//! The demo: real traffic through a home gateway, without Shunt and with it.

use crate::{
    bench::path::Path,
    live::{self, ALONE, GENERATED, Row, TRAFFIC, name_of},
    shunt::Shunt,
};
use anyhow::ensure;
use shunt_testkit::{Topology, rulesets};
use std::{fmt, time::Duration};

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
    let engines: &[Path] = if options.all { &[Path::Auto, Path::Tc, Path::Xdp] } else { &[Path::Auto] };
    let paths = [&[Path::Slow], engines].concat();
    for &path in &paths {
        let engine = path.to_string();
        let shunt = path.is_fast().then(|| Shunt::up(lab.router(), &engine, "")).transpose()?;
        for traffic in TRAFFIC {
            eprintln!("{}: {} ...", name_of(path), traffic.name);
            rows.push(live::measure(&lab, shunt.as_ref(), path, traffic, TIME)?);
        }
        if let Some(shunt) = shunt {
            shunt.down()?;
        }
    }
    rows.extend(live::generated(&lab, &paths)?);
    print(&rows);
    if options.keep {
        keep(&mut lab)?;
    } else {
        println!("\nThe network has been removed; --keep leaves it up.");
    }
    Ok(())
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
Router CPU: run time of the router's polling threads per received packet. TCP is counted in segments of 1,448 bytes,
which Linux gathers into aggregates. Hosts and router share this machine, so CPU time says more than rates.
On a veth, the xdp engine would have to convert each packet of iperf3 into an XDP frame, so Shunt chooses tc. A NIC's
driver has XDP frames from the start; the last lines, generated as XDP frames, show that case. --all measures every engine."
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
