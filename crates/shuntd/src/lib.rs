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
mod history;
mod iptables_poll;
mod kept_file;
mod kernel_probes;
mod kernel_types;
mod log_writer;
mod off_rules;
mod place_index;
mod port_counters;
mod preview;
mod priority;
mod queue_settings;
mod reasons;
mod rtnl_barrier;
mod service_manager;
mod slow_connections;
mod start;
mod static_flows;
mod step_meter;
mod sweep;
mod table_size;
mod trace_stream;
mod usage;

use clap::Parser;
use nix::sys::signal::{SigSet, Signal};
use priority::Priority;
use serde::Serialize;
use shunt_api::{Config, DaemonArguments, EngineChoice, Failure, FailureCode, Instance, LogLevel};
use std::{
    io::{self, Write},
    process::ExitCode,
};
use tracing_subscriber::filter::LevelFilter;

/// The configuration file, overridden by the command line.
fn config_of(arguments: &DaemonArguments) -> Result<Config, Failure> {
    let mut config = config_file::load(arguments.config.as_deref())?;
    if let Some(engine) = &arguments.engine {
        config.engine =
            engine.parse::<EngineChoice>().map_err(|why| Failure::new(FailureCode::Usage, why))?;
    }
    if !arguments.ports.is_empty() {
        Config::check_ports(&arguments.ports)
            .map_err(|why| Failure::new(FailureCode::Usage, format!("--port: {why}")))?;
        config.ports.clone_from(&arguments.ports);
    }
    if !arguments.external_ports.is_empty() {
        Config::check_ports(&arguments.external_ports)
            .map_err(|why| Failure::new(FailureCode::Usage, format!("--external-port: {why}")))?;
        config.external_ports.clone_from(&arguments.external_ports);
    }
    config.external_core = arguments.core.or(config.external_core);
    if config.max_flows == 0 {
        config.max_flows = table_size::of_this_machine();
    }
    Ok(config)
}

fn level_of(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

fn run(arguments: &DaemonArguments) -> Result<(), Failure> {
    let instance: Instance = arguments.instance.parse()?;
    if arguments.list_ports {
        return print(&preview::port_names(&config_of(arguments)?)?);
    }
    if !arguments.reduce_btf.is_empty() {
        return kernel_types::reduce(&arguments.reduce_btf, arguments.build_id.as_deref());
    }
    start::require_root()?;
    if arguments.cleanup {
        return start::clean_up(&instance);
    }
    let config = config_of(arguments)?;
    tracing_subscriber::fmt()
        .with_max_level(level_of(config.log))
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
    let arguments = DaemonArguments::parse();
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
