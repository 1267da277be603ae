//! Writing a register or a field of it.

use super::args::{Target, source_failed};
use crate::{commands::reg::view::Written, failure::usage};
use shunt_api::Failure;
use shunt_inspect::reg::{Access, Decoded, Field, Register, Selector};

/// A write of one register.
#[derive(Debug)]
pub(crate) struct Write {
    register: Register,
    field: Option<Field>,
    value: u64,
    confirmed: bool,
}

impl Write {
    pub(super) fn resolve(
        target: &Target,
        typed: &Selector,
        value: u64,
        confirmed: bool,
    ) -> Result<Self, Failure> {
        let one = typed.only(&target.definitions).map_err(|error| target.not_found(error))?;
        let (register, field) = (one.register, one.field);
        let access = field.and_then(|field| field.access).unwrap_or(register.access);
        if !access.can_write() {
            return Err(usage(format!("{typed} can only be read")));
        }
        let max = field.map_or(register.max(), |field| field.mask() >> field.low);
        if value > max {
            return Err(usage(format!("{typed}: {value:#x} is too large; the maximum is {max:#x}")));
        }
        if field.is_some() && (!register.access.can_read() || register.read_clears) {
            let why = "the other bits cannot be preserved, because reading the register clears it or returns nothing meaningful";
            return Err(usage(format!("{typed}: {why}; write all of {}", register.name)));
        }
        if !target.reaches(register) {
            return Err(usage(format!("--from {1} cannot reach {0}", register.name, target.source)));
        }
        Ok(Self { register: register.clone(), field: field.cloned(), value, confirmed })
    }

    /// Writes, if confirmed, and reads back.
    pub(super) fn run(self, target: &Target) -> Result<Written, Failure> {
        let all = &target.definitions;
        if let Some(why) = target.refusal(&self.register) {
            return Err(usage(format!("{}: {why}", self.register.name)));
        }
        let readable = self.register.access.can_read() && !self.register.read_clears;
        let before = readable.then(|| self.read(target)).transpose()?;
        let value = self.combined(before.unwrap_or(0));
        let mut after = None;
        if self.confirmed {
            let done = target.source.write(all, &self.register, value).map_err(source_failed)?;
            done.map_err(|why| usage(format!("{}: {why}", self.register.name)))?;
            after = readable.then(|| self.read(target)).transpose()?;
        }
        let decoded = |value| Decoded::new(all, &self.register, value);
        Ok(Written {
            written: self.confirmed,
            took: after.map(|after| self.took(after)),
            before: before.map(decoded),
            value: decoded(value),
            after: after.map(decoded),
        })
    }

    fn read(&self, target: &Target) -> Result<u64, Failure> {
        let reading = target.read(&[&self.register])?.into_iter().next();
        let why = |why: Option<String>| usage(format!("{}: {}", self.register.name, why.unwrap_or_default()));
        let reading = reading.ok_or_else(|| why(None))?;
        reading.value.ok_or_else(|| why(reading.unread))
    }

    /// The value to write: a field takes the other bits from what is there, except bits that a 1 would clear.
    fn combined(&self, before: u64) -> u64 {
        let Some(field) = &self.field else { return self.value };
        let own = |one: &Field| one.access.unwrap_or(self.register.access) == Access::WriteOneToClear;
        let cleared = match self.register.access {
            Access::WriteOneToClear => self.register.max(),
            _ => self.register.fields.iter().filter(|one| own(one)).fold(0, |bits, one| bits | one.mask()),
        };
        before & !cleared & !field.mask() | self.value << field.low
    }

    /// Whether the register has the value that was written; for write-one-to-clear, whether the bits are clear.
    fn took(&self, after: u64) -> bool {
        let (mask, low) =
            self.field.as_ref().map_or((self.register.max(), 0), |field| (field.mask(), field.low));
        let access = self.field.as_ref().and_then(|field| field.access).unwrap_or(self.register.access);
        match access {
            Access::WriteOneToClear => after & mask & self.value << low == 0,
            _ => after & mask == self.value << low,
        }
    }
}

/// The definitions that a test needs.
#[cfg(test)]
pub(super) fn example() -> shunt_inspect::reg::Definitions {
    let text = "[block]\nname = \"B\"\n[register.MIX]\noffset = 0\n\
                fields = { DONE = { bits = \"0\", access = \"w1c\" }, MODE = \"6:4\", ON = \"1\" }\n\
                [register.EV]\noffset = 4\naccess = \"w1c\"\nfields = { A = \"0\", B = \"1\" }\n\
                [register.OUT]\noffset = 8\naccess = \"wo\"\n[register.IN]\noffset = 12\naccess = \"ro\"\n";
    shunt_inspect::reg::parse_toml(text).unwrap()
}
