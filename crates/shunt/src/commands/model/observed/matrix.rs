//! The cells of `shunt bench matrix`.

use super::{load::busiest, setting::settings};
use shunt_lab::{Labels, Measured, PathLabel, Protocol, Results, iperf::Direction};
use shunt_model::{Observation, Quantity};
use std::collections::BTreeMap;

/// The figures of one kind of traffic on one path.
#[derive(Debug)]
struct Cell {
    labels: Labels,
    /// In Mbit/s, both ways together.
    goodput: Option<f64>,
    /// In percent, the mean of both ways.
    losses: Vec<f64>,
    load: Option<f64>,
}

/// The observations of each cell, by the labels of the readings. The model knows the paths slow, tc and xdp; the second
/// value names the paths that were left out.
pub(super) fn observations(results: &Results) -> (Vec<Observation>, Vec<PathLabel>) {
    let mut cells: BTreeMap<String, Cell> = BTreeMap::new();
    let mut left_out = Vec::new();
    for reading in results.readings.values() {
        let labels = reading.labels;
        let (Some(engine), Some(_)) = (labels.engine, labels.protocol) else { continue };
        if matches!(engine, PathLabel::External | PathLabel::Auto) {
            left_out.push(engine);
            continue;
        }
        let kind = Labels { quantity: None, way: None, ..labels };
        let empty = Cell { labels, goodput: None, losses: Vec::new(), load: None };
        let cell = cells.entry(format!("{kind:?}")).or_insert(empty);
        match labels.quantity {
            Some(Measured::Goodput) => *cell.goodput.get_or_insert(0.0) += reading.value,
            Some(Measured::Loss) => cell.losses.push(reading.value),
            Some(Measured::CpuLoad) => cell.load = Some(busiest(reading)),
            _ => {}
        }
    }
    left_out.sort_unstable();
    left_out.dedup();
    (cells.values().flat_map(Cell::observations).collect(), left_out)
}

impl Cell {
    fn observations(&self) -> Vec<Observation> {
        let Some(goodput) = self.goodput else { return Vec::new() };
        let Labels { engine, protocol, ip, nat, tags, direction, mtu, write_bytes, .. } = self.labels;
        let (tcp, v6, duplex) =
            (protocol == Some(Protocol::Tcp), ip == Some(6), direction == Some(Direction::Duplex));
        let full = mtu.unwrap_or(1500) - if v6 { 40 } else { 20 } - if tcp { 32 } else { 8 };
        // TCP puts small writes together.
        let payload = write_bytes.filter(|_| !tcp).unwrap_or(full);
        let mut set = vec![
            ("traffic.direction", if duplex { "both" } else { "forward" }.to_owned()),
            ("traffic.protocol", if tcp { "tcp" } else { "udp" }.to_owned()),
            ("traffic.ip", if v6 { "6" } else { "4" }.to_owned()),
            ("traffic.tags", tags.unwrap_or(0).to_string()),
            ("traffic.payload", payload.to_string()),
            ("forward.path", engine.map_or("slow", PathLabel::name).to_owned()),
        ];
        let loss = self.losses.iter().sum::<f64>() / self.losses.len().max(1) as f64;
        if !tcp {
            // What arrived and what was lost is what was offered.
            let ways = if duplex { 2.0 } else { 1.0 };
            let offered = goodput * 1e6 / ways / (1.0 - loss / 100.0).max(0.001);
            set.push(("traffic.rate", offered.to_string()));
        }
        if nat != Some(true) {
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
        let (all, left_out) = observations(&results);
        assert!(left_out.is_empty(), "{left_out:?}");
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
    fn paths_that_the_model_does_not_know_are_named() {
        let mut results =
            Results::parse(include_str!("../../bench/goodput/golden/bench-matrix.json")).unwrap();
        for reading in results.readings.values_mut() {
            reading.labels.engine = Some(PathLabel::External);
        }
        let (all, left_out) = observations(&results);
        assert!(all.is_empty() && left_out == [PathLabel::External], "{all:?} {left_out:?}");
        for reading in results.readings.values_mut() {
            reading.labels = Labels::default();
        }
        assert_eq!(observations(&results).1, []);
    }
}
