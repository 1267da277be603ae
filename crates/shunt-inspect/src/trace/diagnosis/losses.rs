//! Who drops packets.

use super::{Evidence, culprit::Culprit};
use crate::trace::{
    abi::TRACE_HOOK,
    firewall::{BaseChain, Firewall},
    packet::{Packet, Verdict},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Packets that were dropped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    /// The rule, qdisc, socket or other part of Linux that dropped the packets.
    #[serde(flatten)]
    pub culprit: Culprit,
    /// The kernel's reason: a name of `enum skb_drop_reason`, or its number.
    pub reason: String,
    /// The way of the packets through the machine, with their devices.
    pub path: String,
    /// Number of dropped packets.
    pub packets: usize,
    /// Their share of all packets that ended.
    pub share: f64,
}

/// The hooks of netfilter by number.
const HOOKS: [&str; 5] = ["prerouting", "input", "forward", "output", "postrouting"];
/// The beginnings of the kernel's reasons for drops by a qdisc.
const BY_QDISC: [&str; 3] = ["QDISC", "CAKE_", "FQ_"];

/// Dropped packets by culprit, most first. `joined` packets besides these reached their end.
pub(super) fn losses(evidence: &Evidence<'_>, joined: usize, name: &impl Fn(u32) -> String) -> Vec<Loss> {
    let packets = evidence.single;
    let mut lost: BTreeMap<(Culprit, String, String), usize> = BTreeMap::new();
    let ended = packets.iter().filter(|packet| packet.is_done() || packet.is_dropped()).count() + joined;
    for packet in packets.iter().filter(|packet| packet.is_dropped()) {
        let number = packet.drop_reason.unwrap_or_default();
        let reason = evidence.reasons.get(&number).cloned().unwrap_or_else(|| format!("reason {number}"));
        let from = packet.in_ifindex.map_or_else(|| "here".to_owned(), name);
        let culprit = culprit(packet, &reason, evidence, name);
        *lost.entry((culprit, reason, format!("{} {from}", packet.way))).or_default() += 1;
    }
    let all = lost.into_iter().map(|((culprit, reason, path), packets)| Loss {
        culprit,
        reason,
        path,
        packets,
        share: packets as f64 / ended.max(1) as f64,
    });
    let mut all: Vec<Loss> = all.collect();
    all.sort_by_key(|loss| std::cmp::Reverse(loss.packets));
    all
}

/// Whether netfilter dropped packets, so that its rules tell more.
pub(in crate::trace) fn by_netfilter(packets: &[Packet], reasons: &BTreeMap<u32, String>) -> bool {
    packets.iter().any(|packet| {
        packet.is_dropped()
            && packet.drop_reason.and_then(|number| reasons.get(&number)).is_some_and(|name| name == FILTERED)
    })
}

const FILTERED: &str = "NETFILTER_DROP";

/// The hook of netfilter in which a packet was.
fn hook(packet: &Packet) -> Option<&'static str> {
    let last = packet.steps.last()?;
    let number = last.began_at.checked_sub(TRACE_HOOK)? / 2;
    HOOKS.get(number as usize).copied()
}

fn culprit(packet: &Packet, reason: &str, evidence: &Evidence<'_>, name: &impl Fn(u32) -> String) -> Culprit {
    match (&packet.verdict, reason) {
        (Some(Verdict::Conntrack), _) => Culprit::Conntrack,
        (Some(Verdict::Table(table)), _) => {
            Culprit::Table { hook: hook(packet).unwrap_or("unknown").to_owned(), table: table.clone() }
        }
        (Some(Verdict::Chain(chain)), FILTERED) => rule(packet, Some(chain), evidence.firewall),
        (_, FILTERED) => rule(packet, None, evidence.firewall),
        (_, "SOCKET_RCVBUFF" | "SOCKET_BACKLOG" | "PROTO_MEM") => {
            let socket = packet.ends.map(|ends| format!("{} {}", ends.protocol_name(), ends.to));
            Culprit::SocketBuffer { socket: socket.unwrap_or_default() }
        }
        // The CPU that would have received it is not that on which it was dropped.
        (_, "CPU_BACKLOG") => Culprit::Softirq {
            cpu: evidence.full_queue,
            work: evidence.full_queue.and_then(|cpu| evidence.threads.busiest(cpu)),
        },
        (_, reason) if BY_QDISC.iter().any(|kind| reason.starts_with(kind)) => {
            let device = packet.out_ifindex.map(name).unwrap_or_default();
            Culprit::Qdisc { qdisc: packet.qdisc.clone(), device }
        }
        (_, reason) => Culprit::Drop { reason: reason.to_owned() },
    }
}

/// The chain that dropped a packet, as the kernel told it; else the only one that can drop at its hook.
fn rule(packet: &Packet, chain: Option<&String>, firewall: Option<&Firewall>) -> Culprit {
    let Some(hook) = hook(packet) else {
        return Culprit::Rule { hook: "unknown".to_owned(), chain: chain.cloned(), part: None };
    };
    let is_v6 = packet.ends.is_some_and(|ends| ends.to.is_ipv6());
    let found = firewall.and_then(|firewall| match chain {
        Some(chain) => firewall.chain(hook, is_v6, chain),
        None => firewall.only_chain(hook, is_v6),
    });
    let part = found.and_then(|found| firewall?.part(found));
    let chain = chain.cloned().or_else(|| found.map(BaseChain::title));
    Culprit::Rule { hook: hook.to_owned(), chain, part }
}
