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
mod reload;
mod rtnl_barrier;
mod savings;
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
use config_file::ConfigSource;
use log_writer::LogFilter;
use nix::sys::signal::{SigSet, Signal};
use priority::Priority;
use serde::Serialize;
use shunt_api::{Config, DaemonArguments, Failure, FailureCode, Instance};
use std::{
    io::{self, Write},
    process::ExitCode,
};
use tokio::signal::unix::{SignalKind, signal};

/// The configuration, with the size of the flow tables for this machine if it leaves that to the daemon.
fn sized(configured: &Config) -> Config {
    let max_flows = match configured.max_flows {
        0 => table_size::of_this_machine(),
        flows => flows,
    };
    Config { max_flows, ..configured.clone() }
}

fn run(arguments: &DaemonArguments) -> Result<(), Failure> {
    let instance: Instance = arguments.instance.parse()?;
    if arguments.list_ports {
        return print(&preview::port_names(&ConfigSource::from_arguments(arguments)?.load()?)?);
    }
    if !arguments.reduce_btf.is_empty() {
        return kernel_types::reduce(&arguments.reduce_btf, arguments.build_id.as_deref());
    }
    start::require_root()?;
    if arguments.cleanup {
        return start::clean_up(&instance);
    }
    let source = ConfigSource::from_arguments(arguments)?;
    let configured = source.load()?;
    let config = sized(&configured);
    let log = LogFilter::start(config.log);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::new(FailureCode::Internal, format!("cannot start the event loop: {e}")))?;
    // A parent process may have blocked these signals, and the daemon would inherit that.
    let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]);
    signals.thread_unblock().map_err(failures::internal)?;
    runtime.block_on(async {
        if arguments.dry_run {
            return print(&preview::dry_run(&instance, &config).await?);
        }
        if arguments.probe {
            return print(&preview::probe_machine(&instance, &config).await?);
        }
        // A reload may be asked for while the programs are loaded, and must not end the daemon.
        let hangup = signal(SignalKind::hangup()).map_err(failures::internal)?;
        let listeners = control::bind(&instance, &config)?;
        let ended = match start::prepare(&instance, &config) {
            // Only now: with SCHED_RR, the verifier, which takes about a second to load the programs, would keep a
            // router with one CPU from everything else.
            Ok(parts) => {
                let priority = Priority::raise();
                let reloads = daemon::Reloads::new(source, &config, configured.max_flows, log);
                daemon::Daemon::new(instance.clone(), config, parts, priority, reloads)
                    .run(listeners, hangup)
                    .await
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
