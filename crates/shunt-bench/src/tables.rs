//! The tables and figures of the documents, and the index of lab/results, made from the committed results.
//!
//! A committed result is a file of results without the details of its runs, one reading per line. The raw results stay
//! in `target/`.

use crate::{
    auto::table as auto, bench::table as bench, bench_external::table as external, churn, gains,
    generators::table as generators, peers::table as peers, predict, reaction, scale::table as scale,
    trace_cost, two_cpus,
};
use anyhow::{Context, ensure};
use serde_json::Value;
use shunt_lab::Results;
use shunt_testkit::tree::root;
use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

/// Rewrites the tables and figures of the documents, and the index of lab/results, from the committed results.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// First put this file of results into lab/results, without the details of its runs
    #[arg(long, value_name = "FILE", requires = "name")]
    add: Option<PathBuf>,
    /// The name of the added file, such as bench-veth-6.18
    #[arg(long, value_name = "NAME", requires = "add")]
    name: Option<String>,
}

/// Details that the tables need; all others of a run are dropped when a result is committed.
const KEPT_DETAILS: [&str; 1] = ["less_baseline"];

type Table = fn(&Committed) -> anyhow::Result<String>;

/// Pages with tables or figures.
const PAGES: [&str; 12] = [
    "README.md",
    "docs/guide/comparison.md",
    "docs/guide/containers.md",
    "docs/performance.md",
    "docs/performance/auto.md",
    "docs/performance/external.md",
    "docs/performance/generator.md",
    "docs/performance/peers.md",
    "docs/performance/predicted.md",
    "docs/performance/reaction.md",
    "docs/performance/scale.md",
    "docs/performance/trace.md",
];
/// The tables by the name in their markers.
const TABLES: [(&str, Table); 23] = [
    ("gains", |all| gains::gains(&all.read("bench-veth-6.18")?)),
    ("auto", |all| auto::ratios(&all.read("auto-veth-6.18")?)),
    ("reaction", |all| Ok(reaction::markdown(&all.read("reaction-veth-6.18")?))),
    ("reaction-half", |all| Ok(reaction::markdown(&all.read("reaction-half-veth-6.18")?))),
    ("bench", |all| bench::ratios(&all.read("bench-veth-6.18")?)),
    ("bench-forms", |all| bench::ratios(&all.read("bench-forms-epyc-veth-6.18")?)),
    ("containers", |all| churn::containers_table(&all.read("churn-containers-epyc-veth-6.18")?)),
    ("generators", |all| generators::rates(&all.read("generators-veth-6.18")?)),
    ("offered-rate", |all| generators::offered(&all.read("offered-rate-veth-6.18")?)),
    ("external-memory", |all| external::memory(&all.read("external-memory-veth-6.18")?)),
    ("external-path", |all| external::path(&all.read("external-size-veth-6.18")?)),
    ("external-queues", |all| external::queues(&all.read("external-veth-6.18")?)),
    ("external-waits", |all| external::waits(&all.read("external-veth-6.18")?)),
    ("peers", |all| Ok(peers::costs(&all.read("peers-7.3")?))),
    ("predicted", |all| {
        all.predicted("epyc-veth-6.18", &["scale-epyc-veth-6.18", "bench-packets-epyc-veth-6.18"])
    }),
    ("predicted-other-flows", |all| {
        all.predicted("epyc-other-flows-veth-6.18", &["scale-other-flows-epyc-veth-6.18"])
    }),
    ("scale", |all| scale::costs(&all.read("scale-veth-6.18")?)),
    ("look-ahead", |all| {
        let [with, without] = ["scale-look-ahead-epyc-veth-6.18", "scale-no-look-ahead-epyc-veth-6.18"];
        scale::look_ahead(&all.read(with)?, &all.read(without)?)
    }),
    ("two-cpus", |all| two_cpus::table(&all.read("two-cpus-epyc-veth-6.18")?)),
    ("hooks", |all| Ok(peers::hooks(&all.read("peers-7.3")?))),
    ("trace", |all| trace_cost::markdown(&all.read("trace-cost-veth-6.18")?)),
    ("peers-ratios", |all| Ok(peers::ratios(&all.read("peers-7.3")?))),
    ("peers-short", |all| Ok(peers::short(&all.read("peers-7.3")?))),
];
/// Figures within a sentence, by the name in their markers.
const FIGURES: [(&str, Table); 2] = [
    ("slow-path-time", |all| gains::slow_path_time(&all.read("bench-veth-6.18")?)),
    ("slow-path-instructions", |all| peers::slow_path_instructions(&all.read("peers-7.3")?)),
];
const END: &str = "<!-- end -->";

