//! The daemon. It carries events to the policy in shunt-core and performs the actions that the policy returns: wiring
//! only.

mod config_file;
mod connection_search;
mod conntrack_table;
pub mod control;
mod correction_queue;
mod daemon;
mod descriptor_store;
mod failures;
mod flow_engine;
mod flow_entry;
mod flow_listing;
mod foreign_programs;
#[cfg(test)]
mod generated_docs;
mod handover;
mod history;
mod iptables_poll;
mod kept_answers;
mod kept_file;
mod kernel_probes;
mod kernel_types;
mod loaded;
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
mod signals;
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
use daemon::{Daemon, Ended, Prepared, Reloads};
use descriptor_store::Received;
use handover::{Channel, FromNext, fault_point};
use log_writer::LogFilter;
use nix::sys::signal::{SigSet, Signal};
use priority::Priority;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use shunt_api::{Config, DaemonArguments, Failure, FailureCode, Instance};
use shunt_xsk::protocol;
use signals::StopSignals;
use std::{
    collections::BTreeSet,
    io::{self, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixDatagram,
    },
    process::ExitCode,
};
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};

/// The configuration, with the size of the flow tables for this machine if it leaves that to the daemon.
fn sized(configured: &Config) -> Config {
    let max_flows = match configured.max_flows {
        0 => table_size::of_this_machine(),
        flows => flows,
    };
    Config { max_flows, ..configured.clone() }
}

/// Each port has up to three links of programs, and the usual soft limit is 1024. If the hard limit is too low, the
/// error of the port that fails says so.
fn allow_descriptors_for_all_ports() {
    let hard = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard });
}

/// Runs the daemon, or prints an answer.
fn run(arguments: &DaemonArguments) -> Result<Ended, Failure> {
    let instance: Instance = arguments.instance.parse()?;
    if arguments.list_ports {
        return print(&preview::port_names(&ConfigSource::from_arguments(arguments)?.load()?)?);
    }
    if let Some(query) = &arguments.kept_usage {
        return print(&kept_answers::usage(&instance, query)?);
    }
    if let Some(range) = &arguments.kept_history {
        return print(&kept_answers::history(&instance, range)?);
    }
    if !arguments.reduce_btf.is_empty() {
        return kernel_types::reduce(&arguments.reduce_btf, arguments.build_id.as_deref())
            .map(|()| Ended::Stopped);
    }
    start::require_root()?;
    if arguments.cleanup {
        return start::clean_up(&instance).map(|()| Ended::Stopped);
    }
    allow_descriptors_for_all_ports();
    let channel = channel_of(arguments)?;
    let received = Received::take();
    let read = || {
        let source = ConfigSource::from_arguments(arguments)?;
        Ok((source.load()?, source))
    };
    let (configured, source) = read().inspect_err(|failure| report(channel.as_ref(), failure))?;
    let config = sized(&configured);
    let log = LogFilter::start(config.log);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_start(signals::leave_to_main_thread)
        .build()
        .map_err(|e| Failure::new(FailureCode::Internal, format!("cannot start the event loop: {e}")))?;
    // A parent process may have blocked these signals, and the daemon would inherit that.
    let stopping = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
    stopping.thread_unblock().map_err(failures::internal)?;
    runtime.block_on(async {
        if arguments.dry_run {
            return print(&preview::dry_run(&instance, &config).await?);
        }
        if arguments.probe {
            return print(&preview::probe_machine(&instance, &config).await?);
        }
        // From here on, a signal to end lets a daemon that is still starting clean up.
        let stopping = StopSignals::listen().map_err(failures::internal)?;
        // A reload may be asked for while the programs are loaded, and must not end the daemon.
        let hangup = signal(SignalKind::hangup()).map_err(failures::internal)?;
        // Only now: the daemon before this one has blocked it, too.
        SigSet::from(Signal::SIGHUP).thread_unblock().map_err(failures::internal)?;
        let reloads = Reloads::new(source, &config, configured.max_flows, log);
        serve(&instance, config, (reloads, (stopping, hangup)), (channel, received)).await
    })
}

/// The signals that the daemon waits for.
type Asked = (StopSignals, Signals);

/// Runs the daemon, which begins with what another one hands over by the channel, or has left to the service manager.
async fn serve(
    instance: &Instance,
    config: Config,
    (reloads, asked): (Reloads, Asked),
    (channel, received): (Option<OwnedFd>, Received),
) -> Result<Ended, Failure> {
    let Some(channel) = channel else {
        return if received.is_empty() {
            begin(instance, config, (reloads, asked), None, BTreeSet::new()).await
        } else {
            resume(instance, config, (reloads, asked), received).await
        };
    };
    let channel = Channel::open(channel).map_err(failures::internal)?;
    let (mut stopping, hangup) = asked;
    let prepared = tokio::select! {
        biased;
        prepared = daemon::prepare(instance, &config, reloads, &channel) => prepared,
        // The running daemon goes on, unless it has given up the ownership.
        _ = stopping.next() => return Ok(Ended::Stopped),
    };
    match prepared {
        Ok(Prepared::Over(owner)) => {
            unbind_unless_left(instance, owner.run(Some(channel), (stopping, hangup)).await)
        }
        Ok(Prepared::Clean(why, reloads)) => {
            tokio::select! {
                // It detaches everything first.
                () = channel.closed() => {}
                _ = stopping.next() => return Ok(Ended::Stopped),
            }
            begin(instance, config, (*reloads, (stopping, hangup)), Some(why), BTreeSet::new()).await
        }
        Err(failure) => {
            // Fails if the running daemon is gone.
            let _ = channel.send(&FromNext::Failed(failure.clone()), &[]);
            Err(failure)
        }
    }
}

