//! `shunt bench run`: a campaign, which is a file of measurements that are made one after the other.

mod file;

use crate::{
    bench::{Measurement, Setting},
    cli::{ReportForm, RunArgs},
    perform::{Show, Stoppable},
    progress::Bar,
    render::{self, Answer},
    report::Report,
    say,
};
use file::{File, Planned, bad};
use serde::Serialize;
use sha2::{Digest, Sha256};
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

/// What is measured without a file.
const DEFAULT: &str = include_str!("../../../lab/campaigns/default.toml");
const DEFAULT_NAME: &str = "default";
/// What was measured, beside its results.
const COPY: &str = "campaign.toml";
const PAGE: &str = "report.html";

/// What will be measured, and where it goes.
#[derive(Debug)]
pub(crate) struct Campaign {
    /// Of each step, but for its name.
    head: CampaignStep,
    directory: PathBuf,
    report: bool,
    steps: Vec<(Planned, Todo)>,
}

#[derive(Debug)]
enum Todo {
    /// Its results are there and whole.
    Nothing,
    Measure(Box<Measurement>),
}

/// What became of a campaign.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) campaign: String,
    pub(crate) sha256: String,
    pub(crate) seconds: f64,
    pub(crate) steps: Vec<Done>,
    /// The page of all results.
    pub(crate) report: Option<PathBuf>,
}

/// What became of a step.
#[derive(Debug, Serialize)]
pub(crate) struct Done {
    pub(crate) step: String,
    pub(crate) command: String,
    #[serde(flatten)]
    pub(crate) state: State,
    pub(crate) seconds: f64,
    pub(crate) readings: usize,
    pub(crate) doubts: usize,
    /// None if nothing was kept.
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub(crate) enum State {
    Measured,
    /// It was measured before.
    There,
    Interrupted,
    Failed {
        why: String,
    },
    /// Its turn did not come.
    Missing,
}

impl Campaign {
    pub(crate) fn resolve(typed: &RunArgs) -> anyhow::Result<Self> {
        let (name, text) = match &typed.file {
            Some(path) => {
                let name = path.display().to_string();
                let text = fs::read_to_string(path).map_err(|error| bad(format!("{name}: {error}")))?;
                (name, text)
            }
            None => (DEFAULT_NAME.to_owned(), DEFAULT.to_owned()),
        };
        let file = File::parse(&name, &text)?;
        let stem = typed.file.as_deref().and_then(Path::file_stem).unwrap_or(DEFAULT_NAME.as_ref());
        let by_name = || PathBuf::from(format!("campaign-{}", stem.to_string_lossy()));
        let directory = typed.output.clone().or_else(|| file.output.clone()).unwrap_or_else(by_name);
        let planned = file.planned(&name, &directory)?;
        let sha256 = sha256(&text);
        check(&directory, &text, &sha256)?;
        let step = |planned: Planned| {
            // Also where nothing is to be done, so that the file is found wrong whatever is there.
            let measurement = planned.resolve()?;
            let todo = match is_whole(&directory.join(&planned.file))? {
                true => Todo::Nothing,
                false => Todo::Measure(Box::new(measurement)),
            };
            anyhow::Ok((planned, todo))
        };
        let steps = planned.into_iter().map(step).collect::<Result<_, _>>()?;
        let head = CampaignStep { file: name, sha256, text, step: String::new() };
        Ok(Self { head, report: file.report && !typed.no_report, directory, steps })
    }

