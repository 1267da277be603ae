//! The answers of `shunt reg`, and their text.

use crate::render::{Answer, Format, columns::align};
use serde::{Serialize, Serializer, ser::SerializeMap};
use shunt_inspect::reg::{
    Access, Decoded, DecodedField, Definitions, Difference, Problem, Reading, Register, Selector, Snapshot,
};
use std::path::PathBuf;

/// An answer of `shunt reg`.
#[derive(Debug)]
pub(crate) enum Registers {
    Decoded(Box<Decoded>),
    /// With the lines of the definitions that are legal but doubtful.
    List(Vec<Listed>, Vec<Problem>),
    Values(Vec<Value>),
    Written(Box<Written>),
    Snapshot(Snapshot),
    Saved {
        path: PathBuf,
        registers: usize,
    },
    Differences(Vec<Difference>),
    Changed {
        at: String,
        changes: Vec<Difference>,
    },
}

/// A register, as defined.
#[derive(Debug, Serialize)]
pub(crate) struct Listed {
    address: u64,
    #[serde(flatten)]
    register: Register,
}

/// A register that was read, or why it was not.
#[derive(Debug)]
pub(crate) struct Value {
    pub(crate) register: String,
    pub(crate) unread: Option<String>,
    decoded: Option<Decoded>,
}

/// The outcome of `shunt reg write`.
#[derive(Debug)]
pub(crate) struct Written {
    /// Whether it was written, not only shown.
    pub(crate) written: bool,
    /// Whether reading back gave what was written; none if it cannot be read back.
    pub(crate) took: Option<bool>,
    pub(crate) before: Option<Decoded>,
    pub(crate) value: Decoded,
    pub(crate) after: Option<Decoded>,
}

impl Listed {
    pub(crate) fn new(all: &Definitions, register: &Register) -> Self {
        Self { address: all.address(register).unwrap_or(register.offset), register: register.clone() }
    }
}

impl Value {
    pub(crate) fn new(all: &Definitions, register: &Register, reading: Reading) -> Self {
        let decoded = reading.value.map(|value| Decoded::new(all, register, value));
        Self { register: register.name.clone(), unread: reading.unread, decoded }
    }

    /// Keeps only the field that was named, if one was.
    pub(crate) fn only(mut self, typed: &[(Selector, bool)]) -> Self {
        let names = |one: &Selector| {
            let text = one.to_string();
            let (register, field) = text.split_once('.')?;
            register.eq_ignore_ascii_case(&self.register).then(|| field.to_owned())
        };
        let fields: Option<Vec<String>> = typed.iter().map(|(one, _)| names(one)).collect();
        if let (Some(fields), Some(decoded)) = (fields, &mut self.decoded) {
            decoded.fields.retain(|field| fields.iter().any(|name| name.eq_ignore_ascii_case(&field.name)));
        }
        self
    }
}

/// The JSON of a decoded value: `fields` by name, and their bits and meanings in `details`.
#[derive(Serialize)]
struct DecodedJson<'d> {
    register: &'d str,
    address: u64,
    width: u8,
    value: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    access: Access,
    about: &'d str,
    #[serde(serialize_with = "by_name")]
    fields: &'d [DecodedField],
    details: &'d [DecodedField],
    #[serde(skip_serializing_if = "Option::is_none")]
    undefined_bits: Option<u64>,
}

fn by_name<S: Serializer>(fields: &[DecodedField], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(fields.len()))?;
    for field in fields {
        map.serialize_entry(&field.name, &field.value)?;
    }
    map.end()
}

fn json(decoded: &Decoded) -> DecodedJson<'_> {
    DecodedJson {
        register: &decoded.register,
        address: decoded.address,
        width: decoded.width,
        value: decoded.value,
        count: decoded.count,
        access: decoded.access,
        about: &decoded.about,
        fields: &decoded.fields,
        details: &decoded.fields,
        undefined_bits: decoded.undefined_bits,
    }
}

impl Serialize for Registers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Decoded(decoded) => json(decoded).serialize(serializer),
            Self::List(list, _) => list.serialize(serializer),
            Self::Values(values) => serializer.collect_seq(values.iter().map(|value| {
                match &value.decoded {
                    Some(decoded) => serde_json::to_value(json(decoded)),
                    None => Ok(serde_json::json!({"register": value.register, "unread": value.unread})),
                }
                .unwrap_or_default()
            })),
            Self::Written(written) => serde_json::json!({
                "written": written.written, "took": written.took, "before": written.before.as_ref().map(json),
                "value": json(&written.value), "after": written.after.as_ref().map(json),
            })
            .serialize(serializer),
            Self::Snapshot(snapshot) => snapshot.serialize(serializer),
            Self::Saved { path, registers } => {
                serde_json::json!({"path": path, "registers": registers}).serialize(serializer)
            }
            Self::Differences(changes) => changes.serialize(serializer),
            Self::Changed { at, changes } => {
                serde_json::json!({"at": at, "changes": changes}).serialize(serializer)
            }
        }
    }
}

impl Answer for Registers {
    fn text(&self, format: Format) -> String {
        describe(self, format.verbose)
    }

    fn json(&self) -> serde_json::Result<String> {
        if matches!(self, Self::Changed { .. }) {
            crate::render::json_line(self)
        } else {
            crate::render::json(self)
        }
    }
}

