//! A sample of the daemon's counters, and the rates between two of them.

use crate::{
    client::control::Client,
    commands::{
        listed::{Listed, listed},
        top::view::{MOST, PortRate, Rates, SlowReason},
    },
};
use shunt_api::{
    ByteTotals, Connection, Direction, PortPackets, PortStatus, Proto, SlowTable, Status, TopReason, Tuple,
};
use std::{
    cmp::Reverse,
    collections::HashMap,
    time::{Duration, Instant},
};

/// The state of the daemon and its connections, read at one time.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    pub(super) at: Instant,
    pub(super) status: Status,
    pub(super) connections: Vec<Connection>,
    pub(super) slow: SlowTable,
}

/// How long the daemon measures rates: it lists only the connections with the highest ones.
const RATE_TIME: Duration = Duration::from_millis(200);

/// The identity of a flow: protocol, tuple, port and VLAN tags of arriving packets.
type FlowKey<'s> = (Proto, Tuple, &'s str, &'s [u16]);

/// The counters of a flow.
#[derive(Debug, Clone, Copy, Default)]
struct FlowCounters {
    packets: u64,
    bytes: u64,
    age_s: u64,
}

impl Sample {
    /// `explained` is the number of slow connections whose reasons are wanted, those with the highest rates.
    pub(super) async fn take(client: &Client, explained: usize) -> anyhow::Result<Self> {
        // While somebody looks, the daemon measures its programs.
        let status = client.get("/v1/status?measure=true").await?;
        let over = RATE_TIME.as_millis();
        let slow = format!("/v1/slow?rate_over_ms={over}&because={explained}");
        let fast = format!("/v1/flows?rate_over_ms={over}&most={MOST}");
        let (slow, connections) = tokio::try_join!(client.get(&slow), client.get(&fast))?;
        Ok(Self { at: Instant::now(), status, connections, slow })
    }
}

/// The time between two samples, which is not zero.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span(Duration);

impl Span {
    pub(super) fn between(before: &Sample, now: &Sample) -> Self {
        Self(now.at.saturating_duration_since(before.at).max(Duration::from_millis(1)))
    }

    pub(super) const fn seconds(self) -> f64 {
        self.0.as_secs_f64()
    }

    fn per_second(self, count: u64) -> u64 {
        (count as f64 / self.seconds()).round() as u64
    }
}

/// The connections of the later sample, fast and slow, the largest rate first.
pub(super) fn all_connections(before: &Sample, now: &Sample) -> Vec<Listed> {
    let mut all = listed(connections(before, now), now.slow.clone());
    all.sort_by_cached_key(|c| (Reverse((c.counts().rate_bps, c.counts().rate_pps)), c.protocol(), c.orig()));
    all
}

/// The connections of the later sample with their rates between the samples, the largest first.
pub(super) fn connections(before: &Sample, now: &Sample) -> Vec<Connection> {
    let span = Span::between(before, now);
    let mut earlier: HashMap<FlowKey<'_>, FlowCounters> = HashMap::new();
    for connection in &before.connections {
        for flow in &connection.directions {
            let sum = earlier.entry(key(connection.proto, flow)).or_default();
            sum.packets += flow.packets;
            sum.bytes += flow.bytes;
            sum.age_s = sum.age_s.max(flow.age_s);
        }
    }
    let mut measured = now.connections.clone();
    for connection in &mut measured {
        (connection.rate_pps, connection.rate_bps) = (0, 0);
        for flow in &mut connection.directions {
            // Without an earlier value, the rate is that which the daemon has measured.
            if let Some((packets, bytes)) = increase(earlier.get(&key(connection.proto, flow)), flow, span) {
                flow.rate_pps = span.per_second(packets);
                flow.rate_bps = span.per_second(bytes.saturating_mul(8));
            }
            connection.rate_pps += flow.rate_pps;
            connection.rate_bps += flow.rate_bps;
        }
    }
    measured.sort_by_cached_key(|c| (Reverse((c.rate_bps, c.rate_pps)), c.proto, c.orig));
    measured
}

fn key(proto: Proto, flow: &Direction) -> FlowKey<'_> {
    (proto, flow.tuple, &flow.in_port, &flow.in_vlans)
}

