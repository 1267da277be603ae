//! What `shunt top` shows: as text for `--once`, and on a terminal.

mod pane;
mod screen;
mod state;
mod table;

use crate::{
    commands::{
        hosts::totals::HostTotal,
        listed::{Listed, UNCOUNTED},
        status::{costs, savings},
    },
    render::{Format, Text, columns::align, units},
};
pub(crate) use pane::{Order, Pane};
pub(crate) use screen::{Look, draw};
use serde::Serialize;
use shunt_api::{Engine, FlowCounts, OwnCosts, Savings, SlowCause};
pub(crate) use state::{Detail, View};
use std::collections::BTreeMap;
pub(crate) use table::{Item, Table};

/// The most fast connections that are read; more than anybody reads on a screen.
pub(crate) const MOST: usize = 2000;

/// The state of an instance, with rates between two samples.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(crate) struct Top {
    /// The name of the instance.
    pub(crate) instance: String,
    /// Seconds since the daemon started.
    pub(crate) uptime_s: u64,
    /// The present epoch.
    pub(crate) epoch: u32,
    /// Seconds between the two samples.
    pub(crate) over_s: f64,
    /// The numbers of flows in the table.
    pub(crate) flows: FlowCounts,
    /// What Shunt itself costs; none if the daemon is older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) costs: Option<OwnCosts>,
    /// What the fast path saves; none if the daemon is older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) savings: Option<Savings>,
    /// All ports together.
    pub(crate) rates: Rates,
    /// The connections, fast and slow, the largest rate first. Rates of fast ones are those between the samples; those
    /// of slow ones are measured over a part of that time.
    pub(crate) connections: Vec<Listed>,
    /// Whether conntrack counts packets; otherwise slow connections have no rates.
    pub(crate) counted: bool,
    /// The hosts at the ends of the connections, the largest rate first.
    pub(crate) hosts: Vec<HostTotal>,
    /// The ports, sorted by name.
    pub(crate) ports: Vec<PortRate>,
    /// The lasting causes that keep traffic slow.
    pub(crate) slow_causes: Vec<SlowCause>,
    /// The main reasons for slow packets, the most frequent between the samples first.
    pub(crate) slow_reasons: Vec<SlowReason>,
    /// The changes since `shunt top` started, the latest first.
    pub(crate) changes: Vec<Change>,
    /// How often the epoch moved since the daemon started, by cause.
    pub(crate) epoch_moves: BTreeMap<String, u64>,
    /// Packets since the daemon started that took the slow path because a change had made their action out of date.
    pub(crate) stale_packets: u64,
    /// The fast share of packets between each two samples, oldest first; none without traffic.
    pub(crate) shares: Vec<Option<f64>>,
}

/// Packets and bits per second that arrived.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(crate) struct Rates {
    /// Packets per second that the fast path sent.
    pub(crate) fast_pps: u64,
    /// Packets per second that took the slow path.
    pub(crate) slow_pps: u64,
    /// Packets per second that the fast path dropped.
    pub(crate) dropped_pps: u64,
    /// Bits per second that the fast path sent, counted from the L3 header on.
    pub(crate) fast_bps: u64,
    /// Bits per second that took the slow path, counted from the L3 header on.
    pub(crate) slow_bps: u64,
    /// The share of packets on the fast path, from 0 to 1; none without traffic.
    pub(crate) fast_share: Option<f64>,
}

/// A port with its rates.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(crate) struct PortRate {
    /// The present name of the device.
    pub(crate) name: String,
    /// The engine that sends packets out of this port.
    pub(crate) engine: Engine,
    /// Why this engine was chosen, in one sentence.
    pub(crate) engine_reason: String,
    /// Whether the device is up and has a carrier.
    pub(crate) up: bool,
    /// What arrived through the port.
    #[serde(flatten)]
    pub(crate) rates: Rates,
}

/// A reason for slow packets, with its rate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(crate) struct SlowReason {
    /// The name of the reason.
    pub(crate) reason: String,
    /// Packets per second between the samples.
    pub(crate) rate_pps: u64,
    /// Packets since the daemon started.
    pub(crate) packets: u64,
    /// The meaning of the reason, in one sentence.
    pub(crate) meaning: String,
    /// What the operator can do about it.
    pub(crate) remedy: String,
}

/// Changes of Linux between two samples, and what they cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(crate) struct Change {
    /// The number of this change, from 1 on.
    pub(crate) number: u64,
    /// Seconds since the change was seen.
    pub(crate) ago_s: u64,
    /// The causes, with their numbers if they are more than 1: `route, neighbour 3`.
    pub(crate) causes: String,
    /// Packets that took the slow path because their action was out of date, in the ten seconds after the change and
    /// before the next one.
    pub(crate) stale_packets: u64,
    /// The lowest fast share between two samples in this time, from 0 to 1; none without traffic.
    pub(crate) lowest_share: Option<f64>,
}

