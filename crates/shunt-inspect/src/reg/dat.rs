//! The `.dat` files of devregs: a register, its fields and sets of fields, one a line.
//!
//! ```text
//! /iomux_pad                           a set of fields: the fields below belong to it
//!         :HYS:16
//!         :DSE:5-3
//! ENET_RCR        0x02188084           a register, its address in hexadecimal; .b, .w or .l for 8, 16 or 32 bits
//!         :FCE:5                       a field: one bit, or two in either order
//!         :iomux_pad/                  the fields of a set
//! ```
//!
//! `#` and `//` begin a comment. A comment `# shunt: ro w1c wo rc wrap=16` on a register's line gives attributes that
//! the grammar has no place for; devregs ignores it.

use super::{Access, Counter, Definitions, Field, Problem, Problems, Register};
use std::collections::BTreeMap;

/// Fields are added to the register or the set that was named last.
enum Target {
    None,
    Register,
    Set(String),
}

struct Parser {
    all: Definitions,
    sets: BTreeMap<String, Vec<Field>>,
    target: Target,
    problems: Vec<Problem>,
}

/// Parses a whole `.dat` file.
///
/// # Errors
/// Lists every line that breaks the grammar.
pub fn parse_dat(text: &str) -> Result<Definitions, Problems> {
    let mut parser = Parser {
        all: Definitions::default(),
        sets: BTreeMap::new(),
        target: Target::None,
        problems: Vec::new(),
    };
    for (number, line) in (1..).zip(text.lines()) {
        if let Err(reason) = parser.line(number, line) {
            parser.problems.push(Problem::new(number, reason));
        }
    }
    if parser.problems.is_empty() { Ok(parser.all) } else { Err(Problems(parser.problems)) }
}

impl Parser {
    fn line(&mut self, number: usize, line: &str) -> Result<(), String> {
        let (content, comment) = split_comment(line);
        let content = content.trim_matches(|c: char| c.is_whitespace() || c.is_control());
        match content.chars().next() {
            None => Ok(()),
            Some('/') => self.begin_set(number, &content[1..]),
            Some(':') => self.field_or_set(number, &content[1..]),
            Some(first) if first.is_ascii_alphabetic() || first == '_' => {
                self.register(number, content, comment)
            }
            Some(_) => Err(format!(
                "expected a register (NAME 0xADDRESS), a field (:NAME:BITS) or a set (/NAME), got `{}`",
                shortened(content)
            )),
        }
    }

    fn begin_set(&mut self, number: usize, name: &str) -> Result<(), String> {
        let name = whole_name(name, "the name of a set of fields")?;
        if self.sets.insert(name.to_owned(), Vec::new()).is_some() {
            self.warn(number, format!("the set `{name}` is defined twice; this one counts from here on"));
        }
        self.target = Target::Set(name.to_owned());
        Ok(())
    }

    fn register(&mut self, number: usize, content: &str, comment: &str) -> Result<(), String> {
        let (name, rest) = content.split_at(name_length(content));
        let address = rest.trim_start();
        // The fields below belong to this register, even if its address is wrong.
        self.target = Target::Register;
        let mut register = Register {
            name: name.to_owned(),
            block: None,
            offset: 0,
            width: 32,
            access: Access::ReadWrite,
            read_clears: false,
            counter: None,
            about: String::new(),
            fields: Vec::new(),
        };
        let place = if address.len() == rest.len() && !rest.is_empty() {
            Err(format!(
                "a name has only letters, digits and `_`, but `{}` follows `{name}`",
                shortened(rest)
            ))
        } else {
            address_and_width(name, address)
        };
        let attributes = place.and_then(|(offset, width)| {
            (register.offset, register.width) = (offset, width);
            attributes(comment, &mut register)
        });
        self.place(number, register);
        attributes
    }

    /// Adds a register. A register that is defined again at the same address gets further fields.
    fn place(&mut self, number: usize, register: Register) {
        let twin = self.all.registers.iter().position(|one| one.name == register.name);
        match twin.map(|at| (at, self.all.registers[at].offset == register.offset)) {
            Some((at, true)) => {
                let first = self.all.registers.remove(at);
                self.all.registers.push(Register { fields: first.fields, ..register });
            }
            Some((at, false)) => {
                let other = self.all.registers[at].offset;
                let name = &register.name;
                self.warn(number, format!("the register `{name}` is at {other:#x}, too"));
                self.all.registers.push(register);
            }
            None => self.all.registers.push(register),
        }
    }

    fn field_or_set(&mut self, number: usize, content: &str) -> Result<(), String> {
        let content = content.trim_start();
        let (name, rest) = content.split_at(name_length(content));
        if name.is_empty() {
            return Err("a field needs a name between two colons: `:NAME:BITS`".to_owned());
        }
        match rest.chars().next() {
            Some(':') => {
                let (high, low) = bits(rest[1..].trim())?;
                let field = Field {
                    name: name.to_owned(),
                    high,
                    low,
                    access: None,
                    about: String::new(),
                    values: BTreeMap::new(),
                };
                self.add(number, vec![field])
            }
            Some('/') if rest[1..].trim().is_empty() => {
                if matches!(self.target, Target::Set(_)) {
                    return Err(format!("`:{name}/` uses a set of fields, which only a register can"));
                }
                match self.sets.get(name).cloned() {
                    Some(fields) => self.add(number, fields),
                    // devregs ignores the line, and published files contain such lines.
                    None => {
                        self.warn(number, format!("no set `/{name}` above this line"));
                        Ok(())
                    }
                }
            }
            _ => Err(format!("expected `:` and bits, or `/`, after `:{name}`, got `{}`", shortened(rest))),
        }
    }

