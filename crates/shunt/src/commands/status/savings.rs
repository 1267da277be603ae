//! The lines about what the fast path saves: in `shunt`, `shunt status` and `shunt top --once`.

use super::costs::cores_of;
use crate::render::units;
use shunt_api::{Bounds, PathCosts, Savings};

/// The share of a week's packets from which on nothing is said about the rest.
const NEARLY_ALL: f64 = 0.95;

/// One line; with `verbose`, one more for the costs behind it. Empty if the daemon is older.
pub(crate) fn lines(savings: Option<&Savings>, verbose: bool) -> String {
    let Some(savings) = savings else { return String::new() };
    let mut text = format!("saves    {}{}\n", now(savings), week(savings));
    if let Some(costs) = savings.costs.as_ref().filter(|_| verbose) {
        text += &path_costs(costs);
    }
    text
}

fn now(savings: &Savings) -> String {
    match (&savings.now_cores, &savings.now_unknown) {
        (Some(cores), _) => format!("about {} now ({})", cores_of(cores.value), doubt(cores)),
        (None, Some(why)) => format!("cannot tell for now: {why}"),
        (None, None) => "cannot tell for now".to_owned(),
    }
}

fn week(savings: &Savings) -> String {
    let Some(hours) = &savings.week_core_hours else { return String::new() };
    let counted = units::time((savings.week_counted_hours * 3600.0).round() as u64);
    let share = savings.week_known_share;
    let part = if share < NEARLY_ALL {
        format!(" for {} of the fast packets", units::percent(share))
    } else {
        String::new()
    };
    format!("; {} core hours in {counted} of the last week ({}){part}", round(hours.value), doubt(hours))
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

/// Two digits.
fn round(hours: f64) -> String {
    match hours {
        9.95.. => format!("{hours:.0}"),
        0.995..9.95 => format!("{hours:.1}"),
        0.0995..0.995 => format!("{hours:.2}"),
        _ => format!("{hours:.4}"),
    }
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
            "saves    about 0.41 of a core now (± 13 %); 3.1 core hours in 4d 4h of the last week (± 20 %)\n"
        );
        savings.week_known_share = 0.8;
        assert!(lines(Some(&savings), false).ends_with("(± 20 %) for 80.0 % of the fast packets\n"));
    }

    #[test]
    fn without_a_figure_the_line_says_why_and_what_would_tell() {
        let unknown = |why| Savings { now_unknown: Some(why), ..Savings::default() };
        let said = |why| lines(Some(&unknown(why)), true);
        assert_eq!(
            said(CannotTell::FewPackets { least_pps: 500 }),
            "saves    cannot tell for now: fewer than 500 packets/s on the fast path; more traffic would tell\n"
        );
        assert!(said(CannotTell::FewRounds { have: 2, need: 6 }).contains("measured 2 times of 6"));
        assert!(
            said(CannotTell::Merging { high: 0.31 }).contains("for now: at most 0.310 cores: without XDP")
        );
        assert!(said(CannotTell::Loaded { busy: 0.31 }).contains("packets take 31 % of a core"));
        assert_eq!(lines(None, true), "");
    }
}
