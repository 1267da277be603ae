//! The lines about what the fast path saves: in `shunt`, `shunt status` and `shunt top --once`.

use super::costs::{core_time, cores_of, counted, two_digits};
use crate::render::units;
use shunt_api::{Bounds, CannotTell, OwnCosts, PathCosts, SamplingCosts, Savings};

/// The share of a week's packets from which on nothing is said about the rest.
const NEARLY_ALL: f64 = 0.95;

/// One line; with `verbose`, more for the costs behind it. Empty if the daemon is older.
pub(crate) fn lines(savings: Option<&Savings>, verbose: bool) -> String {
    let Some(savings) = savings else { return String::new() };
    let mut text = format!("saves    {}{}\n", now(savings), week(savings));
    if verbose {
        text += &savings.costs.as_ref().map_or_else(String::new, path_costs);
        text += &savings.sampling.as_ref().map_or_else(String::new, sampling);
    }
    text
}

fn now(savings: &Savings) -> String {
    match (&savings.now_cores, &savings.now_unknown) {
        (Some(cores), _) => {
            let period = units::time(OwnCosts::NOW_S);
            format!("now about {} ({}, over {period})", cores_of(cores.value), doubt(cores))
        }
        (None, Some(why)) => format!("now: cannot tell: {why}"),
        (None, None) => "now: cannot tell".to_owned(),
    }
}

fn week(savings: &Savings) -> String {
    let share = savings.week_known_share;
    let Some(hours) = &savings.week_core_hours else {
        let is_off = matches!(savings.now_unknown, Some(CannotTell::Off));
        return match share {
            _ if is_off || share <= 0.0 => String::new(),
            ..NEARLY_ALL => {
                let share = units::percent(share);
                format!("; this week: cannot tell yet: the costs of {share} of the fast packets are known")
            }
            _ => "; this week: cannot tell yet: the measurements differ".to_owned(),
        };
    };
    let part = if share < NEARLY_ALL {
        format!(", for {} of the fast packets", units::percent(share))
    } else {
        String::new()
    };
    let (time, counted) = (core_time(hours.value), counted(savings.week_counted_hours));
    format!("; this week {time} ({}, {counted}{part})", doubt(hours))
}

/// What the measurement itself costs.
fn sampling(costs: &SamplingCosts) -> String {
    let SamplingCosts { period_s, rounds, packets, daemon_cores, packets_cores } = costs;
    let period = units::time(period_s.round() as u64);
    let packets = units::count(*packets, "packet");
    let (rounds, daemon) = (units::count(u64::from(*rounds), "round"), two_digits(*daemon_cores));
    match packets_cores {
        Some(cores) => format!(
            "         measuring that: {} over {period} (daemon {daemon}; {packets} by Linux {}), {rounds}\n",
            cores_of(daemon_cores + cores),
            two_digits(*cores),
        ),
        None => format!(
            "         measuring that: daemon {} over {period}, and {packets} by Linux, whose cost is not known yet; {rounds}\n",
            cores_of(*daemon_cores)
        ),
    }
}

/// The costs of both paths.
fn path_costs(costs: &PathCosts) -> String {
    let PathCosts { slow_ns, fast_ns, saved_ns, rounds, measured_ago_s } = costs;
    format!(
        "         a packet: {slow_ns:.0} ns by Linux, {fast_ns:.0} ns fast, {:.0} ns less ({:.0} to {:.0}), {} measured {} ago\n",
        saved_ns.value,
        saved_ns.low,
        saved_ns.high,
        units::count(u64::from(*rounds), "round"),
        units::time(measured_ago_s.round() as u64),
    )
}

/// `± 20 %`: half of the interval.
pub(crate) fn doubt(bounds: &Bounds) -> String {
    format!("± {:.0} %", (bounds.relative() * 100.0).ceil())
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_api::CannotTell;

    fn bounds(value: f64, half: f64) -> Bounds {
        Bounds { value, low: value - half, high: value + half }
    }

    #[test]
    fn a_figure_has_its_doubt_and_the_part_of_the_traffic_that_it_is_about() {
        let mut savings = Savings {
            now_cores: Some(bounds(0.41, 0.05)),
            week_core_hours: Some(bounds(3.1, 0.6)),
            week_known_share: 0.99,
            week_counted_hours: 100.0,
            ..Savings::default()
        };
        assert_eq!(
            lines(Some(&savings), false),
            "saves    now about 0.41 of a core (± 13 %, over 10s); this week 3.1 core hours (± 20 %, counted for 4d 4h)\n"
        );
        savings.week_known_share = 0.8;
        let text = lines(Some(&savings), false);
        assert!(text.ends_with("(± 20 %, counted for 4d 4h, for 80.0 % of the fast packets)\n"), "{text}");
        savings.week_core_hours = None;
        let text = lines(Some(&savings), false);
        assert!(
            text.ends_with(
                "; this week: cannot tell yet: the costs of 80.0 % of the fast packets are known\n"
            ),
            "{text}"
        );
        savings.week_known_share = 0.0;
        assert!(!lines(Some(&savings), false).contains("this week"));
    }

    #[test]
    fn the_measurement_says_what_it_costs_itself() {
        let costs = SamplingCosts {
            period_s: 3600.0,
            rounds: 58,
            packets: 240_000,
            daemon_cores: 0.000_04,
            packets_cores: Some(0.000_2),
        };
        let said = |sampling| lines(Some(&Savings { sampling: Some(sampling), ..Savings::default() }), true);
        assert!(said(costs.clone()).ends_with(
            "measuring that: 0.00024 of a core over 1h (daemon 0.00004; 240000 packets by Linux 0.0002), 58 rounds\n"
        ), "{}", said(costs.clone()));
        let unknown = said(SamplingCosts { packets_cores: None, ..costs });
        assert!(unknown.contains("whose cost is not known yet; 58 rounds"), "{unknown}");
    }

    #[test]
    fn without_a_figure_the_line_says_why_and_what_would_tell() {
        let unknown = |why| Savings { now_unknown: Some(why), ..Savings::default() };
        let said = |why| lines(Some(&unknown(why)), true);
        assert_eq!(
            said(CannotTell::FewPackets { least_pps: 500 }),
            "saves    now: cannot tell: fewer than 500 packets/s on the fast path; more traffic would tell\n"
        );
        let few = said(CannotTell::FewRounds { have: 2, need: 6, wait_s: 40 });
        assert!(
            few.contains("2 of 6 measurements under such traffic are made")
                && few.contains("about 40 s of it would tell"),
            "{few}"
        );
        let uncertain = |wait_s| said(CannotTell::Uncertain { low: -0.001, high: 0.012, wait_s });
        assert!(uncertain(Some(100)).contains("about 2 min more of such traffic would tell"));
        assert!(uncertain(None).contains("more packets/s would tell"));
        assert!(
            said(CannotTell::Merging { high: 0.31 })
                .contains("now: cannot tell: at most 0.310 cores: without XDP")
        );
        assert!(said(CannotTell::Loaded { busy: 0.31 }).contains("packets take 31 % of a core"));
        assert_eq!(lines(None, true), "");
    }
}
