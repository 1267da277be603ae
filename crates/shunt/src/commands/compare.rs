//! `shunt compare`: compares two files of results.
//!
//! Runs are compared in pairs: the first of A with the first of B, and so on. Runs of A and B that were made in turn
//! show least of what else changed on the machine.

pub(crate) mod view;

use super::result_files;
use crate::{
    command::{Command, Context},
    output::Show,
};
use clap::Args;
use shunt_api::Failure;
use shunt_lab::{Comparison, Results};
use std::path::{Path, PathBuf};

/// Compare two files of results: what is better or worse in B than in A, and what cannot be told apart.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The results before the change.
    a: PathBuf,
    /// The results after the change.
    b: PathBuf,
    /// Seed of the bootstrap; the same seed gives the same interval.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// A resolved `shunt compare`: both files, read.
#[derive(Debug)]
pub(crate) struct Compare {
    a: NamedResults,
    b: NamedResults,
    seed: u64,
}

/// The path of a file as text, and its results.
type NamedResults = (String, Box<Results>);

impl Command for CompareArgs {
    type Plan = Compare;
    const EXAMPLES: &str = "
        [shunt compare]
        shunt compare before.json after.json # better, worse or no difference
    ";

    fn resolve(self, _: &Context) -> anyhow::Result<Compare> {
        Ok(Compare::resolve(&self)?)
    }

    async fn run(plan: Compare, _: &Context, show: Show<'_>) -> anyhow::Result<()> {
        let Compare { a, b, seed } = plan;
        show(&Comparison::new((&a.0, &a.1), (&b.0, &b.1), seed))
    }
}

impl Compare {
    fn resolve(CompareArgs { a, b, seed }: &CompareArgs) -> Result<Self, Failure> {
        Ok(Self { a: read(a)?, b: read(b)?, seed: *seed })
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
        let compare = |a: &str, b: &str| Compare::resolve(&CompareArgs { a: path(a), b: path(b), seed: 1 });
        assert!(compare("whole", "whole").is_ok());
        let reasons = wrong.map(|(name, text)| (name, Results::parse(text).unwrap_err().to_string()));
        let missing = ("none", "No such file or directory (os error 2)".to_owned());
        for (name, why) in reasons.into_iter().chain([missing]) {
            for compared in [compare(name, "whole"), compare("whole", name)] {
                let failure = compared.unwrap_err();
                assert_eq!(failure.code, FailureCode::BadConfig);
                assert_eq!(failure.message, format!("{}: {why}", path(name).display()));
            }
        }
    }
}
