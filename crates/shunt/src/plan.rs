//! What was typed, resolved against the machine: files read, programs found, paths made absolute. Changes nothing.

use crate::{
    agent::{Agent, token::Token},
    bench::Measurement,
    campaign::Campaign,
    cli::{
        AgentArgs, Cli, Command, CompareArgs, DelArgs, FlowCommand, LabCommand, LoadArgs, Measuring, UpArgs,
    },
    daemon::Program,
    line::Line,
    report::Reporting,
    select::{Filter, Order},
    traffic::Generation,
};
use clap_complete::Shell;
use shunt_api::{Failure, FailureCode, Instance, Selection, StaticRemoval, StaticTable};
use shunt_lab::{ReadError, Results};
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

/// A file of results, and where it is.
pub(crate) type NamedResults = (String, Box<Results>);

/// What will be done.
#[derive(Debug)]
pub(crate) enum Step {
    Start { program: Program, args: Vec<OsString>, foreground: bool },
    Stop { program: Program },
    Status,
    Flows { filter: Filter, order: Order, over: Duration },
    Why { wanted: Selection },
    Conntrack { ends: Selection, protocol: Option<u8> },
    Watch { wanted: Selection, count: Option<u64>, during: Option<Duration> },
    Flush,
    Add(StaticTable),
    Remove(StaticRemoval),
    List,
    Line(Line),
    Load { cpus: Option<Vec<usize>>, interval: Duration, count: Option<u64> },
    LoadSelfTest { cpus: Option<Vec<usize>> },
    Bench(Box<Measurement>),
    Campaign(Box<Campaign>),
    Agent(Agent),
    Compare { a: NamedResults, b: NamedResults, seed: u64 },
    Gen(Box<Generation>),
    Report(Reporting),
    Completions { shell: Shell },
    Man { dir: PathBuf },
}

impl Plan {
    pub(crate) fn resolve(typed: Cli) -> anyhow::Result<Self> {
        let Cli { instance, command, json, .. } = typed;
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
            Command::Why(args) => {
                Step::Why { wanted: args.selection().map_err(|why| Failure::new(FailureCode::Usage, why))? }
            }
            Command::Conntrack(args) => Step::Conntrack { ends: args.ends(), protocol: args.proto },
            Command::Watch(watch) => {
                Step::Watch { wanted: watch.ends.selection(), count: watch.count, during: watch.during }
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
            Command::Line(line) => Step::Line(Line::resolve(&line)?),
            Command::Load(LoadArgs { interval, count, cpus, self_test }) => {
                let cpus = (!cpus.is_empty()).then_some(cpus);
                match self_test {
                    true => Step::LoadSelfTest { cpus },
                    false => Step::Load { cpus, interval, count },
                }
            }
            Command::Bench(Measuring::Run(typed)) => Step::Campaign(Box::new(Campaign::resolve(&typed)?)),
            Command::Lab(LabCommand::Agent(AgentArgs { listen, token_file, cpus })) => {
                let token = Token::read(token_file.as_deref(), "--token-file")?;
                Step::Agent(Agent { listen, token, cpus: (!cpus.is_empty()).then_some(cpus) })
            }
            Command::Bench(Measuring::Once(typed)) => Step::Bench(Box::new(Measurement::resolve(&typed)?)),
            Command::Compare(CompareArgs { a, b, seed }) => {
                Step::Compare { a: read_results(&a)?, b: read_results(&b)?, seed }
            }
            Command::Gen(typed) => Step::Gen(Box::new(Generation::resolve(&typed)?)),
            Command::Report(report) => Step::Report(Reporting::resolve(report, json)?),
            Command::Completions { shell } => Step::Completions { shell },
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

fn read_results(path: &Path) -> Result<NamedResults, Failure> {
    match Results::read(path) {
        Ok(results) => Ok((path.display().to_string(), Box::new(results))),
        Err(ReadError::File { source, .. }) => Err(bad_file(path, &source.to_string())),
        Err(why) => Err(bad_file(path, &why.to_string())),
    }
}

pub(crate) fn bad_file(path: &Path, why: &str) -> Failure {
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