impl Rates {
    /// Bits per second, fast and slow.
    const fn bps(&self) -> u64 {
        self.fast_bps.saturating_add(self.slow_bps)
    }
}

impl Text for Top {
    fn text(&self, _: Format) -> String {
        describe(self)
    }
}

/// The text of `shunt top --once`.
fn describe(top: &Top) -> String {
    let Top { rates, flows, .. } = top;
    let mut text = format!(
        "instance {}, up {}, epoch {}, rates over {:.1} s\n",
        top.instance,
        units::time(top.uptime_s),
        top.epoch,
        top.over_s
    );
    text += &align(
        "<>",
        &[
            ["fast", &bits(rates.fast_bps), &packets(rates.fast_pps), &share(rates.fast_share)],
            ["slow", &bits(rates.slow_bps), &packets(rates.slow_pps), ""],
            ["dropped", "", &packets(rates.dropped_pps), ""],
        ]
        .map(|row| row.map(str::to_owned).to_vec()),
    );
    text +=
        &format!("flows active {}, static {}, max per family {}\n", flows.active, flows.static_, flows.max);
    text += &savings::lines(top.savings.as_ref(), true);
    text += &costs::lines(top.costs.as_ref(), true);
    let connections = top.connections.iter().map(|connection| {
        [0, 1, 2, 5, 3, 4, 7]
            .map(|column| match column {
                5 => connection.states_and_reason(),
                column => Item::Connection(connection).cell(column),
            })
            .to_vec()
    });
    text += &section("<<<<>", "connection proto engine state bit/s packets/s age", connections);
    if top.flows.active > MOST as u64 {
        text += &format!("only the {MOST} busiest fast connections are read, also for hosts\n");
    }
    if !top.counted {
        text += UNCOUNTED;
    }
    let hosts = top.hosts.iter().map(|host| {
        let name = host.name.as_deref().unwrap_or("-");
        let counted = [host.connections.to_string(), bits(host.sent_bps), bits(host.received_bps)];
        [host.addr.to_string(), name.to_owned()]
            .into_iter()
            .chain(counted)
            .chain([packets(host.rate_pps)])
            .collect()
    });
    text += &section("<<>", "host name connections sent received packets/s", hosts);
    let ports = top.ports.iter().map(|port| {
        let PortRate { name, engine, up, rates, .. } = port;
        let link = if *up { "up" } else { "down" };
        [name.clone(), engine.to_string(), link.to_owned(), bits(rates.bps()), packets(rates.fast_pps)]
            .into_iter()
            .chain([packets(rates.slow_pps), packets(rates.dropped_pps), share(rates.fast_share)])
            .collect()
    });
    text += &section("<<<>", "port engine link bit/s fast slow dropped share", ports);
    text += &slow(top);
    text += &changes(top);
    text
}

fn slow(top: &Top) -> String {
    let mut text = String::new();
    if !top.slow_causes.is_empty() {
        text.push('\n');
    }
    for SlowCause { what, remedy } in &top.slow_causes {
        text += &format!("slow: {what}\n    {remedy}\n");
    }
    let reasons = top.slow_reasons.iter().map(|slow| {
        let SlowReason { reason, rate_pps, packets: total, meaning, .. } = slow;
        vec![reason.clone(), packets(*rate_pps), total.to_string(), meaning.clone()]
    });
    text + &section("<>><", "slow packets/s packets meaning", reasons)
}

fn changes(top: &Top) -> String {
    if top.epoch_moves.is_empty() {
        return String::new();
    }
    let changes = top.changes.iter().map(|change| {
        let Change { ago_s, causes, stale_packets, lowest_share, .. } = change;
        vec![
            format!("{} ago", units::time(*ago_s)),
            stale_packets.to_string(),
            share(*lowest_share),
            causes.clone(),
        ]
    });
    format!(
        "\n{}\n{}",
        since_start(top),
        section("<>><", "change stale-packets lowest-share causes", changes)
    )
    .trim_end_matches('\n')
    .to_owned()
        + "\n"
}

/// `changes since the start: link 12, ruleset 65; 1008 packets were stale`.
fn since_start(top: &Top) -> String {
    let causes: Vec<String> =
        top.epoch_moves.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
    let causes = if causes.is_empty() { "none".to_owned() } else { causes.join(", ") };
    format!("changes since the start: {causes}; stale packets: {}", top.stale_packets)
}

/// A blank line and a table; empty without rows. A hyphen in a title stands for a blank.
fn section(sides: &str, titles: &str, rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = vec![titles.split(' ').map(|title| title.replace('-', " ")).collect()];
    table.extend(rows);
    if table.len() == 1 { String::new() } else { format!("\n{}", align(sides, &table)) }
}

/// A fast share, or `-` without traffic.
fn share(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), units::percent)
}

fn bits(rate: u64) -> String {
    units::bits_per_second(rate)
}

fn packets(rate: u64) -> String {
    units::packets_per_second(rate)
}

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;