/// The directory of committed results.
struct Committed(PathBuf);

/// Runs the command.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let root = root();
    let results = Committed(root.join("lab/results"));
    if let Some((file, name)) = options.add.as_ref().zip(options.name.as_ref()) {
        results.add(file, name)?;
    }
    for (path, text) in generated(&root)? {
        fs::write(&path, text).with_context(|| path.display().to_string())?;
        println!("{}", path.display());
    }
    Ok(())
}

/// The generated files, with the text that they should have.
fn generated(root: &Path) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let results = Committed(root.join("lab/results"));
    let mut files = vec![(root.join("lab/results/README.md"), results.index()?)];
    for page in PAGES {
        let path = root.join(page);
        let text = fs::read_to_string(&path).with_context(|| page.to_owned())?;
        files.push((path, filled(&text, &results).with_context(|| page.to_owned())?));
    }
    for name in
        TABLES.map(|(name, _)| table_marker(name)).iter().chain(&FIGURES.map(|(name, _)| figure_marker(name)))
    {
        ensure!(files.iter().any(|(_, text)| text.contains(name)), "no page has `{}`", name.trim());
    }
    Ok(files)
}

/// A page with its tables and figures.
fn filled(page: &str, results: &Committed) -> anyhow::Result<String> {
    let mut text = page.to_owned();
    for (name, table) in TABLES.into_iter().filter(|(name, _)| page.contains(&table_marker(name))) {
        text = with_table(&text, name, &table(results)?)?;
    }
    for (name, figure) in FIGURES.into_iter().filter(|(name, _)| page.contains(&figure_marker(name))) {
        text = between(&text, &figure_marker(name), &figure(results)?)?;
    }
    Ok(text)
}

fn table_marker(name: &str) -> String {
    format!("<!-- generated by `cargo xtask tables`: {name} -->\n")
}

fn figure_marker(name: &str) -> String {
    format!("<!-- figure: {name} -->")
}

/// Puts a table between its markers.
fn with_table(page: &str, name: &str, table: &str) -> anyhow::Result<String> {
    between(page, &table_marker(name), &format!("\n{}\n\n", table.trim_end()))
}

/// Replaces the text from a marker to the next end.
fn between(page: &str, marker: &str, text: &str) -> anyhow::Result<String> {
    let (before, rest) = page.split_once(marker).with_context(|| format!("no marker `{}`", marker.trim()))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("`{}`: no `{END}`", marker.trim()))?;
    Ok(format!("{before}{marker}{text}{END}{after}"))
}

impl Committed {
    fn read(&self, name: &str) -> anyhow::Result<Results> {
        let path = self.0.join(format!("{name}.json"));
        Results::read(&path).map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))
    }

    /// A prediction compared with what was measured later.
    fn predicted(&self, name: &str, measured: &[&str]) -> anyhow::Result<String> {
        let measured = measured.iter().map(|name| self.read(name)).collect::<anyhow::Result<Vec<_>>>()?;
        let kept = predict::Kept::read(&self.0.join("predictions").join(format!("{name}.json")))?;
        predict::table::compared(&kept, &predict::Reference::read(&self.0)?, &measured)
    }

    fn add(&self, file: &Path, name: &str) -> anyhow::Result<()> {
        let mut results = Results::read(file).map_err(|e| anyhow::anyhow!("{}: {e}", file.display()))?;
        ensure!(results.complete, "{}: the measurement was interrupted", file.display());
        for run in results.readings.values_mut().flat_map(|reading| &mut reading.runs) {
            run.details.retain(|detail, _| KEPT_DETAILS.contains(&detail.as_str()));
        }
        let path = self.0.join(format!("{name}.json"));
        fs::write(&path, by_line(&results)?).with_context(|| path.display().to_string())
    }

    /// A line for each file.
    fn index(&self) -> anyhow::Result<String> {
        let mut names: Vec<String> = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            names.extend(name.strip_suffix(".json").map(str::to_owned));
        }
        names.sort();
        let mut text = "<!-- generated by `cargo xtask tables` -->\n\n# Committed results\n\n\
            Files of results of the lab's one format: `shunt report FILE` shows one, `shunt compare A B` compares two. Each is a\n\
            summary: it has the value of every run, without the details of the runs. `cargo xtask tables --add FILE --name NAME`\n\
            adds a file and rewrites this index and the tables and figures of the documents.\n\n\
            | file | measurement | date | kernel | readings | command |\n| --- | --- | --- | --- | --- | --- |\n"
            .to_owned();
        for name in names {
            let results = self.read(&name)?;
            let date = results.began.split('T').next().unwrap_or_default();
            let kernel = results.conditions.kernel.as_deref().unwrap_or("-");
            let command = results.conditions.command.join(" ");
            writeln!(
                text,
                "| [{name}]({name}.json) | {} | {date} | {kernel} | {} | `{command}` |",
                results.what,
                results.readings.len()
            )?;
        }
        Ok(text)
    }
}

