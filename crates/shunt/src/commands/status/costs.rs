//! The lines about what Shunt itself costs: in `shunt status` and `shunt top`.

use crate::render::{clock, units};
use shunt_api::{EngineChange, OwnCosts, ProgramCost, WeekCosts};

/// The share of the time from which on nothing is said about the rest.
const NEARLY_ALL: f64 = 0.95;

/// The lines; with `verbose`, one for each program, too.
pub(crate) fn lines(costs: Option<&OwnCosts>, verbose: bool) -> String {
    let Some(costs) = costs else { return String::new() };
    let mut text = now(costs);
    text += &costs.week.as_ref().map_or_else(String::new, week);
    if verbose {
        text += &programs(costs);
    }
    text + &format!("memory   {}\n", memory(costs))
}

/// What Shunt costs now.
fn now(costs: &OwnCosts) -> String {
    let programs = match (costs.programs_cores, &costs.unmeasured_since) {
        (Some(cores), _) => cores_of(cores),
        (None, Some(EngineChange { port, from, to, at })) => {
            format!("not measured yet since {port} went from {from} to {to} at {}", clock::second(*at))
        }
        (None, None) => "not measured yet".to_owned(),
    };
    let daemon = costs.daemon_cores.map_or_else(|| "not measured yet".to_owned(), cores_of);
    let period = units::time(OwnCosts::NOW_S);
    format!("costs    now daemon {daemon}, programs {programs} (over {period})\n")
}

/// What Shunt has cost this week; empty if nothing was counted.
fn week(costs: &WeekCosts) -> String {
    let WeekCosts { daemon_core_hours, programs_core_hours, counted_hours, programs_hours } = *costs;
    if counted_hours <= 0.0 {
        return String::new();
    }
    let programs = match programs_hours / counted_hours {
        share if share <= 0.0 => "not known".to_owned(),
        share if share < NEARLY_ALL => {
            format!("{}, known for {}", core_time(programs_core_hours), time(programs_hours))
        }
        _ => core_time(programs_core_hours),
    };
    let (daemon, counted) = (core_time(daemon_core_hours), counted(counted_hours));
    format!("         this week daemon {daemon}, programs {programs} ({counted})\n")
}

/// The memory. No daemon and no table takes 0 bytes: nothing was measured.
fn memory(costs: &OwnCosts) -> String {
    let OwnCosts { daemon_bytes, maps_bytes, flow_bytes, .. } = *costs;
    if daemon_bytes == 0 && maps_bytes == 0 {
        return "not measured yet".to_owned();
    }
    let measured = |bytes| if bytes == 0 { "not measured yet".to_owned() } else { units::bytes(bytes) };
    let flow =
        if flow_bytes == 0 { String::new() } else { format!(" ({} a flow)", units::bytes(flow_bytes)) };
    format!("daemon {}, tables {}{flow}", measured(daemon_bytes), measured(maps_bytes))
}

/// The CPU time of each program.
fn programs(costs: &OwnCosts) -> String {
    let ago = costs
        .measured_ago_s
        .map_or_else(String::new, |ago| format!(", measured {} ago", units::time(ago.round() as u64)));
    let line = |program: &ProgramCost| {
        let ProgramCost { name, run_ns, runs_per_s } = program;
        let cores = cores_of(run_ns * runs_per_s * 1e-9);
        let over = OwnCosts::PROGRAMS_MS;
        format!(
            "         program {name}: {cores} over {over} ms: {run_ns:.0} ns a run, {runs_per_s:.0} runs/s{ago}\n"
        )
    };
    costs.programs.iter().map(line).collect()
}

/// `0.4 of a core`, `2.1 cores`.
pub(super) fn cores_of(cores: f64) -> String {
    let text = two_digits(cores);
    if cores < 1.05 { format!("{text} of a core") } else { format!("{text} cores") }
}

/// CPU time in a unit that suits it: `3.1 core hours`, `12 core seconds`.
pub(super) fn core_time(hours: f64) -> String {
    let seconds = hours * 3600.0;
    match seconds {
        3600.0.. => of_a_core(hours, "hour"),
        60.0..3600.0 => of_a_core(seconds / 60.0, "minute"),
        _ => of_a_core(seconds, "second"),
    }
}

