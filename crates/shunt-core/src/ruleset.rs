//! What a firewall does to packets that a fast path cannot repeat, and for which address families that counts.

use crate::{PortView, network::Network};
use serde::{Deserialize, Serialize};
use shunt_api::{Family, RuleNote, RulesetStatus};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// A statement of the ruleset that a packet may meet on its way through the router.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Statement {
    /// Of its table: `ip`, `ip6`, `inet`, `bridge`, `netdev`.
    pub family: String,
    /// Its table.
    pub table: String,
    /// Its chain.
    pub chain: String,
    /// Its rule: the handle, or with legacy iptables the number in the chain.
    pub handle: u64,
    /// It is of legacy iptables, which has rules of its own beside those of nftables.
    pub legacy: bool,
    /// What it does, in the words of nft; targets and matches of iptables by their own names.
    pub name: String,
    /// The devices whose packets meet it; none for all. A name that ends in `*` stands for all that begin so.
    pub devices: Vec<String>,
}

/// Whether a statement must see every packet, or only wants to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Its packets go elsewhere, or are made twice, or are answered by the router: nothing is learned beside it.
    Stops,
    /// It counts, limits, draws or reports packets: those of the fast path it does not see.
    Bypassed,
    /// In a table of bridges: it has conntrack look at what is bridged.
    Tracks,
}

/// What a statement means for the fast path; none for those that act on every packet alike, which proofs repeat.
///
/// `ct count` and connlimit are not here: they count connections, not packets.
pub fn effect(statement: &str) -> Option<Effect> {
    Some(match statement {
        "queue" | "dup" | "fwd" | "tproxy" | "synproxy" => Effect::Stops,
        "NFQUEUE" | "QUEUE" | "TEE" | "TPROXY" | "SYNPROXY" => Effect::Stops,
        "limit" | "quota" | "numgen" | "meta random" | "log" | "counter" | "last" | "ct packets"
        | "ct bytes" | "ct avgpkt" => Effect::Bypassed,
        "ct" | "connlimit" => Effect::Tracks,
        "hashlimit" | "statistic" | "recent" | "connbytes" | "nfacct" | "rateest" | "LOG" | "NFLOG"
        | "AUDIT" | "TRACE" | "RATEEST" | "IDLETIMER" | "LED" => Effect::Bypassed,
        _ => return None,
    })
}

/// The address families whose packets must all go to Linux.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// IPv4.
    pub v4: bool,
    /// IPv6.
    pub v6: bool,
}

impl Hold {
    pub(crate) const ALL: Self = Self { v4: true, v6: true };

    /// Whether it has a family that the other has not.
    pub(crate) fn exceeds(self, other: Self) -> bool {
        self.v4 && !other.v4 || self.v6 && !other.v6
    }

    fn add(&mut self, family: &str) {
        self.v4 |= family != "ip6";
        self.v6 |= family != "ip";
    }
}

/// Reads take at most a tenth of the time, however often rules change, ...
const REST: u32 = 9;
/// ... and are never closer than this.
const REST_MIN: Duration = Duration::from_millis(20);
/// What could not be read is tried again after this long, and what takes long not seldomer.
const REST_MAX: Duration = Duration::from_secs(1);

/// The ruleset, as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct Ruleset {
    statements: Vec<Statement>,
    state: State,
    /// Not to be read before.
    rest_until: Option<Instant>,
    /// Why it could not be read the last time.
    unread: Option<String>,
    /// The statements of legacy iptables, or why they cannot be read. None before the first look.
    legacy: Option<Result<Vec<Statement>, String>>,
}

#[derive(Debug, Default)]
enum State {
    /// Nobody has asked.
    #[default]
    New,
    /// It is being read, from `since` on. What changes after that asks for another read.
    Reading { since: Instant, changed: bool },
    /// It is as it was read.
    Known,
}

impl Ruleset {
    pub(crate) fn is_new(&self) -> bool {
        matches!(self.state, State::New)
    }

    pub(crate) fn is_known(&self) -> bool {
        matches!(self.state, State::Known)
    }

    /// Rules have changed. After which time they are to be read, if that is not under way.
    pub(crate) fn changed(&mut self, now: Instant) -> Option<Duration> {
        match &mut self.state {
            State::Reading { since, changed } => {
                *changed |= now >= *since;
                None
            }
            State::New | State::Known => Some(self.start(now)),
        }
    }