/// A file of results with one line for each reading, so that a diff shows the readings that changed.
fn by_line(results: &Results) -> anyhow::Result<String> {
    let whole: Value = serde_json::from_str(&results.to_json()?)?;
    let fields = whole.as_object().context("a file of results is an object")?;
    let lines = fields.iter().map(|(name, value)| match value {
        Value::Object(entries) if matches!(name.as_str(), "readings" | "missing") && !entries.is_empty() => {
            let entries =
                entries.iter().map(|(key, value)| format!("  {}: {value}", Value::from(key.as_str())));
            format!(" \"{name}\": {{\n{}\n }}", entries.collect::<Vec<_>>().join(",\n"))
        }
        value => format!(" \"{name}\": {value}"),
    });
    Ok(format!("{{\n{}\n}}\n", lines.collect::<Vec<_>>().join(",\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_current() {
        for (path, text) in generated(&root()).unwrap() {
            if std::env::var_os("SHUNT_BLESS").is_some() {
                fs::write(&path, text).unwrap();
                continue;
            }
            let current = fs::read_to_string(&path).unwrap_or_default();
            assert!(current == text, "{}: run `cargo xtask tables`", path.display());
        }
    }

    #[test]
    fn a_committed_result_has_a_line_for_each_reading_and_reads_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = shunt_lab::ResultsFile::begin(
            dir.path().join("raw.json"),
            Results::new("bench", shunt_lab::Conditions::default()),
        )
        .unwrap();
        for value in [1.0, 2.0] {
            let details = serde_json::json!({"less_baseline": 3, "slices": [1, 2]});
            let details = details.as_object().unwrap().clone();
            file.add("packets: tc", "ns/packet", shunt_lab::Run { value, at: None, details }).unwrap();
        }
        file.finish().unwrap();
        let committed = Committed(dir.path().to_owned());
        committed.add(&dir.path().join("raw.json"), "summary").unwrap();
        let text = fs::read_to_string(dir.path().join("summary.json")).unwrap();
        assert_eq!(text.lines().filter(|line| line.contains("packets: tc")).count(), 1, "{text}");
        assert!(text.contains("less_baseline") && !text.contains("slices"));
        assert_eq!(committed.read("summary").unwrap().readings["packets: tc"].value, 1.5);
    }

    #[test]
    fn a_table_replaces_what_is_between_its_markers() {
        let page = "a\n<!-- generated by `cargo xtask tables`: x -->\nold\n<!-- end -->\nb\n";
        let once = with_table(page, "x", "| new |\n").unwrap();
        assert_eq!(once, "a\n<!-- generated by `cargo xtask tables`: x -->\n\n| new |\n\n<!-- end -->\nb\n");
        assert_eq!(with_table(&once, "x", "| new |\n").unwrap(), once);
        assert!(with_table(page, "y", "").is_err());
    }

    #[test]
    fn a_figure_replaces_the_text_up_to_its_end_within_a_sentence() {
        let page =
            "It costs <!-- figure: x -->1 %<!-- end --> more, and <!-- figure: y -->2 %<!-- end --> less.";
        let once = between(page, &figure_marker("x"), "3 %").unwrap();
        assert_eq!(once, page.replace("1 %", "3 %"));
        assert!(between(page, &figure_marker("z"), "").is_err());
    }
}
