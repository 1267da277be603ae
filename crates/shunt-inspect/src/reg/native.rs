//! Shunt's own format of definitions: TOML, with access, clearing, widths and counters. `docs/guide/inspect.md`
//! describes it.

use super::{
    Access, Block, Bus, Counter, Definitions, EthtoolLayout, Field, Problem, Problems, Register,
    definitions::mask, problem::line_of,
};
use serde::Deserialize;
use shunt_api::reword_toml;
use std::collections::BTreeMap;
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    block: BlockText,
    #[serde(default)]
    register: BTreeMap<String, Spanned<RegisterText>>,
    counters: Option<CountersText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BlockText {
    name: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    source: String,
    #[serde(default)]
    compatible: Vec<String>,
    #[serde(default)]
    bus: Bus,
    ethtool: Option<Ethtool>,
    #[serde(default)]
    base: u64,
    #[serde(default)]
    instance: Vec<Instance>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected \"offsets\" or a list of names of registers")]
enum Ethtool {
    Offsets(OffsetsWord),
    Words(Vec<String>),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum OffsetsWord {
    Offsets,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Instance {
    soc: Vec<String>,
    name: Option<String>,
    base: u64,
    variant: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RegisterText {
    offset: u64,
    #[serde(default = "usual_width")]
    width: u8,
    #[serde(default)]
    access: Access,
    #[serde(default)]
    read_clears: bool,
    /// Width of the count, if the register counts and wraps.
    wrap: Option<u8>,
    /// Present in chips of this variant only.
    variant: Option<String>,
    #[serde(default)]
    about: String,
    #[serde(default)]
    fields: BTreeMap<String, FieldText>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected bits such as \"29:16\", or a table with `bits`")]
enum FieldText {
    Bits(String),
    Table(FieldTable),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FieldTable {
    bits: String,
    access: Option<Access>,
    #[serde(default)]
    about: String,
    #[serde(default)]
    values: BTreeMap<String, String>,
}

/// Counters of the same kind: read-only 32-bit registers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CountersText {
    bits: u8,
    #[serde(default)]
    read_clears: bool,
    #[serde(default)]
    saturates: bool,
    registers: BTreeMap<String, Spanned<CounterText>>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected an offset, or a table with `offset`, `bits` and `about`")]
enum CounterText {
    Offset(u64),
    Table(CounterTable),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CounterTable {
    offset: u64,
    /// Width of the count, if it differs from the others'.
    bits: Option<u8>,
    #[serde(default)]
    about: String,
}

fn usual_width() -> u8 {
    32
}

/// Parses a file in Shunt's format, with all instances of its block.
///
/// # Errors
/// The lines that are wrong.
pub fn parse_toml(text: &str) -> Result<Definitions, Problems> {
    read(text, None)
}

/// Parses a file in Shunt's format, with the instances of this SoC only. Without instances, the result has no block.
///
/// # Errors
/// The lines that are wrong.
pub fn parse_toml_for(text: &str, soc: &str) -> Result<Definitions, Problems> {
    read(text, Some(soc))
}

/// The SoCs that a file has instances for.
pub(super) fn socs_of(text: &str) -> Vec<String> {
    let file: Option<File> = toml::from_str(text).ok();
    file.into_iter().flat_map(|file| file.block.instance).flat_map(|instance| instance.soc).collect()
}

fn read(text: &str, soc: Option<&str>) -> Result<Definitions, Problems> {
    let file: File = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(0, |span| line_of(text, span.start));
        Problem::new(line, reword_toml(error.message()))
    })?;
    let File { block, register, counters } = file;
    let mut registers: Vec<(Register, Option<String>)> = Vec::new();
    let mut problems = Vec::new();
    for (name, typed) in register {
        let line = line_of(text, typed.span().start);
        let typed = typed.into_inner();
        let variant = typed.variant.clone();
        match typed.register(name) {
            Ok(register) => registers.push((register, variant)),
            Err(reason) => problems.push(Problem::new(line, reason)),
        }
    }
    if let Some(counters) = counters {
        for (name, typed) in counters.registers {
            let line = line_of(text, typed.span().start);
            let (offset, bits, about) = match typed.into_inner() {
                CounterText::Offset(offset) => (offset, counters.bits, String::new()),
                CounterText::Table(table) => (table.offset, table.bits.unwrap_or(counters.bits), table.about),
            };
            if !(1..=32).contains(&bits) {
                problems.push(Problem::new(line, format!("{name}: a counter has 1 to 32 bits, not {bits}")));
                continue;
            }
            let counter = Some(Counter { bits, saturates: counters.saturates });
            let register = Register {
                name,
                block: None,
                offset,
                width: 32,
                access: Access::ReadOnly,
                read_clears: counters.read_clears,
                counter,
                about,
                fields: Vec::new(),
            };
            registers.push((register, None));
        }
    }
    // TOML does not keep the order of tables.
    registers.sort_by_key(|(register, _)| register.offset);
    if problems.is_empty() { Ok(block.instances(&registers, soc)) } else { Err(Problems(problems)) }
}

impl BlockText {
    fn instances(self, registers: &[(Register, Option<String>)], soc: Option<&str>) -> Definitions {
        let ethtool = self.ethtool.map(|layout| match layout {
            Ethtool::Offsets(OffsetsWord::Offsets) => EthtoolLayout::Offsets,
            Ethtool::Words(words) => EthtoolLayout::Words(words),
        });
        let alone = Instance { soc: Vec::new(), name: None, base: self.base, variant: None };
        let instances = if self.instance.is_empty() { vec![alone] } else { self.instance };
        let mut all = Definitions::default();
        for instance in instances {
            if soc.is_some_and(|soc| !instance.soc.iter().any(|name| name == soc)) {
                continue;
            }
            let name = instance.name.unwrap_or_else(|| self.name.clone());
            let block = Block {
                title: self.title.clone(),
                source: self.source.clone(),
                base: instance.base,
                compatible: self.compatible.clone(),
                bus: self.bus,
                ethtool: ethtool.clone(),
            };
            // Several SoCs may have an instance of the same name; without a SoC, the first stands for all.
            if all.blocks.contains_key(&name) {
                continue;
            }
            let own =
                registers.iter().filter(|(_, variant)| variant.is_none() || *variant == instance.variant);
            all.registers.extend(own.map(|(register, _)| Register {
                name: format!("{name}_{}", register.name),
                block: Some(name.clone()),
                ..register.clone()
            }));
            all.blocks.insert(name, block);
        }
        all
    }
}

impl RegisterText {
    fn register(self, name: String) -> Result<Register, String> {
        if ![8, 16, 32, 64].contains(&self.width) {
            return Err(format!("{name}: width {} is not 8, 16, 32 or 64", self.width));
        }
        if let Some(bits) = self.wrap.filter(|bits| !(1..=self.width).contains(bits)) {
            return Err(format!("{name}: wrap = {bits} is not from 1 to {}", self.width));
        }
        let width = self.width;
        let field =
            |(field, typed)| typed_field(field, typed, width).map_err(|reason| format!("{name}.{reason}"));
        let mut fields = self.fields.into_iter().map(field).collect::<Result<Vec<_>, _>>()?;
        fields.sort_by_key(|field| std::cmp::Reverse(field.high));
        Ok(Register {
            name,
            block: None,
            offset: self.offset,
            width,
            access: self.access,
            read_clears: self.read_clears,
            counter: self.wrap.map(|bits| Counter { bits, saturates: false }),
            about: self.about,
            fields,
        })
    }
}

fn typed_field(name: String, typed: FieldText, width: u8) -> Result<Field, String> {
    let table = match typed {
        FieldText::Bits(bits) => {
            FieldTable { bits, access: None, about: String::new(), values: BTreeMap::new() }
        }
        FieldText::Table(table) => table,
    };
    let (high, low) = table.bits.split_once(':').unwrap_or((&table.bits, &table.bits));
    let bit = |text: &str| text.trim().parse().ok().filter(|bit: &u8| *bit < width);
    let (Some(high), Some(low)) = (bit(high), bit(low)) else {
        return Err(format!("{name}: `{}` is not a bit or HIGH:LOW below {width}", table.bits));
    };
    if high < low {
        return Err(format!("{name}: the higher bit comes first in `{}`", table.bits));
    }
    let mut values = BTreeMap::new();
    for (value, meaning) in table.values {
        let number = value.parse().ok().filter(|number| *number <= mask(high - low + 1));
        let number = number.ok_or_else(|| format!("{name}: `{value}` is not a value of the field"))?;
        values.insert(number, meaning);
    }
    Ok(Field { name, high, low, access: table.access, about: table.about, values })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: &str = r#"
[block]
name = "MAC"
base = 0x1000
[register.CTRL]
offset = 4
fields = { SPEED = { bits = "1:0", values = { 2 = "1000 Mbit/s" } }, ON = "7" }
[register.STAT]
offset = 2
width = 16
access = "w1c"
read_clears = true
[register.BYTES]
offset = 8
wrap = 20
[counters]
bits = 16
saturates = true
registers = { DROPS = 12, LONG = { offset = 16, bits = 32, about = "bytes" } }
"#;

    #[test]
    fn registers_have_access_width_wrap_fields_and_values() {
        let all = parse_toml(MAC).unwrap();
        let names: Vec<_> = all.registers.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["MAC_STAT", "MAC_CTRL", "MAC_BYTES", "MAC_DROPS", "MAC_LONG"]);
        let [stat, ctrl, bytes, drops, long] = &all.registers[..] else { panic!() };
        assert_eq!((stat.width, stat.access, stat.read_clears), (16, Access::WriteOneToClear, true));
        assert_eq!(all.address(ctrl), Some(0x1004));
        assert_eq!(ctrl.field("speed").unwrap().values[&2], "1000 Mbit/s");
        assert_eq!((drops.about.as_str(), long.about.as_str()), ("", "bytes"));
        let counters =
            [bytes, drops, long].map(|one| one.counter.map(|counter| (counter.bits, counter.saturates)));
        assert_eq!(counters, [Some((20, false)), Some((16, true)), Some((32, true))]);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let cases = [
            ("[register.CTRL]\noffset = 4", "[register.CTRL]\noffsat = 4", 6),
            ("width = 16", "width = 24", 8),
            ("\"1:0\"", "\"0:1\"", 5),
            ("\"7\"", "\"77\"", 5),
            ("2 = \"1000", "9 = \"1000", 5),
            ("wrap = 20", "wrap = 33", 13),
            ("bits = 32", "bits = 99", 19),
            ("[block]", "[bl", 2),
        ];
        for (right, wrong, line) in cases {
            let text = MAC.replacen(right, wrong, 1);
            assert_ne!(text, MAC, "{right}");
            let problems = parse_toml(&text).unwrap_err().0;
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(
                problems[0].line.abs_diff(line) <= 1 && !problems[0].reason.is_empty(),
                "{wrong}: {problems:?}"
            );
        }
    }
}
