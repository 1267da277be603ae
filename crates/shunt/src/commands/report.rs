//! `shunt report`: shows files of results on one page, or as JSON or CSV.
//!
//! The page has the conditions, the readings with their doubts, plots, and the files themselves. Reading it needs no
//! network and no script.

pub(crate) mod view;

use super::result_files;
use crate::{
    command::{Command, Context},
    failure::{bad_file, unreadable, unwritable, usage},
    output::Show,
    render::{Format, Text},
};
use clap::Args;
use serde::Serialize;
use shunt_api::Failure;
use shunt_lab::Results;
use shunt_report::{Report, ResultFile};
use std::{
    fs,
    path::{Path, PathBuf},
};
use view::{Document, ReportForm};

/// Show results on one page, to read, print or send.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Files of results, directories of campaigns, or what `shunt model`, `link`, `doctor`, `check` and `trace` printed
    /// with --json. Two directories are compared step by step; files without measured runs have sections of their own.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Write the report to this file [default: standard output].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The form: a page, all data, or one line for each run [default: html].
    #[arg(long, value_enum)]
    format: Option<ReportForm>,
}

/// A resolved `shunt report`.
#[derive(Debug)]
pub(crate) struct Reporting {
    report: Report,
    form: ReportForm,
    output: Option<PathBuf>,
}

impl Command for ReportArgs {
    type Plan = Reporting;
    const EXAMPLES: &str = "
        [shunt report]
        shunt report before after -o page.html # two campaigns on one page
    ";

    fn resolve(self, context: &Context) -> anyhow::Result<Reporting> {
        Ok(Reporting::resolve(self, context.json)?)
    }

    async fn run(plan: Reporting, _: &Context, show: Show<'_>) -> anyhow::Result<()> {
        let Reporting { report, form, output } = plan;
        let Some(path) = output else { return show(&Document { report, form }) };
        let document = view::document(&report, form)?;
        fs::write(&path, document).map_err(|error| unwritable(&path, &error))?;
        show(&Reported { path, files: report.count() })
    }
}

impl Reporting {
    /// `json` is the global option --json.
    fn resolve(typed: ReportArgs, json: bool) -> Result<Self, Failure> {
        // With --output, --json is the form of the line that is printed, not of the report.
        let form = match (typed.format, json && typed.output.is_none()) {
            (None, false) => ReportForm::Html,
            (None | Some(ReportForm::Json), true) => ReportForm::Json,
            (Some(form), false) => form,
            (Some(_), true) => return Err(usage("--json means --format json; leave out one of them")),
        };
        if let (None, [_, .., last]) = (&typed.output, typed.files.as_slice())
            && is_to_be_written(last)
        {
            let last = last.display();
            return Err(usage(format!("{last}: no file of results; `-o {last}` writes the report to it")));
        }
        let report = read(&typed.files)?;
        if let (ReportForm::Csv, Some(file)) = (form, report.further_files().next()) {
            return Err(usage(format!("--format csv has a line for each measured run, and {file} has none")));
        }
        if let Some(output) = &typed.output {
            // The report must not overwrite the results.
            let real = |path: &Path| fs::canonicalize(path).ok();
            if typed.files.iter().any(|file| real(file).is_some_and(|file| Some(file) == real(output))) {
                return Err(usage(format!(
                    "--output {}: this is one of the files to report on; choose another name",
                    output.display()
                )));
            }
        }
        Ok(Self { report, form, output: typed.output })
    }
}

/// Whether the last of several files is a page, or one that does not exist yet.
fn is_to_be_written(last: &Path) -> bool {
    let is_page = last.extension().is_some_and(|end| ["html", "htm", "csv"].iter().any(|page| end == *page));
    is_page || !last.exists()
}

/// The line that says where a report was written.
#[derive(Debug, Serialize)]
struct Reported {
    path: PathBuf,
    files: usize,
}

impl Text for Reported {
    fn text(&self, _: Format) -> String {
        let Self { path, files } = self;
        let noun = if *files == 1 { "file" } else { "files" };
        format!("{} written, from {files} {noun}\n", path.display())
    }
}

/// Reads files of results, and all files of directories. Fails at the first file that cannot be reported on.
pub(crate) fn read(paths: &[PathBuf]) -> Result<Report, Failure> {
    let (mut sources, mut others) = (Vec::new(), Vec::new());
    for (nth, path) in paths.iter().enumerate() {
        let letter = ResultFile::letter(nth);
        if !path.is_dir() {
            let (text, file) = (text(path)?, path.display().to_string());
            match view::other_file(&letter, &file, &text) {
                Some(other) => others.push(other),
                None => sources.push(source(letter, path, text)?),
            }
            continue;
        }
        let letter = if paths.len() == 1 { String::new() } else { letter };
        for step in steps(path)? {
            sources.push(source(step_name(&step), &step, text(&step)?)?.in_campaign(&letter));
        }
    }
    Ok(Report::new(sources, others))
}