    /// Measures, step by step. Ctrl-C ends the one that runs, and those after it do not begin.
    pub(crate) async fn perform(self, show: Show<'_>) -> anyhow::Result<()> {
        self.steps.iter().try_for_each(|(_, todo)| match todo {
            Todo::Nothing => Ok(()),
            Todo::Measure(measurement) => measurement.check_root(),
        })?;
        begin(&self.directory, &self.head.text)?;
        let mut course = Course {
            ahead: Ahead::of(&self.steps),
            head: self.head,
            stoppable: Stoppable::new()?,
            bar: Bar::new(),
            began: Instant::now(),
        };
        let mut done: Vec<Done> = Vec::new();
        for (nth, (planned, todo)) in (1..).zip(self.steps) {
            let path = self.directory.join(&planned.file);
            let mut one = Done::new(&planned);
            match todo {
                Todo::Nothing => {}
                Todo::Measure(_) if course.stoppable.ended_by().is_some() => one.state = State::Missing,
                Todo::Measure(measurement) => {
                    let left = course.ahead.left(course.began);
                    course
                        .bar
                        .beside(|| say(&format!("step {nth}, {}: {}; {left}\n", one.step, one.command)));
                    set_aside(&path)?;
                    let begun = Instant::now();
                    let measured = course.measure(&planned, measurement).await;
                    one.seconds = begun.elapsed().as_secs_f64();
                    one.state = course.told(&one.step, measured, show)?;
                }
            }
            one.count(&path);
            done.push(one);
        }
        let Course { head, began, bar, stoppable, .. } = course;
        drop(bar);
        let page = if self.report { write_page(&self.directory, &done)? } else { None };
        let summary = Summary {
            campaign: head.file,
            sha256: head.sha256,
            seconds: began.elapsed().as_secs_f64(),
            steps: done,
            report: page,
        };
        let ended = summary.failure(stoppable.ended_by());
        show(&Answer::Campaign(Box::new(summary)))?;
        ended.map_or(Ok(()), |failure| Err(failure.into()))
    }
}

/// A campaign under way.
struct Course {
    /// Of each step, but for its name.
    head: CampaignStep,
    stoppable: Stoppable,
    bar: Bar,
    began: Instant,
    ahead: Ahead,
}

impl Course {
    async fn measure(&mut self, planned: &Planned, measurement: Box<Measurement>) -> anyhow::Result<Answer> {
        let mut conditions = Conditions::of_this_machine();
        conditions.command.clone_from(&planned.words);
        conditions.campaign = Some(CampaignStep { step: planned.name.clone(), ..self.head.clone() });
        let (expected, begun) = (measurement.expected(), Instant::now());
        let (shown, at, label) = (self.bar.clone(), self.ahead.clone(), planned.name.clone());
        let tells = Arc::new(AtomicBool::new(false));
        let told = tells.clone();
        let measuring = self.stoppable.run(move |stop| {
            let show = &mut |progress| {
                told.store(true, Ordering::Relaxed);
                shown.show(&at.with(expected, &label, &progress));
            };
            measurement.perform(Setting { stop, conditions, show })
        });
        let measured = beside(measuring, || {
            // A search does not know how far it has come.
            if !tells.load(Ordering::Relaxed) {
                let [done, total] = [begun.elapsed(), expected].map(|time| time.as_millis() as u64);
                let at = Progress { done, total, now: "searching".to_owned() };
                self.bar.show(&self.ahead.with(expected, &planned.name, &at));
            }
        });
        let measured = measured.await;
        self.ahead.pass(expected);
        measured
    }

    /// Shows what came of a step.
    fn told(&self, step: &str, measured: anyhow::Result<Answer>, show: Show<'_>) -> anyhow::Result<State> {
        Ok(match measured {
            Ok(answer) => {
                let failure = answer.failure();
                let answer = Answer::CampaignStep { step: step.to_owned(), answer: Box::new(answer) };
                self.bar.beside(|| show(&answer))?;
                match (self.stoppable.ended_by(), failure) {
                    (Some(_), _) => State::Interrupted,
                    (None, Some(why)) => State::Failed { why: why.to_string() },
                    (None, None) => State::Measured,
                }
            }
            Err(_) if self.stoppable.ended_by().is_some() => State::Interrupted,
            Err(why) => {
                let why = why.to_string();
                self.bar.beside(|| say(&format!("{step}: {why}\n")));
                State::Failed { why }
            }
        })
    }
}

impl Summary {
    /// Why it is not whole.
    fn failure(&self, ended_by: Option<FailureCode>) -> Option<Failure> {
        let named = |is: fn(&State) -> bool| {
            let steps = self.steps.iter().filter(|done| is(&done.state));
            steps.map(|done| done.step.as_str()).collect::<Vec<_>>().join(", ")
        };
        let failed = named(|state| matches!(state, State::Failed { .. }));
        let missing = named(|state| matches!(state, State::Interrupted | State::Missing));
        let again = "the same command goes on with what is missing";
        let why = match (failed.as_str(), missing.as_str()) {
            ("", "") => return None,
            (failed, "") => format!("failed: {failed}; {again}"),
            ("", missing) => format!("interrupted; missing: {missing}; {again}"),
            (failed, missing) => format!("interrupted; missing: {missing}; failed: {failed}; {again}"),
        };
        Some(Failure::new(ended_by.unwrap_or(FailureCode::Usage), why))
    }
}

impl Done {
    /// Nothing, so far.
    fn new(planned: &Planned) -> Self {
        let (step, command) = (planned.name.clone(), planned.words.join(" "));
        Self { step, command, state: State::There, seconds: 0.0, readings: 0, doubts: 0, file: None }
    }

