//! Registers that are read together.

use super::args::{Target, TargetArgs};
use crate::{failure::usage, output::write_stderr};
use shunt_api::Failure;
use shunt_inspect::reg::{Definitions, Reading, Register, Selector, Snapshot};

/// Chosen registers with their source, for other commands.
#[derive(Debug)]
pub(crate) struct RegisterSet {
    target: Target,
    registers: Vec<Register>,
}

impl RegisterSet {
    /// The registers that these names and patterns choose. Patterns leave out registers that reading clears.
    pub(crate) fn resolve(typed: TargetArgs, selectors: Vec<Selector>) -> anyhow::Result<Self> {
        let target = typed.resolve()?;
        let selectors = target.checked(selectors)?;
        let registers = chosen(&target, &selectors, false)?.into_iter().cloned().collect();
        Ok(Self { target, registers })
    }

    /// Reads the registers. Fails if none of them can be read.
    pub(crate) fn snapshot(&self) -> Result<Snapshot, Failure> {
        let snapshot = self.target.snapshot(&self.registers.iter().collect::<Vec<_>>())?;
        match &snapshot.readings[..] {
            [Reading { register, unread: Some(why), .. }, others @ ..]
                if others.iter().all(|one| one.unread.is_some()) =>
            {
                Err(usage(format!("{register}: {why}")))
            }
            _ => Ok(snapshot),
        }
    }

    /// A snapshot with these values, in the order of the registers.
    pub(crate) fn with_values(&self, values: &[Option<u64>]) -> Snapshot {
        let readings = self.registers.iter().zip(values);
        let reading = |(register, value): (&Register, &Option<u64>)| Reading {
            register: register.name.clone(),
            value: *value,
            unread: None,
        };
        Snapshot { readings: readings.map(reading).collect(), ..Snapshot::default() }
    }

    /// The definitions of the registers.
    pub(crate) fn definitions(&self) -> &Definitions {
        &self.target.definitions
    }

    /// Width in bits of a register that counts; none for others.
    pub(crate) fn counter_bits(&self, name: &str) -> Option<u32> {
        let register = self.registers.iter().find(|register| register.name == name)?;
        register.counter.map(|counter| counter.bits.into())
    }
}

/// The registers that were asked for and may be read.
///
/// Patterns leave out registers that cannot be read or that reading clears; a note says how many. A name that is no
/// pattern is taken as it is, except that a write-only register is refused.
pub(super) fn chosen<'p>(
    target: &'p Target,
    typed: &[(Selector, bool)],
    clear_on_read: bool,
) -> anyhow::Result<Vec<&'p Register>> {
    let mut all: Vec<&Register> = Vec::new();
    let mut cleared = 0;
    for (selector, is_pattern) in typed {
        for one in selector.select(&target.definitions).map_err(|error| target.not_found(error))? {
            let register = one.register;
            if !target.reaches(register) {
                if !is_pattern {
                    let why = format!("--from {1} cannot reach {0}", register.name, target.source);
                    return Err(usage(why).into());
                }
            } else if !register.access.can_read() {
                if !is_pattern {
                    return Err(usage(format!("{} can only be written", register.name)).into());
                }
            } else if *is_pattern && register.read_clears && !clear_on_read && target.source.is_live() {
                cleared += 1;
            } else if !all.contains(&register) {
                all.push(register);
            }
        }
    }
    if cleared > 0 {
        write_stderr(&format!(
            "shunt: {cleared} registers left out, because reading clears them; --clear-on-read reads them\n"
        ));
    }
    if all.is_empty() {
        return Err(
            usage(format!("none of these registers can be read with --from {}", target.source)).into()
        );
    }
    Ok(all)
}

impl Target {
    pub(super) fn snapshot(&self, registers: &[&Register]) -> Result<Snapshot, Failure> {
        let readings: Vec<Reading> = self.read(registers)?;
        let at = humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string();
        Ok(Snapshot { from: self.source.to_string(), at, readings })
    }
}
