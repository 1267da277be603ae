//! The file of a campaign. The keys of a step are options of its command: they become the words of a command line,
//! which the parser of that command reads.

use super::super::measurement::{BenchParser, MeasureCommand};
use crate::{commands::measure::Measurement, failure::bad_config};
use clap::{
    ArgAction, CommandFactory, Parser,
    error::{ContextKind, ContextValue},
};
use serde::Deserialize;
use shunt_api::{Failure, read_document};
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// The option that the campaign itself sets, for each step.
const KEEP: &str = "keep";
/// The most steps of a campaign; file names have two or three digits for the step.
const STEPS_MAX: usize = 999;

/// The campaign as it stands in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    /// The directory for the results.
    pub(super) output: Option<PathBuf>,
    /// Whether a page with all results is written at the end.
    #[serde(default = "yes")]
    pub(super) report: bool,
    /// Options of every step whose command has them.
    #[serde(default)]
    common: Table,
    #[serde(default)]
    step: Vec<StepEntry>,
}

#[derive(Debug, Deserialize)]
struct StepEntry {
    bench: String,
    name: Option<String>,
    #[serde(flatten)]
    options: Table,
}

/// A step with its command line.
#[derive(Debug)]
pub(super) struct PlannedStep {
    pub(super) name: String,
    /// The name of its file of results, in the directory.
    pub(super) file: String,
    /// The command line, without --keep.
    pub(super) words: Vec<String>,
    typed: MeasureCommand,
    /// File, number and name of the step, for messages.
    location: String,
}

/// A key of a step that is wrong.
struct WrongKey {
    key: String,
    why: String,
}

fn yes() -> bool {
    true
}

impl File {
    pub(super) fn parse(name: &str, text: &str) -> Result<Self, Failure> {
        let file: Self = read_document(text).map_err(|why| bad_config(format!("{name}: {why}")))?;
        match file.step.len() {
            0 => Err(bad_config(format!("{name}: no step; add one as [[step]] with `bench = \"size\"`"))),
            n if n > STEPS_MAX => {
                Err(bad_config(format!("{name}: {n} steps: at most {STEPS_MAX} are possible")))
            }
            _ => Ok(file),
        }
    }

    /// The steps with their command lines. Each step keeps its results in `directory`.
    pub(super) fn steps(&self, file: &str, directory: &Path) -> Result<Vec<PlannedStep>, Failure> {
        let bench = BenchParser::command();
        let commands = || bench.get_subcommands();
        let mut unused: Vec<&String> = self.common.keys().collect();
        let mut planned: Vec<PlannedStep> = Vec::new();
        for (nth, step) in (1..).zip(&self.step) {
            let name = step.name.clone().unwrap_or_else(|| step.bench.clone());
            let location = format!("{file}: step {nth} (`{name}`)");
            let bad = |why: String| bad_config(format!("{location}: {why}"));
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
                return Err(bad(
                    "name: expected letters, digits, `-`, `_` and `.`, since it becomes part of a file name"
                        .to_owned(),
                ));
            }
            let Some(command) = commands().find(|command| command.get_name() == step.bench) else {
                let known: Vec<&str> = commands().map(clap::Command::get_name).collect();
                let why =
                    format!("bench: unknown command `{}`; expected one of: {}", step.bench, known.join(", "));
                return Err(bad(why));
            };
            let has = |key: &str| command.get_arguments().any(|arg| arg.get_long() == Some(key));
            let common = self.common.iter().filter(|(key, _)| has(key) && !step.options.contains_key(*key));
            unused.retain(|key| !has(key));
            let mut words = vec!["shunt".to_owned(), "bench".to_owned(), step.bench.clone()];
            for (key, value) in common.chain(&step.options) {
                words.extend(option_words(command, key, value).map_err(|wrong| bad(wrong.to_string()))?);
            }
            let results = format!("{nth:02}-{name}.json");
            let typed = parse(&words, &directory.join(&results))
                .map_err(|wrong| bad(format!("{wrong}; see `shunt bench {} --help`", step.bench)))?;
            planned.push(PlannedStep { name, file: results, words, typed, location });
        }
        if let Some(key) = unused.first() {
            return Err(bad_config(format!("{file}: common: {key}: no command of any step has this option")));
        }
        Ok(planned)
    }
}

impl PlannedStep {
    /// Resolves the step against the machine, so that errors are found before the first step is measured.
    pub(super) fn resolve(&self) -> anyhow::Result<Box<dyn Measurement>> {
        self.typed.resolve().map_err(|error| match error.downcast::<Failure>() {
            Ok(Failure { code, message }) => {
                Failure::new(code, format!("{}: {message}", self.location)).into()
            }
            Err(error) => error.context(self.location.clone()),
        })
    }
}

impl std::fmt::Display for WrongKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.key, self.why)
    }
}

/// The words of the command line for a key and its value.
fn option_words(command: &clap::Command, key: &str, value: &Value) -> Result<Vec<String>, WrongKey> {
    let wrong = |why: String| WrongKey { key: key.to_owned(), why };
    if key == KEEP {
        return Err(wrong(
            "not allowed in a campaign, which keeps its results in its own directory (`output`)".to_owned(),
        ));
    }
    let Some(arg) = command.get_arguments().find(|arg| arg.get_long() == Some(key)) else {
        let known = command.get_arguments().filter_map(clap::Arg::get_long).filter(|name| *name != KEEP);
        let known = known.collect::<Vec<_>>().join(", ");
        return Err(wrong(format!(
            "`shunt bench {}` has no such option; its options are {known}",
            command.get_name()
        )));
    };
    let takes_value = arg.get_action().takes_values();
    let may_be_bare = !takes_value || arg.get_num_args().is_some_and(|range| range.min_values() == 0);
    let word = |value: &Value| match value {
        _ if !takes_value => Err(wrong("expected true or false".to_owned())),
        Value::String(text) => Ok(format!("--{key}={text}")),
        Value::Integer(number) => Ok(format!("--{key}={number}")),
        Value::Float(number) => Ok(format!("--{key}={number}")),
        Value::Boolean(_) => Err(wrong("expected a value, not true or false".to_owned())),
        other => Err(wrong(format!("expected a string, number or list, got {}", other.type_str()))),
    };
    match value {
        Value::Boolean(on) if may_be_bare => Ok(on.then(|| format!("--{key}")).into_iter().collect()),
        Value::Array(values) if matches!(arg.get_action(), ArgAction::Append) => {
            values.iter().map(word).collect()
        }
        Value::Array(_) => {
            Err(wrong("expected one value, not a list; make a step for each value".to_owned()))
        }
        other => Ok(vec![word(other)?]),
    }
}

/// Reads a command line that begins with `shunt bench`.
fn parse(words: &[String], keep: &Path) -> Result<MeasureCommand, WrongKey> {
    let keep = format!("--{KEEP}={}", keep.display());
    let words = [&words[2..], &[keep]].concat();
    BenchParser::try_parse_from(&words).map(|parsed| parsed.command).map_err(|error| {
        let key = match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::String(arg)) => arg.as_str(),
            Some(ContextValue::Strings(args)) => args.first().map_or("", String::as_str),
            _ => "",
        };
        let key = key.trim_start_matches('-').split([' ', '=']).next().unwrap_or_default();
        // Take the first paragraph; the usage follows.
        let text = error.to_string();
        let why: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
        WrongKey { key: key.to_owned(), why: why.join(" ").trim_start_matches("error: ").to_owned() }
    })
}
