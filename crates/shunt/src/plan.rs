//! What was typed, resolved against the machine: files read, programs found, paths made absolute. Changes nothing.

use crate::{
    cli::{Cli, Command, DelArgs, FlowCommand, UpArgs},
    daemon::Program,
    select::{Filter, Order},
};
use shunt_api::{Failure, FailureCode, Instance, StaticRemoval, StaticTable};
use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// What will be done, and to which instance.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) instance: Instance,
    pub(crate) step: Step,
}

/// What will be done.
#[derive(Debug)]
pub(crate) enum Step {
    Start { program: Program, args: Vec<OsString>, foreground: bool },
    Stop { program: Program },
    Status,
    Flows { filter: Filter, order: Order, over: Duration },
    Flush,
    Add(StaticTable),
    Remove(StaticRemoval),
    List,
    Man { dir: PathBuf },
}

impl Plan {
    pub(crate) fn resolve(typed: Cli) -> anyhow::Result<Self> {
        let Cli { instance, command, .. } = typed;
        let step = match command {
            Command::Up(up) => Step::Start {
                program: Program::find()?,
                args: daemon_args(&instance, &up)?,
                foreground: up.foreground,
            },
            Command::Down => Step::Stop { program: Program::find()? },
            Command::Status => Step::Status,
            Command::Flows(flows) => {
                Step::Flows { filter: flows.filter(), order: flows.order(), over: flows.over }
            }
            Command::Flush => Step::Flush,
            Command::Flow(FlowCommand::Add(add)) => {
                let table = StaticTable { route: Vec::new(), flow: vec![add.flow()] };
                table.check().map_err(|wrong| Failure::new(FailureCode::Usage, wrong.message))?;
                Step::Add(table)
            }
            Command::Flow(FlowCommand::Del(del)) => Step::Remove(removal(&del)?),
            Command::Flow(FlowCommand::Load { file }) => Step::Add(read_table(&file)?),
            Command::Flow(FlowCommand::List) => Step::List,
            Command::Man { dir } => Step::Man { dir },
        };
        Ok(Self { instance, step })
    }
}

fn daemon_args(instance: &Instance, up: &UpArgs) -> Result<Vec<OsString>, Failure> {
    let mut args: Vec<OsString> = vec!["--instance".into(), instance.as_str().into()];
    if let Some(config) = &up.config {
        args.extend(["--config".into(), absolute(config)?.into_os_string()]);
    }
    if let Some(engine) = up.engine {
        args.extend(["--engine".into(), engine.to_string().into()]);
    }
    for port in &up.ports {
        args.extend(["--port".into(), port.into()]);
    }
    Ok(args)
}

// The daemon in the background works in `/`, so that it keeps no file system busy.
fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| bad_file(path, &error.to_string()))
}

fn read_table(path: &Path) -> Result<StaticTable, Failure> {
    let text = fs::read_to_string(path).map_err(|error| bad_file(path, &error.to_string()))?;
    StaticTable::parse(&text).map_err(|why| bad_file(path, &why))
}

fn bad_file(path: &Path, why: &str) -> Failure {
    Failure::new(FailureCode::BadConfig, format!("{}: {why}", path.display()))
}

fn removal(del: &DelArgs) -> Result<StaticRemoval, Failure> {
    let mut removal = StaticRemoval { all: del.all, ..StaticRemoval::default() };
    removal.flow.extend(del.key());
    removal.route.extend(del.route.clone());
    if let Some(file) = &del.file {
        let table = read_table(file)?;
        removal.flow.extend(table.flow.iter().map(|flow| flow.key()));
        removal.route.extend(table.route.into_iter().map(|route| route.name));
    }
    Ok(removal)
}

#[cfg(test)]
mod tests;
