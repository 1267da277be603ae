//! Labels for files of versions whose readings had names only, such as `UDP IPv4 NAT forward tc loss`.

use super::{Direction, FlowDirection, Labels, Measured, PathLabel, Protocol};

/// The labels of a reading of a goodput matrix, from its name; None for other readings.
pub(crate) fn labels(name: &str) -> Option<Labels> {
    let mut words: Vec<&str> = name.split(' ').collect();
    let (quantity, is_load) = match *words.last()? {
        "loss" => (Measured::Loss, false),
        "jitter" => (Measured::Jitter, false),
        "CPU" => (Measured::CpuLoad, true),
        "/proc/stat" => (Measured::ProcStat, true),
        _ => (Measured::Goodput, false),
    };
    if quantity != Measured::Goodput {
        words.pop();
    }
    let engine = PathLabel::from_name(words.pop()?)?;
    let (direction, way) = match words[..] {
        [.., "duplex", "reverse"] => (Direction::Duplex, Some(FlowDirection::Reverse)),
        [.., "duplex"] | [.., "duplex", "forward"] => (Direction::Duplex, Some(FlowDirection::Forward)),
        [.., "reverse"] => (Direction::Reverse, None),
        [.., "forward"] => (Direction::Forward, None),
        _ => return None,
    };
    let protocol =
        [Protocol::Tcp, Protocol::Udp].into_iter().find(|one| Some(&one.name()) == words.first())?;
    let has = |word: &str| words.contains(&word);
    Some(Labels {
        quantity: Some(quantity),
        engine: Some(engine),
        protocol: Some(protocol),
        ip: Some(if has("IPv6") { 6 } else { 4 }),
        nat: Some(has("NAT")),
        tags: Some(has("VLAN").into()),
        direction: Some(direction),
        way: way.filter(|_| !is_load),
        ..Labels::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_names_have_no_labels() {
        for name in
            ["idle", "slow", "TCP IPv4 forward fast", "64 xdp to slow", "", "TCP IPv4 forward tc to slow"]
        {
            assert_eq!(labels(name), None, "{name}");
        }
    }
}
