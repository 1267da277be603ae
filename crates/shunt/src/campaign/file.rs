//! The file of a campaign. A step's keys are the options of its command: they become the words of a command line, and the command's own
//! parser reads those.

use crate::{
    bench::Measurement,
    cli::{BenchCommand, Cli, Command, Measuring},
};
use clap::{
    ArgAction, CommandFactory, Parser,
    error::{ContextKind, ContextValue},
};
use serde::Deserialize;
use shunt_api::{Failure, FailureCode, read_document};
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// The option that the campaign sets itself.
const KEEP: &str = "keep";
/// Nobody waits for more.
const STEPS_MAX: usize = 999;

/// As it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    /// Where results go.
    pub(super) output: Option<PathBuf>,
    /// Make a page of them at the end.
    #[serde(default = "yes")]
    pub(super) report: bool,
    /// Options of all steps whose command has them.
    #[serde(default)]
    common: Table,
    #[serde(default)]
    step: Vec<Written>,
}

#[derive(Debug, Deserialize)]
struct Written {
    bench: String,
    name: Option<String>,
    #[serde(flatten)]
    options: Table,
}

/// A step, as the command line would have it.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) name: String,
    /// Of its results, in the directory.
    pub(super) file: String,
    /// Without where results are kept.
    pub(super) words: Vec<String>,
    typed: BenchCommand,
    what: String,
}

/// What is wrong with which key.
struct Wrong {
    key: String,
    why: String,
}

fn yes() -> bool {
    true
}

impl File {
    pub(super) fn parse(name: &str, text: &str) -> Result<Self, Failure> {
        let file: Self = read_document(text).map_err(|why| bad(format!("{name}: {why}")))?;
        match file.step.len() {
            0 => Err(bad(format!("{name}: it has no step: write one as [[step]] with `bench = \"size\"`"))),
            n if n > STEPS_MAX => Err(bad(format!("{name}: {n} steps: {STEPS_MAX} are the most"))),
            _ => Ok(file),
        }
    }

    /// What its steps would be on the command line, with their results in this directory.
    pub(super) fn planned(&self, file: &str, directory: &Path) -> Result<Vec<Planned>, Failure> {
        let cli = Cli::command();
        let bench = cli.find_subcommand("bench").cloned().unwrap_or_default();
        let commands = || bench.get_subcommands().filter(|command| command.get_name() != "run");
        let mut unused: Vec<&String> = self.common.keys().collect();
        let mut planned: Vec<Planned> = Vec::new();
        for (nth, step) in (1..).zip(&self.step) {
            let name = step.name.clone().unwrap_or_else(|| step.bench.clone());
            let what = format!("{file}: step {nth} (`{name}`)");
            let bad = |why: String| bad(format!("{what}: {why}"));
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
                return Err(bad("name: it names a file: use letters, digits, `-`, `_` and `.`".to_owned()));
            }
            let Some(command) = commands().find(|command| command.get_name() == step.bench) else {
                let known: Vec<&str> = commands().map(clap::Command::get_name).collect();
                let why = format!("bench: there is no `{}`; there are {}", step.bench, known.join(", "));
                return Err(bad(why));
            };
            let has = |key: &str| command.get_arguments().any(|arg| arg.get_long() == Some(key));
            let common = self.common.iter().filter(|(key, _)| has(key) && !step.options.contains_key(*key));
            unused.retain(|key| !has(key));
            let mut words = vec!["shunt".to_owned(), "bench".to_owned(), step.bench.clone()];
            for (key, value) in common.chain(&step.options) {
                words.extend(option(command, key, value).map_err(|wrong| bad(wrong.to_string()))?);
            }
            let kept = format!("{nth:02}-{name}.json");
            let typed = parse(&words, &directory.join(&kept))
                .map_err(|wrong| bad(format!("{wrong}; see `shunt bench {} --help`", step.bench)))?;
            planned.push(Planned { name, file: kept, words, typed, what });
        }
        if let Some(key) = unused.first() {
            return Err(bad(format!("{file}: common: {key}: no step's command has such an option")));
        }
        Ok(planned)
    }
}

impl Planned {
    /// Everything that can be found wrong before it is measured.
    pub(super) fn resolve(&self) -> anyhow::Result<Measurement> {
        Measurement::resolve(&self.typed).map_err(|why| match why.downcast::<Failure>() {
            Ok(Failure { code, message }) => Failure::new(code, format!("{}: {message}", self.what)).into(),
            Err(why) => why.context(self.what.clone()),
        })
    }
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.key, self.why)
    }
}

/// What would be typed for a key and its value.
fn option(command: &clap::Command, key: &str, value: &Value) -> Result<Vec<String>, Wrong> {
    let wrong = |why: String| Wrong { key: key.to_owned(), why };
    if key == KEEP {
        return Err(wrong("a campaign keeps its results in its own directory (`output`)".to_owned()));
    }
    let Some(arg) = command.get_arguments().find(|arg| arg.get_long() == Some(key)) else {
        let known = command.get_arguments().filter_map(clap::Arg::get_long).filter(|name| *name != KEEP);
        let known = known.collect::<Vec<_>>().join(", ");
        return Err(wrong(format!(
            "`shunt bench {}` has no such option; it has {known}",
            command.get_name()
        )));
    };
    let takes_value = arg.get_action().takes_values();
    let may_be_bare = !takes_value || arg.get_num_args().is_some_and(|range| range.min_values() == 0);
    let one = |value: &Value| match value {
        _ if !takes_value => Err(wrong("it is on or off: write true or false".to_owned())),
        Value::String(text) => Ok(format!("--{key}={text}")),
        Value::Integer(number) => Ok(format!("--{key}={number}")),
        Value::Float(number) => Ok(format!("--{key}={number}")),
        Value::Boolean(_) => Err(wrong("it takes a value, not true or false".to_owned())),
        other => Err(wrong(format!("a {} is no value of an option", other.type_str()))),
    };
    match value {
        Value::Boolean(on) if may_be_bare => Ok(on.then(|| format!("--{key}")).into_iter().collect()),
        Value::Array(values) if matches!(arg.get_action(), ArgAction::Append) => {
            values.iter().map(one).collect()
        }
        Value::Array(_) => Err(wrong("it takes one value: make a step for each".to_owned())),
        other => Ok(vec![one(other)?]),
    }
}

fn parse(words: &[String], keep: &Path) -> Result<BenchCommand, Wrong> {
    let keep = format!("--{KEEP}={}", keep.display());
    let typed = Cli::try_parse_from(words.iter().chain([&keep])).map_err(|error| {
        let key = match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::String(arg)) => arg.as_str(),
            Some(ContextValue::Strings(args)) => args.first().map_or("", String::as_str),
            _ => "",
        };
        let key = key.trim_start_matches('-').split([' ', '=']).next().unwrap_or_default();
        // The first paragraph; behind it is how the command is used.
        let text = error.to_string();
        let why: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
        Wrong { key: key.to_owned(), why: why.join(" ").trim_start_matches("error: ").to_owned() }
    })?;
    match typed.command {
        Command::Bench(Measuring::Once(typed)) => Ok(*typed),
        // The words begin with a command of the bench that is not `run`.
        _ => Err(Wrong { key: "bench".to_owned(), why: "it measures nothing".to_owned() }),
    }
}

pub(super) fn bad(why: String) -> Failure {
    Failure::new(FailureCode::BadConfig, why)
}
