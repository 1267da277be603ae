//! `shunt up`: starts the daemon and waits until it answers.

mod view;

use crate::{
    client::{candidates, control::Client},
    command::{Command, Context},
    daemon::{POLL_INTERVAL, Program, Started},
    failure::{bad_file, unreadable},
    output::{Show, write_stderr},
};
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use hyper::Method;
use shunt_api::{DryRun, EngineChoice, Failure, Instance, Reload, ReloadRequest, Status};
use std::{
    convert::Infallible,
    ffi::OsString,
    future::pending,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::time::{Instant, sleep, timeout};
use view::StartedDaemon;

/// After this time the operator is told that the daemon is still starting: loading programs is slow on a small board.
const SLOW_START_TIME: Duration = Duration::from_secs(15);
/// How long one request for the status may take. A daemon that still loads its programs accepts the request and answers
/// when it is done. Shorter than the timeout of the client, so that a slow start is not reported as a broken daemon.
const LOADING_TIME: Duration = Duration::from_secs(20);
/// How long the daemon may give wrong answers before the start counts as failed.
const TROUBLE_TIME: Duration = Duration::from_secs(5);

/// Start the daemon and attach it to ports.
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    daemon: DaemonArgs,
    /// Run the daemon in the foreground instead of starting it in the background.
    #[arg(long)]
    foreground: bool,
    /// Print which ports would be used, by which engine, what would stay slow, and why; attach nothing. Also while the
    /// instance runs, which goes on as before: to try another configuration. Then the keys that differ are named, too,
    /// with what a reload would do.
    #[arg(long, conflicts_with = "foreground")]
    dry_run: bool,
}

/// The arguments that the daemon gets.
#[derive(Debug, Args)]
pub(crate) struct DaemonArgs {
    /// A network device to attach to, also as --dev; may be given several times [default: the devices that forwarding
    /// uses].
    #[arg(long = "port", visible_alias = "dev", value_name = "DEV", help_heading = "The daemon",
        add = ArgValueCandidates::new(candidates::devices))]
    pub(super) ports: Vec<String>,
    /// The engine that sends packets of the fast path [default: auto].
    #[arg(long, help_heading = "The daemon", value_parser = super::arguments::name_of::<EngineChoice>(&["auto", "tc", "xdp", "external"]))]
    engine: Option<EngineChoice>,
    /// The core on which the external engine runs [default: any].
    #[arg(long, value_name = "NUMBER", help_heading = "The daemon")]
    core: Option<u32>,
    /// A port for the external engine, if --engine is another one; may be given several times.
    #[arg(long = "external-port", value_name = "DEV", help_heading = "The daemon", add = ArgValueCandidates::new(candidates::devices))]
    external_ports: Vec<String>,
    /// The configuration file [default: /etc/shunt/shunt.toml].
    #[arg(long, value_name = "FILE", help_heading = "The daemon")]
    config: Option<PathBuf>,
}

/// A resolved `shunt up`: the daemon's program and arguments.
#[derive(Debug)]
pub(crate) struct Start {
    program: Program,
    args: Vec<OsString>,
    mode: Mode,
}

#[derive(Debug)]
enum Mode {
    Background,
    Foreground,
    /// With the configuration file, if one was named.
    DryRun {
        file: Option<String>,
    },
}

impl Command for UpArgs {
    type Plan = Start;
    const EXAMPLES: &str = "
        [shunt up]
        shunt up --dry-run # which ports, which engine, what stays slow; attaches nothing
        shunt up --dry-run --config new.toml # what another configuration would do, also while the instance runs
        shunt up # start on all ports that forward
        shunt up --port lan0 --port wan0 --engine tc # on two ports, through their qdiscs
        shunt up --config lab.toml --instance lab # a second instance, with its own configuration
    ";
    const USES_INSTANCE: bool = true;

    fn resolve(self, context: &Context) -> anyhow::Result<Start> {
        let file = self.daemon.config.as_deref().map(absolute_name).transpose()?;
        Ok(Start {
            program: Program::find()?,
            args: daemon_args(&context.instance, &self.daemon)?,
            mode: match self {
                Self { dry_run: true, .. } => Mode::DryRun { file },
                Self { foreground: true, .. } => Mode::Foreground,
                Self { .. } => Mode::Background,
            },
        })
    }

    /// Returns when the daemon answers, or fails with its message. In the foreground, returns only if the daemon cannot
    /// be executed. A dry run starts no daemon.
    async fn run(plan: Start, context: &Context, show: Show<'_>) -> anyhow::Result<()> {
        let Context { client, instance, .. } = context;
        let Start { program, args, mode } = plan;
        match mode {
            Mode::Foreground => return Err(program.exec(&args)),
            Mode::DryRun { file } => {
                let plan = program.ask::<DryRun>("--dry-run", &args)?;
                return show_plan(plan, client, file, show).await;
            }
            Mode::Background => {}
        }
        let mut started = program.start(instance, &args)?;
        let (pid, log) = (started.pid(), started.log().to_path_buf());
        let status = tokio::select! {
            status = wait_answering(client, &mut started) => status?,
            never = announce_slow_start(pid, &log) => match never {},
        };
        show(&StartedDaemon { status, log })
    }
}

