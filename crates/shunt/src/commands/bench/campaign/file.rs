//! The file of a campaign. The keys of a step are options of its command: they become the words of a command line,
//! which the parser of that command reads.

use super::super::measurement::{BenchParser, MeasureCommand};
use crate::{
    commands::{
        measure::Measurement,
        option_keys::{OptionKeys, WrongKey},
    },
    failure::bad_config,
};
use clap::{CommandFactory, Parser};
use serde::Deserialize;
use shunt_api::{Failure, read_document};
use std::path::{Path, PathBuf};
use toml::Table;

/// The option that the campaign itself sets, for each step.
const KEEP: &str = "keep";
const KEPT: &str = "not allowed in a campaign, which keeps its results in its own directory (`output`)";
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
            let keys = OptionKeys {
                command,
                owner: format!("`shunt bench {}`", step.bench),
                unit: "step",
                reserved: Some((KEEP, KEPT)),
            };
            let common =
                self.common.iter().filter(|(key, _)| keys.has(key) && !step.options.contains_key(*key));
            unused.retain(|key| !keys.has(key));
            let mut words = vec!["shunt".to_owned(), "bench".to_owned(), step.bench.clone()];
            for (key, value) in common.chain(&step.options) {
                words.extend(keys.words(key, value).map_err(|wrong| bad(wrong.to_string()))?);
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

/// Reads a command line that begins with `shunt bench`.
fn parse(words: &[String], keep: &Path) -> Result<MeasureCommand, WrongKey> {
    let keep = format!("--{KEEP}={}", keep.display());
    let words = [&words[2..], &[keep]].concat();
    Ok(BenchParser::try_parse_from(&words)?.command)
}
