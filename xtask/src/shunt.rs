//! A running Shunt, started and stopped by the command as a user would.

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

/// Shunt on the ports r0 and r1 of a router. Dropping this runs `shunt down`.
#[derive(Debug)]
pub struct Shunt<'a> {
    router: &'a NetNs,
    instance: String,
    binary: PathBuf,
    config: PathBuf,
    down: bool,
}

impl<'a> Shunt<'a> {
    /// Runs `shunt up` with this engine and these lines of configuration.
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

    /// The shell command with which a person runs a command of this instance.
    pub fn command(&self, words: &str) -> String {
        let (netns, binary) = (self.router.name(), self.binary.display());
        format!("ip netns exec {netns} {binary} --instance {} {words}", self.instance)
    }

    /// The output of `shunt status --json`.
    pub fn status(&self) -> anyhow::Result<Value> {
        let output = self.ask(&["status", "--json"])?;
        serde_json::from_str(&output).context("shunt status --json")
    }

    /// A number of the status by its JSON pointer, such as `/packets/fast`.
    pub fn number(&self, pointer: &str) -> anyhow::Result<u64> {
        let status = self.status()?;
        let number = status.pointer(pointer).and_then(Value::as_u64);
        number.with_context(|| format!("no number at {pointer} in the output of shunt status --json"))
    }

    /// The engine of a port, and the reason for it.
    pub fn engine_of(&self, port: &str) -> anyhow::Result<(String, String)> {
        engine_in(&self.status()?, port)
    }

    /// Leaves Shunt running when this value is dropped.
    pub fn keep(&mut self) {
        self.down = true;
    }

    /// Runs `shunt down` and returns its error.
    pub fn down(mut self) -> anyhow::Result<()> {
        self.down = true;
        let result = self.ask(&["down"]);
        let _ = fs::remove_file(&self.config);
        result.map(drop)
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

/// The engine of a port in a status, and the reason for it.
pub fn engine_in(status: &Value, port: &str) -> anyhow::Result<(String, String)> {
    let ports = status["ports"].as_array().map_or(&[][..], Vec::as_slice);
    let port = ports.iter().find(|one| one["name"] == port).with_context(|| format!("no port {port}"))?;
    let text = |key: &str| port[key].as_str().unwrap_or_default().to_owned();
    Ok((text("engine"), text("engine_reason")))
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

/// Path of the program `shunt`; see [`built`].
pub fn binary() -> anyhow::Result<PathBuf> {
    built("shunt")
}

/// Builds `shunt` and `shuntd` in release mode and returns the path of one of them. Builds nothing if `SHUNT_BIN_DIR` names
/// a directory with programs.
pub fn build(name: &str) -> anyhow::Result<PathBuf> {
    if env::var_os("SHUNT_BIN_DIR").is_none() {
        let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let mut command = Command::new(cargo);
        command.args(["build", "--release", "--locked", "-p", "shunt", "-p", "shuntd"]);
        let status = command.current_dir(root()).status().context("cannot run cargo build")?;
        ensure!(status.success(), "cargo build: {status}");
    }
    built(name)
}

/// Path of a program that `make build` has built, in `target/release` or in the directory that `SHUNT_BIN_DIR` names.
///
/// # Errors
/// If the program has not been built.
pub fn built(name: &str) -> anyhow::Result<PathBuf> {
    let directory = env::var("SHUNT_BIN_DIR").map_or_else(|_| target().join("release"), PathBuf::from);
    let path = directory.join(name);
    if !path.exists() {
        bail!("{} does not exist: build it with `make build`", path.display());
    }
    path.canonicalize().with_context(|| path.display().to_string())
}

/// Cargo's target directory.
pub fn target() -> PathBuf {
    env::var("CARGO_TARGET_DIR").map_or_else(|_| root().join("target"), PathBuf::from)
}

/// Root of the source tree.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}
