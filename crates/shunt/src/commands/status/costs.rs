//! The lines about what Shunt itself costs: in `shunt status` and `shunt top`.

use crate::render::{clock, units};
use shunt_api::{EngineChange, OwnCosts, ProgramCost};

/// The lines; with `verbose`, one for each program, too.
pub(crate) fn lines(costs: Option<&OwnCosts>, verbose: bool) -> String {
    let Some(costs) = costs else { return String::new() };
    let mut text = format!("costs    {}\n", costs_clause(costs));
    if verbose {
        text += &programs(costs);
    }
    text
}

/// What Shunt itself costs, as a clause.
fn costs_clause(costs: &OwnCosts) -> String {
    let programs = match (costs.programs_cores, &costs.unmeasured_since) {
        (Some(cores), _) => cores_of(cores),
        (None, Some(EngineChange { port, from, to, at })) => {
            format!("not measured yet since {port} went from {from} to {to} at {}", clock::second(*at))
        }
        (None, None) => "not measured yet".to_owned(),
    };
    format!("daemon {}, programs {programs}; memory: {}", cores_of(costs.daemon_cores), memory(costs))
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
        format!("         program {name}: {run_ns:.0} ns a run, {runs_per_s:.0} runs/s{ago}\n")
    };
    costs.programs.iter().map(line).collect()
}

/// `0.4 of a core`, `2.1 cores`.
pub(super) fn cores_of(cores: f64) -> String {
    match cores {
        1.05.. => format!("{cores:.1} cores"),
        0.1..1.05 => format!("{cores:.2} of a core"),
        _ => format!("{cores:.3} of a core"),
    }
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
        let wanted = "programs not measured yet since wan0 went from xdp to tc at 2026-11-29 16:05:12 UTC;";
        assert!(since.contains(wanted), "{since}");
        assert!(said(None).contains("programs not measured yet; memory"), "{}", said(None));
    }

    #[test]
    fn memory_that_was_not_measured_is_not_0_bytes() {
        let said = |costs: OwnCosts| lines(Some(&costs), false);
        let none = said(OwnCosts::default());
        assert!(none.ends_with("memory: not measured yet\n") && !none.contains("0 B"), "{none}");
        let tables = said(OwnCosts { maps_bytes: 2_000_000, flow_bytes: 100, ..OwnCosts::default() });
        assert!(
            tables.contains("memory: daemon not measured yet, tables 2.00 MB (100 B a flow)"),
            "{tables}"
        );
    }
}
