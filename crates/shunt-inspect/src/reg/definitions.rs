//! Definitions of registers, independent of the file format.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The registers of a file, or of a chip.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Definitions {
    /// Blocks of registers by name; registers without a block have absolute addresses.
    pub blocks: BTreeMap<String, Block>,
    /// The registers, in the order of the file.
    pub registers: Vec<Register>,
    /// Lines that are legal but probably a mistake.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<super::Problem>,
}

/// A device whose registers have offsets from one base address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Block {
    /// Full name of the device.
    pub title: String,
    /// The document that defines the registers.
    pub source: String,
    /// Physical address of offset 0.
    pub base: u64,
    /// Values of `compatible` in a device tree that mark such a device.
    pub compatible: Vec<String>,
    /// How to access the registers.
    pub bus: Bus,
    /// The layout of the driver's `ethtool -d`; None if the driver has none, or an unknown one.
    pub ethtool: Option<EthtoolLayout>,
}

/// A way to access registers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bus {
    /// Loads and stores at physical addresses.
    #[default]
    Memory,
    /// MDIO: offsets are register numbers.
    Mdio,
}

/// The layout of registers in a driver's `ethtool -d`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum EthtoolLayout {
    /// Each register at its own offset.
    Offsets,
    /// These 32-bit registers, one after the other; an empty name is a word that is not a register.
    Words(Vec<String>),
}

/// A register.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Register {
    /// Full name, with that of the block: `ENET_RCR`.
    pub name: String,
    /// Name of the block; None if the address is absolute.
    pub block: Option<String>,
    /// Offset from the block's base, or the absolute address.
    pub offset: u64,
    /// Width in bits: 8, 16, 32 or 64.
    pub width: u8,
    /// What software may do with it.
    pub access: Access,
    /// Whether reading changes the register's value.
    pub read_clears: bool,
    /// Width and overflow of a counting register; None for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counter: Option<Counter>,
    /// The purpose of the register; may be empty.
    pub about: String,
    /// The fields, in the order of the file.
    pub fields: Vec<Field>,
}

/// Access that software has to a register or a field.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Read and write.
    #[default]
    #[serde(rename = "rw")]
    ReadWrite,
    /// Read only.
    #[serde(rename = "ro")]
    ReadOnly,
    /// Write only: a value that is read is meaningless.
    #[serde(rename = "wo")]
    WriteOnly,
    /// Write 1 to clear; writing 0 changes nothing.
    #[serde(rename = "w1c")]
    WriteOneToClear,
}

/// The width of a counter, and its behaviour at the maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Counter {
    /// Width of the count in bits, which may be less than the register's.
    pub bits: u8,
    /// Whether the counter stays at its maximum instead of wrapping to 0.
    pub saturates: bool,
}

/// Bits of a register.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Field {
    /// Name without that of the register.
    pub name: String,
    /// Highest bit.
    pub high: u8,
    /// Lowest bit.
    pub low: u8,
    /// Access, if it differs from the register's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// The purpose of the field; may be empty.
    pub about: String,
    /// Values with a name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<u64, String>,
}

impl Access {
    /// Whether a value that is read is meaningful.
    pub fn can_read(self) -> bool {
        self != Self::WriteOnly
    }

    /// Whether a write has an effect.
    pub fn can_write(self) -> bool {
        self != Self::ReadOnly
    }
}

impl Counter {
    /// The increase between two readings, modulo 2^bits if the counter wraps. None if the count went back without
    /// wrapping, or is stuck at its maximum.
    pub fn rise(self, before: u64, after: u64) -> Option<u64> {
        let max = mask(self.bits);
        match self.saturates {
            true if after == max => None,
            true => after.checked_sub(before),
            false => Some(after.wrapping_sub(before) & max),
        }
    }
}

impl Field {
    /// The bits of the field, in place.
    pub fn mask(&self) -> u64 {
        mask(self.high - self.low + 1) << self.low
    }

    /// Extracts the field from a register's value.
    pub fn extract(&self, value: u64) -> u64 {
        (value & self.mask()) >> self.low
    }
}

impl Register {
    /// Width in bytes.
    pub fn bytes(&self) -> u64 {
        u64::from(self.width / 8)
    }

    /// The largest value of the field.
    pub fn max(&self) -> u64 {
        mask(self.width)
    }

    /// The field with this name, ignoring case.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name.eq_ignore_ascii_case(name))
    }
}

impl Definitions {
    /// Physical address of a register, or its number on MDIO; None if it is beyond 64 bits.
    pub fn address(&self, register: &Register) -> Option<u64> {
        let block = register.block.as_ref().and_then(|name| self.blocks.get(name));
        block.map_or(0, |block| block.base).checked_add(register.offset)
    }

    /// The block of a register; None if its address is absolute.
    pub fn block(&self, register: &Register) -> Option<&Block> {
        self.blocks.get(register.block.as_ref()?)
    }

    /// The register with exactly this name, ignoring case.
    pub fn register(&self, name: &str) -> Option<&Register> {
        self.registers.iter().find(|register| register.name.eq_ignore_ascii_case(name))
    }

    /// Adds the registers of another file.
    pub fn extend(&mut self, other: Self) {
        self.blocks.extend(other.blocks);
        self.registers.extend(other.registers);
        self.warnings.extend(other.warnings);
    }
}

/// The lowest `bits` bits.
pub(super) fn mask(bits: u8) -> u64 {
    match bits {
        0 => 0,
        1..64 => (1 << bits) - 1,
        _ => u64::MAX,
    }
}
