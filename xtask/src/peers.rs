//! Shunt beside others: instructions for each packet, in guests that count them.

pub mod guest;
mod report;
mod row;

use crate::{
    bench::setting::{Family, Setting, Tagging},
    shunt::target,
    vm,
};
use anyhow::{Context, ensure};
use report::Report;
use row::{Row, Said};
use std::{
    collections::VecDeque,
    env,
    io::Write,
    path::PathBuf,
    sync::{Mutex, PoisonError},
    thread,
};

/// Measures paths through a router side by side, and leaves target/bench/peers.json.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// xdp-forward of xdp-tools, built from its source. Without it its columns are empty
    #[arg(long, value_name = "PROGRAM")]
    xdp_forward: Option<PathBuf>,
    /// Only IPv4 with NAT, and 1,000 flows
    #[arg(long, conflicts_with_all = ["only", "flows"])]
    quick: bool,
    /// Only this setting, as the table names it: "IPv6 NAT, VLAN popped". May be given several times
    #[arg(long, value_name = "SETTING")]
    only: Vec<String>,
    /// How many flows
    #[arg(long, value_delimiter = ',', default_values_t = [1, 1000, 100_000])]
    flows: Vec<u32>,
    /// How many runs of each path; one more goes before them
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// On which kernel; `xtask vm --list` shows them
    #[arg(long, default_value = "newest", value_name = "K")]
    kernel: String,
    /// How many guests at once; each has one CPU
    #[arg(long)]
    jobs: Option<usize>,
    /// How long one guest may take
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    timeout: u64,
}

const QUICK_FLOWS: [u32; 1] = [1000];

/// Runs it.
pub fn run(options: &Options) -> anyhow::Result<()> {
    if let Some(program) = &options.xdp_forward {
        ensure!(program.is_file(), "{}: there is no such program", program.display());
    }
    for name in ["shunt", "shuntd"] {
        crate::shunt::built(name)?;
    }
    let (flows, settings) = options.matrix()?;
    let wanted: usize = settings.len() * flows.len() * guest::PATHS.len();
    let report = Mutex::new(Report::new(options, flows)?);
    let queue = Mutex::new(VecDeque::from(settings));
    let path = target().join("bench/peers.json");
    let jobs = options.jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, |n| n.get() - 1));
    thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(setting) = take(&queue) {
                    let said = in_guest(options, setting, flows);
                    let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
                    report.add(setting, said);
                    let kept =
                        report.keep(&path).err().map_or(String::new(), |e| format!("; not kept: {e:#}"));
                    eprintln!("{} of {wanted} rows: {setting}{kept}", report.rows.len());
                }
            });
        }
    });
    let mut report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.keep(&path)?;
    print!("{report}");
    println!("{}", path.display());
    let measured = report.rows.iter().any(|row| row.instructions_per_packet.is_some());
    ensure!(measured, "nothing could be measured");
    Ok(())
}

fn take(queue: &Mutex<VecDeque<Setting>>) -> Option<Setting> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
}

impl Options {
    fn matrix(&self) -> anyhow::Result<(&[u32], Vec<Setting>)> {
        let tags = [Tagging::None, Tagging::Popped, Tagging::Pushed];
        let named = |setting: &Setting| self.only.is_empty() || self.only.contains(&setting.to_string());
        if self.quick {
            return Ok((&QUICK_FLOWS, tags.map(|tag| Setting { tag, ..Setting::default() }).to_vec()));
        }
        let nats = [Family::Ipv4, Family::Ipv6].map(|family| [true, false].map(|nat| (family, nat)));
        let all =
            nats.into_iter().flatten().flat_map(|(family, nat)| tags.map(|tag| Setting { family, nat, tag }));
        let all: Vec<Setting> = all.collect();
        let unknown = self.only.iter().find(|name| !all.iter().any(|setting| setting.to_string() == **name));
        ensure!(unknown.is_none(), "there is no setting `{}`", unknown.map_or("", String::as_str));
        Ok((&self.flows, all.into_iter().filter(named).collect()))
    }
}

/// What a guest has said, and how it ended where it failed.
struct Heard {
    kernel: Option<String>,
    rows: Vec<Row>,
    failed: Option<anyhow::Error>,
}

/// Boots a guest for one setting. What it said before it failed counts.
fn in_guest(options: &Options, setting: Setting, flows: &[u32]) -> Heard {
    let mut said = Vec::new();
    let failed = boot(options, setting, flows, &mut said).err();
    let mut heard = Heard { kernel: None, rows: Vec::new(), failed };
    for line in String::from_utf8_lossy(&said).lines() {
        match serde_json::from_str(line) {
            Ok(Said::Kernel(release)) => heard.kernel = Some(release),
            Ok(Said::Row(row)) => heard.rows.push(row),
            Err(e) => {
                let unread = anyhow::anyhow!("a line of the guest's is not understood: {e}: {line}");
                heard.failed = heard.failed.or(Some(unread));
            }
        }
    }
    heard
}

fn boot(options: &Options, setting: Setting, flows: &[u32], said: &mut dyn Write) -> anyhow::Result<()> {
    let own = env::current_exe().context("this program")?;
    let mut programs = vec![("xtask", own.as_path())];
    programs.extend(options.xdp_forward.as_deref().map(|path| ("xdp-forward", path)));
    let setting = serde_json::to_string(&setting)?;
    let flows: Vec<String> = flows.iter().map(u32::to_string).collect();
    let (flows, runs) = (flows.join(","), options.runs.to_string());
    let command = ["xtask", "peers-guest", "--setting", &setting, "--flows", &flows, "--runs", &runs];
    let code = vm::count_in_guest(&options.kernel, options.timeout, &programs, &command, said)?;
    ensure!(code == 0, "the guest's program ended with {code}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn settings(words: &[&str]) -> anyhow::Result<usize> {
        let options = Line::parse_from([&["peers"], words].concat()).options;
        options.matrix().map(|(flows, settings)| flows.len() * settings.len())
    }

    #[test]
    fn the_matrix_is_whole_unless_part_of_it_is_asked_for() {
        assert_eq!(settings(&[]).unwrap(), 2 * 2 * 3 * 3);
        assert_eq!(settings(&["--quick"]).unwrap(), 3);
        assert_eq!(settings(&["--only", "IPv6 NAT, VLAN popped", "--flows", "1,10"]).unwrap(), 2);
        let said = settings(&["--only", "IPv5"]).unwrap_err().to_string();
        assert_eq!(said, "there is no setting `IPv5`");
    }
}
