//! `shunt probe`: what this machine allows.

use super::up::{DaemonArgs, daemon_args};
use crate::{
    command::{Command, Context},
    daemon::Program,
    output::Show,
};
use clap::Args;
use shunt_api::{FailureCode, ProbeReport};
use std::ffi::OsString;

/// Show what this kernel, its devices and its ruleset allow, and what Shunt would gain, before anything is attached.
///
/// The programs are loaded, so that the kernel checks them, but attached to no device. Options and configuration are
/// those of `shunt up`. The exit code is 0 even if `shunt up` would fail, unless a port that was named cannot be one;
/// the failures are part of the answer.
#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// A resolved `shunt probe`.
#[derive(Debug)]
pub(crate) struct Probing {
    program: Program,
    args: Vec<OsString>,
    has_ports: bool,
}

impl Command for ProbeArgs {
    type Plan = Probing;
    const EXAMPLES: &str = "
        [shunt probe]
        shunt probe # the ports that `shunt up` would choose
        shunt probe --port lan0 --port wan0 # these ports
    ";
    const USES_INSTANCE: bool = true;

    fn resolve(self, context: &Context) -> anyhow::Result<Probing> {
        let args = daemon_args(&context.instance, &self.daemon)?;
        Ok(Probing { program: Program::find()?, args, has_ports: !self.daemon.ports.is_empty() })
    }

    async fn run(plan: Probing, _: &Context, show: Show<'_>) -> anyhow::Result<()> {
        let report: ProbeReport = plan.program.ask("--probe", &plan.args)?;
        show(&report)?;
        // What was typed is wrong, not only the machine.
        let missing = report.obstacles.into_iter().find(|obstacle| obstacle.code == FailureCode::PortMissing);
        if plan.has_ports { missing.map_or(Ok(()), |missing| Err(missing.into())) } else { Ok(()) }
    }
}
