//! `shunt bench run`: a campaign, the measurements of a file, made one after the other.

mod file;
pub(crate) mod view;

use crate::{
    commands::{
        measure::{MeasureContext, Measurement, check_root},
        report::{
            self,
            view::{ReportForm, document},
        },
    },
    failure::{bad_config, bad_file, unreadable, unwritable},
    output::{Bar, Show, write_stderr},
    render::Answer,
    signals::Interruptible,
};
use clap::Args;
use file::{File, PlannedStep};
use shunt_api::{Failure, FailureCode};
use shunt_lab::{CampaignStep, Conditions, Progress, ReadError, Results};
use std::{
    fs, io,
    path::{Path, PathBuf},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{select, time::interval};
use view::{CampaignSummary, StepAnswer, StepState, StepSummary};

/// The campaign that runs if no file is named.
const DEFAULT: &str = include_str!("../../../../../lab/campaigns/default.toml");
const DEFAULT_NAME: &str = "default";
/// The copy of the campaign in the directory of its results.
const COPY: &str = "campaign.toml";
/// The page with all results, in the same directory.
const PAGE: &str = "report.html";

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The campaign, a TOML file [default: lab/campaigns/default.toml as it was when shunt was built; it measures in
    /// namespaces and takes about 10 minutes].
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The directory for the results: new, empty, or with results of the same campaign [default: `output` of the file,
    /// or campaign-NAME].
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Do not write a page with the results.
    #[arg(long)]
    no_report: bool,
}

/// A resolved `shunt bench run`.
#[derive(Debug)]
pub(crate) struct Campaign {
    /// The identity of the campaign, which each file of results contains. `step` is empty.
    identity: CampaignStep,
    directory: PathBuf,
    report: bool,
    steps: Vec<(PlannedStep, Todo)>,
}

#[derive(Debug)]
enum Todo {
    /// A complete file of results exists.
    Nothing,
    Measure(Box<dyn Measurement>),
}

impl Campaign {
    pub(crate) fn resolve(typed: &RunArgs) -> anyhow::Result<Self> {
        let (name, text) = match &typed.file {
            Some(path) => {
                let name = path.display().to_string();
                let text = fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
                (name, text)
            }
            None => (DEFAULT_NAME.to_owned(), DEFAULT.to_owned()),
        };
        let file = File::parse(&name, &text)?;
        let stem = typed.file.as_deref().and_then(Path::file_stem).unwrap_or(DEFAULT_NAME.as_ref());
        let default_directory = || PathBuf::from(format!("campaign-{}", stem.to_string_lossy()));
        let directory =
            typed.output.clone().or_else(|| file.output.clone()).unwrap_or_else(default_directory);
        let planned = file.steps(&name, &directory)?;
        let sha256 = sha256(&text);
        check_directory(&directory, &text, &sha256)?;
        let step = |planned: PlannedStep| {
            // Resolve every step, also those with results, so that an error in the file is always found.
            let measurement = planned.resolve()?;
            let todo = match is_complete(&directory.join(&planned.file))? {
                true => Todo::Nothing,
                false => Todo::Measure(measurement),
            };
            anyhow::Ok((planned, todo))
        };
        let steps = planned.into_iter().map(step).collect::<Result<_, _>>()?;
        let identity = CampaignStep { file: name, sha256, text, step: String::new() };
        Ok(Self { identity, report: file.report && !typed.no_report, directory, steps })
    }

    /// Measures step by step. After Ctrl-C the present step ends early, and the remaining steps do not begin.
    pub(crate) async fn run(self, show: Show<'_>) -> anyhow::Result<()> {
        self.steps.iter().try_for_each(|(_, todo)| match todo {
            Todo::Nothing => Ok(()),
            Todo::Measure(measurement) => check_root(&**measurement),
        })?;
        create_directory(&self.directory, &self.identity.text)?;
        let mut campaign = RunningCampaign {
            remaining: Remaining::new(&self.steps),
            identity: self.identity,
            interruptible: Interruptible::new()?,
            bar: Bar::new(),
            started: Instant::now(),
        };
        let mut summaries: Vec<StepSummary> = Vec::new();
        for (nth, (planned, todo)) in (1..).zip(self.steps) {
            let path = self.directory.join(&planned.file);
            let mut summary = new_summary(&planned);
            match todo {
                Todo::Nothing => {}
                Todo::Measure(_) if campaign.interruptible.signal().is_some() => {
                    summary.state = StepState::Missing
                }
                Todo::Measure(measurement) => {
                    let left = campaign.remaining.text(campaign.started);
                    let note = format!("step {nth}, {}: {}; {left}\n", summary.step, summary.command);
                    campaign.bar.hidden_while(|| write_stderr(&note));
                    set_aside(&path)?;
                    let step_started = Instant::now();
                    let measured = campaign.measure(&planned, measurement).await;
                    summary.seconds = step_started.elapsed().as_secs_f64();
                    summary.state = campaign.show_step(&summary.step, measured, show)?;
                }
            }
            count_readings(&mut summary, &path);
            summaries.push(summary);
        }
        let RunningCampaign { identity, started, bar, interruptible, .. } = campaign;
        drop(bar);
        let page = if self.report { write_page(&self.directory, &summaries)? } else { None };
        let summary = CampaignSummary {
            campaign: identity.file,
            sha256: identity.sha256,
            seconds: started.elapsed().as_secs_f64(),
            steps: summaries,
            report: page,
        };
        let failure = campaign_failure(&summary, interruptible.signal());
        show(&summary)?;
        failure.map_or(Ok(()), |failure| Err(failure.into()))
    }
}

/// A campaign that is running.
struct RunningCampaign {
    identity: CampaignStep,
    interruptible: Interruptible,
    bar: Bar,
    started: Instant,
    remaining: Remaining,
}

impl RunningCampaign {
    async fn measure(
        &mut self,
        planned: &PlannedStep,
        measurement: Box<dyn Measurement>,
    ) -> anyhow::Result<Box<dyn Answer + Send>> {
        let mut conditions = Conditions::of_this_machine();
        conditions.command.clone_from(&planned.words);
        conditions.campaign = Some(CampaignStep { step: planned.name.clone(), ..self.identity.clone() });
        let (expected, started) = (measurement.expected_duration(), Instant::now());
        let (bar, remaining, label) = (self.bar.clone(), self.remaining.clone(), planned.name.clone());
        let reports_progress = Arc::new(AtomicBool::new(false));
        let reported = reports_progress.clone();
        let measuring = self.interruptible.run(move |stop| {
            let show = &mut |progress| {
                reported.store(true, Ordering::Relaxed);
                bar.show(&remaining.progress(expected, &label, &progress));
            };
            measurement.measure(MeasureContext { stop, conditions, show })
        });
        let measured = with_ticks(measuring, || {
            // A search reports no progress; show its elapsed time against the estimate.
            if !reports_progress.load(Ordering::Relaxed) {
                let [done, total] = [started.elapsed(), expected].map(|time| time.as_millis() as u64);
                let progress = Progress { done, total, now: "searching".to_owned() };
                self.bar.show(&self.remaining.progress(expected, &planned.name, &progress));
            }
        });
        let measured = measured.await;
        self.remaining.passed += expected;
        measured
    }

    /// Shows the results or the failure of a step.
    fn show_step(
        &self,
        step: &str,
        measured: anyhow::Result<Box<dyn Answer + Send>>,
        show: Show<'_>,
    ) -> anyhow::Result<StepState> {
        Ok(match measured {
            Ok(answer) => {
                let failure = answer.failure();
                let answer = StepAnswer { step: step.to_owned(), answer };
                self.bar.hidden_while(|| show(&answer))?;
                match (self.interruptible.signal(), failure) {
                    (Some(_), _) => StepState::Interrupted,
                    (None, Some(why)) => StepState::Failed { why: why.to_string() },
                    (None, None) => StepState::Measured,
                }
            }
            Err(_) if self.interruptible.signal().is_some() => StepState::Interrupted,
            Err(error) => {
                let why = error.to_string();
                self.bar.hidden_while(|| write_stderr(&format!("{step}: {why}\n")));
                StepState::Failed { why }
            }
        })
    }
}

/// Why a campaign is not complete: an interruption or failed steps; none if every step has its results.
fn campaign_failure(summary: &CampaignSummary, signal: Option<FailureCode>) -> Option<Failure> {
    let names = |is: fn(&StepState) -> bool| {
        let steps = summary.steps.iter().filter(|step| is(&step.state));
        steps.map(|step| step.step.as_str()).collect::<Vec<_>>().join(", ")
    };
    let failed = names(|state| matches!(state, StepState::Failed { .. }));
    let missing = names(|state| matches!(state, StepState::Interrupted | StepState::Missing));
    let again = "run the same command again to measure the steps that are missing";
    let why = match (failed.as_str(), missing.as_str()) {
        ("", "") => return None,
        (failed, "") => format!("failed: {failed}; {again}"),
        ("", missing) => format!("interrupted; missing: {missing}; {again}"),
        (failed, missing) => format!("interrupted; missing: {missing}; failed: {failed}; {again}"),
    };
    Some(Failure::new(signal.unwrap_or(FailureCode::Usage), why))
}

/// The summary of a step before it is measured.
fn new_summary(planned: &PlannedStep) -> StepSummary {
    let (step, command) = (planned.name.clone(), planned.words.join(" "));
    StepSummary { step, command, state: StepState::There, seconds: 0.0, readings: 0, doubts: 0, file: None }
}

/// Counts the readings and doubts in the file of results, if it exists.
fn count_readings(summary: &mut StepSummary, path: &Path) {
    let Ok(results) = Results::read(path) else { return };
    summary.readings = results.readings.len();
    summary.doubts = results.readings.values().map(|reading| reading.doubts.len()).sum();
    summary.file = Some(path.to_owned());
}

/// Waits for `measuring`, and calls `tick` every second meanwhile.
async fn with_ticks<T>(measuring: impl Future<Output = T>, mut tick: impl FnMut()) -> T {
    let mut measuring = pin!(measuring);
    let mut seconds = interval(Duration::from_secs(1));
    loop {
        select! {
            measured = &mut measuring => return measured,
            _ = seconds.tick() => tick(),
        }
    }
}

/// How much of the campaign is done, in terms of the estimated durations of its steps.
#[derive(Debug, Clone)]
struct Remaining {
    passed: Duration,
    total: Duration,
}

impl Remaining {
    fn new(steps: &[(PlannedStep, Todo)]) -> Self {
        let expected = |(_, todo): &(PlannedStep, Todo)| match todo {
            Todo::Nothing => Duration::ZERO,
            Todo::Measure(measurement) => measurement.expected_duration(),
        };
        Self { passed: Duration::ZERO, total: steps.iter().map(expected).sum() }
    }

    /// The progress of one step, as progress of the whole campaign.
    fn progress(&self, expected: Duration, step: &str, progress: &Progress) -> Progress {
        let share = progress.done as f64 / progress.total.max(1) as f64;
        let done = self.passed + expected.mul_f64(share.min(1.0));
        let millis = |time: Duration| time.as_millis() as u64;
        Progress { done: millis(done), total: millis(self.total), now: format!("{step}: {}", progress.now) }
    }

    /// The time that is left, scaled by how long the steps so far took compared with their estimates.
    fn text(&self, started: Instant) -> String {
        let factor = match self.passed.as_secs_f64() {
            passed if passed > 0.0 => started.elapsed().as_secs_f64() / passed,
            _ => 1.0,
        };
        let left = (self.total - self.passed).mul_f64(factor);
        format!("about {} left", humantime::format_duration(Duration::from_secs(left.as_secs())))
    }
}

/// Refuses a directory that has other files than results of this campaign.
fn check_directory(directory: &Path, text: &str, own: &str) -> Result<(), Failure> {
    let name = directory.display();
    match fs::read_to_string(directory.join(COPY)) {
        Ok(copy) if copy == text => Ok(()),
        Ok(copy) => Err(bad_config(format!(
            "{name}: this directory has results of another campaign (sha256 {:.12}, not {own:.12}); choose another one with --output",
            sha256(&copy)
        ))),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(unwritable(directory, &error)),
        Err(_) => match fs::read_dir(directory).map(|mut entries| entries.next().is_none()) {
            Ok(true) => Ok(()),
            Ok(false) => Err(bad_config(format!(
                "{name}: this directory has other files in it; choose a new or empty one with --output"
            ))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(unwritable(directory, &error)),
        },
    }
}

/// Creates the directory with a copy of the campaign.
fn create_directory(directory: &Path, text: &str) -> Result<(), Failure> {
    let copy = directory.join(COPY);
    let created = fs::create_dir_all(directory).and_then(|()| {
        fs::write(&copy, text).inspect_err(|_| {
            // A truncated copy would look like another campaign.
            let _ = fs::remove_file(&copy);
        })
    });
    created.map_err(|error| unwritable(directory, &error))
}

/// Whether a file has the results of all runs of its step. Fails if the file exists but is no file of results.
fn is_complete(path: &Path) -> Result<bool, Failure> {
    match Results::read(path) {
        Ok(results) => Ok(results.complete),
        Err(ReadError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(bad_file(path, format!("{error}; or remove the file"))),
    }
}

/// Renames the results of an interrupted step, so that its runs do not mix with those of the next attempt.
fn set_aside(path: &Path) -> anyhow::Result<()> {
    let has_runs = Results::read(path).is_ok_and(|results| !results.readings.is_empty());
    if !has_runs && path.exists() {
        fs::remove_file(path)?;
    }
    if has_runs {
        let aside = (1..).map(|n| path.with_extension(format!("interrupted-{n}.json")));
        if let Some(free) = aside.into_iter().find(|aside| !aside.exists()) {
            fs::rename(path, free)?;
        }
    }
    Ok(())
}

/// Writes the page with all results; none if no step has readings.
fn write_page(directory: &Path, summaries: &[StepSummary]) -> anyhow::Result<Option<PathBuf>> {
    if summaries.iter().all(|step| step.readings == 0) {
        return Ok(None);
    }
    let path = directory.join(PAGE);
    fs::write(&path, document(&report::read(&[directory.to_owned()])?, ReportForm::Html)?)?;
    Ok(Some(path))
}

fn sha256(text: &str) -> String {
    hmac_sha256::Hash::hash(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;