fn text(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| unreadable(path, &error))
}

fn source(label: String, path: &Path, text: String) -> Result<ResultFile, Failure> {
    ResultFile::parse(label, path.display().to_string(), text)
        .map_err(|why| result_files::record_of_doctor(path).unwrap_or_else(|| bad_file(path, why)))
}

/// The files of a campaign's directory that have readings, in the order of their names.
fn steps(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(directory).map_err(|error| unreadable(directory, &error))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(".json") && !name.contains(".interrupted-")
    });
    files.sort();
    // A step that failed has a file without readings. A file with another fault is read, and refused.
    let has_no_reading =
        |file: &PathBuf| Results::read(file).is_ok_and(|results| results.readings.is_empty());
    files.retain(|file| !has_no_reading(file));
    if files.is_empty() {
        return Err(bad_file(directory, "no file of results (*.json) with readings in this directory"));
    }
    Ok(files)
}

/// The step's name: the file's name without its number, as `sizes` for `01-sizes.json`.
fn step_name(file: &Path) -> String {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    match stem.split_once('-') {
        Some((number, name)) if number.bytes().all(|digit| digit.is_ascii_digit()) => name.to_owned(),
        _ => stem.into_owned(),
    }
}

#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests {
    use super::*;
    use shunt_api::FailureCode;

    #[test]
    fn a_report_never_overwrites_its_input() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("a.json"), dir.path().join("b.json"));
        fs::write(&file, sample::result_file()).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for output in [&file, &link] {
            let typed = ReportArgs { files: vec![file.clone()], output: Some(output.clone()), format: None };
            let failure = Reporting::resolve(typed, false).unwrap_err();
            assert!(failure.code == FailureCode::Usage && failure.message.contains("one of the files"));
        }
    }

    #[test]
    fn the_files_of_a_directory_are_labelled_by_step() {
        let dir = tempfile::tempdir().unwrap();
        for (campaign, step) in [("before", "01-sizes"), ("before", "02-sweep-tc"), ("after", "01-sizes")] {
            fs::create_dir_all(dir.path().join(campaign)).unwrap();
            fs::write(dir.path().join(campaign).join(step).with_extension("json"), sample::result_file())
                .unwrap();
        }
        fs::write(dir.path().join("before/02-sweep-tc.interrupted-1.json"), "{").unwrap();
        fs::write(dir.path().join("before/report.html"), "").unwrap();
        let labels = |names: &[&str]| -> Result<Vec<String>, Failure> {
            let paths: Vec<PathBuf> = names.iter().map(|name| dir.path().join(name)).collect();
            Ok(read(&paths)?.files.into_iter().map(|source| source.label).collect())
        };
        assert_eq!(labels(&["before"]).unwrap(), ["sizes", "sweep-tc"]);
        assert_eq!(labels(&["before", "after"]).unwrap(), ["A sizes", "A sweep-tc", "B sizes"]);
        assert_eq!(labels(&["after/01-sizes.json", "before"]).unwrap(), ["A", "B sizes", "B sweep-tc"]);
        fs::remove_file(dir.path().join("after/01-sizes.json")).unwrap();
        assert!(labels(&["after"]).unwrap_err().message.contains("no file of results"));
    }

    #[test]
    fn the_option_json_sets_the_form_only_of_what_is_printed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.json");
        fs::write(&file, sample::result_file()).unwrap();
        let form = |format, json, output: Option<&str>| {
            let typed = ReportArgs { files: vec![file.clone()], output: output.map(PathBuf::from), format };
            Reporting::resolve(typed, json).map(|reporting| reporting.form).ok()
        };
        assert_eq!(form(None, false, None), Some(ReportForm::Html));
        assert_eq!(form(None, true, None), Some(ReportForm::Json));
        assert_eq!(form(Some(ReportForm::Csv), false, None), Some(ReportForm::Csv));
        assert_eq!(form(Some(ReportForm::Csv), true, None), None);
        assert_eq!(form(None, true, Some("none.html")), Some(ReportForm::Html));
        assert_eq!(form(Some(ReportForm::Csv), true, Some("none.csv")), Some(ReportForm::Csv));
    }
}
