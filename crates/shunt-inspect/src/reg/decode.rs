//! Splits a register's value into fields.

use super::{Access, Definitions, Register};
use serde::Serialize;

/// A value, decoded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decoded {
    /// The register's name.
    pub register: String,
    /// Physical address, or register number on MDIO.
    pub address: u64,
    /// Width in bits.
    pub width: u8,
    /// The undecoded value.
    pub value: u64,
    /// What software may do with the register.
    pub access: Access,
    /// The purpose of the register; may be empty.
    pub about: String,
    /// The fields, from the highest bits down.
    pub fields: Vec<DecodedField>,
    /// Bits that are 1 and belong to no field; absent if there are no fields, or no such bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undefined_bits: Option<u64>,
}

/// A field of a decoded register.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DecodedField {
    /// The field's name.
    pub name: String,
    /// Highest bit.
    pub high: u8,
    /// Lowest bit.
    pub low: u8,
    /// The field's value.
    pub value: u64,
    /// The meaning of the value; None if the definitions do not name it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meaning: Option<String>,
    /// The purpose of the field; may be empty.
    pub about: String,
}

impl Decoded {
    /// Decodes a value of a register. Bits beyond the register's width are ignored.
    pub fn new(all: &Definitions, register: &Register, value: u64) -> Self {
        let value = value & register.max();
        let mut fields: Vec<DecodedField> = register
            .fields
            .iter()
            .map(|field| {
                let value = field.extract(value);
                DecodedField {
                    name: field.name.clone(),
                    high: field.high,
                    low: field.low,
                    value,
                    meaning: field.values.get(&value).cloned(),
                    about: field.about.clone(),
                }
            })
            .collect();
        fields.sort_by_key(|field| std::cmp::Reverse((field.high, field.low)));
        let defined = register.fields.iter().fold(0, |bits, field| bits | field.mask());
        let undefined = value & !defined;
        Self {
            register: register.name.clone(),
            address: all.address(register).unwrap_or(register.offset),
            width: register.width,
            value,
            access: register.access,
            about: register.about.clone(),
            fields,
            undefined_bits: (!register.fields.is_empty() && undefined != 0).then_some(undefined),
        }
    }

    /// The value of a field; None if there is no field of this name.
    pub fn field(&self, name: &str) -> Option<u64> {
        self.fields.iter().find(|field| field.name == name).map(|field| field.value)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{builtin, parse_dat},
        *,
    };

    #[test]
    fn flow_control_is_what_changed_between_two_values_of_rcr() {
        let all = builtin("imx6q").unwrap();
        let rcr = all.register("ENET_RCR").unwrap();
        let [before, after] = [0x05ee_0244, 0x05ee_0264].map(|value| Decoded::new(&all, rcr, value));
        assert_eq!(before.address, 0x0218_8084);
        let ones =
            ["MAX_FL", "RGMII_EN", "MII_MODE", "RMII_10T", "FCE", "PROM"].map(|name| before.field(name));
        assert_eq!(ones, [Some(1518), Some(1), Some(1), Some(1), Some(0), Some(0)]);
        let differ: Vec<_> =
            before.fields.iter().zip(&after.fields).filter(|(a, b)| a.value != b.value).collect();
        assert_eq!(differ.len(), 1);
        assert_eq!((differ[0].1.name.as_str(), differ[0].1.value), ("FCE", 1));
        assert_eq!(before.undefined_bits, None);
        assert_eq!(Decoded::new(&all, rcr, 1 << 10).undefined_bits, Some(1 << 10));
    }

    #[test]
    fn a_field_may_have_all_bits_of_its_register() {
        let all = parse_dat("R 0x10\n:ALL:31-0\n").unwrap();
        let decoded = Decoded::new(&all, &all.registers[0], 0xffff_ffff);
        assert_eq!((decoded.field("ALL"), decoded.undefined_bits), (Some(0xffff_ffff), None));
    }
}
