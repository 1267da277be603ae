//! `shunt compare`: compares two files of results.
//!
//! Runs of A and B that were made in turn are compared in pairs: the first of A with the first of B, and so on. Others
//! are compared as a whole, and only if the machine was quiet and did not change in between.

pub(crate) mod view;

use super::result_files;
use crate::{
    command::{Command, Context},
    output::Show,
    render::Text,
};
use clap::Args;
use shunt_api::Failure;
use shunt_lab::{Comparison, Results};
use std::path::{Path, PathBuf};

/// Compare two files of results: what is better or worse in B than in A, what is equal, and what cannot be told.
///
/// Readings have a verdict from six runs of each on. For small differences, or on a machine that does other work, make
/// the runs in turn: repeat both measurements with --runs 1 and --keep to their files, six times or more.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The results before the change.
    a: PathBuf,
    /// The results after the change.
    b: PathBuf,
}

/// A resolved `shunt compare`: both files, read.
#[derive(Debug)]
pub(crate) struct Compare {
    a: NamedResults,
    b: NamedResults,
}

/// The path of a file as text, and its results.
type NamedResults = (String, Box<Results>);

impl Command for CompareArgs {
    type Plan = Compare;
    const EXAMPLES: &str = "
        [shunt compare]
        shunt compare before.json after.json # better, worse, equal, or cannot tell
    ";

    fn resolve(self, _: &Context) -> anyhow::Result<Compare> {
        Ok(Compare::resolve(&self)?)
    }

    async fn run(plan: Compare, _: &Context, show: Show<'_>) -> anyhow::Result<()> {
        let Compare { a, b } = plan;
        let comparison = Comparison::new((&a.0, &a.1), (&b.0, &b.1));
        show(&comparison)?;
        Text::failure(&comparison).map_or(Ok(()), |failure| Err(failure.into()))
    }
}

impl Compare {
    fn resolve(CompareArgs { a, b }: &CompareArgs) -> Result<Self, Failure> {
        Ok(Self { a: read(a)?, b: read(b)? })
    }
}

fn read(path: &Path) -> Result<NamedResults, Failure> {
    Ok((path.display().to_string(), Box::new(result_files::read(path)?)))
}

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests {
    use super::*;
    use shunt_api::FailureCode;
    use shunt_lab::Conditions;

    #[test]
    fn a_message_about_a_file_without_results_begins_with_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let whole = Results::new("throughput", Conditions::default()).to_json().unwrap();
        let newer = whole.replacen("\"version\": 1", "\"version\": 9", 1);
        let wrong = [("cut", &whole[..60]), ("newer", &newer), ("other", "{}")];
        for (name, text) in [("whole", &whole[..])].into_iter().chain(wrong) {
            std::fs::write(path(name), text).unwrap();
        }
        let compare = |a: &str, b: &str| Compare::resolve(&CompareArgs { a: path(a), b: path(b) });
        assert!(compare("whole", "whole").is_ok());
        let reasons = wrong.map(|(name, text)| (name, Results::parse(text).unwrap_err().to_string()));
        let missing = ("none", "there is no such file: check the path".to_owned());
        for (name, why) in reasons.into_iter().chain([missing]) {
            for compared in [compare(name, "whole"), compare("whole", name)] {
                let failure = compared.unwrap_err();
                assert_eq!(failure.code, FailureCode::BadConfig);
                assert_eq!(failure.message, format!("{}: {why}", path(name).display()));
            }
        }
    }
}
