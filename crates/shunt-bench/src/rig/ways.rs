//! Checks which path packets have taken through a router.

use super::path::Path;
use anyhow::{Context, ensure};
use shunt_testkit::NetNs;

/// The router's counters since it was made.
#[derive(Debug, Clone, Copy)]
pub struct Ways {
    /// Packets forwarded by the IP layer in either family: the slow path.
    forwarded: u64,
    /// Packets redirected by an XDP program at r0.
    redirected: u64,
}

/// Share of the delivered packets that may have taken another path.
const ASTRAY: f64 = 0.02;

impl Ways {
    pub fn read(router: &NetNs) -> anyhow::Result<Self> {
        let said = router.try_run("cat /proc/net/snmp /proc/net/snmp6 && ethtool -S r0")?;
        Self::parse(&said)
            .context("unexpected format of the kernel's counters in /proc/net/snmp, snmp6 or ethtool -S")
    }

    fn parse(said: &str) -> Option<Self> {
        let mut ip = said.lines().filter_map(|line| line.strip_prefix("Ip: "));
        let nth = ip.next()?.split_whitespace().position(|name| name == "ForwDatagrams")?;
        let v4: u64 = ip.next()?.split_whitespace().nth(nth)?.parse().ok()?;
        let number = |name: &str| -> Option<u64> {
            let line = said.lines().find_map(|line| line.trim().strip_prefix(name))?;
            line.trim_start_matches(':').trim().parse().ok()
        };
        let v6 = number("Ip6OutForwDatagrams")?;
        Some(Self { forwarded: v4 + v6, redirected: number("rx_queue_0_xdp_redirect")? })
    }

    /// Fails unless nearly all packets delivered since `earlier` took this path.
    pub fn demand(self, path: Path, earlier: Self, delivered: u64) -> anyhow::Result<()> {
        let share = |now: u64, before: u64| (now - before) as f64 / delivered.max(1) as f64;
        let forwarded = share(self.forwarded, earlier.forwarded);
        let redirected = share(self.redirected, earlier.redirected);
        let wanted = (f64::from(path.is_slow()), f64::from(path.is_redirect()));
        ensure!(
            (forwarded - wanted.0).abs() <= ASTRAY && (redirected - wanted.1).abs() <= ASTRAY,
            "packets took another path: {:.0} % were forwarded by IP and {:.0} % redirected by XDP",
            forwarded * 100.0,
            redirected * 100.0
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "Ip: Forwarding DefaultTTL ForwDatagrams InDelivers\nIp: 1 64 700 9\nIcmp: InMsgs\nIcmp: 0\n\
        Ip6InReceives                   \t3\nIp6OutForwDatagrams             \t60\nNIC statistics:\n     peer_ifindex: 2\n     \
        rx_queue_0_xdp_redirect: 5\n";

    #[test]
    fn packets_are_where_they_were_counted() {
        let start = Ways { forwarded: 0, redirected: 0 };
        let now = Ways::parse(SAID).unwrap();
        assert_eq!((now.forwarded, now.redirected), (760, 5));
        assert!(now.demand(Path::Slow, start, 760).is_ok());
        assert!(now.demand(Path::Slow, start, 800).is_err());
        let said = now.demand(Path::XdpForwardFib, start, 760).unwrap_err().to_string();
        assert!(said.contains("100 % were forwarded by IP and 1 % redirected"), "{said}");
        assert!(Ways::parse("Ip: 1 2").is_none());
    }
}
