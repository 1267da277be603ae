//! The results of all guests: a file of results with the rows and ratios beside the readings, and a table.

use super::{Options, guest::PATHS, plan::GuestOutput, row::Row};
use crate::{
    rig::{
        path::Path,
        setting::{Setting, Tagging},
    },
    summary::{Ratio, Target},
};
use serde_json::{Map, Value, json};
use shunt_lab::{Conditions, Doubt, Reading, Results, ResultsFile, Run};
use std::{
    collections::BTreeMap,
    fmt, fs, io,
    path::Path as File,
    process::{Command, Stdio},
};

/// The rows so far, and `target/bench/peers.json`.
#[derive(Debug)]
pub struct Report {
    file: ResultsFile,
    ratios: BTreeMap<String, Ratio>,
    pub rows: Vec<Row>,
    flows: Vec<u32>,
}

/// The measurement's name in files of results.
const WHAT: &str = "peers";
const UNIT: &str = "instructions/packet";
/// Number of flows in the rows that ratios are made of.
const RATIO_FLOWS: u32 = 1000;

impl Report {
    /// Begins the file.
    pub fn begin(path: &File, options: &Options, flows: &[u32], machine: &str) -> anyhow::Result<Self> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let mut setup = BTreeMap::from([
            ("machine", machine.to_owned()),
            ("qemu", first_line("qemu-system-x86_64", &["--version"])),
            ("frame", "UDP; IPv4: 64 bytes with FCS; IPv6: 66, and 70 with a tag".to_owned()),
            ("batch", "64 frames".to_owned()),
            ("devices", "veth, native XDP, threaded NAPI".to_owned()),
            ("runs", format!("{} of 40 ms, after one that does not count", options.runs)),
            ("connections", format!("{} in conntrack, whatever sends", flows.iter().max().unwrap_or(&0))),
            ("reprove", "30s".to_owned()),
        ]);
        if let Some(program) = &options.xdp_forward {
            let version = first_line(&program.to_string_lossy(), &["load", "--version"]);
            setup.insert("xdp-forward", format!("{version}, LIBXDP_SKIP_DISPATCHER=1"));
        }
        let mut conditions = Conditions::of_this_machine();
        conditions.setup.extend(setup.into_iter().map(|(name, value)| (name.to_owned(), value.into())));
        let file = ResultsFile::begin(path.to_owned(), Results::new(WHAT, conditions))?;
        Ok(Self::new(file, flows))
    }

    fn new(file: ResultsFile, flows: &[u32]) -> Self {
        Self { file, ratios: BTreeMap::new(), rows: Vec::new(), flows: flows.to_vec() }
    }

    /// Adds a guest's rows, and for each row that the guest did not print, the reason; then writes the file.
    pub fn add(&mut self, setting: Setting, output: GuestOutput) -> io::Result<()> {
        let why = output.failed.map_or("the guest printed no row".to_owned(), |e| format!("{e:#}"));
        if let Some(kernel) = output.kernel {
            self.file.conditions_mut().kernel = Some(kernel);
        }
        for &flows in &self.flows {
            for path in PATHS {
                let printed = output.rows.iter().find(|row| (row.path, row.flows) == (path, flows)).cloned();
                let missing = || Row::new(path, setting, flows, Err(anyhow::anyhow!("{why}")));
                let row = printed.unwrap_or_else(missing);
                match (reading(&row), &row.missing) {
                    (Some(reading), _) => self.file.insert(&reading_name(&row), reading),
                    (None, why) => {
                        let why = why.clone().unwrap_or_else(|| "no run".to_owned());
                        self.file.add_missing(&reading_name(&row), why);
                    }
                }
                self.rows.push(row);
            }
        }
        self.rows.sort_by_key(|row| (row.setting(), row.flows));
        self.ratios = self.target_ratios();
        self.insert_ratios()
    }

    fn insert_ratios(&mut self) -> io::Result<()> {
        self.file.set_extra("rows", serde_json::to_value(&self.rows)?);
        self.file.set_extra("ratios", serde_json::to_value(&self.ratios)?);
        for (name, of, to, _) in target_pairs() {
            let readings = &self.file.results().readings;
            let both = [of, to].map(|(path, setting)| readings.get(&name_of(path, setting, RATIO_FLOWS)));
            if let [Some(of), Some(to)] = both
                && let Some(ratio) = Reading::ratio(of, to)
            {
                self.file.insert(&name, ratio);
            }
        }
        self.file.save()
    }

    /// Marks the file as complete, unless nothing was measured.
    pub fn finish(self) -> anyhow::Result<()> {
        anyhow::ensure!(!self.file.results().readings.is_empty(), "no path could be measured");
        self.file.finish()?;
        Ok(())
    }

    fn target_ratios(&self) -> BTreeMap<String, Ratio> {
        let ratio = |(name, of, to, bound)| Some((name, self.ratio(of, to, bound)?));
        target_pairs().into_iter().filter_map(ratio).collect()
    }

    fn ratio(&self, of: (Path, Setting), to: (Path, Setting), bound: f64) -> Option<Ratio> {
        let runs = |(path, setting): (Path, Setting)| -> Option<Vec<f64>> {
            let is_it = |row: &&Row| (row.path, row.setting(), row.flows) == (path, setting, RATIO_FLOWS);
            let runs = &self.rows.iter().find(is_it)?.runs;
            (!runs.is_empty()).then(|| runs.iter().map(|run| run.instructions_per_packet).collect())
        };
        let unit = "instructions per packet";
        Some(Ratio::of_pairs(&runs(of)?, &runs(to)?, unit, Some(Target::AtMost(bound))))
    }
}

