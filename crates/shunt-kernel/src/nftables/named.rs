//! What a notification of nftables is about, in words: for people, not for the policy.

use super::{FIXED_BYTES, NEWGEN, SUBSYSTEM, family::family_name, message};
use crate::netlink_message::{Attrs, Message};
use shunt_wire::units::count;

/// The table, chain, rule, set or element that a notification names; `None` for other objects.
pub(crate) fn describe(message: &Message) -> Option<String> {
    let kind = message.kind.checked_sub(SUBSYSTEM)?;
    let attrs = Attrs::after(message.payload, FIXED_BYTES);
    let table = table(message)?;
    // NFT_MSG_NEWTABLE, _DELTABLE, _NEWCHAIN, ...
    let (object, is_new) = match kind {
        0 => ("table".to_owned(), true),
        2 => ("table".to_owned(), false),
        // NFTA_CHAIN_NAME
        3 | 5 => (format!("chain {} of table", attrs.text(3)?), kind == 3),
        // NFTA_RULE_CHAIN, NFTA_RULE_HANDLE
        6 | 8 => {
            let handle = attrs.be64(3)?;
            (format!("rule with handle {handle} in chain {} of table", attrs.text(2)?), kind == 6)
        }
        // NFTA_SET_NAME
        9 | 11 => (format!("set {} of table", attrs.text(2)?), kind == 9),
        // NFTA_SET_ELEM_LIST_SET
        12 | 14 => (format!("elements of set {} of table", attrs.text(2)?), kind == 12),
        _ => return None,
    };
    let change = if is_new { "added or changed" } else { "removed" };
    Some(format!("{object} {table} {change}"))
}

/// The family and the name of the table that a notification is about.
fn table(message: &Message) -> Option<String> {
    let family = family_name(*message.payload.first()?);
    // NFTA_TABLE_NAME, NFTA_CHAIN_TABLE, NFTA_RULE_TABLE, NFTA_SET_TABLE, NFTA_SET_ELEM_LIST_TABLE.
    let name = Attrs::after(message.payload, FIXED_BYTES).text(1)?;
    Some(format!("{family} {name}"))
}

/// What a commit has changed: the first few objects by name, the others by number; or, if it loads or removes tables or
/// replaces rules, how many there are of each kind.
#[derive(Debug, Default)]
pub(crate) struct ChangedObjects {
    named: Vec<String>,
    others: u64,
    added: Objects,
    removed: Objects,
    /// The tables with such objects: the first two, since one is named and more are not.
    tables: Vec<String>,
    /// The generation of the last message, and whether that message was the new generation itself, which ends a commit.
    generation: u16,
    is_complete: bool,
}

/// Numbers of objects.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Objects {
    tables: u64,
    chains: u64,
    rules: u64,
}

impl Objects {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// `2 tables, 5 chains, 1 rule`; a kind without objects is left out.
    fn words(&self) -> String {
        let all = [(self.tables, "table"), (self.chains, "chain"), (self.rules, "rule")];
        let counts = all.into_iter().filter(|(number, _)| *number > 0);
        let counts: Vec<String> = counts.map(|(number, kind)| count(number, kind)).collect();
        if counts.is_empty() { "nothing".to_owned() } else { counts.join(", ") }
    }
}

impl ChangedObjects {
    const NAMED_MAX: usize = 3;

    /// Adds what a message is about. The same object again is not counted.
    pub(crate) fn add(&mut self, message: &Message) {
        let Some(generation) = message::generation(message.payload) else { return };
        // The end of a commit that concerns no flow is not told.
        if generation != self.generation && !self.is_complete {
            *self = Self::default();
        }
        (self.generation, self.is_complete) = (generation, message.kind == NEWGEN);
        self.count(message);
        if self.named.len() >= Self::NAMED_MAX {
            // The new generation, which ends the commit, is no object.
            self.others += u64::from(message.kind & 0xff00 == SUBSYSTEM && message.kind != NEWGEN);
        } else if let Some(object) = describe(message).filter(|object| !self.named.contains(object)) {
            self.named.push(object);
        }
    }

    fn count(&mut self, message: &Message) {
        let Some(kind) = message.kind.checked_sub(SUBSYSTEM) else { return };
        let objects = if matches!(kind, 0 | 3 | 6) { &mut self.added } else { &mut self.removed };
        match kind {
            0 | 2 => objects.tables += 1,
            3 | 5 => objects.chains += 1,
            6 | 8 => objects.rules += 1,
            _ => return,
        }
        if self.tables.len() < 2
            && let Some(table) = table(message).filter(|table| !self.tables.contains(table))
        {
            self.tables.push(table);
        }
    }

    /// What has changed, in words; `None` if nothing is known. Begins again.
    pub(crate) fn take(&mut self) -> Option<String> {
        let all = std::mem::take(self);
        let Self { named, others, .. } = &all;
        let more = if *others == 0 { String::new() } else { format!("; and {others} more") };
        let names = || format!("{}{more}", named.join("; "));
        (!named.is_empty()).then(|| all.reloaded().unwrap_or_else(names))
    }