    fn add(&mut self, number: usize, fields: Vec<Field>) -> Result<(), String> {
        match &self.target {
            Target::None => Err("a field before the first register or set".to_owned()),
            Target::Set(name) => {
                self.sets.entry(name.clone()).or_default().extend(fields);
                Ok(())
            }
            Target::Register => {
                let Some(register) = self.all.registers.last_mut() else { return Ok(()) };
                let mut doubts = Vec::new();
                for field in fields {
                    if field.high >= register.width {
                        return Err(format!(
                            "bit {} of `{}` is beyond the {} bits of {}",
                            field.high, field.name, register.width, register.name
                        ));
                    }
                    let twin = register.fields.iter().find(|one| one.name == field.name);
                    if twin == Some(&field) {
                        continue;
                    }
                    if twin.is_some() {
                        doubts.push(format!("{} has two fields `{}`", register.name, field.name));
                    }
                    register.fields.push(field);
                }
                doubts.into_iter().for_each(|doubt| self.warn(number, doubt));
                Ok(())
            }
        }
    }

    fn warn(&mut self, line: usize, reason: String) {
        self.all.warnings.push(Problem::new(line, reason));
    }
}

/// The content of a line, and its comment without the mark.
fn split_comment(line: &str) -> (&str, &str) {
    let hash = line.find('#').map(|at| (at, 1));
    let slashes = line.find("//").map(|at| (at, 2));
    let (at, length) = hash.into_iter().chain(slashes).min().unwrap_or((line.len(), 0));
    (&line[..at], &line[at + length..])
}

fn name_length(text: &str) -> usize {
    text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len())
}

fn whole_name<'t>(text: &'t str, what: &str) -> Result<&'t str, String> {
    let name = text.trim();
    let first = name.chars().next();
    if first.is_some_and(|first| !first.is_ascii_digit()) && name_length(name) == name.len() {
        return Ok(name);
    }
    Err(format!("expected {what}, of letters, digits and `_`, got `{}`", shortened(name)))
}

fn address_and_width(name: &str, text: &str) -> Result<(u64, u8), String> {
    if text.is_empty() {
        return Err(format!("`{name}` has no address: expected a hexadecimal number such as 0x02188084"));
    }
    let (address, width) = match text.split_once('.') {
        None => (text, 32),
        Some((address, width)) => match width.to_ascii_lowercase().as_str() {
            "b" => (address, 8),
            "w" => (address, 16),
            "l" => (address, 32),
            other => return Err(format!("unknown width `.{}`: expected .b, .w or .l", shortened(other))),
        },
    };
    let digits = address.strip_prefix("0x").or_else(|| address.strip_prefix("0X")).unwrap_or(address);
    let hexadecimal = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = hexadecimal.then(|| u64::from_str_radix(digits, 16).ok()).flatten();
    let number = number
        .ok_or_else(|| format!("`{}` is not a hexadecimal address of up to 64 bits", shortened(address)))?;
    if number % u64::from(width / 8) != 0 {
        return Err(format!("{number:#x} is not aligned to {} bits", width));
    }
    Ok((number, width))
}

/// Highest and lowest bit.
fn bits(text: &str) -> Result<(u8, u8), String> {
    let bit = |text: &str| {
        let number: Option<u8> = text.trim().parse().ok();
        number.filter(|bit| *bit < 64).ok_or_else(|| {
            format!(
                "`{}` is not a bit: expected a number from 0 to 31, or two with `-` between",
                shortened(text)
            )
        })
    };
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => (bit(first)?, bit(last)?),
        None => (bit(text)?, bit(text)?),
    };
    Ok((first.max(last), first.min(last)))
}

fn attributes(comment: &str, register: &mut Register) -> Result<(), String> {
    let Some(words) = comment.trim().strip_prefix("shunt:") else { return Ok(()) };
    for word in words.split_whitespace() {
        match word {
            "ro" => register.access = Access::ReadOnly,
            "wo" => register.access = Access::WriteOnly,
            "w1c" => register.access = Access::WriteOneToClear,
            "rc" => register.read_clears = true,
            _ => {
                let bits = word.strip_prefix("wrap=").and_then(|bits| bits.parse().ok());
                let Some(bits) = bits.filter(|bits| (1..=register.width).contains(bits)) else {
                    return Err(format!(
                        "unknown attribute `{}`: expected ro, wo, w1c, rc or wrap=BITS",
                        shortened(word)
                    ));
                };
                register.counter = Some(Counter { bits, saturates: false });
            }
        }
    }
    Ok(())
}

/// Shortens a text for a message.
fn shortened(text: &str) -> String {
    let mut short: String = text.trim().chars().take(40).collect();
    if short.len() < text.trim().len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests;
