//! cbmc for symbolic checks, and the C compiler for harnesses that run on all inputs.

use super::harness::Harness;
use crate::{
    arch::Arch,
    debian::{self, Set},
};
use anyhow::{Context, bail, ensure};
use serde_json::Value;
use std::{
    env,
    path::Path,
    process::{Command, Output, Stdio},
};

/// Packages of cbmc 6 and of its libraries. Debian 12 has no cbmc 6.
const PACKAGES: [&str; 6] = ["cbmc", "minisat", "libc6", "libstdc++6", "libgcc-s1", "zlib1g"];
/// Checks in addition to the harness's own. cbmc's standard checks would reject a pointer past the end that is only
/// compared.
const CHECKS: [&str; 10] = [
    "--no-standard-checks",
    "--bounds-check",
    "--pointer-check",
    "--signed-overflow-check",
    "--undefined-shift-check",
    "--div-by-zero-check",
    "--unwind",
    "210",
    "--unwinding-assertions",
    "--slice-formula",
];

#[derive(Debug)]
pub struct Checker {
    /// The program and its first arguments.
    cbmc: Vec<String>,
    limit: u32,
}

/// Result of a check.
#[derive(Debug)]
pub enum Verdict {
    /// The claim holds; the text says how much was checked.
    Holds(String),
    /// The claim fails; the text names the first property that fails.
    Fails(String),
}

impl Checker {
    /// Finds cbmc 6 on this machine, or unpacks it from Debian's package.
    pub fn find(limit: u32) -> anyhow::Result<Self> {
        let version = Command::new("cbmc").arg("--version").output();
        let recent = |text: &str| {
            text.split('.').next().and_then(|n| n.trim().parse().ok()).is_some_and(|n: u32| n >= 6)
        };
        if version.is_ok_and(|version| recent(&String::from_utf8_lossy(&version.stdout))) {
            return Ok(Self { cbmc: vec!["cbmc".to_owned()], limit });
        }
        let name = match env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => bail!("cbmc 6 is not installed, and Debian has no package of it for {other}"),
        };
        let arch = Arch::named(name)?;
        let root = debian::unpacked(&Set {
            name: "cbmc",
            suite: debian::NEXT,
            arch,
            packages: &PACKAGES,
            closed: false,
        })
        .context("cbmc 6 is not installed, and fetching it failed")?;
        let libraries = root.join("usr/lib").join(arch.tuple);
        let loader = match name {
            "amd64" => "ld-linux-x86-64.so.2",
            _ => "ld-linux-aarch64.so.1",
        };
        let path = |path: &Path| path.display().to_string();
        Ok(Self {
            cbmc: vec![
                path(&libraries.join(loader)),
                "--library-path".to_owned(),
                format!("{}:{}", libraries.display(), root.join("usr/lib").display()),
                path(&root.join("usr/bin/cbmc")),
            ],
            limit,
        })
    }

    /// Checks a claim in one case, with the sources of the packet core in this directory.
    pub fn check(&self, harness: &Harness, case: &str, core: &Path) -> anyhow::Result<Verdict> {
        if harness.runs { self.run(harness, core) } else { self.prove(harness, case, core) }
    }

    fn run(&self, harness: &Harness, core: &Path) -> anyhow::Result<Verdict> {
        let directory = tempfile::tempdir()?;
        let program = directory.path().join("run");
        let mut compile = Command::new("cc");
        compile
            .args(["-O3", "-w", "-fno-strict-aliasing", "-I"])
            .arg(core)
            .arg("-o")
            .arg(&program)
            .arg(&harness.path);
        ensure!(compile.status()?.success(), "{} does not compile", harness.name);
        let out = self.limited(&program.to_string_lossy(), |_| {})?;
        let text = String::from_utf8_lossy(&out.stdout).trim().to_owned();
        if out.status.success() {
            return Ok(Verdict::Holds("all inputs".to_owned()));
        }
        ensure!(text.starts_with("FAILURE"), "{} ended with {}", harness.name, out.status);
        Ok(Verdict::Fails(text))
    }

    fn prove(&self, harness: &Harness, case: &str, core: &Path) -> anyhow::Result<Verdict> {
        let ask = |more: &[String]| -> anyhow::Result<Vec<Value>> {
            let out = self.limited(&self.cbmc[0], |command| {
                command.args(&self.cbmc[1..]).arg(&harness.path).args(CHECKS).arg("--json-ui");
                command.args(["-I", "proof/core/shim", "-I", "proof/core", "-I"]).arg(core).args(more);
                command.args(case.split_whitespace().map(|one| format!("-D{one}")));
            })?;
            serde_json::from_slice(&out.stdout)
                .with_context(|| format!("cbmc: {}", String::from_utf8_lossy(&out.stderr)))
        };
        let find = |answer: &[Value], field: &str| answer.iter().find_map(|part| part.get(field).cloned());
        let answer = ask(&["--show-properties".to_owned()])?;
        let properties = find(&answer, "properties")
            .with_context(|| format!("cbmc cannot read {}: {answer:?}", harness.name))?;
        let past_the_end = ["pointer arithmetic", "pointer"];
        let expected: Vec<String> = properties
            .as_array()
            .context("cbmc lists no properties")?
            .iter()
            .filter(|property| !past_the_end.iter().any(|class| property["class"] == *class))
            .filter_map(|property| property["name"].as_str())
            .flat_map(|name| ["--property".to_owned(), name.to_owned()])
            .collect();
        let answer = ask(&expected)?;
        let results = find(&answer, "result").context("cbmc printed no result")?;
        let results = results.as_array().context("cbmc printed no result")?;
        let bad = results.iter().find(|result| result["status"] == "FAILURE");
        if let Some(bad) = bad {
            return Ok(Verdict::Fails(format!("{}: {}", bad["property"], bad["description"])));
        }
        ensure!(results.iter().all(|result| result["status"] == "SUCCESS"), "cbmc left a property undecided");
        Ok(Verdict::Holds(format!("{} properties", results.len())))
    }

    fn limited(&self, program: &str, arguments: impl FnOnce(&mut Command)) -> anyhow::Result<Output> {
        let mut command = Command::new("timeout");
        command.arg(self.limit.to_string()).arg(program).stdin(Stdio::null());
        arguments(&mut command);
        let out = command.output().context("timeout")?;
        ensure!(out.status.code() != Some(124), "no result within {} s (--limit)", self.limit);
        Ok(out)
    }
}
