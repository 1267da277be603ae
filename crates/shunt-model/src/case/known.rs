//! Costs that nobody has measured.
//!
//! An unknown cost has the value 0 in its field and its name in [`Case::unknown`], so that no prediction takes the 0
//! for a fact.

use super::{Case, Direction, Impossible, Interrupt, Path, Protocol, Receive, number::parse_number};
use std::collections::BTreeSet;
use toml::{Table, Value};

/// The word that stands for an unknown cost in a case file.
const UNKNOWN: &str = "unknown";
/// What a path costs is unknown unless a case file says it. Every other cost that a file leaves out is 0.
const PATHS: [&str; 4] = ["slow_ns", "tc_ns", "xdp_ns", "external_ns"];

/// Whether a parameter is a cost, which may be unknown.
pub(super) fn is_cost(name: &str) -> bool {
    let section = name.split('.').next().unwrap_or_default();
    ["memory", "driver", "cpu", "forward"].contains(&section) && name.ends_with("_ns")
}

/// What the text of an unknown cost says of it: nothing, or a range.
pub(super) fn unknown(text: &str) -> Option<Option<(f64, f64)>> {
    if text.trim() == UNKNOWN {
        return Some(None);
    }
    let (low, high) = text.split_once("..")?;
    let range = (parse_number(low)?, parse_number(high)?);
    (range.0 < range.1).then_some(Some(range))
}

fn text(range: Option<(f64, f64)>) -> String {
    range.map_or(UNKNOWN.to_owned(), |(low, high)| format!("{low}..{high}"))
}

/// Takes the unknown costs out of the text of a case.
pub(super) fn take_unknown(table: &mut Table) -> Vec<(String, Option<(f64, f64)>)> {
    let forward = table.get("forward").and_then(Value::as_table);
    let left_out = PATHS.iter().filter(|key| forward.is_none_or(|keys| !keys.contains_key(**key)));
    let mut all: Vec<_> = left_out.map(|key| (format!("forward.{key}"), None)).collect();
    for (section, keys) in table.iter_mut() {
        let Some(keys) = keys.as_table_mut() else { continue };
        keys.retain(|key, value| {
            let name = format!("{section}.{key}");
            let known = value.as_str().filter(|_| is_cost(&name)).and_then(unknown);
            known.map(|range| all.push((name, range))).is_none()
        });
    }
    all
}

/// Writes the unknown costs into the table of a case.
pub(super) fn put_unknown(case: &Case, table: &mut Table) {
    for (name, range) in &case.unknown {
        let Some((section, key)) = name.split_once('.') else { continue };
        if let Some(value) = table.get_mut(section).and_then(|keys| keys.get_mut(key)) {
            *value = Value::String(text(*range));
        }
    }
}