    /// A read has ended. After which time there is to be another, if it was in vain.
    pub(crate) fn read(&mut self, now: Instant, result: Result<Vec<Statement>, String>) -> Option<Duration> {
        let State::Reading { since, changed } = self.state else { return None };
        let rest = match result {
            Ok(statements) => {
                self.statements = statements;
                self.unread = None;
                (now.saturating_duration_since(since) * REST).clamp(REST_MIN, REST_MAX)
            }
            Err(why) => {
                self.unread = Some(why);
                REST_MAX
            }
        };
        self.rest_until = Some(now + rest);
        if changed || self.unread.is_some() {
            return Some(self.start(now));
        }
        self.state = State::Known;
        None
    }

    /// Legacy iptables has these rules now. Whether it had others before.
    pub(crate) fn legacy_read(&mut self, result: Result<Vec<Statement>, String>) -> bool {
        self.legacy.replace(result).is_some()
    }

    fn start(&mut self, now: Instant) -> Duration {
        let after = self.rest_until.map(|at| at.saturating_duration_since(now)).unwrap_or_default();
        self.state = State::Reading { since: now + after, changed: false };
        after
    }

    /// What must not be learned: nothing may be while rules are unknown, as one of them may be of the kind that stops it.
    pub(crate) fn hold(&self, network: &Network, ports: &BTreeMap<u32, PortView>) -> Hold {
        if !self.is_known() || !matches!(self.legacy, Some(Ok(_))) {
            return Hold::ALL;
        }
        let mut hold = Hold::default();
        for statement in self.that(Effect::Stops, network, ports) {
            hold.add(&statement.family);
        }
        hold
    }

    /// Whether rules of bridges have had conntrack look at what is bridged when they were read last.
    pub(crate) fn tracks_bridges(&self) -> bool {
        let tracks = |s: &Statement| s.family == "bridge" && effect(&s.name) == Some(Effect::Tracks);
        self.statements.iter().any(tracks)
    }

    pub(crate) fn view(&self, network: &Network, ports: &BTreeMap<u32, PortView>) -> RulesetStatus {
        let hold = self.hold(network, ports);
        let held = [(hold.v4, Family::V4), (hold.v6, Family::V6)];
        RulesetStatus {
            held: held.into_iter().filter(|(is_held, _)| *is_held).map(|(_, family)| family).collect(),
            unread: self.unread.clone().or_else(|| self.legacy.clone()?.err()),
            stops: notes(self.that(Effect::Stops, network, ports)),
            bypassed: notes(self.that(Effect::Bypassed, network, ports)),
        }
    }

    fn that<'a>(
        &'a self,
        wanted: Effect,
        network: &'a Network,
        ports: &'a BTreeMap<u32, PortView>,
    ) -> impl Iterator<Item = &'a Statement> {
        let meets = |device: &String| ports.keys().any(|port| network.is_called(*port, device));
        let legacy = self.legacy.iter().flatten().flatten();
        self.statements
            .iter()
            .chain(legacy)
            .filter(move |s| effect(&s.name) == Some(wanted))
            .filter(move |s| s.devices.is_empty() || s.devices.iter().any(meets))
    }
}

/// What rules have in common that are in one note: whether they are legacy, family, table, chain and statement.
type Common<'a> = (bool, &'a str, &'a str, &'a str, &'a str);

/// One note for all rules of a chain that do the same: rulesets that iptables makes count in every rule.
fn notes<'a>(statements: impl Iterator<Item = &'a Statement>) -> Vec<RuleNote> {
    let mut notes: BTreeMap<Common, (u64, u64)> = BTreeMap::new();
    for Statement { family, table, chain, name, handle, legacy, .. } in statements {
        let (first, rules) = notes.entry((*legacy, family, table, chain, name)).or_insert((*handle, 0));
        *first = (*first).min(*handle);
        *rules += 1;
    }
    let note = |((legacy, family, table, chain, statement), (handle, rules)): (Common, _)| RuleNote {
        family: family.to_owned(),
        table: table.to_owned(),
        chain: chain.to_owned(),
        handle,
        legacy,
        statement: statement.to_owned(),
        rules,
    };
    notes.into_iter().map(note).collect()
}

#[cfg(test)]
mod tests;