/// Runs a daemon that goes on with what another one has left to the service manager, or without flows.
async fn resume(
    instance: &Instance,
    config: Config,
    (reloads, asked): (Reloads, Asked),
    received: Received,
) -> Result<Ended, Failure> {
    let stored = received.names();
    let resumed = match received.check(instance, &config) {
        Ok(found) => daemon::resume(instance, &config, found).await.map_err(|failure| failure.to_string()),
        Err(why) => Err(why),
    };
    match resumed {
        Ok(resumed) => {
            let listeners = control::bind(instance, &config)?;
            let owner = resumed.own(instance.clone(), config, reloads, listeners, stored);
            unbind_unless_left(instance, owner.run(None, asked).await)
        }
        Err(why) => {
            tracing::warn!("flows of the daemon before are lost: {why}");
            begin(instance, config, (reloads, asked), Some(why), stored).await
        }
    }
}

/// Runs a daemon without flows. `why` says so if another one could not hand them over. The service manager keeps the
/// descriptors that are named `stored`.
async fn begin(
    instance: &Instance,
    config: Config,
    (reloads, (mut stopping, hangup)): (Reloads, Asked),
    why: Option<String>,
    stored: BTreeSet<String>,
) -> Result<Ended, Failure> {
    let listeners = control::bind(instance, &config)?;
    let prepared = start::prepare(instance, &config);
    fault_point("loaded");
    let ended = match prepared {
        Ok(_) if stopping.has_come().await => Ok(Ended::Stopped),
        // Only now: with SCHED_RR, the verifier, which takes about a second to load the programs, would keep a router
        // with one CPU from everything else.
        Ok(parts) => {
            let daemon = Daemon::new(instance.clone(), config, parts, Priority::raise(), reloads);
            let daemon = daemon.with_store(stored);
            let daemon = if let Some(why) = why { daemon.started_clean(why) } else { daemon };
            daemon.run(listeners, (stopping, hangup)).await
        }
        Err(failure) => Err(failure),
    };
    unbind_unless_left(instance, ended)
}

fn unbind_unless_left(instance: &Instance, ended: Result<Ended, Failure>) -> Result<Ended, Failure> {
    if !matches!(ended, Ok(Ended::Left(_))) {
        control::unbind(instance);
    }
    ended
}

/// The socket to the running daemon, if it has started this process to take over.
fn channel_of(arguments: &DaemonArguments) -> Result<Option<OwnedFd>, Failure> {
    if !arguments.successor {
        return Ok(None);
    }
    let channel = io::stdin().as_fd().try_clone_to_owned().map_err(failures::internal)?;
    if UnixDatagram::from(channel.try_clone().map_err(failures::internal)?).peer_addr().is_err() {
        let why = "only a running daemon starts its successor; type `shunt restart`";
        return Err(Failure::new(FailureCode::Usage, why));
    }
    Ok(Some(channel))
}

/// Tells the running daemon why this one cannot take over.
fn report(channel: Option<&OwnedFd>, failure: &Failure) {
    if let Some(channel) = channel {
        // Fails if that one is gone.
        let _ = protocol::send(channel.as_fd(), &FromNext::Failed(failure.clone()), &[]);
    }
}

/// Prints an answer, instead of running a daemon.
fn print(answer: &impl Serialize) -> Result<Ended, Failure> {
    let text = serde_json::to_string_pretty(answer).map_err(failures::internal)?;
    writeln!(io::stdout().lock(), "{text}").map_err(failures::internal)?;
    Ok(Ended::Stopped)
}

/// What remains to be done when the daemon has ended: a process that is watched stays while another daemon runs.
fn finish(ended: Ended) -> Result<ExitCode, Failure> {
    let stays = match ended {
        Ended::Stopped => None,
        Ended::Left(program) => program,
        // The next daemon starts when the channel is closed.
        Ended::Replaced(next, program) => {
            drop(next);
            program
        }
    };
    stays.map_or(Ok(ExitCode::SUCCESS), |program| handover::stay(&program).map_err(failures::internal))
}

/// Runs `shuntd`: parses the command line, serves until the daemon is stopped, and prints a failure on standard error.
pub fn main() -> ExitCode {
    let arguments = DaemonArguments::parse();
    if arguments.external_engine {
        return shunt_xsk::run();
    }
    let ran = if arguments.launch_successor {
        handover::launch_successor().map(|()| ExitCode::SUCCESS).map_err(failures::internal)
    } else if arguments.await_successor {
        handover::await_successor().map_err(failures::internal)
    } else {
        run(&arguments).and_then(finish)
    };
    match ran {
        Ok(code) => code,
        Err(failure) => {
            // Unlike eprintln!, does not panic if standard error cannot be written.
            let _ = writeln!(io::stderr(), "shuntd: {failure}");
            ExitCode::from(failure.code.exit_code())
        }
    }
}
