//! Reads the nftables ruleset in the background of the event loop.

use super::Daemon;
use shunt_bpf::RuleChanges;
use shunt_bpf::abi::{RulesName, SET_INTERVALS, Set};
use shunt_core::{Event, RulesPlace};
use shunt_kernel::AddressSet;
use std::{collections::BTreeSet, pin::Pin, time::Duration};
use tokio::{runtime::Handle, task::spawn_blocking};

/// The result of a read.
pub(super) struct RulesetRead {
    events: Vec<Event>,
    address_sets: Vec<AddressSet>,
    /// Where forwarded packets may come; `None` if the rules could not be read.
    path: Option<BTreeSet<RulesPlace>>,
    /// The count of changes of rules before the read.
    at: u32,
}

/// The read that is in progress, if there is one.
#[derive(Default)]
pub(super) struct RulesetReader {
    reading: Option<Pin<Box<dyn Future<Output = RulesetRead> + Send>>>,
}

impl RulesetReader {
    /// Begins a read after a pause. Replaces a read in progress.
    pub(super) fn start(&mut self, after: Duration, changes: RuleChanges) {
        self.reading = Some(Box::pin(read_ruleset(after, changes)));
    }

    pub(super) fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// Waits for the result of the read in progress; forever if there is none. May be dropped at any time.
    pub(super) async fn result(&mut self) -> RulesetRead {
        match &mut self.reading {
            Some(reading) => {
                let read = reading.await;
                self.reading = None;
                read
            }
            None => std::future::pending().await,
        }
    }
}

async fn read_ruleset(after: Duration, changes: RuleChanges) -> RulesetRead {
    tokio::time::sleep(after).await;
    // Before the read: rules that change meanwhile are counted later.
    let at = changes.count();
    // On a thread of its own: a large ruleset takes long to judge.
    let runtime = Handle::current();
    let read = spawn_blocking(move || runtime.block_on(shunt_kernel::read_ruleset())).await;
    let read =
        read.map_err(|error| error.to_string()).and_then(|read| read.map_err(|error| error.to_string()));
    let (events, address_sets, path) = match read {
        Ok(ruleset) => {
            let path = Event::RulesetPath(ruleset.path.clone());
            let events = vec![path, Event::RulesetRead(ruleset.statements)];
            (events, ruleset.address_sets, Some(ruleset.path))
        }
        Err(error) => {
            tracing::warn!(
                "cannot read the nftables ruleset: {error}; nothing is learned until it can be read"
            );
            (vec![Event::RulesetUnread(error)], Vec::new(), None)
        }
    };
    RulesetRead { events, address_sets, path, at }
}

impl Daemon {
    /// Tells the data plane which changes of rules and elements concern no flow, and the policy the rest.
    pub(super) fn on_ruleset(&mut self, read: RulesetRead) {
        let sets = read.address_sets.iter().filter_map(described);
        if let Err(error) = self.plane.set_address_sets(sets, read.at) {
            tracing::debug!(
                "cannot describe sets to the programs, so each of their elements concerns every flow: {error}"
            );
        }
        let path = read.path.iter().flatten().filter_map(name_of);
        if let Err(error) = self.plane.set_rules_path(read.path.is_some().then_some(path), read.at) {
            tracing::debug!(
                "cannot list rules for the programs, so each change of rules concerns every flow: {error}"
            );
        }
        self.handle_all(read.events);
        self.record_hold();
    }
}

/// A chain or set for the programs, which know none with a longer name.
fn name_of(place: &RulesPlace) -> Option<RulesName> {
    let RulesPlace { family, table, name, is_set } = place;
    if *is_set { RulesName::of_set(*family, table, name) } else { RulesName::of_chain(*family, table, name) }
}

/// A set for the programs. None if its name is too long for them.
fn described(set: &AddressSet) -> Option<(RulesName, Set)> {
    let name = RulesName::of_set(set.family, &set.table, &set.name)?;
    let flags = if set.intervals { SET_INTERVALS } else { 0 };
    let family = if set.v6 { 6 } else { 4 };
    Some((name, Set { family, offset: set.offset, key_bytes: set.key_bytes, flags, number: 0 }))
}
