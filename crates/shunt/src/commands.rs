//! The command line: global options, and the list of commands.

#[cfg(feature = "full")]
mod bench;
mod bug_report;
#[cfg(feature = "full")]
mod check;
#[cfg(feature = "full")]
mod compare;
#[cfg(feature = "full")]
mod completions;
mod conntrack;
#[cfg(feature = "full")]
mod doctor;
mod down;
mod export;
mod flow;
mod flows;
mod flush;
#[cfg(feature = "full")]
mod generate;
mod history;
#[cfg(feature = "full")]
mod lab;
#[cfg(feature = "full")]
mod line;
#[cfg(feature = "full")]
mod link;
#[cfg(feature = "full")]
mod load;
#[cfg(feature = "full")]
mod man;
#[cfg(feature = "full")]
mod model;
mod next;
mod off;
#[cfg(feature = "full")]
mod option_keys;
mod probe;
mod qos;
#[cfg(feature = "full")]
mod quality;
#[cfg(feature = "full")]
mod reg;
mod reload;
#[cfg(feature = "full")]
mod report;
mod restart;
mod status;
#[cfg(feature = "full")]
mod top;
#[cfg(feature = "full")]
mod trace;
mod up;
mod usage;
#[cfg(feature = "full")]
mod verify;
mod watch;
mod why;

mod arguments;
mod connections;
mod hosts;
mod listed;
#[cfg(feature = "full")]
mod measure;
#[cfg(feature = "full")]
mod result_files;

use crate::{
    client::{candidates, control::Client},
    command::{self, Context, Example},
    output::Show,
};
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::engine::ArgValueCandidates;
use next::NextArgs;
use shunt_api::Instance;
use std::fmt::Write;

/// The heading of the options that every command has.
const GLOBAL: &str = "Global options";

/// A fast path for Linux routers: packets of connections that Linux has accepted skip the network stack.
///
/// Without a command, shunt says whether the instance runs and what to type next. In all commands, TIME is one or more
/// numbers with units, such as 500ms, 30s, 10m or 1h30m, or a number of seconds.
#[derive(Debug, Parser)]
#[command(name = "shunt", version)]
pub(crate) struct Cli {
    /// The instance, if several run on this machine.
    #[arg(long, global = true, value_name = "NAME", default_value = "default", help_heading = GLOBAL,
        add = ArgValueCandidates::new(candidates::instances))]
    pub(crate) instance: Instance,
    /// Print JSON with the same values as the text.
    #[arg(short, long, global = true, help_heading = GLOBAL)]
    pub(crate) json: bool,
    /// Print one line for each port, connection or direction; also -br, as for `ip`.
    #[arg(long, global = true, help_heading = GLOBAL, conflicts_with = "verbose")]
    pub(crate) brief: bool,
    /// Print more details; after a failure, print its causes. Before the command also -d, as for `ip`.
    #[arg(short, long, global = true, help_heading = GLOBAL)]
    pub(crate) verbose: bool,
    /// The command; without one, shunt says what to do next.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// Defines [`Command`] from the list of commands, each with its arguments.
