//! `cargo xtask cost`: instructions of each path for a packet, compared with the committed figures, in a few minutes.

use crate::{
    peers::{
        CountingGuests,
        plan::{GuestOutput, GuestPlan},
        report::{name_of, reading, reading_name},
    },
    rig::{
        path::Path,
        setting::{Family, Setting, Tagging},
    },
};
use anyhow::{Context, ensure};
use shunt_lab::{Conditions, Reading, Results, ResultsFile};
use shunt_testkit::tree::{built, root, target};
use std::{
    fmt, fs,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Counts instructions per packet of each path, compares them with lab/results, and writes target/bench/cost.json.
///
/// A change of the hot path shows here, to the instruction, whatever else the machine does. To keep new figures, commit
/// what `cargo xtask tables --add target/bench/cost.json --name cost-7.3` writes.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Number of guests at once; each guest has one CPU [default: one less than the CPUs]
    #[arg(long)]
    jobs: Option<usize>,
    /// Time limit for one guest
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
    /// Measure only this setting, such as `IPv4 NAT`
    #[arg(long, value_name = "NAME")]
    setting: Option<String>,
}

/// The kernel of the guests, and the committed results with it.
const KERNEL: &str = "newest";
const COMMITTED: &str = "lab/results/cost-7.3.json";
const PATHS: [Path; 5] = [Path::Slow, Path::Idle, Path::Rest, Path::Tc, Path::Xdp];
const SETTINGS: [Setting; 4] = [
    Setting { family: Family::Ipv4, nat: true, tag: Tagging::None },
    Setting { family: Family::Ipv4, nat: true, tag: Tagging::Popped },
    Setting { family: Family::Ipv4, nat: true, tag: Tagging::Pushed },
    Setting { family: Family::Ipv6, nat: false, tag: Tagging::None },
];
const FLOWS: u32 = 100;
/// Counts are exact but for the work of the kernel that happens to fall into a run.
const RUNS: usize = 3;
/// Runs of the same programs differ by at most this share.
const NOISE: f64 = 0.01;

/// Counts, and prints the comparison.
pub fn run(options: &Options, guests: &dyn CountingGuests) -> anyhow::Result<()> {
    for name in ["shunt", "shuntd"] {
        built(name)?;
    }
    let committed = Results::read(&root().join(COMMITTED)).ok();
    let path = target().join("bench/cost.json");
    fs::create_dir_all(path.with_file_name(""))?;
    let mut conditions = Conditions::of_this_machine();
    conditions.setup.insert("machine".to_owned(), guests.machine().into());
    let file = Mutex::new(ResultsFile::begin(path.clone(), Results::new("cost", conditions))?);
    let plan = GuestPlan {
        kernel: KERNEL,
        timeout: Duration::from_secs(options.timeout),
        xdp_forward: None,
        paths: &PATHS,
        flows: &[FLOWS],
        runs: RUNS,
    };
    let is_wanted =
        |setting: &Setting| options.setting.as_ref().is_none_or(|name| *name == setting.to_string());
    let settings: Vec<Setting> = SETTINGS.into_iter().filter(is_wanted).collect();
    ensure!(
        !settings.is_empty(),
        "no such setting; there are: {}",
        SETTINGS.map(|s| s.to_string()).join("; ")
    );
    plan.measure(guests, settings, options.jobs, |setting, output| {
        eprintln!("measured: {setting}");
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        add(&mut file, setting, output);
        if let Err(error) = file.save() {
            eprintln!("cannot save: {error}");
        }
    });
    let file = file.into_inner().unwrap_or_else(PoisonError::into_inner);
    let now = file.results().clone();
    print!("{}", Comparison { committed: committed.as_ref(), now: &now });
    ensure!(now.missing.is_empty(), "{} of the paths could not be measured", now.missing.len());
    file.finish().with_context(|| path.display().to_string())?;
    Ok(())
}

/// Adds the readings of a guest, and the reason for each that is missing.
fn add(file: &mut ResultsFile, setting: Setting, output: GuestOutput) {
    if output.kernel.is_some() {
        file.conditions_mut().kernel = output.kernel;
    }
    let failed = output.failed.map_or("the guest printed no row".to_owned(), |error| format!("{error:#}"));
    for path in PATHS {
        let row = output.rows.iter().find(|row| row.path == path);
        match row.and_then(|row| Some((reading_name(row), reading(row)?))) {
            Some((name, reading)) => file.insert(&name, reading),
            None => {
                let why = row.and_then(|row| row.missing.clone()).unwrap_or_else(|| failed.clone());
                file.add_missing(&name_of(path, setting, FLOWS), why);
            }
        }
    }
}

