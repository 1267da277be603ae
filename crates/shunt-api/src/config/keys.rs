//! What `shunt reload` does with a change of each key: one table, from which the documentation is generated.

use super::{Config, parts::queue_differences};
use crate::reload::{ChangeEffect, KeyChange};
use toml::{Table, Value};

/// The answer of `shunt reload` to a change of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyAnswer {
    /// The key as the file names it; `qos` stands for all of its tables.
    pub key: &'static str,
    /// What a change of its value does, unless it needs a restart.
    pub effect: ChangeEffect,
    /// What becomes of flows, or why a restart is needed: a sentence.
    pub how: &'static str,
    /// When a change needs a restart nevertheless; `None` if never, or always.
    pub restart_when: Option<&'static str>,
}

/// Defines the table, and lets the compiler check that it has all keys.
macro_rules! answers {
    ($($key:ident: $effect:ident, $how:literal $(, restart when $when:literal)?;)*) => {
        const ANSWERS: &[KeyAnswer] = &[$(KeyAnswer {
            key: stringify!($key),
            effect: ChangeEffect::$effect,
            how: $how,
            restart_when: answers!(@when $($when)?),
        }),*];

        /// Does not compile if a key has no answer.
        const _: fn(Config) = |config| {
            let Config { $($key: _),* } = config;
        };
    };
    (@when) => { None };
    (@when $when:literal) => { Some($when) };
}

answers! {
    engine: Relearn, "Each port whose engine changes is attached again, and all flows prove themselves again",
        restart when "the daemon started without the programs of the new engine: those of `xdp` and `auto` are not \
            loaded with `tc` and `external`, those of `external` only with it or with `external_ports`";
    external_ports: Relearn, "As for `engine`",
        restart when "the daemon started without the programs of the external engine";
    external_core: InPlace, "The external engine starts again; meanwhile its ports use tc";
    external_wait: InPlace, "The external engine starts again; meanwhile its ports use tc";
    external_copy_vlan: InPlace, "The external engine starts again; meanwhile its ports use tc";
    ports: InPlace, "New ports are attached and others detached. Flows between the ports that stay go on, unless a \
        port that leaves was used by XDP or by the external engine: then all flows prove themselves again";
    learn: Restart, "The programs that learn are loaded at the start only";
    btf: Restart, "The types of the kernel are used when programs are loaded";
    max_flows: Restart, "The tables have a fixed size";
    reprove: InPlace, "Flows go on; the next proof of each is due by the new time";
    idle: InPlace, "Flows go on";
    udp_packets: InPlace, "Flows go on; the new number counts for those that are learned from now on";
    tcp_packets: InPlace, "Flows go on; the new number counts for those that are learned from now on";
    udp_unreplied: Relearn, "All flows prove themselves again, since some may have had no answer yet";
    exclude_mark: Relearn, "All flows prove themselves again, since only a proof sees the mark of a packet";
    exclude_ct_mark: Relearn, "All flows prove themselves again, since only a proof sees the mark of a connection";
    captures: InPlace, "Flows go on, except those of a port on which a program captures now";
    limits: InPlace, "Flows go on, unless a rule limits some traffic from now on: then all prove themselves again";
    verify_checksums: InPlace, "Flows go on",
        restart when "the new value is \"always\" and XDP programs are loaded: they verify by instructions of their own";
    look_ahead_flows: InPlace, "Flows go on";
    rest_after: InPlace, "Flows go on";
    netlink_buffer: Restart, "The kernel gives a socket its buffer when the socket is opened";
    read_group: InPlace, "Flows go on; the new group may connect from now on";
    metrics: InPlace, "Flows go on; the old address is closed and the new one opened";
    page: InPlace, "Flows go on; the old address is closed and the new one opened";
    page_token_file: InPlace, "Flows go on. The token is read at every reload, also from the same file";
    page_reports: InPlace, "Flows go on";
    hosts: InPlace, "Flows go on";
    savings: Restart, "Programs that measure are loaded at the start";
    usage: Restart, "What passes while the ledger is off must not be counted later as if it had just passed";
    log: InPlace, "Flows go on";
    qos: InPlace, "Flows go on, and what is queued stays queued. Queues that `shunt qos` has changed get the values of \
        the file";
}

