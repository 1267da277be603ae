//! The nftables ruleset: the statements that a forwarded packet may meet.

mod conditions;
mod family;
mod lookups;
mod message;
mod named;
mod path;
mod tracking;

#[cfg(test)]
mod tests;

pub use lookups::AddressSet;
pub(crate) use named::ChangedObjects;
pub use tracking::rules_track;

use crate::{
    Error,
    netlink_channel::Channel,
    netlink_message::{AF_UNSPEC, Message},
};
use lookups::Lookups;
use message::{Chain, FIXED_BYTES, Rule, Set};
use netlink_sys::protocols::NETLINK_NETFILTER;
use nix::libc;
use shunt_core::{Event, RulesPlace, Statement};
use std::collections::{BTreeSet, HashMap};

const SUBSYSTEM: u16 = 10 << 8;
const NEWCHAIN: u16 = SUBSYSTEM | 3;
const GETCHAIN: u16 = SUBSYSTEM | 4;
const DELCHAIN: u16 = SUBSYSTEM | 5;
const NEWRULE: u16 = SUBSYSTEM | 6;
const GETRULE: u16 = SUBSYSTEM | 7;
const DELRULE: u16 = SUBSYSTEM | 8;
const NEWSET: u16 = SUBSYSTEM | 9;
const GETSET: u16 = SUBSYSTEM | 10;
const DELSET: u16 = SUBSYSTEM | 11;
const NEWSETELEM: u16 = SUBSYSTEM | 12;
const GETSETELEM: u16 = SUBSYSTEM | 13;
const DELSETELEM: u16 = SUBSYSTEM | 14;
pub(crate) const NEWGEN: u16 = SUBSYSTEM | 15;
const GETGEN: u16 = SUBSYSTEM | 16;
const NEWOBJ: u16 = SUBSYSTEM | 18;
const DELFLOWTABLE: u16 = SUBSYSTEM | 24;

/// How often the ruleset is read again because it changed during the read.
const ATTEMPTS: usize = 16;
/// The most sets without verdicts whose elements are read.
const CONSTANT_SETS_MAX: usize = 256;

/// The chains, rules and sets of the ruleset that matter to forwarded packets.
#[derive(Debug, Default)]
struct Ruleset {
    chains: Vec<Chain>,
    rules: Vec<Rule>,
    sets: HashMap<ObjectName, Set>,
    lookups: Lookups,
    /// The generation of the first message; `None` before one was read.
    generation: Option<u16>,
    /// Messages of two generations were read: the ruleset changed meanwhile.
    torn: bool,
}

/// The address family, table and name of a chain or set.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ObjectName {
    family: u8,
    table: String,
    name: String,
}

impl ObjectName {
    fn of_kind(self, is_set: bool) -> RulesPlace {
        let Self { family, table, name } = self;
        RulesPlace { family, table, name, is_set }
    }
}

/// What forwarded packets may meet in the ruleset.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NftablesRuleset {
    /// The statements that they may meet.
    pub statements: Vec<Statement>,
    /// The chains that they may pass, and the sets that the rules of these use.
    pub path: BTreeSet<RulesPlace>,
    /// The sets whose elements concern only packets with their address.
    pub address_sets: Vec<AddressSet>,
}

/// Reads the ruleset of the calling thread's network namespace. There may be tens of thousands of rules, so other tasks
/// run between small steps. Set elements are read only from maps that lead to chains.
///
/// # Errors
/// When the kernel refuses, or the ruleset changes during every attempt to read it.
pub async fn read_ruleset() -> Result<NftablesRuleset, Error> {
    let mut channel = match Channel::open(NETLINK_NETFILTER, "NETLINK_NETFILTER") {
        Ok(channel) => channel,
        Err(Error::Socket { source, .. }) if is_missing(&source) => return Ok(NftablesRuleset::default()),
        Err(e) => return Err(e),
    };
    for _ in 0..ATTEMPTS {
        match Ruleset::read(&mut channel).await {
            Ok(ruleset) if !ruleset.torn => return Ok(ruleset.result()),
            // A set that was listed is gone: the ruleset has changed.
            Err(Error::Refused { source, .. }) if source.raw_os_error() == Some(libc::ENOENT) => {}
            Ok(_) => {}
            Err(Error::Refused { request: "NFT_MSG_GETCHAIN", source }) if is_missing(&source) => {
                return Ok(NftablesRuleset::default());
            }
            Err(e) => return Err(e),
        }
    }
    Err(Error::Unsettled { request: "the nftables ruleset" })
}

/// Whether an error means that the kernel was built without nftables or nfnetlink.
fn is_missing(e: &std::io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EPROTONOSUPPORT | libc::EINVAL | libc::EOPNOTSUPP))
}

