//! All rows, as a file and as a table.

use super::{Heard, Options, guest::PATHS, row::Row};
use crate::{
    bench::{
        path::Path,
        record::{Ratio, Target, write},
        setting::{Setting, Tagging},
    },
    vm,
};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    fmt, fs,
    path::Path as File,
    process::{Command, Stdio},
    time::SystemTime,
};

/// `target/bench/peers.json`.
#[derive(Debug, Serialize)]
pub struct Report {
    conditions: BTreeMap<&'static str, String>,
    ratios: BTreeMap<String, Ratio>,
    pub rows: Vec<Row>,
    #[serde(skip)]
    flows: Vec<u32>,
}

/// What the figures are of: so many flows.
const FIGURE_FLOWS: u32 = 1000;

impl Report {
    pub fn new(options: &Options, flows: &[u32]) -> anyhow::Result<Self> {
        let mut conditions = BTreeMap::from([
            ("machine", format!("QEMU without KVM, one CPU, {}", vm::COUNTING.join(" "))),
            ("began", humantime::format_rfc3339_seconds(SystemTime::now()).to_string()),
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
            conditions.insert("xdp-forward", format!("{version}, LIBXDP_SKIP_DISPATCHER=1"));
        }
        Ok(Self { conditions, ratios: BTreeMap::new(), rows: Vec::new(), flows: flows.to_vec() })
    }

    /// Takes what a guest has said, and a hole for each row that it has not.
    pub fn add(&mut self, setting: Setting, heard: Heard) {
        let why = heard.failed.map_or("the guest has not said".to_owned(), |e| format!("{e:#}"));
        if let Some(kernel) = heard.kernel {
            self.conditions.insert("kernel", kernel);
        }
        for &flows in &self.flows {
            for path in PATHS {
                let said = heard.rows.iter().find(|row| (row.path, row.flows) == (path, flows)).cloned();
                let hole = || Row::of(path, setting, flows, Err(anyhow::anyhow!("{why}")));
                self.rows.push(said.unwrap_or_else(hole));
            }
        }
    }

    /// Sorts the rows, makes the ratios, and writes the file.
    pub fn keep(&mut self, path: &File) -> anyhow::Result<()> {
        self.rows.sort_by_key(|row| (row.setting(), row.flows));
        self.ratios = self.figures();
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        write(path, self)
    }

    fn figures(&self) -> BTreeMap<String, Ratio> {
        let plain = Setting::default();
        let wanted = [
            ("shunt xdp / nf_flowtable", Path::Xdp, Path::FlowTable, 0.5),
            ("shunt xdp / xdp-forward flowtable", Path::Xdp, Path::XdpForwardFlowTable, 1.0),
            ("shunt tc / nf_flowtable", Path::Tc, Path::FlowTable, 0.9),
            ("slow path with shunt up / without", Path::Idle, Path::Slow, 1.05),
        ];
        let sided = wanted.map(|(name, of, to, bound)| (name.to_owned(), (of, plain), (to, plain), bound));
        let tagged = [Path::Tc, Path::Xdp].into_iter().flat_map(|path| {
            [("popped", Tagging::Popped), ("pushed", Tagging::Pushed)].map(|(what, tag)| {
                let tagged = Setting { tag, ..plain };
                (format!("shunt {path}, VLAN {what} / untagged"), (path, tagged), (path, plain), 1.05)
            })
        });
        let all = sided.into_iter().chain(tagged);
        let ratio = |(name, of, to, bound)| Some((name, self.ratio(of, to, bound)?));
        all.filter_map(ratio).collect()
    }

    fn ratio(&self, of: (Path, Setting), to: (Path, Setting), bound: f64) -> Option<Ratio> {
        let runs = |(path, setting): (Path, Setting)| -> Option<Vec<f64>> {
            let wanted = |row: &&Row| (row.path, row.setting(), row.flows) == (path, setting, FIGURE_FLOWS);
            let runs = &self.rows.iter().find(wanted)?.runs;
            (!runs.is_empty()).then(|| runs.iter().map(|run| run.instructions_per_packet).collect())
        };
        let unit = "instructions per packet";
        Some(Ratio::of_pairs(&runs(of)?, &runs(to)?, unit, Some(Target::AtMost(bound)), Vec::new()))
    }
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
        Row::of(path, Setting::default(), FIGURE_FLOWS, Ok(vec![run]))
    }

    #[test]
    fn what_a_guest_has_not_said_is_a_hole_with_its_reason_and_spoils_nothing_else() {
        let mut report = Report {
            conditions: BTreeMap::new(),
            ratios: BTreeMap::new(),
            rows: Vec::new(),
            flows: vec![FIGURE_FLOWS],
        };
        let rows = vec![row(Path::Slow, 6000.0), row(Path::FlowTable, 4000.0), row(Path::Tc, 3000.0)];
        let failed = Some(anyhow::anyhow!("Kernel panic"));
        report.add(Setting::default(), Heard { kernel: None, rows, failed });
        report.ratios = report.figures();
        assert_eq!(report.rows.len(), PATHS.len());
        assert_eq!(report.ratios["shunt tc / nf_flowtable"].median, 0.75);
        assert!(!report.ratios.contains_key("shunt xdp / nf_flowtable"));
        let table = report.to_string();
        assert_eq!(table.matches("(1)").count(), 6, "{table}");
        assert!(table.contains("\n(1) Kernel panic\n"), "{table}");
    }
}
