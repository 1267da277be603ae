//! `shunt report`: shows files of results on one page, or as JSON or CSV.

use crate::{
    failure::{bad_file, usage},
    render::{self, Answer, Report, ReportForm, Source},
};
use clap::Args;
use shunt_api::Failure;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The page has the conditions, the readings with their doubts, plots, and the files themselves. Reading it needs no network and
/// no script.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Files of results.
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

impl Reporting {
    /// `json` is the global option --json.
    pub(crate) fn resolve(typed: ReportArgs, json: bool) -> Result<Self, Failure> {
        // With --output, --json is the form of the line that is printed, not of the report.
        let form = match (typed.format, json && typed.output.is_none()) {
            (None, false) => ReportForm::Html,
            (None | Some(ReportForm::Json), true) => ReportForm::Json,
            (Some(form), false) => form,
            (Some(_), true) => return Err(usage("--json means --format json; leave out one of them")),
        };
        let report = read(&typed.files)?;
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

    pub(crate) fn run(self) -> anyhow::Result<Answer> {
        let Self { report, form, output } = self;
        let Some(path) = output else { return Ok(Answer::Report(Box::new(report), form)) };
        let document = render::report_document(&report, form)?;
        fs::write(&path, document).map_err(|error| bad_file(&path, error))?;
        Ok(Answer::Reported { path, files: report.files.len() })
    }
}

/// Reads files of results. Fails at the first file that cannot be reported on.
pub(crate) fn read(paths: &[PathBuf]) -> Result<Report, Failure> {
    let files = paths.iter().enumerate().map(|(nth, path)| {
        let text = fs::read_to_string(path).map_err(|error| bad_file(path, error))?;
        Source::parse(nth, path.display().to_string(), text).map_err(|why| bad_file(path, why))
    });
    Ok(Report::new(files.collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::examples;
    use shunt_api::FailureCode;

    #[test]
    fn a_report_never_overwrites_its_input() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("a.json"), dir.path().join("b.json"));
        fs::write(&file, examples::result_file()).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for output in [&file, &link] {
            let typed = ReportArgs { files: vec![file.clone()], output: Some(output.clone()), format: None };
            let failure = Reporting::resolve(typed, false).unwrap_err();
            assert!(failure.code == FailureCode::Usage && failure.message.contains("one of the files"));
        }
    }

    #[test]
    fn the_option_json_sets_the_form_only_of_what_is_printed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.json");
        fs::write(&file, examples::result_file()).unwrap();
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