fn describe(answer: &Registers, verbose: bool) -> String {
    match answer {
        Registers::Decoded(decoded) => fields(decoded, true),
        Registers::List(list, warnings) => {
            let warnings = warnings.iter().filter(|_| verbose);
            describe_list(list, verbose)
                + &warnings.map(|one| format!("doubtful: {one}\n")).collect::<String>()
        }
        Registers::Values(values) => values.iter().map(|value| describe_value(value, verbose)).collect(),
        Registers::Written(written) => describe_written(written),
        // The text is what `shunt reg diff` reads.
        Registers::Snapshot(snapshot) => serde_json::to_string_pretty(snapshot).unwrap_or_default() + "\n",
        Registers::Saved { path, registers } => format!("{}: {registers} registers\n", path.display()),
        Registers::Differences(changes) if changes.is_empty() => "no register differs\n".to_owned(),
        Registers::Differences(changes) => changes.iter().map(describe_difference).collect(),
        Registers::Changed { at, changes } => {
            changes.iter().map(|change| format!("{at}  {}", describe_difference(change))).collect()
        }
    }
}

fn hexadecimal(value: u64, width: u8) -> String {
    format!("{value:#0digits$x}", digits = usize::from(width / 4) + 2)
}

fn fields(decoded: &Decoded, about: bool) -> String {
    let value = hexadecimal(decoded.value, decoded.width);
    let at = if decoded.width == 16 && decoded.address < 32 {
        decoded.address.to_string()
    } else {
        format!("{:#010x}", decoded.address)
    };
    let count = decoded.count.map_or(String::new(), |count| format!("  {count}"));
    let head = format!("{}  {at}  {value}{count}  {}", decoded.register, decoded.about);
    let row = |field: &DecodedField| {
        let bits = if field.high == field.low {
            field.low.to_string()
        } else {
            format!("{}:{}", field.high, field.low)
        };
        let value = if field.value > 9 {
            format!("{} ({:#x})", field.value, field.value)
        } else {
            field.value.to_string()
        };
        let meaning = field.meaning.clone().unwrap_or_default();
        let text = [meaning, if about { field.about.clone() } else { String::new() }];
        let text: Vec<_> = text.into_iter().filter(|text| !text.is_empty()).collect();
        vec![format!("  {}", field.name), bits, value, text.join("; ")]
    };
    let rows: Vec<_> = decoded.fields.iter().map(row).collect();
    let undefined = decoded.undefined_bits.map(|bits| format!("  bits without a field: {bits:#x}\n"));
    format!("{}\n{}{}", head.trim_end(), align("<><", &rows), undefined.unwrap_or_default())
}

fn describe_value(value: &Value, verbose: bool) -> String {
    match (&value.decoded, &value.unread) {
        (Some(decoded), _) => fields(decoded, verbose),
        (None, why) => format!("{}  not read: {}\n", value.register, why.clone().unwrap_or_default()),
    }
}

fn describe_list(list: &[Listed], verbose: bool) -> String {
    let access = |access: Access| match access {
        Access::ReadWrite => "rw",
        Access::ReadOnly => "ro",
        Access::WriteOnly => "wo",
        Access::WriteOneToClear => "w1c",
    };
    let mut rows = vec![["register", "address", "bits", "access", ""].map(str::to_owned).to_vec()];
    for Listed { address, register } in list {
        let mut notes = vec![register.about.clone()];
        notes.extend(register.counter.map(|counter| {
            format!(
                "counts with {} bits and {}",
                counter.bits,
                if counter.saturates { "stops at its maximum" } else { "wraps" }
            )
        }));
        notes.extend(register.read_clears.then(|| "reading clears it".to_owned()));
        if verbose {
            notes.extend(
                register.fields.iter().map(|field| format!("{}:{}-{}", field.name, field.high, field.low)),
            );
        }
        notes.retain(|note| !note.is_empty());
        let width = register.width.to_string();
        rows.push(vec![
            register.name.clone(),
            format!("{address:#010x}"),
            width,
            access(register.access).to_owned(),
            notes.join("; "),
        ]);
    }
    align("<>><<", &rows)
}

fn describe_written(written: &Written) -> String {
    let value = |decoded: &Decoded| hexadecimal(decoded.value, decoded.width);
    let before = written.before.as_ref().map_or("not readable".to_owned(), value);
    let line = format!("{}: {before} -> {}", written.value.register, value(&written.value));
    match (written.written, written.took) {
        (false, _) => format!("{line}\nnothing was written; --write does it\n"),
        (true, None) => format!("{line}\nwritten; it cannot be read back\n"),
        (true, Some(true)) => format!("{line}\nwritten, and read back\n"),
        (true, Some(false)) => {
            let after = written.after.as_ref().map_or(String::new(), value);
            format!("{line}\nwritten, but it reads back as {after}\n")
        }
    }
}

fn describe_difference(change: &Difference) -> String {
    let value = |value: Option<u64>| value.map_or("not read".to_owned(), |value| format!("{value:#x}"));
    let mut text = format!("{}  {} -> {}", change.register, value(change.before), value(change.after));
    let fields: Vec<_> = change
        .fields
        .iter()
        .map(|field| format!("{} {} -> {}", field.name, field.before, field.after))
        .collect();
    if !fields.is_empty() {
        text += &format!("  ({})", fields.join(", "));
    }
    if let Some(rise) = change.rise {
        text += &format!("  +{rise}");
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{JSON, TEXT, assert_golden};
    use shunt_inspect::reg::builtin;

    /// The register that had flow control off in the i.MX6's measurements.
    fn register() -> Registers {
        let all = builtin("imx6q").unwrap();
        let decoded = Decoded::new(&all, all.register("ENET_RCR").unwrap(), 0x05ee_0244);
        Registers::Decoded(Box::new(decoded))
    }

    #[test]
    fn texts_match_their_golden_files() {
        assert_golden("golden/reg-decode.txt", &register(), TEXT);
        assert_golden("golden/reg-decode.json", &register(), JSON);
    }
}
