//! Harnesses. The first comment of a harness has its claim, its cases, and the changes of the core with which it must
//! fail.

use anyhow::{Context, ensure};
use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

/// A file of proof/core.
#[derive(Debug)]
pub struct Harness {
    pub path: PathBuf,
    pub name: String,
    /// Macros with their values, such as `FAMILY=4 PROTO=6`; one empty string if there is only one case.
    pub cases: Vec<String>,
    pub mutants: Vec<Mutant>,
    /// Whether the harness is compiled and run on all inputs instead of being checked symbolically.
    pub runs: bool,
}

/// A change that makes the packet core faulty.
#[derive(Debug)]
pub struct Mutant {
    file: String,
    from: String,
    to: String,
}

impl Harness {
    /// Reads all harnesses of a directory, sorted by name.
    pub fn read_all(directory: &Path) -> anyhow::Result<Vec<Self>> {
        let mut harnesses = Vec::new();
        for file in fs::read_dir(directory)? {
            let path = file?.path();
            if path.extension().is_some_and(|extension| extension == "c") {
                harnesses.push(Self::read(&path)?);
            }
        }
        harnesses.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(harnesses)
    }

    fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let lines = |word: &str| {
            let start = format!(" * {word}: ");
            text.lines().filter_map(|line| Some(line.strip_prefix(&start)?.to_owned())).collect::<Vec<_>>()
        };
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        ensure!(lines("claim").len() == 1, "{name}: the first comment needs one line `claim: ...`");
        let mutants: anyhow::Result<Vec<Mutant>> =
            lines("mutant").iter().map(|line| Mutant::parse(line)).collect();
        let mutants = mutants.with_context(|| path.display().to_string())?;
        ensure!(
            !mutants.is_empty(),
            "{name}: the first comment needs a line `mutant: ...`, which shows that the claim can fail"
        );
        let mut cases = lines("case");
        if cases.is_empty() {
            cases.push(String::new());
        }
        Ok(Self { path: path.to_owned(), name, cases, mutants, runs: !lines("runs").is_empty() })
    }
}

impl Mutant {
    fn parse(line: &str) -> anyhow::Result<Self> {
        let parts: Vec<String> = format!("{line} ")
            .split(" | ")
            .map(|part| part.trim().replace("\\n", "\n").replace("\\t", "\t"))
            .collect();
        let [file, from, to] =
            <[String; 3]>::try_from(parts).ok().context("expected `mutant: FILE | TEXT | REPLACEMENT`")?;
        Ok(Self { file, from, to })
    }

    /// Copies the sources with the change into a directory and returns its path.
    pub fn apply(&self, sources: &Path, into: &Path) -> anyhow::Result<PathBuf> {
        for file in shunt_bpf_build::fast_path_files(sources)? {
            let target = into.join(&file);
            fs::create_dir_all(target.parent().unwrap_or(into))?;
            fs::copy(sources.join(file), target)?;
        }
        let path = into.join(&self.file);
        let text = fs::read_to_string(&path).with_context(|| self.file.clone())?;
        ensure!(
            text.contains(&self.from),
            "{} no longer contains the text that a mutant replaces: {}",
            self.file,
            self.from
        );
        fs::write(&path, text.replacen(&self.from, &self.to, 1))?;
        Ok(into.to_owned())
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?} for {:?}", self.file, self.to, self.from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutant_changes_the_core_as_it_is_now() {
        let root = shunt_testkit::tree::root();
        let harnesses = Harness::read_all(&root.join("proof/core")).unwrap();
        assert!(harnesses.len() > 5);
        for mutant in harnesses.iter().flat_map(|harness| &harness.mutants) {
            let directory = tempfile::tempdir().unwrap();
            mutant.apply(&root.join("bpf"), directory.path()).unwrap();
        }
    }
}
