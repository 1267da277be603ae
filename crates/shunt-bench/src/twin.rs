//! `cargo xtask twin`: the twin-router oracle, run by hand.

use crate::progress::{Progress, print};
use anyhow::ensure;
use shunt_api::EngineChoice;
use shunt_testkit::tree::build;
use shunt_twin::{Options as Run, Report, run_with_progress};
use std::time::Duration;

/// Compare a router with Shunt and one without, packet by packet.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Packets to send to each router.
    #[arg(long, default_value_t = 100_000)]
    packets: u64,
    /// Changes to make on each router.
    #[arg(long, default_value_t = 100)]
    changes: u64,
    /// Seed of the packets and changes.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Shunt's engine: auto, tc, xdp or external.
    #[arg(long, default_value = "auto")]
    engine: EngineChoice,
    /// How long after a change Shunt may still act as before it, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 20)]
    reaction_ms: u64,
    /// Give two of the wires a VLAN each, with VLAN devices on the routers.
    #[arg(long)]
    vlans: bool,
    /// Change IPsec policies, too; the kernel must have XFRM.
    #[arg(long)]
    ipsec: bool,
    /// Run Shunt on neither router, to test the oracle.
    #[arg(long)]
    without_shunt: bool,
    /// Make changes of rules on one router only, to test the oracle.
    #[arg(long)]
    one_sided: bool,
    /// How long to search for the shortest sequence of steps that fails, in seconds; 0 skips the search.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    shrink: u64,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

/// Builds the daemon, compares the routers and prints the report, also when the run is interrupted.
pub fn run(options: &Options) -> anyhow::Result<()> {
    ensure!(nix::unistd::geteuid().is_root(), "the twins are network namespaces: run this as root");
    let program = if options.without_shunt { None } else { Some(build("shuntd")?) };
    let twins = Run {
        packets: options.packets,
        changes: options.changes,
        seed: options.seed,
        engine: (!options.without_shunt).then(|| options.engine.to_string()),
        program: program.map(|path| path.to_string_lossy().into_owned()),
        reaction: Duration::from_millis(options.reaction_ms),
        vlans: options.vlans,
        ipsec: options.ipsec,
        one_sided: options.one_sided,
        shrink: Duration::from_secs(options.shrink),
    };
    let json = options.json;
    let write = move |report: &Report| print(report, json, report);
    let mut progress = Progress::start(move |report| drop(write(report)));
    let report = run_with_progress(&twins, &mut |so_far| {
        progress.update(so_far, || {
            let Report { packets, changes, differences, lost, duplicated, .. } = so_far;
            let faults = differences + lost + duplicated;
            format!(
                "{packets} of {} packets, {changes} of {} changes, {faults} differences",
                options.packets, options.changes
            )
        });
    });
    write(&report)?;
    ensure!(report.is_good(), "seed {}: the routers differ", options.seed);
    Ok(())
}
