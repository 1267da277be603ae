//! Who drops packets.

use super::culprit::Culprit;
use crate::trace::{
    abi::TRACE_HOOK,
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

/// Dropped packets by culprit, most first. `others` packets besides these reached their end.
pub(super) fn losses(
    packets: &[&Packet],
    others: usize,
    reasons: &BTreeMap<u32, String>,
    name: &impl Fn(u32) -> String,
) -> Vec<Loss> {
    let mut lost: BTreeMap<(Culprit, String, String), usize> = BTreeMap::new();
    let ended = packets.iter().filter(|packet| packet.is_done() || packet.is_dropped()).count() + others;
    for packet in packets.iter().filter(|packet| packet.is_dropped()) {
        let number = packet.drop_reason.unwrap_or_default();
        let reason = reasons.get(&number).cloned().unwrap_or_else(|| format!("reason {number}"));
        let from = packet.in_ifindex.map_or_else(|| "here".to_owned(), name);
        let culprit = culprit(packet, &reason, name);
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

fn culprit(packet: &Packet, reason: &str, name: &impl Fn(u32) -> String) -> Culprit {
    let last = packet.steps.last();
    let hook = || {
        let number = last.and_then(|step| step.began_at.checked_sub(TRACE_HOOK)).map(|hook| hook / 2);
        let known = number.and_then(|number| HOOKS.get(number as usize));
        (*known.unwrap_or(&"unknown")).to_owned()
    };
    match (&packet.verdict, reason) {
        (Some(Verdict::Conntrack), _) => Culprit::Conntrack,
        (Some(Verdict::Chain(chain)), _) => Culprit::Rule { hook: hook(), chain: Some(chain.clone()) },
        (None, "NETFILTER_DROP") => Culprit::Rule { hook: hook(), chain: None },
        (None, "SOCKET_RCVBUFF" | "SOCKET_BACKLOG" | "PROTO_MEM") => {
            let socket = packet.ends.map(|ends| format!("{} {}", ends.protocol_name(), ends.to));
            Culprit::SocketBuffer { socket: socket.unwrap_or_default() }
        }
        // The CPU that would have received it is not that on which it was dropped.
        (None, "CPU_BACKLOG") => Culprit::Softirq { cpu: None },
        (None, reason) if reason.starts_with("QDISC") => {
            let device = packet.out_ifindex.map(name).unwrap_or_default();
            Culprit::Qdisc { qdisc: packet.qdisc.clone(), device }
        }
        (None, reason) => Culprit::Drop { reason: reason.to_owned() },
    }
}
