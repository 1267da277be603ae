//! Shunt beside other fast paths: instructions per packet, measured in guests that count instructions.

pub mod guest;
pub mod plan;
pub mod report;
mod row;
pub mod table;

use crate::rig::setting::{Family, Setting, Tagging};
use anyhow::ensure;
use plan::GuestPlan;
use report::Report;
use shunt_testkit::tree::{built, target};
use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Measures paths through a router side by side, and writes target/bench/peers.json.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The xdp-forward program of xdp-tools, built from source; its columns are empty without it
    #[arg(long, value_name = "PROGRAM")]
    xdp_forward: Option<PathBuf>,
    /// Measure only IPv4 with NAT, with 1,000 flows
    #[arg(long, conflicts_with_all = ["only", "flows"])]
    quick: bool,
    /// Measure only this setting, named as in the table: "IPv6 NAT, VLAN popped". May be given several times
    #[arg(long, value_name = "SETTING")]
    only: Vec<String>,
    /// Numbers of flows
    #[arg(long, value_delimiter = ',', default_values_t = [1, 1000, 100_000])]
    flows: Vec<u32>,
    /// Number of runs of each path, after one run that does not count
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Kernel of the guests; `xtask vm --list` lists the kernels
    #[arg(long, default_value = "newest", value_name = "K")]
    kernel: String,
    /// Number of guests at once; each guest has one CPU [default: one less than the CPUs]
    #[arg(long)]
    jobs: Option<usize>,
    /// Time limit for one guest
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    timeout: u64,
}

/// Boots guests with one CPU, on which each instruction takes a nanosecond.
pub trait CountingGuests: Sync {
    /// A description of the machine, for the conditions of a result.
    fn machine(&self) -> String;

    /// Runs a command in a guest, copies its standard output to `stdout`, and returns its exit code.
    ///
    /// # Errors
    /// If the guest cannot be booted, or does not end in time.
    fn run(&self, guest: &CountingGuest<'_>, stdout: &mut dyn Write) -> anyhow::Result<u8>;
}

/// A guest that counts instructions, and what it runs.
#[derive(Debug, Clone, Copy)]
pub struct CountingGuest<'a> {
    /// Name of the kernel.
    pub kernel: &'a str,
    /// Time limit for booting and the command together.
    pub timeout: Duration,
    /// Programs by their names in the guest, besides those of Shunt.
    pub programs: &'a [(&'a str, &'a Path)],
    /// The command.
    pub command: &'a [&'a str],
}

const QUICK_FLOWS: [u32; 1] = [1000];

/// Runs the comparison.
pub fn run(options: &Options, guests: &dyn CountingGuests) -> anyhow::Result<()> {
    if let Some(program) = &options.xdp_forward {
        ensure!(program.is_file(), "{}: no such program", program.display());
    }
    for name in ["shunt", "shuntd"] {
        built(name)?;
    }
    let (flows, settings) = options.matrix()?;
    let total: usize = settings.len() * flows.len() * guest::PATHS.len();
    let path = target().join("bench/peers.json");
    let report = Mutex::new(Report::begin(&path, options, flows, &guests.machine())?);
    options.plan(flows).measure(guests, settings, options.jobs, |setting, output| {
        let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
        let added = report.add(setting, output);
        let problem = added.err().map_or(String::new(), |e| format!("; not written: {e:#}"));
        eprintln!("{} of {total} rows: {setting}{problem}", report.rows.len());
    });
    let report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
    print!("{report}");
    println!("{}", path.display());
    report.finish()
}

impl Options {
    fn plan<'a>(&'a self, flows: &'a [u32]) -> GuestPlan<'a> {
        GuestPlan {
            kernel: &self.kernel,
            timeout: Duration::from_secs(self.timeout),
            xdp_forward: self.xdp_forward.as_deref(),
            paths: &guest::PATHS,
            flows,
            runs: self.runs,
        }
    }

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
        ensure!(unknown.is_none(), "no setting is named `{}`", unknown.map_or("", String::as_str));
        Ok((&self.flows, all.into_iter().filter(named).collect()))
    }
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
    fn the_matrix_is_whole_unless_options_select_a_part() {
        assert_eq!(settings(&[]).unwrap(), 2 * 2 * 3 * 3);
        assert_eq!(settings(&["--quick"]).unwrap(), 3);
        assert_eq!(settings(&["--only", "IPv6 NAT, VLAN popped", "--flows", "1,10"]).unwrap(), 2);
        let said = settings(&["--only", "IPv5"]).unwrap_err().to_string();
        assert_eq!(said, "no setting is named `IPv5`");
    }
}