impl Case {
    /// The costs that a prediction of this case depends on.
    fn needed_costs(&self) -> Vec<&'static str> {
        let tcp = self.traffic.protocol == Protocol::Tcp;
        let mut needed = match self.forward.path {
            _ if self.ends_here() => Vec::new(),
            Path::External => return vec!["forward.external_ns"],
            Path::Slow if tcp => vec!["forward.slow_ns", "forward.slow_nat_ns", "forward.slow_tcp_ns"],
            Path::Slow => vec!["forward.slow_ns", "forward.slow_nat_ns"],
            Path::Tc => vec!["forward.tc_ns"],
            Path::Xdp => vec!["forward.xdp_ns"],
        };
        match self.traffic.direction {
            Direction::Rx => needed.push("cpu.stack_rx_ns"),
            Direction::Tx => needed.extend(["cpu.stack_tx_ns", "driver.tx_ns"]),
            Direction::Forward | Direction::Both => needed.push("driver.tx_ns"),
        }
        let (ends_here, receives) = (self.ends_here(), self.traffic.direction != Direction::Tx || tcp);
        if ends_here {
            needed.extend(["cpu.socket_ns", "memory.cached_ns", "memory.checksum_ns"]);
            needed.extend(tcp.then_some("cpu.ack_ns"));
            if self.traffic.ping_every_us > 0.0 {
                needed.extend([
                    "cpu.stack_rx_ns",
                    "cpu.stack_tx_ns",
                    "driver.rx_ns",
                    "driver.tx_ns",
                    "cpu.irq_ns",
                ]);
            }
        }
        if ends_here || self.driver.touched_lines == 0 {
            needed.push("memory.maintain_ns");
        }
        if receives {
            needed.extend(["driver.rx_ns", "driver.descriptor_ns", "cpu.irq_ns"]);
            needed.extend((!self.driver.recycle).then_some("driver.buffer_ns"));
            needed.extend((self.driver.receive == Receive::Fragments).then_some("driver.fragment_ns"));
            let uncached = self.memory.uncached || self.ring.descriptor_bytes > 0;
            needed.extend(uncached.then_some("memory.uncached_ns"));
            let cold = !self.memory.uncached && (ends_here || self.driver.receive != Receive::Fragments);
            needed.extend(cold.then_some("memory.cold_ns"));
        }
        if self.driver.interrupt == Interrupt::PerPacket || self.driver.complete_ns > 0.0 {
            needed.extend(["driver.complete_ns", "cpu.irq_ns"]);
        }
        needed
    }

    /// The ends of a prediction that depends on costs known only as a range: settings with all of them low,
    /// and with all of them high. Empty if it depends on no such cost.
    pub fn ends(&self) -> Vec<Vec<(String, String)>> {
        let needed: BTreeSet<&'static str> = self.needed_costs().into_iter().collect();
        let range = |name: &'static str| Some((name, (*self.unknown.get(name)?)?));
        let ranges: Vec<_> = needed.into_iter().filter_map(range).collect();
        if ranges.is_empty() {
            return Vec::new();
        }
        let end = |value: fn((f64, f64)) -> f64| {
            ranges.iter().map(|(name, range)| ((*name).to_owned(), value(*range).to_string())).collect()
        };
        vec![end(|range| range.0), end(|range| range.1)]
    }

    /// Checks that every cost that a prediction depends on is known.
    pub(crate) fn check_known(&self) -> Result<(), Impossible> {
        let known = |name| Some((name, *self.unknown.get(name)?));
        let missing = self.needed_costs().into_iter().find_map(known);
        missing.map_or(Ok(()), |(name, range)| {
            Err(Impossible {
                name: name.to_owned(),
                value: text(range),
                wanted:
                    "this prediction depends on it; measure and fit it, or set it (0 if it costs nothing)"
                        .to_owned(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(text: &str) -> Case {
        Case::parse(text).unwrap()
    }

    #[test]
    fn a_path_without_a_cost_is_not_predicted() {
        let mut case = case("[traffic]\ndirection = \"forward\"\n[forward]\ntc_ns = 500.0\nslow_ns = 4000.0");
        assert!(case.check_known().is_ok());
        case.set("forward.path", "external").unwrap();
        let error = case.check_known().unwrap_err();
        assert!(error.to_string().starts_with("forward.external_ns is unknown: "), "{error}");
        assert_eq!(crate::run(&case).unwrap_err(), error);
        case.set("forward.external_ns", "2000").unwrap();
        assert!(crate::run(&case).is_ok());
        case.set("forward.external_ns", "unknown").unwrap();
        assert!(crate::run(&case).is_err());
    }

    #[test]
    fn an_unknown_cost_stays_unknown_in_a_file_and_beside_other_changes() {
        let text = "[traffic]\npayload = 1000\n[cpu]\nstack_rx_ns = \"unknown\"";
        let mut case = case(text);
        case.set("traffic.rate", "100M").unwrap();
        assert_eq!(Case::parse(&case.to_toml()).unwrap(), case);
        assert_eq!(crate::run(&case).unwrap_err().name, "cpu.stack_rx_ns");
        case.set("traffic.direction", "tx").unwrap();
        assert!(crate::run(&case).is_ok());
        case.set_number("cpu.stack_rx_ns", 5.0).unwrap();
        assert_eq!(case.number("cpu.stack_rx_ns"), Some(5.0));
    }

    #[test]
    fn a_range_gives_the_two_ends_of_the_predictions_that_depend_on_it() {
        let text = "[traffic]\ndirection = \"forward\"\npayload = 18\n[forward]\nslow_ns = 4000.0\nexternal_ns = \"3000..20000\"";
        let mut case = case(text);
        assert_eq!((case.ends().len(), Case::parse(&case.to_toml()).unwrap()), (0, case.clone()));
        case.set("forward.path", "external").unwrap();
        assert_eq!(crate::run(&case).unwrap_err().value, "3000..20000");
        let goodput = |settings: &Vec<(String, String)>| {
            let mut case = case.clone();
            settings.iter().for_each(|(name, value)| case.set(name, value).unwrap());
            crate::run(&case).unwrap().total()
        };
        let [low, high] = &case.ends()[..] else { panic!("two ends") };
        assert!((goodput(low) / goodput(high) - 20.0 / 3.0).abs() < 0.1);
        case.set("forward.external_ns", "5k..4k").unwrap_err();
        case.set("forward.external_ns", "4k..5k").unwrap();
        assert_eq!(case.ends()[1], [("forward.external_ns".to_owned(), "5000".to_owned())]);
    }

    #[test]
    fn only_a_cost_may_be_unknown() {
        assert!(Case::parse("[fifo]\nbytes = \"unknown\"").is_err());
        assert!(Case::default().set("ring.rx", "unknown").is_err());
        assert!(Case::default().check_known().is_ok(), "an ideal board costs nothing, and that is known");
    }
}
