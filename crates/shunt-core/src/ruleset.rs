//! Finds the rules that a fast path cannot repeat, and the traffic that they affect.

use crate::{
    Effect, PortView, RulesPlace, Statement, Traffic, effect, network::Network, statement::counts_connections,
};
use shunt_api::{Family, LimitChoice, RuleNote, RulesetStatus};
use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    time::{Duration, Instant},
};

/// The pause between two reads is this many times as long as a read, so that reads take at most a tenth of the time,
/// ...
const REST: u32 = 9;
/// ... but no shorter than this, ...
const REST_MIN: Duration = Duration::from_millis(20);
/// ... and no longer than this. After a failed read the pause is this long.
const REST_MAX: Duration = Duration::from_secs(1);
/// The shortest timeout of a set for which flows are proved more often. A rule that refreshes elements with a shorter
/// one is named as one that fast packets bypass.
const TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// The known state of the ruleset.
#[derive(Debug, Default)]
pub(crate) struct Ruleset {
    /// The treatment of the traffic that rules limit.
    limits: LimitChoice,
    statements: Vec<Statement>,
    /// Where forwarded packets may come.
    path: BTreeSet<RulesPlace>,
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
    /// A read begins or has begun at `since`, and rules have `changed` after that.
    Reading { since: Instant, changed: Changed },
    /// The ruleset has not changed since it was read.
    Known,
    /// As `Known` where forwarded packets may come. Elsewhere rules have changed, so a read begins or has begun at
    /// `since`; elsewhere they have `changed` after that again.
    Refreshing { since: Instant, changed: Changed },
}

/// Where rules have changed.
#[derive(Debug)]
enum Changed {
    At(BTreeSet<RulesPlace>),
    Anywhere,
}

impl Changed {
    /// More places are not kept apart.
    const PLACES_MAX: usize = 10_000;
    const NOWHERE: Self = Self::At(BTreeSet::new());

    fn add(&mut self, place: RulesPlace) {
        match self {
            Self::At(places) if places.len() < Self::PLACES_MAX => drop(places.insert(place)),
            _ => *self = Self::Anywhere,
        }
    }

    fn is_nothing(&self) -> bool {
        matches!(self, Self::At(places) if places.is_empty())
    }

    fn is_on(&self, path: &BTreeSet<RulesPlace>) -> bool {
        match self {
            Self::At(places) => !places.is_disjoint(path),
            Self::Anywhere => true,
        }
    }
}

impl Ruleset {
    pub(crate) fn new(limits: LimitChoice) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Changes the treatment of the traffic that rules limit.
    pub(crate) fn set_limits(&mut self, limits: LimitChoice) {
        self.limits = limits;
    }

    pub(crate) fn is_new(&self) -> bool {
        matches!(self.state, State::New)
    }

    pub(crate) fn is_known(&self) -> bool {
        matches!(self.state, State::Known | State::Refreshing { .. })
    }

    /// Handles a change of rules anywhere. Returns the pause after which to read them; `None` if a read is requested or
    /// in progress.
    pub(crate) fn handle_change(&mut self, now: Instant) -> Option<Duration> {
        if let State::Reading { since, changed } = &mut self.state {
            if now >= *since {
                *changed = Changed::Anywhere;
            }
            return None;
        }
        Some(self.request_read(now))
    }

    /// Handles a change of rules at a place, as [`Ruleset::handle_change`]. It holds nothing if forwarded packets do
    /// not come there.
    pub(crate) fn handle_change_at(&mut self, now: Instant, place: RulesPlace) -> Option<Duration> {
        let is_aside = !self.path.contains(&place);
        match &mut self.state {
            State::Refreshing { .. } if !is_aside => Some(self.request_read(now)),
            // Whether packets come there, the result of the read tells.
            State::Reading { since, changed } | State::Refreshing { since, changed } => {
                if now >= *since {
                    changed.add(place);
                }
                None
            }
            State::Known if is_aside => Some(self.request_refresh(now)),
            State::New | State::Known => Some(self.request_read(now)),
        }
    }

