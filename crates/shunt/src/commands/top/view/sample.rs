//! A state of `shunt top`.

use super::{Change, PortRate, Rates, SlowReason, Top};
use crate::commands::{
    flows::sample::{hosts, tcp, udp6},
    status::sample::status,
};
use shunt_api::{Connection, Status, TopReason, Tuple};

/// Two connections of the other examples, and five more with falling rates.
pub(crate) fn top() -> Top {
    let Status { instance, uptime_s, epoch, ports, flows, slow_causes, top_reasons, epoch_moves, .. } =
        status();
    let more = (0u16..5).map(|n| Connection {
        orig: Tuple { sport: 40_100 + n, ..tcp().orig },
        rate_bps: 9_000_000 / (u64::from(n) + 1),
        rate_pps: 1810 / (u64::from(n) + 1),
        ..tcp()
    });
    let rates = Rates {
        fast_pps: 83_001,
        slow_pps: 42,
        dropped_pps: 3,
        fast_bps: 961_000_000,
        slow_bps: 52_000,
        fast_share: Some(0.9994),
    };
    let ports = ports.into_iter().map(|port| PortRate {
        name: port.name,
        engine: port.engine,
        engine_reason: port.engine_reason,
        up: port.up,
        rates: if port.up { rates } else { Rates::default() },
    });
    let slow_reasons = top_reasons.into_iter().zip([31, 11]).map(|(top, rate_pps)| {
        let TopReason { reason, packets, meaning, remedy } = top;
        SlowReason { reason, rate_pps, packets, meaning, remedy }
    });
    let change = |number, ago_s, causes: &str, stale_packets, lowest_share| {
        let causes = causes.to_owned();
        Change { number, ago_s, causes, stale_packets, lowest_share: Some(lowest_share) }
    };
    // A minute with a change in it.
    let share = |n: u32| match n {
        0..5 => None,
        30..34 => Some(f64::from(n - 29) / 5.0),
        _ => Some(0.999),
    };
    Top {
        instance,
        uptime_s,
        epoch,
        over_s: 1.02,
        flows,
        rates,
        connections: [tcp()].into_iter().chain(more).chain([udp6()]).collect(),
        hosts: hosts(),
        ports: ports.collect(),
        slow_causes,
        slow_reasons: slow_reasons.collect(),
        changes: vec![change(2, 26, "route, ruleset 3", 612, 0.202), change(1, 125, "link", 14, 0.983)],
        epoch_moves,
        stale_packets: 1626,
        shares: (0..60).map(share).collect(),
    }
}
