//! Splits a register's value into fields.

use super::{Access, Definitions, Register, definitions::mask};
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
    /// The count, without the bits beyond its width; absent if the register does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
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
            count: register.counter.map(|counter| value & mask(counter.bits)),
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

    /// Values that were read on emulated boards while a driver was bound to the MAC.
    #[test]
    fn values_of_other_macs_have_their_meaning() {
        let decode = |soc: &str, name: &str, value| {
            let all = builtin(soc).unwrap();
            Decoded::new(&all, all.register(name).unwrap(), value)
        };
        let meaning = |decoded: &Decoded, name: &str| {
            decoded.fields.iter().find(|field| field.name == name).and_then(|field| field.meaning.clone())
        };
        let emac = decode("sun8i-h3", "EMAC_BASIC_CTL_0", 0xd);
        assert_eq!(emac.address, 0x01c3_0000);
        assert_eq!(meaning(&emac, "SPEED").as_deref(), Some("100 Mbit/s"));
        assert_eq!(meaning(&emac, "DUPLEX").as_deref(), Some("full"));
        assert_eq!(decode("sun8i-h3", "EMAC_TX_FLOW_CTL", 1).field("TX_FLOW_CTL_EN"), Some(1));
        let gem = decode("versal", "GEM0_NET_CFG", 0x0106_044a);
        assert_eq!(gem.address, 0xff0c_0004);
        let set = ["GIGE_EN", "FULL_DUPLEX", "PAUSE_EN", "RX_CHKSUM_OFFLD_EN"].map(|name| gem.field(name));
        assert_eq!(set, [Some(1), Some(1), Some(0), Some(1)]);
        let avb = decode("r8a7795", "AVB_ECMR", 0x0403_0062);
        let set = ["TXF", "RXF", "RE", "TE", "PRM"].map(|name| avb.field(name));
        assert_eq!(set, [Some(1), Some(1), Some(1), Some(1), Some(0)]);
        assert_eq!(meaning(&avb, "DM").as_deref(), Some("full duplex"));
        assert_eq!(decode("r8a7795", "AVB_CSR", 0x0010_0004).undefined_bits, None);
    }

    #[test]
    fn a_counter_has_its_count_without_the_bits_beyond_its_width() {
        let all = builtin("imx6q").unwrap();
        let lost = all.register("ENET_IEEE_R_MACERR").unwrap();
        let decoded = Decoded::new(&all, lost, 0x0001_ffff);
        assert_eq!((decoded.count, decoded.value), (Some(0xffff), 0x0001_ffff));
        assert_eq!(decoded.about, "frames lost because the receive FIFO was full");
        assert_eq!(Decoded::new(&all, all.register("ENET_RCR").unwrap(), 1).count, None);
    }

    #[test]
    fn a_field_may_have_all_bits_of_its_register() {
        let all = parse_dat("R 0x10\n:ALL:31-0\n").unwrap();
        let decoded = Decoded::new(&all, &all.registers[0], 0xffff_ffff);
        assert_eq!((decoded.field("ALL"), decoded.undefined_bits), (Some(0xffff_ffff), None));
    }
}
