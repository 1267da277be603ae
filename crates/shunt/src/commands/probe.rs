//! `shunt probe`: what this machine allows.

use super::up::{DaemonArgs, daemon_args};
use crate::{daemon::Program, render::Answer};
use clap::Args;
use shunt_api::{Failure, Instance};
use std::ffi::OsString;

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
}

impl Probing {
    pub(crate) fn resolve(typed: &ProbeArgs, instance: &Instance) -> Result<Self, Failure> {
        Ok(Self { program: Program::find()?, args: daemon_args(instance, &typed.daemon)? })
    }

    pub(crate) fn run(&self) -> anyhow::Result<Answer> {
        Ok(Answer::Probed(Box::new(self.program.ask("--probe", &self.args)?)))
    }
}