fn of_a_core(number: f64, unit: &str) -> String {
    let text = two_digits(number);
    let plural = if text == "1" { "" } else { "s" };
    format!("{text} core {unit}{plural}")
}

/// The hours of the week in which the daemon counted.
pub(super) fn counted(hours: f64) -> String {
    format!("counted for {}", time(hours))
}

fn time(hours: f64) -> String {
    units::time((hours * 3600.0).round() as u64)
}

/// Two digits, however small: 12, 1.2, 0.41, 0.0021.
pub(super) fn two_digits(value: f64) -> String {
    if value.abs() < 1e-6 {
        return "0".to_owned();
    }
    let decimals = (1.0 - value.abs().log10().floor()).clamp(0.0, 7.0) as usize;
    let text = format!("{value:.decimals$}");
    if decimals == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_api::Engine;

    #[test]
    fn programs_that_were_not_measured_since_a_change_of_engine_are_named_so() {
        let change =
            EngineChange { port: "wan0".to_owned(), from: Engine::Xdp, to: Engine::Tc, at: 1_795_968_312 };
        let said =
            |unmeasured_since| lines(Some(&OwnCosts { unmeasured_since, ..OwnCosts::default() }), false);
        let since = said(Some(change));
        let wanted = "programs not measured yet since wan0 went from xdp to tc at 2026-11-29 16:05:12 UTC (over 10s)\n";
        assert!(since.contains(wanted), "{since}");
        assert!(said(None).contains("programs not measured yet (over 10s)\nmemory"), "{}", said(None));
    }

    #[test]
    fn a_program_costs_what_its_runs_take_and_small_costs_keep_their_digits() {
        let programs = vec![ProgramCost { name: "shunt_in".to_owned(), run_ns: 138.0, runs_per_s: 4586.0 }];
        let costs = OwnCosts {
            programs_cores: Some(0.000_632_868),
            programs,
            measured_ago_s: Some(31.0),
            ..OwnCosts::default()
        };
        let text = lines(Some(&costs), true);
        assert!(text.contains("programs 0.00063 of a core (over 10s)"), "{text}");
        assert!(
            text.contains(
                "program shunt_in: 0.00063 of a core over 250 ms: 138 ns a run, 4586 runs/s, measured 31s ago"
            ),
            "{text}"
        );
        let digits = [12.4, 1.24, 0.41, 0.1, 0.0, 0.000_21, 7.0].map(two_digits);
        assert_eq!(digits, ["12", "1.2", "0.41", "0.1", "0", "0.00021", "7"]);
    }

    #[test]
    fn the_week_says_what_it_is_about() {
        let costs = WeekCosts {
            daemon_core_hours: 0.31,
            programs_core_hours: 2.1,
            counted_hours: 150.0,
            programs_hours: 150.0,
        };
        assert_eq!(
            week(&costs),
            "         this week daemon 19 core minutes, programs 2.1 core hours (counted for 6d 6h)\n"
        );
        let partly = week(&WeekCosts { programs_hours: 75.0, ..costs.clone() });
        assert!(partly.contains("programs 2.1 core hours, known for 3d 3h (counted"), "{partly}");
        let unknown = week(&WeekCosts { programs_hours: 0.0, ..costs });
        assert!(unknown.contains("programs not known (counted"), "{unknown}");
        assert_eq!(week(&WeekCosts::default()), "");
    }

    #[test]
    fn memory_that_was_not_measured_is_not_0_bytes() {
        let said = |costs: OwnCosts| lines(Some(&costs), false);
        let none = said(OwnCosts::default());
        assert!(none.ends_with("memory   not measured yet\n") && !none.contains("0 B"), "{none}");
        let tables = said(OwnCosts { maps_bytes: 2_000_000, flow_bytes: 100, ..OwnCosts::default() });
        assert!(
            tables.contains("memory   daemon not measured yet, tables 2.00 MB (100 B a flow)"),
            "{tables}"
        );
    }
}