/// Packets and bytes of a flow since the earlier sample; `None` if it was there and is not in the sample, which has the
/// busiest only.
fn increase(before: Option<&FlowCounters>, flow: &Direction, span: Span) -> Option<(u64, u64)> {
    match before {
        Some(before) if flow.packets >= before.packets && flow.bytes >= before.bytes => {
            Some((flow.packets - before.packets, flow.bytes - before.bytes))
        }
        // A new flow, or one in place of another: all its packets are new if it was learned after the earlier sample.
        // Ages are in whole seconds.
        _ if flow.age_s as f64 <= span.seconds() + 1.0 => Some((flow.packets, flow.bytes)),
        Some(_) => Some((0, 0)),
        None => None,
    }
}

/// The ports with their rates, sorted by name.
pub(super) fn ports(before: &Status, now: &Status, span: Span) -> Vec<PortRate> {
    let rate = |port: &PortStatus| {
        let earlier = before.ports.iter().find(|earlier| earlier.ifindex == port.ifindex);
        let (packets, bytes) = earlier.map_or_else(Default::default, |port| (port.packets, port.bytes));
        let PortStatus { name, engine, engine_reason, up, .. } = port.clone();
        let rates = rates(&since(&packets, &bytes, port), span);
        PortRate { name, engine, engine_reason, up, rates }
    };
    now.ports.iter().map(rate).collect()
}

/// Packets and bytes of all ports between the samples. The totals of the status would jump when a port comes or goes.
pub(super) fn total(before: &Status, now: &Status, span: Span) -> Rates {
    let mut sum = Increase::default();
    for port in &now.ports {
        let earlier = before.ports.iter().find(|earlier| earlier.ifindex == port.ifindex);
        let (packets, bytes) = earlier.map_or_else(Default::default, |port| (port.packets, port.bytes));
        let increase = since(&packets, &bytes, port);
        sum.fast += increase.fast;
        sum.slow += increase.slow;
        sum.dropped += increase.dropped;
        sum.fast_bytes += increase.fast_bytes;
        sum.slow_bytes += increase.slow_bytes;
    }
    rates(&sum, span)
}

/// Increase of the counters between two samples.
#[derive(Debug, Default)]
struct Increase {
    fast: u64,
    slow: u64,
    dropped: u64,
    fast_bytes: u64,
    slow_bytes: u64,
}

fn since(packets: &PortPackets, bytes: &ByteTotals, now: &PortStatus) -> Increase {
    Increase {
        fast: counted(packets.fast(), now.packets.fast()),
        slow: counted(packets.slow, now.packets.slow),
        dropped: counted(packets.dropped, now.packets.dropped),
        fast_bytes: counted(bytes.fast, now.bytes.fast),
        slow_bytes: counted(bytes.slow, now.bytes.slow),
    }
}

/// The increase of a counter. One that went back began again at zero.
fn counted(before: u64, now: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

fn rates(increase: &Increase, span: Span) -> Rates {
    let Increase { fast, slow, dropped, fast_bytes, slow_bytes } = *increase;
    let all = fast + slow + dropped;
    Rates {
        fast_pps: span.per_second(fast),
        slow_pps: span.per_second(slow),
        dropped_pps: span.per_second(dropped),
        fast_bps: span.per_second(fast_bytes.saturating_mul(8)),
        slow_bps: span.per_second(slow_bytes.saturating_mul(8)),
        fast_share: (all > 0).then(|| fast as f64 / all as f64),
    }
}

/// The main reasons with their rates, the most frequent between the samples first; reasons of equal rates stay in the
/// daemon's order.
pub(super) fn slow_reasons(before: &Status, now: &Status, span: Span) -> Vec<SlowReason> {
    let mut reasons: Vec<SlowReason> = now
        .top_reasons
        .iter()
        .map(|top| {
            let TopReason { reason, packets, meaning, remedy } = top.clone();
            let increase = count(now, &reason).saturating_sub(count(before, &reason));
            SlowReason { reason, rate_pps: span.per_second(increase), packets, meaning, remedy }
        })
        .collect();
    reasons.sort_by_key(|reason| Reverse(reason.rate_pps));
    reasons
}

/// Packets since the start for this reason.
pub(super) fn count(status: &Status, reason: &str) -> u64 {
    [&status.reasons, &status.refusals].into_iter().filter_map(|counts| counts.get(reason)).sum()
}
