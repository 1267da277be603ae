//! The lines about what Shunt itself costs: in `shunt status` and `shunt top`.

use crate::render::units;
use shunt_api::{OwnCosts, ProgramCost};

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
    let programs =
        costs.programs_cores.map_or_else(String::new, |cores| format!(", programs {}", cores_of(cores)));
    format!(
        "daemon {}{programs}; memory: daemon {}, tables {} ({} a flow)",
        cores_of(costs.daemon_cores),
        units::bytes(costs.daemon_bytes),
        units::bytes(costs.maps_bytes),
        units::bytes(costs.flow_bytes),
    )
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
