//! What differs between two tables of queues, by the keys inside them.

use crate::qos::{PortQos, QosClass};
use serde::Serialize;
use std::collections::BTreeSet;
use toml::{Table, Value};

/// A key inside a table, and its values; `None` where it has none.
pub(super) type Part = (String, Option<Value>, Option<Value>);

/// The keys that differ between the queues of all ports, such as `qos.wan0.rate` and `qos.wan0.class.voice.dscp`. Of
/// queues or a class that come or go, keys with default values are left out.
pub(super) fn queue_differences(of: &str, from: &Table, to: &Table) -> Vec<Part> {
    let default = table_of(&PortQos::default());
    let ports: BTreeSet<&String> = from.keys().chain(to.keys()).collect();
    let of_port = |port: &String| {
        let (name, old, new) = (format!("{of}.{port}"), from.get(port), to.get(port));
        let side = |value: Option<&'_ Value>| value.and_then(Value::as_table).cloned();
        let parts = differences(&name, side(old).as_ref(), side(new).as_ref(), &default);
        // Queues that have no key, or none that differs from the default.
        if parts.is_empty() && old != new { vec![(name, old.cloned(), new.cloned())] } else { parts }
    };
    ports.into_iter().flat_map(of_port).collect()
}

fn table_of(value: &impl Serialize) -> Table {
    // Cannot fail: queues have only values that TOML has.
    Table::try_from(value).unwrap_or_default()
}

/// The keys that differ between two tables; one of them may not exist.
fn differences(of: &str, from: Option<&Table>, to: Option<&Table>, default: &Table) -> Vec<Part> {
    let keys: BTreeSet<&String> = from.into_iter().chain(to).flat_map(Table::keys).collect();
    let mut parts = Vec::new();
    for key in keys {
        let counts = |table: Option<&Table>| table.unwrap_or(default).get(key).cloned();
        if counts(from) == counts(to) {
            continue;
        }
        let name = format!("{of}.{key}");
        let (old, new) = (from.and_then(|table| table.get(key)), to.and_then(|table| table.get(key)));
        let of_classes = class_differences(&name, old, new);
        if of_classes.is_empty() {
            parts.push((name, old.cloned(), new.cloned()));
        }
        parts.extend(of_classes);
    }
    parts
}

/// The keys that differ in classes, by their names; none if the values are no classes, or only their order differs.
fn class_differences(of: &str, from: Option<&Value>, to: Option<&Value>) -> Vec<Part> {
    let (Some(from), Some(to)) = (classes(from), classes(to)) else { return Vec::new() };
    let names: BTreeSet<&String> = from.keys().chain(to.keys()).collect();
    let default = table_of(&QosClass::default());
    let of_class = |name: &String| {
        let side = |classes: &Table| classes.get(name).and_then(Value::as_table).cloned();
        differences(&format!("{of}.{name}"), side(&from).as_ref(), side(&to).as_ref(), &default)
    };
    names.into_iter().flat_map(of_class).collect()
}

/// Classes by their names; `None` for another value.
fn classes(value: Option<&Value>) -> Option<Table> {
    let Some(value) = value else { return Some(Table::new()) };
    let named = |class: &Value| Some((class.get("name")?.as_str()?.to_owned(), class.clone()));
    value.as_array()?.iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    /// All changes from one text to another, in words.
    fn changes(old: &str, new: &str) -> Vec<String> {
        let (old, new) = (Config::parse(old).unwrap(), Config::parse(new).unwrap());
        let changes = old.changes(&new).into_iter();
        changes.map(|change| format!("{} {} {}", change.key, change.from, change.to)).collect()
    }

    #[test]
    fn a_change_of_queues_is_told_by_the_keys_that_differ() {
        let (slow, fast) = ("[qos.eth7]\nrate = \"10M\"", "[qos.eth7]\nrate = \"20M\"\noverhead = 18");
        assert_eq!(changes("", slow), ["qos.eth7.rate none \"10M\""]);
        assert_eq!(changes(slow, ""), ["qos.eth7.rate \"10M\" none"]);
        assert_eq!(changes(slow, fast), ["qos.eth7.overhead 0 18", "qos.eth7.rate \"10M\" \"20M\""]);
        let usual = changes("", "[qos.eth7]\n");
        assert!(usual.len() == 1 && usual[0].starts_with("qos.eth7 none {"), "{usual:?}");
        assert_eq!(changes("", "idle = \"1m\"\nports = [\"a\"]").len(), 2);
    }

    #[test]
    fn a_change_of_a_class_is_told_by_its_name() {
        let class =
            |name: &str, dscp: &str| format!("[[qos.wan.class]]\nname = \"{name}\"\ndscp = [\"{dscp}\"]\n");
        let (voice, bulk) = (class("voice", "ef"), class("bulk", "cs1"));
        let base = "[qos.wan]\nrate = \"10M\"\n";
        let two = format!("{base}{voice}{bulk}");
        let changed = changes(&two, &format!("{base}{}{bulk}", class("voice", "af41")));
        assert_eq!(changed.len(), 1, "{changed:?}");
        assert!(changed[0].starts_with("qos.wan.class.voice.dscp [\"ef\"] [\"af41\"]"), "{changed:?}");
        let added = changes(&format!("{base}{voice}"), &two);
        assert!(
            added.len() == 2
                && added[0].starts_with("qos.wan.class.bulk.dscp none")
                && added[1] == "qos.wan.class.bulk.name none \"bulk\"",
            "{added:?}"
        );
        let moved = changes(&two, &format!("{base}{bulk}{voice}"));
        assert!(moved.len() == 1 && moved[0].starts_with("qos.wan.class ["), "{moved:?}");
    }
}
