//! Checks of counters, flows and memory while the traffic is paused.

use crate::{NetNs, Shuntd, wait_for};
use serde_json::Value;
use shunt_api::{FlowState, Status};
use std::{collections::BTreeMap, fs, time::Duration};

/// How long counters may take to agree, and stale flows to end.
const PATIENCE: Duration = Duration::from_secs(3);

/// Numbers of received packets by port.
pub(super) type Counts = BTreeMap<String, u64>;

/// Memory and descriptors of a daemon.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    pub(super) rss_kb: u64,
    pub(super) descriptors: usize,
}

impl Usage {
    pub(super) fn read(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        Self {
            rss_kb: rss.trim().trim_end_matches(" kB").parse().unwrap_or_default(),
            descriptors: fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count),
        }
    }

    /// A description of the growth since `before`, if there is any.
    pub(super) fn growth_since(self, before: Self) -> Option<String> {
        // An allocator keeps some freed memory; a leak of a few hundred bytes per change soon exceeds this.
        let grown = self.rss_kb > before.rss_kb + before.rss_kb / 4 + 2048;
        // A request on the control socket may be open.
        let more = self.descriptors > before.descriptors + 2;
        (grown || more).then(|| format!("from {before:?} to {self:?}"))
    }
}

/// Packets received by each port, as the interface counts them and as the daemon does.
fn counts(router: &NetNs, shuntd: &Shuntd) -> (Counts, Counts) {
    let status = shuntd.status();
    let links: Vec<Value> = serde_json::from_str(&router.run("ip -s -j link")).unwrap_or_default();
    let received = |name: &str| {
        let link = links.iter().find(|link| link["ifname"] == name)?;
        link["stats64"]["rx"]["packets"].as_u64()
    };
    let by_link =
        status.ports.iter().filter_map(|port| Some((port.name.clone(), received(&port.name)?))).collect();
    (by_link, by_port(&status))
}

/// As [`counts`], once two readings in a row are equal: a packet between the readings of both parts would be in one
/// only.
pub(super) fn settled_counts(router: &NetNs, shuntd: &Shuntd) -> (Counts, Counts) {
    let mut last = counts(router, shuntd);
    let settled = wait_for(PATIENCE, || {
        let now = counts(router, shuntd);
        let before = std::mem::replace(&mut last, now);
        (before == last).then_some(())
    });
    if settled.is_none() {
        eprintln!("soak: counters do not settle: {last:?}");
    }
    last
}

fn by_port(status: &Status) -> Counts {
    let sum = |port: &shunt_api::PortStatus| port.packets.all();
    status.ports.iter().map(|port| (port.name.clone(), sum(port))).collect()
}

/// Compares how the interface's counts and the daemon's have grown; returns both if they differ.
pub(super) fn disagreement(router: &NetNs, shuntd: &Shuntd, before: &(Counts, Counts)) -> Option<String> {
    let mut difference = String::new();
    let agreed = wait_for(PATIENCE, || {
        let now = counts(router, shuntd);
        let grown = |now: &Counts, before: &Counts| -> Counts {
            now.iter().map(|(port, n)| (port.clone(), n - before.get(port).unwrap_or(&0))).collect()
        };
        let (by_link, by_port) = (grown(&now.0, &before.0), grown(&now.1, &before.1));
        difference = format!("interfaces {by_link:?}, ports {by_port:?}");
        (by_link == by_port).then_some(())
    });
    agreed.is_none().then_some(difference)
}

/// The tuples of active flows that have no conntrack entry.
pub(super) fn stale(router: &NetNs, shuntd: &Shuntd) -> Vec<String> {
    let mut stale = Vec::new();
    let none = wait_for(PATIENCE, || {
        let flows = shuntd.flows();
        let known = router.run("conntrack -L -f ipv4 2>/dev/null; conntrack -L -f ipv6 2>/dev/null");
        stale = flows
            .iter()
            .filter(|flow| flow.state == FlowState::Active)
            .map(|flow| {
                let tuple = &flow.orig;
                format!("src={} dst={} sport={} dport={} ", tuple.src, tuple.dst, tuple.sport, tuple.dport)
            })
            .filter(|tuple| !known.contains(tuple.as_str()))
            .collect();
        stale.is_empty().then_some(())
    });
    if none.is_some() { Vec::new() } else { stale }
}
