//! Matches and targets of iptables, which legacy iptables and nftables share.

use crate::{
    netlink_message::{u16_at, u32_at},
    packet_path::{Matched, Verdict, states, tcp_flags},
};
use shunt_core::Traffic;

/// What a target does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target<C> {
    /// `None` if packets continue with the next rule.
    pub verdict: Option<Verdict<C>>,
    /// Whether it changes the packet, its mark or its tracking, or a set.
    pub changes: bool,
}

/// What a target does, by its name. The standard target, whose name is empty, is not among them.
pub(crate) fn target<C>(name: &str) -> Target<C> {
    let (verdict, changes) = match name {
        "REJECT" | "DROP" => (Some(Verdict::Drop), false),
        "ACCEPT" => (Some(Verdict::Accept), false),
        "MARK" | "CONNMARK" | "CLASSIFY" | "SET" | "HMARK" | "CT" | "NOTRACK" | "SECMARK" | "CONNSECMARK"
        | "TCPMSS" | "TCPOPTSTRIP" | "TTL" | "HL" | "DSCP" | "TOS" | "ECN" => (None, true),
        "LOG" | "NFLOG" | "ULOG" | "AUDIT" | "TRACE" | "LED" | "IDLETIMER" | "RATEEST" | "CHECKSUM" => {
            (None, false)
        }
        _ => (Some(Verdict::Unknown), false),
    };
    Target { verdict, changes }
}

/// The statement that a target makes by its options, in addition to its name: the events that conntrack may report
/// (struct xt_ct_target_info: flags, zone, ct_events, ...).
pub(crate) fn by_options(target: &str, info: &[u8]) -> Option<&'static str> {
    (target == "CT" && u32_at(info, 4)? != 0).then_some("CT --ctevents")
}

/// The statement that a match makes by its options, in addition to its name: a set that compares the counters of its
/// elements (struct xt_set_info_match_v3 and _v4: the set, two counters with an operator each, flags).
pub(crate) fn by_match(name: &str, revision: u32, info: &[u8]) -> Option<&'static str> {
    let operators = match (name, revision) {
        ("set", 3) => [8, 24],
        ("set", 4) => [16, 32],
        _ => return None,
    };
    operators.iter().any(|at| info.get(*at).is_some_and(|operator| *operator != 0)).then_some("set counters")
}

/// The traffic that a match of iptables lets through: by fields of packets, and by the state that conntrack gave them.
/// `info` is the structure of the match.
pub(crate) fn matched(name: &str, revision: u32, info: &[u8]) -> (Matched, Matched) {
    let unknown = (Matched::UNKNOWN, Matched::ALL);
    match name {
        "comment" => (Matched::ALL, Matched::ALL),
        "tcp" => (tcp(info).unwrap_or(Matched::UNKNOWN), Matched::ALL),
        "udp" => (udp(info).unwrap_or(Matched::UNKNOWN), Matched::ALL),
        "conntrack" => conntrack(revision, info).unwrap_or(unknown),
        "state" => u32_at(info, 0).map_or(unknown, |mask| (Matched::ALL, by_state(mask, false))),
        _ => unknown,
    }
}

fn of(traffic: Traffic) -> Matched {
    Matched { may: traffic, sure: traffic }
}

/// struct xt_udp: two ranges of ports, invflags.
fn udp(info: &[u8]) -> Option<Matched> {
    let all = ports_are_any(info)? && *info.get(8)? == 0;
    Some(of(Traffic::UDP).and(if all { Matched::ALL } else { Matched::UNKNOWN }))
}

/// struct xt_tcp: two ranges of ports, option, flg_mask, flg_cmp, invflags.
fn tcp(info: &[u8]) -> Option<Matched> {
    const INVERT_FLAGS: u8 = 0x04;
    let &[option, mask, compared, inverted] = info.get(8..12)? else { return None };
    let flags = Matched::by_value(tcp_flags, |flags| flags & u32::from(mask) == u32::from(compared));
    let flags = if inverted & INVERT_FLAGS != 0 { flags.not() } else { flags };
    let rest = ports_are_any(info)? && option == 0 && inverted & !INVERT_FLAGS == 0;
    Some(of(Traffic::TCP).and(flags).and(if rest { Matched::ALL } else { Matched::UNKNOWN }))
}

/// Whether two ranges of ports, first and last of each, have all ports.
fn ports_are_any(info: &[u8]) -> Option<bool> {
    let port = |at: usize| u16_at(info, 2 * at);
    Some((port(0)?, port(1)?, port(2)?, port(3)?) == (0, u16::MAX, 0, u16::MAX))
}

/// struct xt_conntrack_mtinfo1, 2 and 3: eight addresses and masks, two times, protocol, four ports, match_flags,
/// invert_flags, state_mask, ...
fn conntrack(revision: u32, info: &[u8]) -> Option<(Matched, Matched)> {
    const FLAGS_AT: usize = 8 * 16 + 2 * 4 + 5 * 2;
    const BY_STATE: u16 = 1;
    let (flags, inverted) = (u16_at(info, FLAGS_AT)?, u16_at(info, FLAGS_AT + 2)?);
    let mask = match revision {
        1 => u32::from(*info.get(FLAGS_AT + 4)?),
        2 | 3 => u32::from(u16_at(info, FLAGS_AT + 4)?),
        _ => return None,
    };
    let rest = if flags & !BY_STATE == 0 { Matched::ALL } else { Matched::UNKNOWN };
    let state = if flags & BY_STATE == 0 { Matched::ALL } else { by_state(mask, inverted & BY_STATE != 0) };
    Some((rest, state))
}

/// The traffic with a state in a mask. Apart from the states of `ct state`, a mask can have two for translated
/// connections.
fn by_state(mask: u32, inverted: bool) -> Matched {
    const TRANSLATED: u32 = 1 << 6 | 1 << 7;
    let mut found = Matched::by_value(states, |state| state & mask != 0);
    if mask & TRANSLATED != 0 {
        found.may = Traffic::ALL;
    }
    if inverted { found.not() } else { found }
}
