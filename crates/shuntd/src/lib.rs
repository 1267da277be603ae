//! The daemon: wiring only. What to do is decided in shunt-core; here events are carried in and actions out.

mod connections;
pub mod control;
mod daemon;
mod ledger;
mod legacy;
#[cfg(test)]
mod pages;
mod reasons;
mod start;
mod statics;
mod status;
mod sweeping;
mod tracked;
mod watching;
mod why;

use clap::Parser;
use nix::sys::signal::{SigSet, Signal};
use shunt_api::{Config, EngineChoice, Failure, FailureCode, Instance};
use std::{path::PathBuf, process::ExitCode};

/// Forwards established connections past the network stack, as Linux has accepted, translated and routed them.
#[derive(Debug, Parser)]
#[command(name = "shuntd", version)]
struct Arguments {
    /// Which Shunt of several: its socket and log are named after it.
    #[arg(long, default_value = "default")]
    instance: String,
    /// The configuration file [default: /etc/shunt/shunt.toml, if it is there]
    #[arg(long)]
    config: Option<PathBuf>,
    /// auto, tc or xdp
    #[arg(long)]
    engine: Option<String>,
    /// A port; may be given several times [default: those that forwarding uses]
    #[arg(long = "port")]
    ports: Vec<String>,
    /// Remove what a killed daemon may have left behind, and end; refused where the instance runs.
    #[arg(long)]
    cleanup: bool,
}

impl Arguments {
    fn instance(&self) -> Result<Instance, Failure> {
        self.instance.parse()
    }

    /// The configuration file with what the command line says over it.
    fn config(&self) -> Result<Config, Failure> {
        let mut config = Config::load(self.config.as_deref())?;
        if let Some(engine) = &self.engine {
            config.engine =
                engine.parse::<EngineChoice>().map_err(|why| Failure::new(FailureCode::Usage, why))?;
        }
        if !self.ports.is_empty() {
            Config::check_ports(&self.ports)
                .map_err(|why| Failure::new(FailureCode::Usage, format!("--port: {why}")))?;
            config.ports.clone_from(&self.ports);
        }
        Ok(config)
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let instance = arguments.instance()?;
    start::require_root()?;
    if arguments.cleanup {
        return start::clean_up(&instance);
    }
    let config = arguments.config()?;
    tracing_subscriber::fmt()
        .with_env_filter(config.log.as_str())
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(false)
        .init();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::new(FailureCode::Internal, format!("no event loop: {e}")))?;
    // Whoever started us may have blocked the signals that we end by, and we would inherit that.
    let ends = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
    ends.thread_unblock().map_err(start::internal)?;
    runtime.block_on(async {
        let listeners = control::bind(&instance, &config)?;
        let ended = match start::prepare(&instance, &config) {
            Ok(parts) => {
                go_first();
                daemon::Daemon::new(instance.clone(), config, parts).run(listeners).await
            }
            Err(failure) => Err(failure),
        };
        control::unbind(&instance);
        ended
    })
}

/// What changes in Linux must hold at once, also on a router that is busy. All of ours is short by now: the verifier, which takes
/// its second to load programs, must not keep a router of one CPU from everything else.
fn go_first() {
    if let Err(error) = shunt_bpf::schedule::go_first() {
        tracing::warn!("on a busy machine changes may hold late: no SCHED_RR: {error}");
    }
}

/// The program.
pub fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("shuntd: {failure}");
            ExitCode::from(failure.code.exit_code())
        }
    }
}