/// Shows a plan, and what a reload of the daemon that runs would do. Fails as the reload would.
async fn show_plan(
    mut plan: DryRun,
    client: &Client,
    file: Option<String>,
    show: Show<'_>,
) -> anyhow::Result<()> {
    if !plan.running {
        return show(&plan);
    }
    let request = ReloadRequest { dry_run: true, partial: false, file };
    let tried = client.send::<Reload>(Method::POST, "/v1/reload", &request).await;
    let failure = tried.map(|reload| plan.reload = Some(reload)).err();
    show(&plan)?;
    failure.map_or(Ok(()), Err)
}

/// The absolute path of a configuration file, as text.
///
/// # Errors
/// If there is no such path, or it is not UTF-8.
pub(super) fn absolute_name(path: &Path) -> Result<String, Failure> {
    let absolute = absolute(path)?.into_os_string().into_string();
    absolute.map_err(|name| bad_file(path, format!("the path is not UTF-8: {}", name.display())))
}

/// The command line of the daemon.
pub(super) fn daemon_args(instance: &Instance, typed: &DaemonArgs) -> Result<Vec<OsString>, Failure> {
    let mut args: Vec<OsString> = vec!["--instance".into(), instance.as_str().into()];
    if let Some(config) = &typed.config {
        args.extend(["--config".into(), absolute(config)?.into_os_string()]);
    }
    if let Some(engine) = typed.engine {
        args.extend(["--engine".into(), engine.to_string().into()]);
    }
    if let Some(core) = typed.core {
        args.extend(["--core".into(), core.to_string().into()]);
    }
    for port in &typed.external_ports {
        args.extend(["--external-port".into(), port.into()]);
    }
    for port in &typed.ports {
        args.extend(["--port".into(), port.into()]);
    }
    Ok(args)
}

// The daemon in the background works in `/`, so that it keeps no file system busy; a relative path would not be found.
fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| unreadable(path, &error))
}

async fn announce_slow_start(pid: u32, log: &Path) -> Infallible {
    sleep(SLOW_START_TIME).await;
    write_stderr(&format!("shuntd (pid {pid}) is still starting; its log: {}\n", log.display()));
    pending().await
}

/// The outcome of one request to a daemon that is starting.
enum Poll {
    Status(Box<Status>),
    /// Our daemon is still loading its programs, or another daemon answers and ours is about to report that.
    NotYet,
    Trouble(anyhow::Error),
}

async fn poll(client: &Client, pid: u32) -> Poll {
    match client.pid().await {
        Ok(Some(answering)) if answering == pid => {}
        Ok(_) => return Poll::NotYet,
        Err(error) => return Poll::Trouble(error),
    }
    match timeout(LOADING_TIME, client.get("/v1/status")).await {
        Ok(Ok(status)) => Poll::Status(Box::new(status)),
        Ok(Err(error)) => Poll::Trouble(error),
        Err(_) => Poll::NotYet,
    }
}

/// Waits without a limit while the daemon runs: the kernel's verifier is slow on some machines, and the daemon reports
/// itself what it fails at.
async fn wait_answering(client: &Client, started: &mut Started) -> anyhow::Result<Status> {
    let mut trouble_since = None;
    loop {
        if let Some(failure) = started.failure()? {
            return Err(failure.into());
        }
        match poll(client, started.pid()).await {
            Poll::Status(status) => return Ok(*status),
            Poll::NotYet => trouble_since = None,
            // A daemon that fails closes its socket first and reports the reason a moment later.
            Poll::Trouble(error) => {
                if trouble_since.get_or_insert_with(Instant::now).elapsed() > TROUBLE_TIME {
                    return Err(error);
                }
            }
        }
        sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::{super::arguments::parse_args, *};

    fn args(instance: &str, typed: &str) -> Vec<OsString> {
        daemon_args(&instance.parse().unwrap(), &parse_args(typed).unwrap()).unwrap()
    }

    #[test]
    fn the_daemon_gets_the_options_that_were_typed_and_no_others() {
        assert_eq!(args("lab", ""), ["--instance", "lab"]);
        let given = args("lab", "--port a --port b --engine tc --config /x/y.toml");
        let want =
            ["--instance", "lab", "--config", "/x/y.toml", "--engine", "tc", "--port", "a", "--port", "b"];
        assert_eq!(given, want);
    }

    #[test]
    fn a_relative_configuration_file_becomes_absolute() {
        let given = args("default", "--config y.toml");
        let config = Path::new(&given[3]);
        assert!(config.is_absolute() && config.ends_with("y.toml"), "{config:?}");
    }
}