/// A path in a setting.
pub type PathSetting = (Path, Setting);

/// Name, numerator, denominator and upper bound of each ratio.
pub fn target_pairs() -> Vec<(String, PathSetting, PathSetting, f64)> {
    let plain = Setting::default();
    let untagged = [
        ("shunt xdp / nf_flowtable", Path::Xdp, Path::FlowTable, 0.25),
        ("shunt xdp / xdp-forward flowtable", Path::Xdp, Path::XdpForwardFlowTable, 1.0),
        ("shunt tc / nf_flowtable", Path::Tc, Path::FlowTable, 0.8),
        ("slow path with shunt up / without", Path::Idle, Path::Slow, 1.05),
        ("slow path with shunt at rest / without", Path::Rest, Path::Slow, 1.05),
        ("slow path with shunt up / with programs that return at once", Path::Idle, Path::Hooks, 1.015),
        ("shunt tc / bare redirect by tc", Path::Tc, Path::BareTc, 1.3),
    ];
    let untagged = untagged.map(|(name, of, to, bound)| (name.to_owned(), (of, plain), (to, plain), bound));
    let tagged = [Path::Tc, Path::Xdp].into_iter().flat_map(|path| {
        [("popped", Tagging::Popped), ("pushed", Tagging::Pushed)].map(|(what, tag)| {
            let tagged = Setting { tag, ..plain };
            (format!("shunt {path}, VLAN {what} / untagged"), (path, tagged), (path, plain), 1.05)
        })
    });
    untagged.into_iter().chain(tagged).collect()
}

/// A row's name in the file of results.
pub fn reading_name(row: &Row) -> String {
    name_of(row.path, row.setting(), row.flows)
}

pub fn name_of(path: Path, setting: Setting, flows: u32) -> String {
    format!("{path}; {setting}; {flows} flows")
}

/// The runs of a row as a reading; None if the row has no runs.
pub fn reading(row: &Row) -> Option<Reading> {
    let runs = row.runs.iter().map(|run| {
        let details = json!({
            "less_baseline": run.less_baseline, "baseline": run.baseline, "packets": run.packets,
        });
        let details = details.as_object().cloned().unwrap_or_else(Map::<String, Value>::new);
        Run { value: run.instructions_per_packet, at: None, details }
    });
    let mut reading = Reading::from_runs(UNIT, runs.collect())?;
    reading.add_doubt(Doubt::VirtualLinks);
    Some(reading)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "instructions per packet")?;
        write!(f, "{:24} {:>7}", "", "flows")?;
        for path in PATHS {
            write!(f, " {:>21}", path.to_string())?;
        }
        let mut holes: Vec<&str> = Vec::new();
        for row in &self.rows {
            if row.path == PATHS[0] {
                write!(f, "\n{:24} {:>7}", row.setting().to_string(), row.flows)?;
            }
            match (row.instructions_per_packet, &row.missing) {
                (Some(cost), _) => write!(f, " {cost:>21.0}")?,
                (None, why) => {
                    let why = why.as_deref().unwrap_or("no run");
                    let known = holes.iter().position(|hole| *hole == why);
                    let number = known.unwrap_or_else(|| {
                        holes.push(why);
                        holes.len() - 1
                    });
                    write!(f, " {:>21}", format!("({})", number + 1))?;
                }
            }
        }
        writeln!(f, "\n")?;
        for (number, why) in holes.iter().enumerate() {
            writeln!(f, "({}) {why}", number + 1)?;
        }
        for (name, ratio) in &self.ratios {
            writeln!(f, "{name}: {ratio}")?;
        }
        Ok(())
    }
}

fn first_line(program: &str, arguments: &[&str]) -> String {
    let said = Command::new(program).args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let said = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    said.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::row::Run;

    fn row(path: Path, cost: f64) -> Row {
        let run = Run { instructions_per_packet: cost, less_baseline: cost, baseline: 1250.0, packets: 1000 };
        Row::new(path, Setting::default(), RATIO_FLOWS, Ok(vec![run]))
    }

    #[test]
    fn a_row_that_the_guest_did_not_print_is_missing_with_the_reason() {
        let results = Results::new(WHAT, Conditions::default());
        let mut report = Report::new(ResultsFile::in_memory(results), &[RATIO_FLOWS]);
        let rows = vec![row(Path::Slow, 6000.0), row(Path::FlowTable, 4000.0), row(Path::Tc, 3000.0)];
        let failed = Some(anyhow::anyhow!("Kernel panic"));
        report.add(Setting::default(), GuestOutput { kernel: None, rows, failed }).unwrap();
        assert_eq!(report.rows.len(), PATHS.len());
        assert_eq!(report.ratios["shunt tc / nf_flowtable"].median, 0.75);
        assert!(!report.ratios.contains_key("shunt xdp / nf_flowtable"));
        let results = report.file.results();
        assert_eq!(results.readings["tc; IPv4 NAT; 1000 flows"].value, 3000.0);
        assert_eq!(results.readings["shunt tc / nf_flowtable"].value, 0.75);
        assert_eq!(results.missing["xdp; IPv4 NAT; 1000 flows"], "Kernel panic");
        let table = report.to_string();
        // Each row that is missing, and the note.
        assert_eq!(table.matches("(1)").count(), PATHS.len() - 3 + 1, "{table}");
        assert!(table.contains("\n(1) Kernel panic\n"), "{table}");
    }
}
