//! The daemon. It carries events to the policy in shunt-core and performs the actions that the policy returns: wiring
//! only.

mod config_file;
mod connection_search;
mod conntrack_table;
pub mod control;
mod correction_queue;
mod daemon;
mod failures;
mod flow_entry;
mod flow_listing;
mod foreign_programs;
#[cfg(test)]
mod generated_docs;
mod iptables_poll;
mod kernel_probes;
mod log_writer;
mod place_index;
mod port_counters;
mod preview;
mod priority;
mod queue_settings;
mod reasons;
mod rtnl_barrier;
mod service_manager;
mod start;
mod static_flows;
mod step_meter;
mod sweep;
mod table_size;
mod trace_stream;

use clap::Parser;
use nix::sys::signal::{SigSet, Signal};
use priority::Priority;
use serde::Serialize;
use shunt_api::{Config, EngineChoice, Failure, FailureCode, Instance};
use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

/// Forwards established connections past the network stack, the way Linux has accepted, translated and routed them.
#[derive(Debug, Parser)]
#[command(name = "shuntd", version)]
struct Arguments {
    /// The name of this instance; its socket and log are named after it.
    #[arg(long, default_value = "default")]
    instance: String,
    /// The configuration file [default: /etc/shunt/shunt.toml, if it exists]
    #[arg(long)]
    config: Option<PathBuf>,
    /// The engine: auto, tc, xdp or external [default: as configured]
    #[arg(long)]
    engine: Option<String>,
    /// A port; may be given several times [default: the devices that forward traffic]
    #[arg(long = "port")]
    ports: Vec<String>,
    /// Remove what a killed daemon may have left behind, and exit; fails if the instance is running.
    #[arg(long)]
    cleanup: bool,
    /// Print what would be attached to which port, and why, as JSON; then exit. Attaches nothing to any device.
    #[arg(long, conflicts_with = "cleanup")]
    dry_run: bool,
    /// Print what this kernel, its devices and its ruleset allow, as JSON; then exit. Attaches nothing to any device.
    #[arg(long, conflicts_with_all = ["cleanup", "dry_run"])]
    probe: bool,
    /// The core of the external engine [default: as configured]
    #[arg(long)]
    core: Option<u32>,
    /// A port for the external engine, if --engine is another one; may be given several times [default: as configured]
    #[arg(long = "external-port")]
    external_ports: Vec<String>,
    /// Be the process of the external engine. The daemon starts it.
    #[arg(long, hide = true, exclusive = true)]
    external_engine: bool,
    /// Print the names of the devices that would be ports, as JSON; then exit. Needs no root.
    #[arg(long, conflicts_with_all = ["cleanup", "dry_run", "probe"])]
    list_ports: bool,
}

impl Arguments {
    fn instance(&self) -> Result<Instance, Failure> {
        self.instance.parse()
    }

    /// The configuration file, overridden by the command line.
    fn config(&self) -> Result<Config, Failure> {
        let mut config = config_file::load(self.config.as_deref())?;
        if let Some(engine) = &self.engine {
            config.engine =
                engine.parse::<EngineChoice>().map_err(|why| Failure::new(FailureCode::Usage, why))?;
        }
        if !self.ports.is_empty() {
            Config::check_ports(&self.ports)
                .map_err(|why| Failure::new(FailureCode::Usage, format!("--port: {why}")))?;
            config.ports.clone_from(&self.ports);
        }
        if !self.external_ports.is_empty() {
            Config::check_ports(&self.external_ports)
                .map_err(|why| Failure::new(FailureCode::Usage, format!("--external-port: {why}")))?;
            config.external_ports.clone_from(&self.external_ports);
        }
        config.external_core = self.core.or(config.external_core);
        if config.max_flows == 0 {
            config.max_flows = table_size::of_this_machine();
        }
        Ok(config)
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let instance = arguments.instance()?;
    if arguments.list_ports {
        return print(&preview::port_names(&arguments.config()?)?);
    }
    start::require_root()?;
    if arguments.cleanup {
        return start::clean_up(&instance);
    }
    let config = arguments.config()?;
    tracing_subscriber::fmt()
        .with_env_filter(config.log.as_str())
        .with_writer(|| log_writer::LogWriter)
        .with_target(false)
        .with_ansi(false)
        .init();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::new(FailureCode::Internal, format!("cannot start the event loop: {e}")))?;
    // A parent process may have blocked these signals, and the daemon would inherit that.
    let stop_signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
    stop_signals.thread_unblock().map_err(failures::internal)?;
    runtime.block_on(async {
        if arguments.dry_run {
            return print(&preview::dry_run(&instance, &config).await?);
        }
        if arguments.probe {
            return print(&preview::probe_machine(&instance, &config).await?);
        }
        let listeners = control::bind(&instance, &config)?;
        let ended = match start::prepare(&instance, &config) {
            // Only now: with SCHED_RR, the verifier, which takes about a second to load the programs, would keep a
            // router with one CPU from everything else.
            Ok(parts) => {
                let priority = Priority::raise();
                daemon::Daemon::new(instance.clone(), config, parts, priority).run(listeners).await
            }
            Err(failure) => Err(failure),
        };
        control::unbind(&instance);
        ended
    })
}

fn print(answer: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(answer).map_err(failures::internal)?;
    writeln!(io::stdout().lock(), "{text}").map_err(failures::internal)
}

/// Runs `shuntd`: parses the command line, serves until the daemon is stopped, and prints a failure on standard error.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.external_engine {
        return shunt_xsk::run();
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Unlike eprintln!, does not panic if standard error cannot be written.
            let _ = writeln!(io::stderr(), "shuntd: {failure}");
            ExitCode::from(failure.code.exit_code())
        }
    }
}