    /// Takes the places where forwarded packets may come.
    pub(crate) fn set_path(&mut self, path: BTreeSet<RulesPlace>) {
        self.path = path;
    }

    /// Handles the result of a read. Returns the pause after which to read again; `None` if no other read is needed.
    pub(crate) fn handle_read(
        &mut self,
        now: Instant,
        result: Result<Vec<Statement>, String>,
    ) -> Option<Duration> {
        let (since, changed) = match mem::take(&mut self.state) {
            State::Reading { since, changed } | State::Refreshing { since, changed } => (since, changed),
            state @ (State::New | State::Known) => {
                self.state = state;
                return None;
            }
        };
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
        // The first change after the read that leads packets elsewhere is itself at a place where they come.
        if self.read_error.is_some() || changed.is_on(&self.path) {
            return Some(self.request_read(now));
        }
        if !changed.is_nothing() {
            return Some(self.request_refresh(now));
        }
        self.state = State::Known;
        None
    }

    /// Handles the rules of legacy iptables. Returns whether other rules were known before.
    pub(crate) fn handle_legacy_read(&mut self, result: Result<Vec<Statement>, String>) -> bool {
        self.legacy.replace(result).is_some()
    }

    fn request_read(&mut self, now: Instant) -> Duration {
        let after = self.rest(now);
        self.state = State::Reading { since: now + after, changed: Changed::NOWHERE };
        after
    }

    fn request_refresh(&mut self, now: Instant) -> Duration {
        let after = self.rest(now);
        self.state = State::Refreshing { since: now + after, changed: Changed::NOWHERE };
        after
    }

    /// The pause before the next read.
    fn rest(&self, now: Instant) -> Duration {
        self.rest_until.map(|at| at.saturating_duration_since(now)).unwrap_or_default()
    }

    /// The traffic from which nothing may be learned. While rules are unknown, any of them may have a statement that
    /// must see every packet, so all traffic is held.
    pub(crate) fn hold(&self, network: &Network, ports: &BTreeMap<u32, PortView>) -> Traffic {
        if !self.is_known() || !matches!(self.legacy, Some(Ok(_))) {
            return Traffic::ALL;
        }
        self.statements(network, ports).fold(Traffic::NONE, |hold, statement| hold | self.held_by(statement))
    }

    /// The traffic that a statement keeps from being learned.
    fn held_by(&self, statement: &Statement) -> Traffic {
        match effect(&statement.name) {
            Some(Effect::Stops) => Traffic::of_family(&statement.family),
            _ if self.is_limiter(statement) => statement.concerns,
            _ => Traffic::NONE,
        }
    }

    /// The first rule that keeps some of this traffic from being learned, or why the rules are not known.
    pub(crate) fn holding_rule(
        &self,
        traffic: Traffic,
        network: &Network,
        ports: &BTreeMap<u32, PortView>,
    ) -> String {
        let unread = || self.unread().unwrap_or_else(|| "the ruleset is being read".to_owned());
        let holds = |statement: &&Statement| self.held_by(statement).meets(traffic);
        let note = notes(self.statements(network, ports).find(holds).into_iter()).pop();
        note.map_or_else(unread, |note| format!("`{}` in {}", note.statement, note.place()))
    }

    /// Why the rules could not be read.
    fn unread(&self) -> Option<String> {
        self.read_error.clone().or_else(|| self.legacy.clone()?.err())
    }

    /// Whether rules of a bridge table made conntrack track bridged packets when the rules were last read.
    pub(crate) fn tracks_bridges(&self) -> bool {
        let tracks = |s: &Statement| s.family == "bridge" && effect(&s.name) == Some(Effect::Tracks);
        self.statements.iter().any(tracks)
    }

    /// The shortest timeout of a set whose elements established traffic has to refresh.
    pub(crate) fn shortest_timeout(
        &self,
        network: &Network,
        ports: &BTreeMap<u32, PortView>,
    ) -> Option<Duration> {
        let refreshed = self.statements(network, ports).filter(|s| !s.concerns.is_empty());
        refreshed.filter_map(|s| s.timeout).map(|timeout| timeout.max(TIMEOUT_MIN)).min()
    }

