//! The table of the cost of a packet by the number of flows.

use super::{ENGINES, reading_name};
use crate::table_cells::{reading, with_range};
use shunt_lab::Results;
use shunt_model::FlowOrder;
use std::fmt::Write;

const FLOWS: [(u64, &str); 3] = [(1_000, "1,000"), (100_000, "100,000"), (1_000_000, "1,000,000")];

pub fn costs(results: &Results) -> anyhow::Result<String> {
    let mut text = "| flows | order |".to_owned();
    for engine in ENGINES {
        write!(text, " {}, ns | × 1,000 |", engine.replace('-', " "))?;
    }
    write!(text, "\n| ---: | --- |{}", " ---: | ---: |".repeat(ENGINES.len()))?;
    for (order, label) in [(FlowOrder::Sequence, "in turn"), (FlowOrder::Random, "random")] {
        for (flows, number) in FLOWS {
            write!(text, "\n| {number} | {label} |")?;
            for engine in ENGINES {
                let name = |flows| reading_name(flows, order, engine);
                let ratio =
                    reading(results, &name(flows))?.value / reading(results, &name(FLOWS[0].0))?.value;
                let ratio = if flows == FLOWS[0].0 { String::new() } else { format!("{ratio:.2}") };
                write!(text, " {} | {ratio} |", with_range(results, &name(flows), 1.0, 0)?)?;
            }
        }
    }
    Ok(text)
}

/// The engine xdp with look-ahead and without.
pub fn look_ahead(with: &Results, without: &Results) -> anyhow::Result<String> {
    let mut text = "| flows | order | xdp without look-ahead, ns | with look-ahead, ns | ratio |\n\
        | ---: | --- | ---: | ---: | ---: |"
        .to_owned();
    for (order, label) in [(FlowOrder::Sequence, "in turn"), (FlowOrder::Random, "random")] {
        for (flows, number) in FLOWS {
            let name = reading_name(flows, order, "xdp");
            let ratio = reading(with, &name)?.value / reading(without, &name)?.value;
            let [without, with] = [without, with].map(|results| with_range(results, &name, 1.0, 0));
            write!(text, "\n| {number} | {label} | {} | {} | {ratio:.2} |", without?, with?)?;
        }
    }
    Ok(text)
}
