//! A running Shunt, started and stopped as a user would.

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use shunt_testkit::NetNs;
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

static NEXT: AtomicU32 = AtomicU32::new(1);

/// A Shunt on the ports r0 and r1 of a router, taken down on drop.
#[derive(Debug)]
pub struct Shunt<'a> {
    router: &'a NetNs,
    instance: String,
    binary: PathBuf,
    config: PathBuf,
    down: bool,
}

impl<'a> Shunt<'a> {
    /// `shunt up` with this engine and these lines of configuration.
    pub fn up(router: &'a NetNs, engine: &str, config: &str) -> anyhow::Result<Self> {
        let instance = format!("x{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = target().join(format!("shunt-{instance}.toml"));
        fs::create_dir_all(target())?;
        fs::write(&path, config).with_context(|| path.display().to_string())?;
        let shunt = Self { router, instance, binary: binary()?, config: path, down: false };
        let config = shunt.config.to_string_lossy().into_owned();
        shunt.ask(&["up", "--engine", engine, "--port", "r0", "--port", "r1", "--config", &config])?;
        Ok(shunt)
    }

    /// How a person asks it.
    pub fn command(&self, words: &str) -> String {
        let (netns, binary) = (self.router.name(), self.binary.display());
        format!("ip netns exec {netns} {binary} --instance {} {words}", self.instance)
    }

    /// `shunt status --json`.
    pub fn status(&self) -> anyhow::Result<Value> {
        let said = self.ask(&["status", "--json"])?;
        serde_json::from_str(&said).context("shunt status --json")
    }

    /// A number of the status, by its path: `/packets/fast`.
    pub fn number(&self, pointer: &str) -> anyhow::Result<u64> {
        let status = self.status()?;
        let number = status.pointer(pointer).and_then(Value::as_u64);
        number.with_context(|| format!("shunt status --json has no number {pointer}"))
    }

    /// Leaves it up when this value is dropped.
    pub fn keep(&mut self) {
        self.down = true;
    }

    /// `shunt down`, with its errors.
    pub fn down(mut self) -> anyhow::Result<()> {
        self.down = true;
        let said = self.ask(&["down"]);
        let _ = fs::remove_file(&self.config);
        said.map(drop)
    }

    fn ask(&self, words: &[&str]) -> anyhow::Result<String> {
        let mut command: Command = self.router.command(&self.binary.to_string_lossy());
        command.args(["--instance", &self.instance]).args(words).stdin(Stdio::null());
        let output = command.output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "shunt {}: {}: {}", words.join(" "), output.status, stderr.trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Shunt<'_> {
    fn drop(&mut self) {
        if !self.down {
            if let Err(e) = self.ask(&["down"]) {
                eprintln!("{e}");
            }
            let _ = fs::remove_file(&self.config);
        }
    }
}

/// Where `make build` puts shunt. `SHUNT_BIN_DIR` names another directory.
pub fn binary() -> anyhow::Result<PathBuf> {
    built("shunt")
}

/// The same for one of its programs.
pub fn built(name: &str) -> anyhow::Result<PathBuf> {
    let directory = env::var("SHUNT_BIN_DIR").map_or_else(|_| target().join("release"), PathBuf::from);
    let path = directory.join(name);
    if !path.exists() {
        bail!("{} is not there; `make build` makes it", path.display());
    }
    path.canonicalize().with_context(|| path.display().to_string())
}

/// Cargo's target directory.
pub fn target() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    env::var("CARGO_TARGET_DIR").map_or_else(|_| root.join("target"), PathBuf::from)
}