    /// What became of the ruleset, or of a table, if too much for names has changed.
    fn reloaded(&self) -> Option<String> {
        let Self { others, added, removed, tables, .. } = self;
        let what = match tables.as_slice() {
            [table] => format!("table {table}"),
            _ => "ruleset".to_owned(),
        };
        let (is_added, is_removed) = (!added.is_empty(), !removed.is_empty());
        match (is_added, is_removed) {
            _ if *others == 0 => None,
            (true, true) => Some(format!("{what} reloaded: {}; before: {}", added.words(), removed.words())),
            (true, false) if added.tables > 0 => Some(format!("{what} loaded: {}", added.words())),
            (false, true) if removed.tables > 0 => Some(format!("{what} removed: {}", removed.words())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink_message::{Batch, Messages};

    fn message(kind: u16, attrs: &[(u16, &[u8])]) -> Batch {
        let mut batch = Batch::default();
        // NFPROTO_INET
        batch.message(SUBSYSTEM | kind, 0, 0, &[1, 0, 0, 10]);
        attrs.iter().for_each(|(kind, value)| batch.put(*kind, value));
        batch
    }

    fn described(batch: &Batch) -> Option<String> {
        Messages(batch.bytes()).next().and_then(Result::ok).and_then(|message| describe(&message))
    }

    #[test]
    fn a_change_names_its_table_chain_rule_or_set() {
        let table: (u16, &[u8]) = (1, b"filter\0");
        let chain: (u16, &[u8]) = (2, b"forward\0");
        for (batch, wanted) in [
            (message(0, &[table]), "table inet filter added or changed"),
            (message(5, &[table, (3, b"input\0")]), "chain input of table inet filter removed"),
            (
                message(6, &[table, chain, (3, &7u64.to_be_bytes())]),
                "rule with handle 7 in chain forward of table inet filter added or changed",
            ),
            (message(14, &[table, (2, b"bad\0")]), "elements of set bad of table inet filter removed"),
        ] {
            assert_eq!(described(&batch).as_deref(), Some(wanted));
        }
        assert_eq!(described(&message(15, &[])), None);
        assert_eq!(described(&message(6, &[table])), None, "a rule without a chain");
    }

    fn add(changed: &mut ChangedObjects, batch: &Batch) {
        changed.add(&Messages(batch.bytes()).next().unwrap().unwrap());
    }

    #[test]
    fn a_large_commit_names_a_few_objects_and_counts_the_others() {
        let mut changed = ChangedObjects::default();
        assert_eq!(changed.take(), None);
        for name in ["a\0", "a\0", "b\0", "c\0", "d\0", "e\0"] {
            add(&mut changed, &message(9, &[(1, b"filter\0"), (2, name.as_bytes())]));
        }
        add(&mut changed, &message(15, &[]));
        let wanted = ["a", "b", "c"]
            .map(|name| format!("set {name} of table inet filter added or changed"))
            .join("; ");
        assert_eq!(changed.take(), Some(format!("{wanted}; and 2 more")));
        assert_eq!(changed.take(), None);
    }

    /// Messages about a table with two chains and so many rules, in the order in which the kernel sends them.
    fn table_of(kinds: [u16; 3], name: &[u8], rules: u64) -> Vec<Batch> {
        let table: (u16, &[u8]) = (1, name);
        let [of_table, of_chain, of_rule] = kinds;
        let chains = [b"in\0".as_slice(), b"fwd\0"].map(|chain| message(of_chain, &[table, (3, chain)]));
        let rule = |handle: u64| message(of_rule, &[table, (2, b"fwd\0"), (3, &handle.to_be_bytes())]);
        let mut all = vec![message(of_table, &[table])];
        all.extend(chains.into_iter().chain((0..rules).map(rule)));
        all
    }

    #[test]
    fn a_ruleset_that_is_loaded_again_is_told_by_its_numbers() {
        const ADDED: [u16; 3] = [0, 3, 6];
        const REMOVED: [u16; 3] = [2, 5, 8];
        let said = |commits: &[Vec<Batch>]| {
            let mut changed = ChangedObjects::default();
            commits.iter().flatten().for_each(|batch| add(&mut changed, batch));
            changed.take().unwrap()
        };
        let (filter, nat) = (b"filter\0", b"nat\0");
        let both = |kinds, rules| {
            table_of(kinds, filter, rules).into_iter().chain(table_of(kinds, nat, 1)).collect::<Vec<_>>()
        };
        assert_eq!(
            said(&[both(REMOVED, 3), both(ADDED, 4)]),
            "ruleset reloaded: 2 tables, 4 chains, 5 rules; before: 2 tables, 4 chains, 4 rules"
        );
        assert_eq!(
            said(&[table_of(REMOVED, filter, 1), table_of(ADDED, filter, 2)]),
            "table inet filter reloaded: 1 table, 2 chains, 2 rules; before: 1 table, 2 chains, 1 rule"
        );
        assert_eq!(said(&[both(ADDED, 4)]), "ruleset loaded: 2 tables, 4 chains, 5 rules");
        assert_eq!(said(&[both(REMOVED, 4)]), "ruleset removed: 2 tables, 4 chains, 5 rules");
        // `flush chain`, and other rules.
        let rules = |kinds, number| table_of(kinds, filter, number).split_off(3);
        assert_eq!(
            said(&[rules(REMOVED, 2), rules(ADDED, 3)]),
            "table inet filter reloaded: 3 rules; before: 2 rules"
        );
        // A few changes have names.
        assert!(said(&[rules(REMOVED, 1), rules(ADDED, 1)]).starts_with("rule with handle 0 in chain fwd"));
        assert!(said(&[rules(ADDED, 5)]).ends_with("added or changed; and 2 more"));
    }
}
