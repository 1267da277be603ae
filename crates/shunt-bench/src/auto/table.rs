//! The table of the engine that Shunt chooses beside Linux alone.

use super::{MORE, TEST_BEDS, reading_names};
use crate::{
    rig::{
        live::{GENERATED, TRAFFIC},
        path::Path,
    },
    table_cells::with_range,
};
use shunt_lab::Results;
use std::fmt::Write;

pub fn ratios(results: &Results) -> anyhow::Result<String> {
    let mut text = "| topology | traffic | CPU time per packet, % of Linux's | the same, redirect only | goodput, % of Linux's | \
        the same, redirect only |\n| --- | --- | ---: | ---: | ---: | ---: |"
        .to_owned();
    let traffic = TRAFFIC.iter().chain(&MORE).map(|traffic| traffic.name).chain([GENERATED]);
    for bed in TEST_BEDS {
        for traffic in traffic.clone() {
            let figures = [Path::Auto, Path::BareTc].map(|path| reading_names(bed.name, traffic, path));
            let [[cpu, goodput], [bare_cpu, bare_goodput]] = figures;
            if !results.readings.contains_key(&cpu) {
                continue;
            }
            write!(text, "\n| {} | {traffic} |", bed.name)?;
            for name in [cpu, bare_cpu, goodput, bare_goodput] {
                let figure = match results.readings.contains_key(&name) {
                    true => with_range(results, &name, 100.0, 0)?,
                    false => "-".to_owned(),
                };
                write!(text, " {figure} |")?;
            }
        }
    }
    Ok(text)
}