impl Config {
    /// The answer of `shunt reload` to a change of each key, in the order of the file.
    pub const fn answers() -> &'static [KeyAnswer] {
        ANSWERS
    }

    /// The keys whose values differ in `new`, in the order of the file, without what a change needs. Those of queues
    /// have the names of port and class, such as `qos.wan0.class.voice.dscp`.
    pub fn changes(&self, new: &Self) -> Vec<KeyChange> {
        let (old, new) = (self.table(), new.table());
        let mut changes = Vec::new();
        for answer in ANSWERS {
            let (from, to) = (old.get(answer.key), new.get(answer.key));
            match (from, to) {
                (Some(Value::Table(from)), Some(Value::Table(to))) => {
                    let differences = queue_differences(answer.key, from, to).into_iter();
                    changes.extend(
                        differences.map(|(key, from, to)| change(key, from.as_ref(), to.as_ref(), answer)),
                    );
                }
                _ if from != to => changes.push(change(answer.key.to_owned(), from, to, answer)),
                _ => {}
            }
        }
        changes
    }

    /// This configuration, with the values of `other` for some keys.
    ///
    /// # Errors
    /// If the values make no configuration.
    pub fn with_keys_of(&self, other: &Self, keys: &[&str]) -> Result<Self, String> {
        let (mut mine, others) = (self.table(), other.table());
        for key in keys {
            if let Some(value) = others.get(*key) {
                mine.insert((*key).to_owned(), value.clone());
            }
        }
        Self::parse(&toml::to_string(&mine).map_err(|error| error.to_string())?)
    }

    fn table(&self) -> Table {
        // Cannot fail: the configuration has only values that TOML has.
        Table::try_from(self).unwrap_or_default()
    }
}

fn change(key: String, from: Option<&Value>, to: Option<&Value>, answer: &KeyAnswer) -> KeyChange {
    let text = |value: Option<&Value>| value.map_or_else(|| "none".to_owned(), Value::to_string);
    KeyChange { key, from: text(from), to: text(to), effect: answer.effect, why: answer.how.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_key_of_the_file_has_one_answer() {
        let keys: Vec<String> = Config::default().table().keys().cloned().collect();
        let answered: BTreeSet<&str> = ANSWERS.iter().map(|answer| answer.key).collect();
        assert_eq!(answered.len(), ANSWERS.len());
        assert_eq!(answered, keys.iter().map(String::as_str).collect());
        for KeyAnswer { key, effect, how, restart_when } in ANSWERS {
            assert!(!how.is_empty() && !how.ends_with('.'), "{key}");
            assert!(*effect != ChangeEffect::Restart || restart_when.is_none(), "{key}");
        }
    }

    #[test]
    fn changes_name_the_keys_with_both_values() {
        let old =
            Config::parse("idle = \"10s\"\n[qos.wan0]\nrate = \"10M\"\n[qos.wan1]\nrate = \"1M\"").unwrap();
        let new = Config::parse(
            "ports = [\"a\"]\nidle = \"1m\"\n[qos.wan0]\nrate = \"20M\"\n[qos.wan1]\nrate = \"1M\"",
        );
        let changes = old.changes(&new.unwrap());
        let said: Vec<_> =
            changes.iter().map(|one| (one.key.as_str(), one.from.as_str(), one.to.as_str())).collect();
        assert_eq!(said[..2], [("ports", "[]", "[\"a\"]"), ("idle", "\"10s\"", "\"1m\"")]);
        assert_eq!((said.len(), said[2].0), (3, "qos.wan0.rate"));
        assert!(said[2].1.contains("10") && said[2].2.contains("20"), "{said:?}");
        assert_eq!(old.changes(&old), []);
        let without = Config::default().changes(&old);
        assert_eq!((without[1].key.as_str(), without[1].from.as_str()), ("qos.wan0.rate", "none"));
    }

    #[test]
    fn some_keys_keep_their_values_and_all_values_survive() {
        let running = Config::parse("learn = false\nidle = \"10s\"\nmetrics = 9469").unwrap();
        let text = "max_flows = 64\nreprove = \"250ms\"\nexternal_core = 3\nexclude_mark = \"0x10/0xf0\"\npage = 9470\n\
                    [qos.wan0]\nrate = \"10M\"\n[[qos.wan0.class]]\nname = \"voice\"\ndscp = [\"ef\"]\nmark = [\"7\"]";
        let file = Config::parse(text).unwrap();
        assert_eq!(file.with_keys_of(&running, &[]).unwrap(), file);
        let mixed = file.with_keys_of(&running, &["learn", "max_flows"]).unwrap();
        assert!(!mixed.learn && mixed.max_flows == 0 && mixed.idle == file.idle && mixed.qos == file.qos);
    }
}
