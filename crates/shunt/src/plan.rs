//! From the command line to an action: resolves what was typed (reads files, finds programs, makes paths absolute), then runs it.

use crate::{
    cli::{Cli, Command, examples},
    client::control::Client,
    commands::{
        bench::{BenchCommand, Campaign, MeasureCommand, Measurement},
        check::Checking,
        compare::Compare,
        completions,
        conntrack::{self, ConntrackArgs},
        doctor::DoctorPlan,
        down,
        export::{self, ExportArgs},
        flow::Change,
        flows::{self, FlowsArgs},
        flush,
        generate::Generation,
        lab::{Agent, LabCommand},
        line,
        link::LinkPlan,
        load::{self, LoadArgs},
        man,
        model::Modelling,
        next,
        probe::Probing,
        qos::QosPlan,
        reg::RegPlan,
        report::Reporting,
        status::{self, StatusArgs},
        top::{self, TopArgs},
        trace::Tracing,
        up::Start,
        watch::{self, WatchArgs},
        why,
    },
    daemon::Program,
    output::Show,
    render::Line,
};
use clap::CommandFactory;
use clap_complete::Shell;
use shunt_api::{Instance, Selection};
use std::path::PathBuf;

/// A resolved command line. Resolving changes nothing on the machine; running is the only step with effects.
#[derive(Debug)]
pub(crate) struct Plan {
    instance: Instance,
    step: Step,
}

#[derive(Debug)]
enum Step {
    Next,
    Probe(Probing),
    Up(Start),
    Down(Program),
    Status(StatusArgs),
    Flows(FlowsArgs),
    Export(ExportArgs),
    Top(TopArgs),
    Why(Selection),
    Conntrack(ConntrackArgs),
    Watch(WatchArgs),
    Flush,
    Flow(Change),
    Qos(QosPlan),
    Line(Line),
    Load(LoadArgs),
    Measure(Box<Measurement>),
    Campaign(Box<Campaign>),
    Agent(Agent),
    Compare(Compare),
    Gen(Box<Generation>),
    Link(LinkPlan),
    Doctor(DoctorPlan),
    Reg(Box<RegPlan>),
    Trace(Tracing),
    Check(Checking),
    Model(Modelling),
    Report(Reporting),
    Completions(Shell),
    Man(PathBuf),
}

impl Plan {
    pub(crate) fn resolve(typed: Cli) -> anyhow::Result<Self> {
        let Cli { instance, command, json, .. } = typed;
        let Some(command) = command else { return Ok(Self { instance, step: Step::Next }) };
        let step = match command {
            Command::Probe(probe) => Step::Probe(Probing::resolve(&probe, &instance)?),
            Command::Up(up) => Step::Up(Start::resolve(&up, &instance)?),
            Command::Down => Step::Down(Program::find()?),
            Command::Status(status) => Step::Status(status),
            Command::Flows(flows) => Step::Flows(flows),
            Command::Export(export) => Step::Export(export),
            Command::Top(top) => Step::Top(top.resolve(json)?),
            Command::Why(why) => Step::Why(why.resolve()?),
            Command::Conntrack(conntrack) => Step::Conntrack(conntrack),
            Command::Watch(watch) => Step::Watch(watch),
            Command::Flush => Step::Flush,
            Command::Flow(flow) => Step::Flow(Change::resolve(&flow)?),
            Command::Qos(qos) => Step::Qos(QosPlan::resolve(qos)?),
            Command::Line(line) => Step::Line(line::resolve(&line)?),
            Command::Load(load) => Step::Load(load),
            Command::Bench(BenchCommand::Measure(typed)) => Step::Measure(resolve_measurement(&typed)?),
            Command::Bench(BenchCommand::Run(typed)) => Step::Campaign(Box::new(Campaign::resolve(&typed)?)),
            Command::Lab(LabCommand::Agent(typed)) => Step::Agent(Agent::resolve(typed)?),
            Command::Compare(compare) => Step::Compare(Compare::resolve(&compare)?),
            Command::Gen(typed) => Step::Gen(Box::new(Generation::resolve(&typed)?)),
            Command::Link(link) => Step::Link(LinkPlan::resolve(*link)?),
            Command::Doctor(doctor) => Step::Doctor(DoctorPlan::resolve(doctor)?),
            Command::Reg(reg) => Step::Reg(Box::new(RegPlan::resolve(reg)?)),
            Command::Trace(trace) => Step::Trace(Tracing::resolve(trace)?),
            Command::Check(check) => Step::Check(Checking::resolve(check)?),
            Command::Model(typed) => Step::Model(Modelling::resolve(&typed)?),
            Command::Report(report) => Step::Report(Reporting::resolve(report, json)?),
            Command::Completions { shell } => Step::Completions(shell),
            Command::Man { dir } => Step::Man(dir),
        };
        Ok(Self { instance, step })
    }

    pub(crate) fn run(self, show: Show) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.run_step(show))
    }

    async fn run_step(self, show: Show<'_>) -> anyhow::Result<()> {
        let Self { instance, step } = self;
        let client = Client::new(&instance);
        let answer = match step {
            Step::Next => next::run(&client, &instance).await?,
            Step::Probe(probing) => probing.run()?,
            Step::Up(start) => start.run(&client, &instance).await?,
            Step::Down(program) => down::run(&client, &instance, &program).await?,
            Step::Status(status) => return status::run(status, &client, show).await,
            Step::Flows(flows) => flows::run(flows, &client).await?,
            Step::Export(export) => return export::run(export, &client, show).await,
            Step::Top(top) => return top::run(top, &client, show).await,
            Step::Why(selection) => why::run(&selection, &client).await?,
            Step::Conntrack(conntrack) => conntrack::run(conntrack, &client).await?,
            Step::Watch(watch) => return watch::run(watch, &client, show).await,
            Step::Flush => flush::run(&client).await?,
            Step::Qos(qos) => qos.run(&client).await?,
            Step::Flow(change) => change.run(&client).await?,
            Step::Line(line) => line::run(line),
            Step::Load(load) => return load::run(load, show).await,
            Step::Measure(measurement) => return measurement.run(show).await,
            Step::Campaign(campaign) => return campaign.run(show).await,
            Step::Agent(agent) => return agent.run().await,
            Step::Compare(compare) => compare.run(),
            Step::Gen(generation) => return generation.run(show).await,
            Step::Link(plan) => return plan.run(show).await,
            Step::Doctor(plan) => return plan.run(show).await,
            Step::Reg(plan) => return plan.run(show).await,
            Step::Trace(tracing) => return tracing.run(show).await,
            Step::Check(checking) => return checking.run(show).await,
            Step::Model(modelling) => modelling.run()?,
            Step::Report(reporting) => reporting.run()?,
            Step::Completions(shell) => completions::run(shell)?,
            Step::Man(dir) => man::run(Cli::command(), dir, examples::for_command)?,
        };
        show(&answer)
    }
}

fn resolve_measurement(typed: &MeasureCommand) -> anyhow::Result<Box<Measurement>> {
    Ok(Box::new(Measurement::resolve(typed)?))
}
