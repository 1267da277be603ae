//! The findings at a port of an i.MX6.

use super::{answer, view::Diagnosis};
use crate::commands::link::sample::imx6;
use shunt_inspect::doctor::System;

pub(crate) fn diagnoses() -> Vec<Diagnosis> {
    let registers = [("ENET_RCR", 0x05ee_0244), ("ENET_RSEM", 0), ("ENET_RSFL", 0)];
    let registers = registers.map(|(name, value)| (name.to_owned(), value)).into();
    let compatible = vec!["fsl,imx6q".to_owned()];
    answer(vec![System { compatible, cpus: 4, link: imx6(), registers, ..System::default() }], None)
}