/// Whether a chain may have got another name, by which the last read does not know it.
fn is_renamed(message: &Message) -> bool {
    message.kind == NEWCHAIN && i32::from(message.flags) & libc::NLM_F_CREATE == 0
}

/// The event of a notification after which the result of [`read_ruleset`] may differ; `None` if it cannot.
pub(crate) fn rules_event(message: &Message) -> Option<Event> {
    let payload = message.payload;
    let at = |place: Option<ObjectName>, is_set| {
        Some(place.map_or(Event::Rules, |place| Event::RulesAt(place.of_kind(is_set))))
    };
    match message.kind {
        NEWSETELEM | DELSETELEM => {
            let place = message::elements(payload).map(|(place, _, _)| place);
            message::leads_to_chains(payload).then(|| at(place, true)).flatten()
        }
        NEWRULE | DELRULE => at(message::expressions(payload).map(|(chain, _)| chain), false),
        NEWSET | DELSET => at(message::set(payload).map(|(place, _)| place), true),
        // Packets come to a new chain only by a rule or an element, which are reported, too.
        NEWCHAIN | DELCHAIN => match message::chain(payload) {
            Some(chain) if path::is_base_on_path(&chain) || is_renamed(message) => Some(Event::Rules),
            chain => at(chain.map(|chain| chain.at), false),
        },
        NEWGEN | GETGEN => None,
        // Counters, quotas and other objects; they take effect only through rules that use them.
        NEWOBJ..=DELFLOWTABLE => None,
        kind => (kind & 0xff00 == SUBSYSTEM).then_some(Event::Rules),
    }
}

/// The ruleset in the messages of an answer.
pub(crate) fn parse<'a>(messages: impl Iterator<Item = Message<'a>>) -> NftablesRuleset {
    let mut ruleset = Ruleset::default();
    messages.for_each(|message| ruleset.add(&message));
    ruleset.result()
}

impl Ruleset {
    fn result(&self) -> NftablesRuleset {
        NftablesRuleset {
            statements: path::statements(self),
            path: path::places(self),
            address_sets: lookups::address_sets(self),
        }
    }

    async fn read(channel: &mut Channel) -> Result<Self, Error> {
        let mut ruleset = Self::default();
        let everything = [AF_UNSPEC, 0, 0, 0];
        for (request, kind) in
            [("NFT_MSG_GETCHAIN", GETCHAIN), ("NFT_MSG_GETRULE", GETRULE), ("NFT_MSG_GETSET", GETSET)]
        {
            ruleset.torn |=
                channel.dump_in_steps(request, kind, &everything, |_| {}, |m| ruleset.add(&m)).await?;
        }
        for set in ruleset.sets_to_read() {
            let attrs = message::set_attributes(&set.table, &set.name);
            let fixed = [set.family, 0, 0, 0];
            ruleset.torn |= channel
                .dump_in_steps("NFT_MSG_GETSETELEM", GETSETELEM, &fixed, attrs, |m| ruleset.add(&m))
                .await?;
        }
        Ok(ruleset)
    }

    /// The maps that lead to chains, and the sets whose elements tell which traffic meets a rule, if any rule depends
    /// on that.
    fn sets_to_read(&self) -> Vec<ObjectName> {
        let maps = self.sets.iter().filter(|(_, set)| set.has_verdicts).map(|(at, _)| at.clone());
        let is_constant =
            |at: &ObjectName| self.sets.get(at).is_some_and(|set| set.is_constant() && !set.has_verdicts);
        let of_rule = |rule: &Rule| {
            let at =
                |lookup: &conditions::Lookup| ObjectName { name: lookup.set.clone(), ..rule.chain.clone() };
            rule.conditions.lookups.iter().map(at).collect::<Vec<_>>()
        };
        let rules = if path::depends_on_traffic(self) { &self.rules[..] } else { &[] };
        let sets = rules.iter().flat_map(of_rule).filter(is_constant).take(CONSTANT_SETS_MAX);
        maps.chain(sets).collect()
    }

    /// Adds the chain, rule, set or elements of a message.
    fn add(&mut self, message: &Message) {
        let payload = message.payload;
        let Some(generation) = message::generation(payload) else { return };
        self.torn |= *self.generation.get_or_insert(generation) != generation;
        match message.kind {
            NEWCHAIN => self.chains.extend(message::chain(payload)),
            NEWRULE => {
                if let Some((chain, list)) = message::expressions(payload) {
                    self.lookups.add(&chain, list);
                }
                self.rules.extend(message::rule(payload));
            }
            NEWSET => self.sets.extend(message::set(payload)),
            NEWSETELEM => {
                if let Some((at, effects, elements)) = message::elements(payload)
                    && let Some(set) = self.sets.get_mut(&at)
                {
                    set.effects.extend(effects);
                    set.elements.extend(elements);
                }
            }
            _ => {}
        }
    }
}
