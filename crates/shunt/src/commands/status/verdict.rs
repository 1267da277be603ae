//! The first line of `shunt status`: whether traffic is fast, or why not.

use crate::render::{style, units};
use shunt_api::{Family, Status};

/// What the state of an instance amounts to.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Verdict {
    /// No device is a port, so nothing can be forwarded.
    NoPort,
    /// Nothing has arrived, so nothing can be said.
    NoTraffic,
    /// No packet has been fast, and nothing is learned.
    Stopped,
    /// No packet has been fast yet.
    AllSlow,
    /// This share of the packets was fast.
    Fast(f64),
}

fn verdict(status: &Status) -> Verdict {
    let packets = &status.packets;
    let is_held = [Family::V4, Family::V6].iter().all(|family| status.ruleset.held.contains(family));
    match () {
        () if status.ports.is_empty() => Verdict::NoPort,
        () if packets.fast + packets.slow + packets.dropped == 0 => Verdict::NoTraffic,
        () if packets.fast > 0 => Verdict::Fast(packets.fast_share),
        () if is_held => Verdict::Stopped,
        () => Verdict::AllSlow,
    }
}

/// One line, with what to look at if not all is well.
pub(super) fn line(status: &Status) -> String {
    let causes = status.slow_causes.len() as u64;
    let below = match causes {
        0 => String::new(),
        1 => "; one lasting cause of slow traffic is below".to_owned(),
        _ => format!("; {} of slow traffic are below", units::count(causes, "lasting cause")),
    };
    let time = status.counted_s.map_or_else(|| "so far".to_owned(), |s| format!("in {}", units::time(s)));
    let text = match verdict(status) {
        Verdict::NoPort => style::bad("nothing can be fast: this instance has no port"),
        Verdict::NoTraffic => format!("cannot tell yet: no packet has arrived through a port {time}"),
        Verdict::Stopped => style::warning("nothing is fast: learning is off"),
        Verdict::AllSlow => style::warning("nothing is fast yet: all packets so far took the slow path"),
        Verdict::Fast(share) => {
            let word = if causes == 0 { style::good("fast") } else { "fast".to_owned() };
            format!("{word}: {} of all packets {time}", units::percent(share))
        }
    };
    format!("{text}{below}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{commands::status::sample::status, render::style::plain};

    #[test]
    fn the_line_says_no_more_than_the_counters_carry() {
        let mut status = status();
        let said = |status: &Status| plain(&line(status));
        assert_eq!(
            said(&status),
            "fast: 99.9 % of all packets in 1d 2h 3m 4s; one lasting cause of slow traffic is below\n"
        );
        // Counters go on over a restart, and so does their time.
        status.uptime_s = 3;
        assert!(said(&status).starts_with("fast: 99.9 % of all packets in 1d 2h 3m 4s;"));
        status.counted_s = None;
        assert!(said(&status).starts_with("fast: 99.9 % of all packets so far;"));
        status.slow_causes.clear();
        status.packets.fast = 0;
        assert_eq!(said(&status), "nothing is fast yet: all packets so far took the slow path\n");
        status.ruleset.held = vec![Family::V4, Family::V6];
        assert_eq!(said(&status), "nothing is fast: learning is off\n");
        (status.packets.slow, status.packets.dropped) = (0, 0);
        assert!(said(&status).starts_with("cannot tell yet: no packet has arrived"));
        status.ports.clear();
        assert_eq!(said(&status), "nothing can be fast: this instance has no port\n");
    }
}
