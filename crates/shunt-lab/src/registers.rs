//! Registers that are read before and after each step of a measurement. Who defines and reads them is behind a trait.

use crate::{counters::Change, traffic::Error};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The device of changes of counting registers.
pub const DEVICE: &str = "registers";

/// Registers by name, with their source.
pub trait Registers: fmt::Debug + Send + Sync {
    /// The values now, in the order of the registers; None for one that cannot be read.
    ///
    /// # Errors
    /// Fails if the source cannot be read.
    fn values(&self) -> Result<Vec<Option<u64>>, Error>;
    /// The registers that differ between two readings. `before` and `after` are in the order of the registers.
    fn changes(&self, before: &[Option<u64>], after: &[Option<u64>]) -> RegisterChanges;
}

/// The changes of registers from one reading to the next.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RegisterChanges {
    /// Changes of registers that count.
    pub counters: Vec<Change>,
    /// Registers that do not count.
    pub others: Vec<RegisterChange>,
}

/// A change of a register that does not count, or whose count is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterChange {
    /// Name of the register.
    pub register: String,
    /// The earlier value; absent if the register was not read.
    pub before: Option<u64>,
    /// The later value; absent if the register was not read.
    pub after: Option<u64>,
    /// The fields that changed: name, earlier and later value. Empty if the register has no fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<(String, u64, u64)>,
}