macro_rules! commands {
    ($($(#[$only:meta])? $name:ident($module:ident::$arguments:ident),)*) => {
        #[derive(Debug, Subcommand)]
        pub(crate) enum Command {
            $($(#[$only])? $name(Box<$module::$arguments>),)*
        }

        impl Command {
            /// Of each command in turn: whether it uses an instance.
            const USES_INSTANCE: &[bool] = &[$($(#[$only])? <$module::$arguments as command::Command>::USES_INSTANCE),*];
            /// Of each command in turn.
            const EXAMPLES: &[&str] = &[$($(#[$only])? <$module::$arguments as command::Command>::EXAMPLES),*];

            fn run(self, context: &Context, show: Show<'_>) -> anyhow::Result<()> {
                match self {
                    $($(#[$only])? Self::$name(typed) => resolve_and_run(*typed, context, show),)*
                }
            }
        }
    };
}

// In the order of the help. A command is a line here, and a module above. The program for small routers lacks those of
// the feature `full`.
commands! {
    Probe(probe::ProbeArgs),
    Up(up::UpArgs),
    Down(down::DownArgs),
    Reload(reload::ReloadArgs),
    Restart(restart::RestartArgs),
    Status(status::StatusArgs),
    Flows(flows::FlowsArgs),
    Export(export::ExportArgs),
    #[cfg(feature = "full")]
    Top(top::TopArgs),
    History(history::HistoryArgs),
    Why(why::WhyArgs),
    Conntrack(conntrack::ConntrackArgs),
    Watch(watch::WatchArgs),
    Usage(usage::UsageArgs),
    Off(off::OffArgs),
    On(off::OnArgs),
    #[cfg(feature = "full")]
    Verify(verify::VerifyArgs),
    #[cfg(feature = "full")]
    Quality(quality::QualityArgs),
    Flush(flush::FlushArgs),
    Flow(flow::FlowArgs),
    Qos(qos::QosArgs),
    #[cfg(feature = "full")]
    Line(line::LineArgs),
    #[cfg(feature = "full")]
    Load(load::LoadArgs),
    #[cfg(feature = "full")]
    Bench(bench::BenchArgs),
    #[cfg(feature = "full")]
    Lab(lab::LabArgs),
    #[cfg(feature = "full")]
    Compare(compare::CompareArgs),
    #[cfg(feature = "full")]
    Gen(generate::GenArgs),
    #[cfg(feature = "full")]
    Link(link::LinkArgs),
    #[cfg(feature = "full")]
    Doctor(doctor::DoctorArgs),
    #[cfg(feature = "full")]
    Reg(reg::RegArgs),
    #[cfg(feature = "full")]
    Trace(trace::TraceArgs),
    #[cfg(feature = "full")]
    Check(check::CheckArgs),
    #[cfg(feature = "full")]
    Model(model::ModelArgs),
    #[cfg(feature = "full")]
    Report(report::ReportArgs),
    BugReport(bug_report::BugReportArgs),
    #[cfg(feature = "full")]
    Completions(completions::CompletionsArgs),
    #[cfg(feature = "full")]
    Man(man::ManArgs),
}

impl Cli {
    pub(crate) fn run(self, show: Show<'_>) -> anyhow::Result<()> {
        let Self { instance, json, command, .. } = self;
        let context = Context { client: Client::new(&instance), instance, json };
        match command {
            Some(command) => command.run(&context, show),
            None => resolve_and_run(NextArgs, &context, show),
        }
    }
}

fn resolve_and_run<C: command::Command>(typed: C, context: &Context, show: Show<'_>) -> anyhow::Result<()> {
    let plan = typed.resolve(context)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(C::run(plan, context, show))
}

/// The definition of the command line, as derived from the arguments.
fn definition() -> clap::Command {
    Cli::command()
}

/// The definition of the command line, with examples in its help, and without options that mean nothing to a command.
pub(crate) fn command() -> clap::Command {
    let command = add_examples(definition(), "shunt");
    let instance = command.get_arguments().find(|argument| argument.get_id() == "instance").cloned();
    let names: Vec<String> = command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    let without = names.into_iter().zip(Command::USES_INSTANCE).filter(|(_, uses_instance)| !**uses_instance);
    without.fold(command, |command, (name, _)| {
        // The command's own definition takes the place of the global one, for the commands below it, too.
        command.mut_subcommand(name, |one| one.args(instance.clone().map(|instance| instance.hide(true))))
    })
}

/// All examples, by the name of their command with those above it.
fn all_examples() -> impl Iterator<Item = (&'static str, Example)> {
    let mut command = "";
    example_lines().filter_map(move |line| match line.strip_prefix('[') {
        Some(name) => {
            command = name.trim_end_matches(']');
            None
        }
        None => Some((command, line.split_once(" # ")?)),
    })
}

fn example_lines() -> impl Iterator<Item = &'static str> {
    let texts =
        [<NextArgs as command::Command>::EXAMPLES].into_iter().chain(Command::EXAMPLES.iter().copied());
    texts.flat_map(str::lines).map(str::trim).filter(|line| !line.is_empty())
}

/// The examples of this command.
fn examples(name: &str) -> Vec<Example> {
    all_examples().filter(|(command, _)| *command == name).map(|(_, example)| example).collect()
}

/// Adds the examples to the help of a command and of those below it. `name` is its own, with those above it.
fn add_examples(command: clap::Command, name: &str) -> clap::Command {
    let below: Vec<String> = command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    let command = below.into_iter().fold(command, |command, one| {
        let whole = format!("{name} {one}");
        command.mut_subcommand(one, |below| add_examples(below, &whole))
    });
    let examples = examples(name);
    if examples.is_empty() {
        return command;
    }
    let mut text = "Examples:".to_owned();
    for (typed, what) in examples {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n  {typed}\n      {what}");
    }
    command.after_help(text)
}

#[cfg(test)]
mod tests;
