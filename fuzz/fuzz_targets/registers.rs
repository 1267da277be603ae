//! Definitions and dumps of registers: none may panic, hang or take much memory, and what is parsed is consistent.
#![no_main]

use libfuzzer_sys::fuzz_target;
use shunt_inspect::reg::{Decoded, parse_dat, parse_ethtool_dump, parse_regmap, parse_svd, parse_toml};

fuzz_target!(|input: (u8, &str)| {
    let (kind, text) = input;
    let parsed = match kind % 5 {
        0 => parse_dat(text),
        1 => parse_svd(text),
        2 => parse_toml(text),
        3 => return drop(parse_ethtool_dump(text)),
        _ => return drop(parse_regmap(text)),
    };
    match parsed {
        Ok(all) => {
            for register in &all.registers {
                assert!(register.fields.iter().all(|field| field.low <= field.high && field.high < register.width));
                Decoded::new(&all, register, u64::MAX);
            }
        }
        Err(problems) => assert!(!problems.0.is_empty()),
    }
});
