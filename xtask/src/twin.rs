//! The twin-router oracle, run by hand.

use anyhow::ensure;
use shunt_api::EngineChoice;
use shunt_twin::{Options as Run, run};
use std::time::Duration;

/// Compare a router with Shunt and one without, packet by packet.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Packets to send to each router.
    #[arg(long, default_value_t = 100_000)]
    packets: u64,
    /// Changes to make on each.
    #[arg(long, default_value_t = 100)]
    changes: u64,
    /// What packets and changes follow from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Of Shunt: auto, tc or xdp.
    #[arg(long, default_value = "auto")]
    engine: EngineChoice,
    /// How long after a change Shunt may act as before it.
    #[arg(long, value_name = "MS", default_value_t = 20)]
    reaction_ms: u64,
    /// Two of the wires carry a VLAN each, for which the routers have devices.
    #[arg(long)]
    vlans: bool,
    /// Shunt on neither router: to test the oracle.
    #[arg(long)]
    without_shunt: bool,
    /// Changes of rules on one router only: to test the oracle.
    #[arg(long)]
    one_sided: bool,
    /// How long to look for the shortest sequence of steps that fails; 0 does not look.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    shrink: u64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub fn start(options: &Options) -> anyhow::Result<()> {
    ensure!(nix::unistd::geteuid().is_root(), "the twins are network namespaces, and so need root");
    let report = run(&Run {
        packets: options.packets,
        changes: options.changes,
        seed: options.seed,
        engine: (!options.without_shunt).then(|| options.engine.to_string()),
        reaction: Duration::from_millis(options.reaction_ms),
        vlans: options.vlans,
        one_sided: options.one_sided,
        shrink: Duration::from_secs(options.shrink),
    });
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        println!("{report}");
    }
    ensure!(report.is_good(), "seed {}: the routers differ", options.seed);
    Ok(())
}
