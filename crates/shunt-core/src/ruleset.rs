//! Finds the rules that a fast path cannot repeat, and the address families that they affect.

use crate::{Effect, Hold, PortView, Statement, effect, network::Network};
use shunt_api::{Family, RuleNote, RulesetStatus};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// The pause between two reads is this many times as long as a read, so that reads take at most a tenth of the time, ...
const REST: u32 = 9;
/// ... but no shorter than this, ...
const REST_MIN: Duration = Duration::from_millis(20);
/// ... and no longer than this. After a failed read the pause is this long.
const REST_MAX: Duration = Duration::from_secs(1);

/// The known state of the ruleset.
#[derive(Debug, Default)]
pub(crate) struct Ruleset {
    statements: Vec<Statement>,
    state: State,
    /// The earliest time of the next read.
    rest_until: Option<Instant>,
    /// The error of the last read; `None` if it succeeded.
    read_error: Option<String>,
    /// The statements of legacy iptables, or why they cannot be read; `None` before the first read.
    legacy: Option<Result<Vec<Statement>, String>>,
}

#[derive(Debug, Default)]
enum State {
    /// No read has been requested.
    #[default]
    New,
    /// A read begins or has begun at `since`. `changed`: rules have changed after that, so another read is needed.
    Reading { since: Instant, changed: bool },
    /// The ruleset has not changed since it was read.
    Known,
}

impl Ruleset {
    pub(crate) fn is_new(&self) -> bool {
        matches!(self.state, State::New)
    }

    pub(crate) fn is_known(&self) -> bool {
        matches!(self.state, State::Known)
    }

    /// Handles a change of rules. Returns the pause after which to read them; `None` if a read is requested or in
    /// progress.
    pub(crate) fn handle_change(&mut self, now: Instant) -> Option<Duration> {
        match &mut self.state {
            State::Reading { since, changed } => {
                *changed |= now >= *since;
                None
            }
            State::New | State::Known => Some(self.request_read(now)),
        }
    }

    /// Handles the result of a read. Returns the pause after which to read again; `None` if no other read is needed.
    pub(crate) fn handle_read(
        &mut self,
        now: Instant,
        result: Result<Vec<Statement>, String>,
    ) -> Option<Duration> {
        let State::Reading { since, changed } = self.state else { return None };
        let rest = match result {
            Ok(statements) => {
                self.statements = statements;
                self.read_error = None;
                (now.saturating_duration_since(since) * REST).clamp(REST_MIN, REST_MAX)
            }
            Err(why) => {
                self.read_error = Some(why);
                REST_MAX
            }
        };
        self.rest_until = Some(now + rest);
        if changed || self.read_error.is_some() {
            return Some(self.request_read(now));
        }
        self.state = State::Known;
        None
    }

    /// Handles the rules of legacy iptables. Returns whether other rules were known before.
    pub(crate) fn handle_legacy_read(&mut self, result: Result<Vec<Statement>, String>) -> bool {
        self.legacy.replace(result).is_some()
    }

    fn request_read(&mut self, now: Instant) -> Duration {
        let after = self.rest_until.map(|at| at.saturating_duration_since(now)).unwrap_or_default();
        self.state = State::Reading { since: now + after, changed: false };
        after
    }

    /// The families from which nothing may be learned. While rules are unknown, any of them may have a statement that
    /// must see every packet, so both families are held.
    pub(crate) fn hold(&self, network: &Network, ports: &BTreeMap<u32, PortView>) -> Hold {
        if !self.is_known() || !matches!(self.legacy, Some(Ok(_))) {
            return Hold::ALL;
        }
        let mut hold = Hold::default();
        for statement in self.statements_with(Effect::Stops, network, ports) {
            hold.add(&statement.family);
        }
        hold
    }

    /// Whether rules of a bridge table made conntrack track bridged packets when the rules were last read.
    pub(crate) fn tracks_bridges(&self) -> bool {
        let tracks = |s: &Statement| s.family == "bridge" && effect(&s.name) == Some(Effect::Tracks);
        self.statements.iter().any(tracks)
    }

    pub(crate) fn view(&self, network: &Network, ports: &BTreeMap<u32, PortView>) -> RulesetStatus {
        let hold = self.hold(network, ports);
        let held = [(hold.v4, Family::V4), (hold.v6, Family::V6)];
        RulesetStatus {
            held: held.into_iter().filter(|(is_held, _)| *is_held).map(|(_, family)| family).collect(),
            unread: self.read_error.clone().or_else(|| self.legacy.clone()?.err()),
            stops: notes(self.statements_with(Effect::Stops, network, ports)),
            bypassed: notes(self.statements_with(Effect::Bypassed, network, ports)),
        }
    }

    fn statements_with<'a>(
        &'a self,
        searched: Effect,
        network: &'a Network,
        ports: &'a BTreeMap<u32, PortView>,
    ) -> impl Iterator<Item = &'a Statement> {
        let meets = |device: &String| ports.keys().any(|port| network.has_name(*port, device));
        let legacy = self.legacy.iter().flatten().flatten();
        self.statements
            .iter()
            .chain(legacy)
            .filter(move |s| effect(&s.name) == Some(searched))
            .filter(move |s| s.devices.is_empty() || s.devices.iter().any(meets))
    }
}

/// The fields that all rules of one note share: legacy, family, table, chain and statement.
type Common<'a> = (bool, &'a str, &'a str, &'a str, &'a str);

/// Makes one note for all rules of a chain with the same statement: rulesets made by iptables count in every rule.
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
