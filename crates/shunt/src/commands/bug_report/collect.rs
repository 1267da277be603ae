//! Collects the sections of a bug report. Whatever cannot be read is a line that says why: a report is most wanted when
//! things do not work.

use super::Section;
use crate::{
    command::Context,
    daemon::{Program, runtime_dir},
};
use serde_json::Value;
use shunt_api::{Config, ProbeReport};
use std::{
    ffi::OsString,
    fs::{self, File},
    io::{Read, Seek, SeekFrom},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// How long a program may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most of a program's output, or of a file, that is kept.
const LARGEST_BYTES: usize = 256 * 1024;
/// The most of the log that is kept: its end.
const LOG_BYTES: u64 = 64 * 1024;

/// Programs that show what the router does with packets. One that is not installed is a line that says so.
const RULES: [&str; 3] = ["nft -a list ruleset", "iptables-legacy-save", "ip6tables-legacy-save"];
const LINKS: [&str; 6] = [
    "ip -details -statistics link show",
    "ip address show",
    "ip rule show",
    "ip route show table all",
    "tc -statistics qdisc show",
    "bridge vlan show",
];

pub(super) async fn all(context: &Context) -> Vec<Section> {
    let section = |title, about, text| Section { title, about, text };
    let status = context.client.get::<Value>("/v1/status").await;
    // The file that the running daemon has read.
    let file = status.as_ref().ok().and_then(|status| status["config"]["file"].as_str());
    let configuration = read(Path::new(file.unwrap_or(Config::PATH)), None);
    let text_of =
        |answer: anyhow::Result<Value>| answer.map_or_else(|error| error.to_string(), |value| pretty(&value));
    let status = text_of(status);
    let history = text_of(context.client.get("/v1/history").await);
    let instance = context.instance.as_str();
    vec![
        section("versions", "of Shunt, of the kernel, of the distribution and of programs", versions()),
        section(
            "status",
            "ports, counters, reasons, and how often what changed (`shunt status --json`)",
            status,
        ),
        section("probe", "what this machine allows (`shunt probe --json`)", probe(instance)),
        section("history", "what happened in the last day (`shunt history --json`)", history),
        section("configuration", "the configuration file", configuration),
        section("ruleset", "of nftables and of legacy iptables, with counters", outputs(&RULES)),
        section("links", "links, addresses, routes and qdiscs, with counters", outputs(&LINKS)),
        section("log", "the end of the daemon's log", log(context)),
    ]
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|error| error.to_string())
}

fn versions() -> String {
    let mut text = format!("shunt {}\n", env!("CARGO_PKG_VERSION"));
    text += &match Program::find() {
        Ok(program) => output(&mut program.command(&["--version"])),
        Err(failure) => format!("{failure}\n"),
    };
    text += &read(Path::new("/proc/version"), None);
    text += &read(Path::new("/etc/os-release"), None);
    text + &outputs(&["nft --version", "ip -Version", "ethtool --version"])
}

/// What `shuntd --probe` finds.
fn probe(instance: &str) -> String {
    let args: [OsString; 2] = ["--instance".into(), instance.into()];
    let report = Program::find()
        .map_err(anyhow::Error::from)
        .and_then(|program| program.ask::<ProbeReport>("--probe", &args))
        .and_then(|report| Ok(serde_json::to_string_pretty(&report)?));
    report.unwrap_or_else(|error| error.to_string())
}

/// The log of a daemon that `shunt up` started, or what systemd has kept of the unit's.
fn log(context: &Context) -> String {
    let path = context.instance.log_path(&runtime_dir());
    if path.exists() {
        return read(&path, Some(LOG_BYTES));
    }
    let unit = format!("shuntd@{}.service", context.instance);
    outputs(&[&format!("journalctl --no-pager --lines 500 --unit {unit}")])
}

/// The text of a file, or its end of at most `last` bytes.
fn read(path: &Path, last: Option<u64>) -> String {
    let text = || {
        let mut file = File::open(path)?;
        if let Some(last) = last {
            let len = fs::metadata(path)?.len();
            file.seek(SeekFrom::Start(len.saturating_sub(last)))?;
        }
        let mut bytes = Vec::new();
        file.take(LARGEST_BYTES as u64).read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&bytes).into_owned())
    };
    text().unwrap_or_else(|error| format!("{}: {error}\n", path.display()))
}

/// What programs print, each below its command line.
fn outputs(lines: &[&str]) -> String {
    let one = |line: &&str| {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().unwrap_or_default());
        format!("$ {line}\n{}\n", output(command.args(words)).trim_end())
    };
    lines.iter().map(one).collect::<Vec<_>>().join("\n")
}

/// What a program prints on both outputs. One that takes too long is killed.
fn output(command: &mut Command) -> String {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return format!("{}: {error}\n", command.get_program().display()),
    };
    let reader = |pipe: Option<Box<dyn Read + Send>>| {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut pipe) = pipe {
                // A longer output is cut; the rest is read, so that the program can end.
                let _ = pipe.by_ref().take(LARGEST_BYTES as u64).read_to_end(&mut bytes);
                let _ = std::io::copy(&mut pipe, &mut std::io::sink());
            }
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let out = reader(child.stdout.take().map(|pipe| Box::new(pipe) as _));
    let err = reader(child.stderr.take().map(|pipe| Box::new(pipe) as _));
    let until = Instant::now() + PATIENCE;
    let mut text = String::new();
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() > until {
            let _ = child.kill();
            let _ = child.wait();
            text += &format!("no end after {} s\n", PATIENCE.as_secs());
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    for part in [out, err] {
        text += &part.join().unwrap_or_default();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_or_is_not_there_is_told() {
        let text = outputs(&["sh -c exit", "shunt-no-such-program x"]);
        assert!(text.starts_with("$ sh -c exit\n\n"), "{text}");
        assert!(text.contains("$ shunt-no-such-program x\nshunt-no-such-program: No such file"), "{text}");
        assert!(outputs(&["ls /nonexistent"]).contains("No such file"), "standard error is kept");
        assert!(read(Path::new("/nonexistent"), None).starts_with("/nonexistent: No such file"));
    }

    #[test]
    fn of_a_long_file_the_end_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        fs::write(&path, "first\nlast\n").unwrap();
        assert_eq!(read(&path, Some(5)), "last\n");
        assert_eq!(read(&path, Some(500)), "first\nlast\n");
    }
}