    pub(crate) fn view(&self, network: &Network, ports: &BTreeMap<u32, PortView>) -> RulesetStatus {
        let hold = self.hold(network, ports);
        let held = [(Traffic::V4, Family::V4), (Traffic::V6, Family::V6)];
        let notes_of = |is_listed: &dyn Fn(&Statement) -> bool| {
            notes(self.statements(network, ports).filter(|statement| is_listed(statement)))
        };
        RulesetStatus {
            held: held.into_iter().filter(|(all, _)| hold.contains(*all)).map(|(_, family)| family).collect(),
            unread: self.unread(),
            stops: notes_of(&|s| effect(&s.name) == Some(Effect::Stops)),
            limits: notes_of(&|s| self.is_limiter(s)),
            rewrites: notes_of(&|s| effect(&s.name) == Some(Effect::Rewrites) && !s.concerns.is_empty()),
            bypassed: notes_of(&|s| self.is_bypassed(s)),
        }
    }

    /// Whether a statement drops traffic, or saves it from a drop, by a number that only grows with the packets that
    /// Linux sees, so that it must see all of them.
    fn is_limiter(&self, statement: &Statement) -> bool {
        self.limits == LimitChoice::Slow
            && effect(&statement.name) == Some(Effect::Limits)
            && !statement.concerns.is_empty()
    }

    /// Whether fast packets bypass a statement.
    fn is_bypassed(&self, statement: &Statement) -> bool {
        match effect(&statement.name) {
            Some(Effect::Bypassed) => true,
            Some(Effect::Limits) if counts_connections(&statement.name) => {
                self.limits == LimitChoice::Ignore && !statement.concerns.is_empty()
            }
            Some(Effect::Limits) => !self.is_limiter(statement),
            Some(Effect::Refreshes) => {
                statement.timeout.is_some_and(|timeout| timeout < TIMEOUT_MIN)
                    && !statement.concerns.is_empty()
            }
            _ => false,
        }
    }

    /// The statements of all rules, except for those of chains that are bound to devices without packets of Shunt's
    /// ports.
    fn statements<'a>(
        &'a self,
        network: &'a Network,
        ports: &'a BTreeMap<u32, PortView>,
    ) -> impl Iterator<Item = &'a Statement> {
        let meets = |device: &String| ports.keys().any(|port| network.has_name(*port, device));
        let legacy = self.legacy.iter().flatten().flatten();
        self.statements
            .iter()
            .chain(legacy)
            .filter(move |s| s.devices.is_empty() || s.devices.iter().any(meets))
    }
}

/// The fields that all rules of one note share: legacy, family, table, chain and statement.
type Common<'a> = (bool, &'a str, &'a str, &'a str, &'a str);

/// Makes one note for all rules of a chain with the same statement: rulesets made by iptables count in every rule.
fn notes<'a>(statements: impl Iterator<Item = &'a Statement>) -> Vec<RuleNote> {
    let mut notes: BTreeMap<Common, (u64, u64, Traffic)> = BTreeMap::new();
    for Statement { family, table, chain, name, handle, legacy, concerns, .. } in statements {
        let common = (*legacy, family.as_str(), table.as_str(), chain.as_str(), name.as_str());
        let (first, rules, traffic) = notes.entry(common).or_insert((*handle, 0, Traffic::NONE));
        *first = (*first).min(*handle);
        *rules += 1;
        *traffic |= *concerns;
    }
    let note =
        |((legacy, family, table, chain, statement), (handle, rules, traffic)): (Common, _)| RuleNote {
            family: family.to_owned(),
            table: table.to_owned(),
            chain: chain.to_owned(),
            handle,
            legacy,
            statement: statement.to_owned(),
            rules,
            traffic: Traffic::describe(traffic),
        };
    notes.into_iter().map(note).collect()
}

#[cfg(test)]
mod tests;