    /// What is in the file of its results, if there is one.
    fn count(&mut self, path: &Path) {
        let Ok(results) = Results::read(path) else { return };
        self.readings = results.readings.len();
        self.doubts = results.readings.values().map(|reading| reading.doubts.len()).sum();
        self.file = Some(path.to_owned());
    }
}

/// Waits for it, and does something every second meanwhile.
async fn beside<T>(measuring: impl Future<Output = T>, mut meanwhile: impl FnMut()) -> T {
    let mut measuring = pin!(measuring);
    let mut seconds = interval(Duration::from_secs(1));
    loop {
        select! {
            measured = &mut measuring => return measured,
            _ = seconds.tick() => meanwhile(),
        }
    }
}

/// What is still to be measured, by how long it is expected to take.
#[derive(Debug, Clone)]
struct Ahead {
    passed: Duration,
    total: Duration,
}

impl Ahead {
    fn of(steps: &[(Planned, Todo)]) -> Self {
        let expected = |(_, todo): &(Planned, Todo)| match todo {
            Todo::Nothing => Duration::ZERO,
            Todo::Measure(measurement) => measurement.expected(),
        };
        Self { passed: Duration::ZERO, total: steps.iter().map(expected).sum() }
    }

    fn pass(&mut self, expected: Duration) {
        self.passed += expected;
    }

    /// In terms of the whole campaign.
    fn with(&self, expected: Duration, step: &str, progress: &Progress) -> Progress {
        let part = progress.done as f64 / progress.total.max(1) as f64;
        let done = self.passed + expected.mul_f64(part.min(1.0));
        let whole = |time: Duration| time.as_millis() as u64;
        Progress { done: whole(done), total: whole(self.total), now: format!("{step}: {}", progress.now) }
    }

    /// By how long it took so far.
    fn left(&self, began: Instant) -> String {
        let behind = match self.passed.as_secs_f64() {
            passed if passed > 0.0 => began.elapsed().as_secs_f64() / passed,
            _ => 1.0,
        };
        let left = (self.total - self.passed).mul_f64(behind);
        format!("about {} left", humantime::format_duration(Duration::from_secs(left.as_secs())))
    }
}

/// Refuses a directory that is somebody else's.
fn check(directory: &Path, text: &str, own: &str) -> Result<(), Failure> {
    let name = directory.display();
    let file = |error: io::Error| bad(format!("{name}: {error}"));
    match fs::read_to_string(directory.join(COPY)) {
        Ok(there) if there == text => Ok(()),
        Ok(there) => Err(bad(format!(
            "{name}: it has results of another campaign (sha256 {:.12}, not {own:.12}): give another directory with --output",
            sha256(&there)
        ))),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(file(error)),
        Err(_) => match fs::read_dir(directory).map(|mut entries| entries.next().is_none()) {
            Ok(true) => Ok(()),
            Ok(false) => Err(bad(format!(
                "{name}: there are other files in it: give a new or an empty directory with --output"
            ))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(file(error)),
        },
    }
}

fn begin(directory: &Path, text: &str) -> Result<(), Failure> {
    let copy = directory.join(COPY);
    let made = fs::create_dir_all(directory).and_then(|()| {
        fs::write(&copy, text).inspect_err(|_| {
            // A part of it would be another campaign's.
            let _ = fs::remove_file(&copy);
        })
    });
    made.map_err(|error| bad(format!("{}: {error}", directory.display())))
}

/// Whether the results of a step are all there.
fn is_whole(path: &Path) -> Result<bool, Failure> {
    match Results::read(path) {
        Ok(results) => Ok(results.complete),
        Err(ReadError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(why) => Err(bad(format!("{}: {why}; or remove it", path.display()))),
    }
}

/// Runs of a step that was interrupted are kept apart from those of the next time.
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

fn write_page(directory: &Path, done: &[Done]) -> anyhow::Result<Option<PathBuf>> {
    let with_readings = done.iter().filter(|one| one.readings > 0);
    let files: Vec<PathBuf> = with_readings.filter_map(|one| one.file.clone()).collect();
    if files.is_empty() {
        return Ok(None);
    }
    let path = directory.join(PAGE);
    fs::write(&path, render::report(&Report::read(&files)?, ReportForm::Html)?)?;
    Ok(Some(path))
}

fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
