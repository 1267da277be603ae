//! The cells of `shunt bench matrix`.

use super::{load::busiest, setting::settings};
use shunt_lab::{Reading, Results};
use shunt_model::{Observation, Quantity};
use std::collections::BTreeMap;

/// What one kind of traffic reached with one path.
#[derive(Debug, Default)]
struct Cell {
    /// In Mbit/s, both ways together.
    goodput: Option<f64>,
    /// In percent, the mean of both ways.
    losses: Vec<f64>,
    load: Option<f64>,
}

/// The observations of each cell, by the names of the readings: `UDP IPv4 NAT forward tc`, perhaps followed by the
/// quantity.
pub(super) fn observations(results: &Results) -> Vec<Observation> {
    let mut cells: BTreeMap<(String, &str), Cell> = BTreeMap::new();
    for (name, reading) in &results.readings {
        insert(&mut cells, name, reading);
    }
    cells.iter().flat_map(|((traffic, path), cell)| cell.observations(traffic, path)).collect()
}

fn insert<'n>(cells: &mut BTreeMap<(String, &'n str), Cell>, name: &'n str, reading: &Reading) {
    let mut words: Vec<&str> = name.split(' ').collect();
    let quantity = match words.last() {
        Some(&("loss" | "CPU" | "jitter" | "/proc/stat")) => words.pop(),
        _ => None,
    };
    let Some(path) = words.pop().filter(|path| ["slow", "tc", "xdp"].contains(path)) else { return };
    // Full duplex has a reading for each way.
    if let [.., "duplex", "forward" | "reverse"] = words[..] {
        words.pop();
    }
    if !["TCP", "UDP"].contains(words.first().unwrap_or(&"")) {
        return;
    }
    let cell = cells.entry((words.join(" "), path)).or_default();
    match quantity {
        None => *cell.goodput.get_or_insert(0.0) += reading.value,
        Some("loss") => cell.losses.push(reading.value),
        Some("CPU") => cell.load = Some(busiest(reading)),
        Some(_) => {}
    }
}

impl Cell {
    fn observations(&self, traffic: &str, path: &str) -> Vec<Observation> {
        let Some(goodput) = self.goodput else { return Vec::new() };
        let words: Vec<&str> = traffic.split(' ').collect();
        let has = |wanted: &str| words.contains(&wanted);
        let (tcp, v6, ways) = (has("TCP"), has("IPv6"), if has("duplex") { 2.0 } else { 1.0 });
        let payload = 1500 - if v6 { 40 } else { 20 } - if tcp { 32 } else { 8 };
        let mut set = vec![
            ("traffic.direction", if has("duplex") { "both" } else { "forward" }.to_owned()),
            ("traffic.protocol", if tcp { "tcp" } else { "udp" }.to_owned()),
            ("traffic.ip", if v6 { "6" } else { "4" }.to_owned()),
            ("traffic.tags", u8::from(has("VLAN")).to_string()),
            ("traffic.payload", payload.to_string()),
            ("forward.path", path.to_owned()),
        ];
        let loss = self.losses.iter().sum::<f64>() / self.losses.len().max(1) as f64;
        if !tcp {
            // What arrived and what was lost is what was offered.
            let offered = goodput * 1e6 / ways / (1.0 - loss / 100.0).max(0.001);
            set.push(("traffic.rate", offered.to_string()));
        }
        if !has("NAT") {
            set.push(("forward.slow_nat_ns", "0".to_owned()));
        }
        let settings = settings(&set);
        let figures = [
            (Quantity::Goodput, Some(goodput)),
            (Quantity::Loss, (!self.losses.is_empty()).then_some(loss)),
            (Quantity::Cpu, self.load),
        ];
        let one = |(quantity, value): (Quantity, Option<f64>)| {
            value.map(|value| Observation { settings: settings.clone(), quantity, value })
        };
        figures.into_iter().filter_map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_matrix_is_read_with_both_ways_added_up() {
        let results = Results::parse(include_str!("../../bench/goodput/golden/bench-matrix.json")).unwrap();
        let all = observations(&results);
        let value = |traffic: &[(&str, &str)], quantity| {
            let has = |one: &&Observation| {
                one.quantity == quantity
                    && traffic.iter().all(|(name, value)| {
                        one.settings.contains(&((*name).to_owned(), (*value).to_owned()))
                    })
            };
            all.iter().find(has).map(|one| one.value)
        };
        let up = [("traffic.protocol", "tcp"), ("traffic.direction", "forward"), ("forward.path", "tc")];
        assert_eq!(value(&up, Quantity::Goodput), Some(939.0));
        assert_eq!(value(&up, Quantity::Loss), None);
        let duplex = [("traffic.ip", "6"), ("traffic.direction", "both"), ("forward.path", "slow")];
        assert_eq!(value(&duplex, Quantity::Goodput), Some(187.0 + 188.0));
        let udp = [("traffic.protocol", "udp"), ("forward.path", "slow"), ("forward.slow_nat_ns", "0")];
        assert_eq!(value(&udp, Quantity::Loss), Some(50.3));
        let rate = all.iter().find(|one| one.settings.iter().any(|(_, value)| value == "udp")).unwrap();
        let rate = rate.settings.iter().find(|(name, _)| name == "traffic.rate").unwrap();
        // 475 Mbit/s are what 50.3 % loss left.
        assert!((rate.1.parse::<f64>().unwrap() / 955.7e6 - 1.0).abs() < 0.001, "{rate:?}");
    }

    #[test]
    fn other_readings_are_no_cells() {
        let results = Results::parse(include_str!("../../bench/goodput/golden/bench-matrix.json")).unwrap();
        let reading = results.readings.values().next().unwrap();
        let mut cells = BTreeMap::new();
        for name in ["idle", "slow", "TCP IPv4 forward auto", "64 xdp to slow", ""] {
            insert(&mut cells, name, reading);
        }
        assert!(cells.is_empty(), "{cells:?}");
    }
}