/// The figures of this tree, compared with the committed ones.
struct Comparison<'a> {
    committed: Option<&'a Results>,
    now: &'a Results,
}

impl Comparison<'_> {
    /// Why there is nothing to compare with.
    fn obstacle(&self) -> Option<String> {
        let Some(committed) = self.committed else { return Some(format!("no {COMMITTED}")) };
        let kernels = [committed, self.now].map(|results| results.conditions.kernel.as_deref());
        (kernels[0] != kernels[1]).then(|| {
            let [was, is] = kernels.map(|kernel| kernel.unwrap_or("an unknown kernel"));
            format!("{COMMITTED} was measured on {was}, this is {is}")
        })
    }
}

impl fmt::Display for Comparison<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kernel = self.now.conditions.kernel.as_deref().unwrap_or("?");
        let obstacle = self.obstacle();
        writeln!(f, "instructions per packet, Linux {kernel}, UDP, {FLOWS} flows")?;
        writeln!(f, "{:24} {:16} {:>9} {:>9} {:>9}", "", "path", "committed", "now", "change")?;
        for setting in SETTINGS {
            for path in PATHS {
                let name = name_of(path, setting, FLOWS);
                let Some(now) = self.now.readings.get(&name) else { continue };
                let before = self.committed.filter(|_| obstacle.is_none());
                let before = before.and_then(|committed| committed.readings.get(&name));
                write!(f, "{:24} {:16}", setting.to_string(), path.to_string())?;
                match before {
                    Some(before) => {
                        writeln!(f, " {:>9.0} {:>9.0} {:>9}", before.value, now.value, change(before, now))?
                    }
                    None => writeln!(f, " {:>9} {:>9.0}", "-", now.value)?,
                }
            }
        }
        for (name, why) in &self.now.missing {
            writeln!(f, "not measured: {name}: {why}")?;
        }
        match obstacle {
            Some(why) => writeln!(f, "not compared: {why}"),
            None => writeln!(f, "Less than {:.0} % is within the noise: `=`.", NOISE * 100.0),
        }
    }
}

/// The change of a reading, or `=` if runs of the same programs differ as much.
fn change(before: &Reading, now: &Reading) -> String {
    let change = now.value / before.value - 1.0;
    if change.abs() < NOISE { "=".to_owned() } else { format!("{:+.1} %", change * 100.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_lab::Run;

    fn results(kernel: &str, costs: &[(Path, f64)]) -> Results {
        let conditions = Conditions { kernel: Some(kernel.to_owned()), ..Conditions::default() };
        let mut results = Results::new("cost", conditions);
        for (path, cost) in costs {
            let runs = vec![Run { value: *cost, at: None, details: serde_json::Map::new() }];
            let reading = Reading::from_runs("instructions/packet", runs).unwrap();
            results.readings.insert(name_of(*path, SETTINGS[0], FLOWS), reading);
        }
        results
    }

    fn shown(committed: Option<&Results>, now: &Results) -> Vec<String> {
        let text = Comparison { committed, now }.to_string();
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn a_change_shows_if_it_is_larger_than_the_noise() {
        let before = results("7.3.4", &[(Path::Tc, 2848.0), (Path::Xdp, 859.0)]);
        let now = results("7.3.4", &[(Path::Slow, 6134.0), (Path::Tc, 2860.0), (Path::Xdp, 902.0)]);
        let shown = shown(Some(&before), &now);
        assert_eq!(shown[2], "IPv4 NAT slow - 6134");
        assert_eq!(shown[3], "IPv4 NAT tc 2848 2860 =");
        assert_eq!(shown[4], "IPv4 NAT xdp 859 902 +5.0 %");
    }

    #[test]
    fn other_kernels_are_not_compared() {
        let [before, now] = ["7.3.4", "7.3.5"].map(|kernel| results(kernel, &[(Path::Tc, 2848.0)]));
        let shown = shown(Some(&before), &now);
        assert_eq!(shown[2], "IPv4 NAT tc - 2848");
        assert_eq!(shown[3], "not compared: lab/results/cost-7.3.json was measured on 7.3.4, this is 7.3.5");
    }
}
