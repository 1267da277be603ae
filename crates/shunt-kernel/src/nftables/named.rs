//! What a notification of nftables is about, in words: for people, not for the policy.

use super::{FIXED_BYTES, SUBSYSTEM, family::family_name};
use crate::netlink_message::{Attrs, Message};

/// The table, chain, rule, set or element that a notification names; `None` for other objects.
pub(crate) fn describe(message: &Message) -> Option<String> {
    let kind = message.kind.checked_sub(SUBSYSTEM)?;
    let family = family_name(*message.payload.first()?);
    let attrs = Attrs::after(message.payload, FIXED_BYTES);
    // NFTA_TABLE_NAME, NFTA_CHAIN_TABLE, NFTA_RULE_TABLE, NFTA_SET_TABLE, NFTA_SET_ELEM_LIST_TABLE.
    let table = attrs.text(1)?;
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
    Some(format!("{object} {family} {table} {change}"))
}

/// What a commit has changed: the first few objects by name, the others by number.
#[derive(Debug, Default)]
pub(crate) struct ChangedObjects {
    named: Vec<String>,
    others: u64,
}

impl ChangedObjects {
    const NAMED_MAX: usize = 3;

    /// Adds what a message is about. The same object again is not counted.
    pub(crate) fn add(&mut self, message: &Message) {
        if self.named.len() >= Self::NAMED_MAX {
            self.others += u64::from(message.kind & 0xff00 == SUBSYSTEM);
        } else if let Some(object) = describe(message).filter(|object| !self.named.contains(object)) {
            self.named.push(object);
        }
    }

    /// What has changed, in words; `None` if nothing is known. Begins again.
    pub(crate) fn take(&mut self) -> Option<String> {
        let Self { named, others } = std::mem::take(self);
        let more = if others == 0 { String::new() } else { format!("; and {others} more") };
        (!named.is_empty()).then(|| format!("{}{more}", named.join("; ")))
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

    #[test]
    fn a_large_commit_names_a_few_objects_and_counts_the_others() {
        let mut changed = ChangedObjects::default();
        assert_eq!(changed.take(), None);
        for name in ["a\0", "a\0", "b\0", "c\0", "d\0", "e\0"] {
            let batch = message(0, &[(1, name.as_bytes())]);
            changed.add(&Messages(batch.bytes()).next().unwrap().unwrap());
        }
        let wanted = ["a", "b", "c"].map(|name| format!("table inet {name} added or changed")).join("; ");
        assert_eq!(changed.take(), Some(format!("{wanted}; and 2 more")));
        assert_eq!(changed.take(), None);
    }
}
