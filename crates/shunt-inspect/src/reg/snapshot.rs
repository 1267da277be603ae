//! The values of many registers at one time, and the differences between two snapshots.

use super::{Decoded, Definitions, Register};
use serde::{Deserialize, Serialize};

/// Values of registers, in a file that `shunt reg diff` reads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The source of the values, in the form of `--from`.
    pub from: String,
    /// Time of the reading, in UTC by RFC 3339.
    pub at: String,
    /// The readings, in the order of the definitions.
    pub readings: Vec<Reading>,
}

/// The value of a register, or the reason why it was not read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// Name of the register.
    pub register: String,
    /// The value; absent if the register was not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<u64>,
    /// Why the register was not read; absent if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<String>,
}

/// A register whose value differs between two snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Name of the register.
    pub register: String,
    /// The earlier value; absent if the register was not read.
    pub before: Option<u64>,
    /// The later value; absent if the register was not read.
    pub after: Option<u64>,
    /// The fields that changed.
    pub fields: Vec<FieldChange>,
    /// The increase of a counter; a lower bound if it wrapped. Absent for other registers, and for counters that were
    /// reset or stuck.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rise: Option<u64>,
}

/// A field whose value differs between two snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldChange {
    /// The field's name.
    pub name: String,
    /// The value of the field in the first snapshot.
    pub before: u64,
    /// The value of the field in the second snapshot.
    pub after: u64,
}

impl Reading {
    /// A value, or the reason why there is none.
    pub fn new(register: &Register, value: Result<u64, String>) -> Self {
        let (value, unread) = match value {
            Ok(value) => (Some(value), None),
            Err(why) => (None, Some(why)),
        };
        Self { register: register.name.clone(), value, unread }
    }
}

/// The registers whose values differ, in the order of the second snapshot; then those that only the first has.
pub fn diff(all: &Definitions, before: &Snapshot, after: &Snapshot) -> Vec<Difference> {
    let value = |of: &Snapshot, name: &str| {
        of.readings.iter().find(|one| one.register == name).and_then(|one| one.value)
    };
    let gone = before
        .readings
        .iter()
        .filter(|one| !after.readings.iter().any(|other| other.register == one.register));
    let names = after.readings.iter().chain(gone).map(|one| &one.register);
    let changes = names.filter_map(|name| {
        let (old, new) = (value(before, name), value(after, name));
        (old != new).then(|| difference(all, name, old, new))
    });
    changes.collect()
}

fn difference(all: &Definitions, name: &str, before: Option<u64>, after: Option<u64>) -> Difference {
    let mut difference =
        Difference { register: name.to_owned(), before, after, fields: Vec::new(), rise: None };
    let (Some(register), Some(before), Some(after)) = (all.register(name), before, after) else {
        return difference;
    };
    let [old, new] = [before, after].map(|value| Decoded::new(all, register, value).fields);
    let changed = old.into_iter().zip(new).filter(|(old, new)| old.value != new.value);
    difference.fields = changed
        .map(|(old, new)| FieldChange { name: old.name, before: old.value, after: new.value })
        .collect();
    difference.rise = register.counter.and_then(|counter| counter.rise(before, after));
    difference
}

#[cfg(test)]
mod tests {
    use super::{super::builtin, *};

    fn snapshot(values: &[(&str, u64)]) -> Snapshot {
        let reading = |(name, value): &(&str, u64)| Reading {
            register: (*name).to_owned(),
            value: Some(*value),
            unread: None,
        };
        Snapshot { readings: values.iter().map(reading).collect(), ..Snapshot::default() }
    }

    #[test]
    fn a_difference_names_the_fields_and_how_much_counters_rose() {
        let all = builtin("imx6q").unwrap();
        let before = snapshot(&[
            ("ENET_RCR", 0x05ee_0244),
            ("ENET_ECR", 0x2),
            ("ENET_IEEE_T_FDXFC", 0xf544),
            ("GONE", 1),
        ]);
        let after = snapshot(&[("ENET_RCR", 0x05ee_0264), ("ENET_ECR", 0x2), ("ENET_IEEE_T_FDXFC", 0x0310)]);
        let got = diff(&all, &before, &after);
        let names: Vec<_> = got.iter().map(|one| one.register.as_str()).collect();
        assert_eq!(names, ["ENET_RCR", "ENET_IEEE_T_FDXFC", "GONE"]);
        assert_eq!(got[0].fields, [FieldChange { name: "FCE".to_owned(), before: 0, after: 1 }]);
        // 16 bits: the count wrapped.
        assert_eq!((got[1].rise, got[2].after), (Some(3532), None));
        assert_eq!(diff(&all, &after, &after), []);
    }

    #[test]
    fn a_counter_that_stops_at_its_maximum_has_no_rise() {
        let all = builtin("zynq").unwrap();
        let rise = |before, after| {
            let [before, after] = [before, after].map(|value| snapshot(&[("GEM0_RX_OVERRUN_ERRORS", value)]));
            diff(&all, &before, &after)[0].rise
        };
        assert_eq!((rise(1, 5), rise(1, 0x3ff), rise(5, 1)), (Some(4), None, None));
    }
}
