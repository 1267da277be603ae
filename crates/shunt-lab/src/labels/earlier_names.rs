//! Labels for files of versions whose readings had names only, such as `UDP IPv4 NAT forward tc loss`.

use super::Quantity;
use crate::{
    Labels, PathLabel, Protocol, Results,
    goodput::Cell,
    iperf::{Direction, Way},
};

const WHAT: &str = "goodput matrix";

/// Labels the readings of a goodput matrix that have no labels.
pub(crate) fn label_earlier(results: &mut Results) {
    if results.what != WHAT || results.readings.values().any(|reading| !reading.labels.is_empty()) {
        return;
    }
    for (name, reading) in &mut results.readings {
        reading.labels = labels(name).unwrap_or_default();
    }
}

fn labels(name: &str) -> Option<Labels> {
    let mut words: Vec<&str> = name.split(' ').collect();
    let quantity = match *words.last()? {
        "loss" => Quantity::Loss,
        "jitter" => Quantity::Jitter,
        "CPU" => Quantity::CpuLoad,
        "/proc/stat" => Quantity::ProcStat,
        _ => Quantity::Goodput,
    };
    if quantity != Quantity::Goodput {
        words.pop();
    }
    let engine = PathLabel::from_name(words.pop()?)?;
    let (direction, way) = match words[..] {
        [.., "duplex", "reverse"] => (Direction::Duplex, Way::Reverse),
        [.., "duplex"] | [.., "duplex", "forward"] => (Direction::Duplex, Way::Forward),
        [.., "reverse"] => (Direction::Reverse, Way::Reverse),
        [.., "forward"] => (Direction::Forward, Way::Forward),
        _ => return None,
    };
    let protocol =
        [Protocol::Tcp, Protocol::Udp].into_iter().find(|one| Some(&one.name()) == words.first())?;
    let has = |word: &str| words.contains(&word);
    let cell =
        Cell { protocol, v6: has("IPv6"), nat: has("NAT"), vlan: has("VLAN"), direction, rate_bps: None };
    Some(cell.labels(way, Some(engine), quantity))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_labels_that_its_reading_gets_today() {
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            for direction in [Direction::Forward, Direction::Reverse, Direction::Duplex] {
                for (v6, nat, vlan) in [(false, true, false), (true, false, true)] {
                    let cell = Cell { protocol, v6, nat, vlan, direction, rate_bps: None };
                    for way in direction.ways() {
                        for quantity in [Quantity::Goodput, Quantity::Loss, Quantity::CpuLoad] {
                            for path in PathLabel::ALL {
                                let name = cell.reading(*way, path.name(), quantity);
                                assert_eq!(
                                    labels(&name),
                                    Some(cell.labels(*way, Some(path), quantity)),
                                    "{name}"
                                );
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn other_names_have_no_labels() {
        for name in
            ["idle", "slow", "TCP IPv4 forward fast", "64 xdp to slow", "", "TCP IPv4 forward tc to slow"]
        {
            assert_eq!(labels(name), None, "{name}");
        }
    }
}
