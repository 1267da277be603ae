//! `shunt model`: predicts what a NIC, driver and CPU would do.

mod observed;
mod points;
pub(crate) mod view;

use crate::{
    command::{Command, Context},
    commands::measure::measure_and_show,
    failure::{bad_config, bad_file, unreadable, usage},
    output::{Bar, Show},
};
use clap::{Args, Subcommand};
use clap_complete::{
    CompletionCandidate,
    engine::{ArgValueCandidates, ArgValueCompleter, PathCompleter, ValueCompleter},
};
use observed::Observed;
use points::{Over, settings_of};
use shunt_api::{Failure, describe_toml_error};
use shunt_lab::Progress;
use shunt_model::{Case, CaseError, FitProgress, explain, fit_watched, run, stories};
use std::{
    ffi::OsStr,
    fs,
    ops::ControlFlow,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};
use view::{ModelAnswer, ModelPoint};

/// Predict what a NIC, driver and CPU would do: hardware that is not at hand, or a change that is not made yet.
#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    #[command(subcommand)]
    command: ModelCommand,
}

/// A case of the library, or a file.
#[derive(Debug, Args)]
pub(crate) struct CaseArgs {
    /// A file, or the name of a case of the library (see `shunt model cases`).
    #[arg(add = case())]
    case: String,
    /// Change a parameter, such as fifo.pause=on or traffic.rate=400M. May be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,
}

#[derive(Debug, Subcommand)]
enum ModelCommand {
    /// Predict goodput, loss and CPU load of a case.
    Run(CaseArgs),
    /// Predict a case at several values of parameters, on all cores.
    Sweep(SweepArgs),
    /// Say what limits a case, and what would limit it next.
    Explain(ExplainArgs),
    /// Find the parameters that explain a measurement, and say which of them the measurement determines.
    ///
    /// Reads results that `shunt bench sweep --keep` or `shunt bench matrix --keep` wrote. Ctrl-C ends the search with
    /// the best parameters so far.
    Fit(FitArgs),
    /// Compare the model with published measurements of real boards.
    Stories(StoriesArgs),
    /// List the cases of the library, or print one as a file to begin with.
    Cases {
        /// The case to print.
        #[arg(add = ArgValueCandidates::new(case_names))]
        name: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    #[command(flatten)]
    case: CaseArgs,
    /// The values of a parameter: traffic.rate=100M,200M or traffic.rate=50M..1G/20 for 20 values at equal distances.
    /// If repeated, all combinations are predicted.
    #[arg(long, value_name = "NAME=VALUES", required = true)]
    over: Vec<Over>,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    case: CaseArgs,
    /// Explain at several values of a parameter, as in `shunt model sweep`.
    #[arg(long, value_name = "NAME=VALUES")]
    over: Vec<Over>,
}

#[derive(Debug, Args)]
pub(crate) struct FitArgs {
    /// The file of results.
    results: PathBuf,
    /// What is known of the board: a file, or a case of the library [default: an ideal router].
    #[arg(long, value_name = "CASE", add = case())]
    case: Option<String>,
    /// A parameter to find. May be repeated [default: the cost of each path that was measured, bus.rx_rate, and, if the
    /// CPU load was measured, cpu.irq_ns and cpu.base_load].
    #[arg(long, value_name = "NAME")]
    parameter: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct StoriesArgs {
    /// Only stories whose name contains this.
    name: Option<String>,
    /// Fit the parameters again to the figures that are not held out, and print them. Takes minutes.
    #[arg(long)]
    fit: bool,
}

/// A resolved `shunt model`.
#[derive(Debug)]
pub(crate) enum ModelPlan {
    Run(Box<Case>),
    Sweep(Vec<Point>),
    Explain(Vec<Point>),
    Fit { case: Box<Case>, parameters: Vec<String>, observed: Observed },
    Stories { name: String, fit: bool },
    Cases,
    Case(&'static str),
}

/// A case at certain values, and these.
#[derive(Debug, Clone)]
pub(crate) struct Point {
    settings: Vec<(String, String)>,
    case: Case,
}

impl Point {
    fn with(mut self, settings: Vec<(String, String)>) -> Result<Self, Failure> {
        for (name, value) in &settings {
            self.case.set(name, value).map_err(wrong)?;
        }
        self.case.check().map_err(|impossible| wrong(impossible.into()))?;
        self.settings.extend(settings);
        Ok(self)
    }
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("use NAME=VALUE, such as fifo.pause=on")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

fn wrong(error: CaseError) -> Failure {
    usage(error.to_string())
}

/// Reads a case from the library or a file.
pub(super) fn read(name: &str) -> Result<Case, Failure> {
    if let Some((_, text)) = library().find(|(known, _)| *known == name) {
        return Case::parse(text).map_err(wrong);
    }
    let path = PathBuf::from(name);
    let text = fs::read_to_string(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => bad_config(format!(
            "`{name}` is neither a file nor a case of the library; `shunt model cases` lists the library"
        )),
        _ => unreadable(&path, &error),
    })?;
    let is_text = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    if !text.lines().any(is_text) {
        return Err(bad_file(
            &path,
            "the case is empty; `shunt model cases template` prints one to begin with",
        ));
    }
    Case::parse(&text).map_err(|error| match error {
        CaseError::Document(error) => bad_file(&path, describe_toml_error(&text, &error)),
        other => bad_file(&path, other),
    })
}

fn library() -> impl Iterator<Item = (&'static str, &'static str)> {
    stories::CASES.into_iter().chain([("template", stories::TEMPLATE)])
}

fn case_names() -> Vec<CompletionCandidate> {
    library().map(|(name, _)| CompletionCandidate::new(name)).collect()
}

/// Cases of the library, and files, for a shell to complete.
pub(super) fn case() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        let begins = |one: &CompletionCandidate| {
            one.get_value().as_encoded_bytes().starts_with(typed.as_encoded_bytes())
        };
        let names = case_names().into_iter().filter(begins);
        names.chain(PathCompleter::any().complete(typed)).collect::<Vec<_>>()
    })
}

impl CaseArgs {
    fn resolve(&self) -> Result<Case, Failure> {
        let mut case = read(&self.case)?;
        for (name, value) in &self.set {
            case.set(name, value).map_err(wrong)?;
        }
        case.check().map_err(|impossible| wrong(impossible.into()))?;
        Ok(case)
    }

    fn points(&self, over: &[Over]) -> Result<Vec<Point>, Failure> {
        let base = self.resolve()?;
        let mut points = Vec::new();
        for settings in settings_of(over)? {
            let point = Point { settings: Vec::new(), case: base.clone() }.with(settings)?;
            let ends = point.case.ends();
            let both = ends.into_iter().map(|end| point.clone().with(end)).collect::<Result<Vec<_>, _>>()?;
            points.extend(if both.is_empty() { vec![point] } else { both });
        }
        Ok(points)
    }
}

impl Command for ModelArgs {
    type Plan = ModelPlan;
    const EXAMPLES: &str = "
        [shunt model]
        shunt model cases # the boards of the library
        shunt model run imx6 --set traffic.rate=600M # an i.MX6 that is offered 600 Mbit/s of UDP
        [shunt model run]
        shunt model run imx6 --set traffic.rate=600M # a board of the library
        shunt model run board.toml # a case of your own
        [shunt model sweep]
        shunt model sweep imx6 --over traffic.rate=50M..1G/20 # twenty offered rates
        shunt model sweep imx6 --over fifo.pause=on,off --over traffic.rate=400M,800M # with pause frames and without, at two rates
        [shunt model explain]
        shunt model explain imx6 --over traffic.rate=300M,600M,900M # what limits it at three rates
        [shunt model fit]
        shunt model fit sweep.json # an ideal router, fitted to a sweep
        shunt model fit sweep.json --case board.toml --parameter bus.rx_rate # one parameter of a board that is known otherwise
        [shunt model stories]
        shunt model stories i.MX6 # measurements of one board compared with the model
        [shunt model cases]
        shunt model cases # the library
        shunt model cases template # a case to begin with, with comments
    ";

    fn resolve(self, _: &Context) -> anyhow::Result<ModelPlan> {
        Ok(ModelPlan::resolve(&self.command)?)
    }

    async fn run(plan: ModelPlan, _: &Context, show: Show<'_>) -> anyhow::Result<()> {
        match plan {
            ModelPlan::Fit { case, parameters, observed } => {
                measure_and_show(show, move |stop| Ok(search(&case, &parameters, observed, stop)?)).await
            }
            plan => show(&plan.run()?),
        }
    }
}

/// Fits with a progress bar, until the end or until told to stop.
fn search(
    case: &Case,
    parameters: &[String],
    observed: Observed,
    stop: &AtomicBool,
) -> Result<ModelAnswer, Failure> {
    let bar = Bar::new();
    let names: Vec<&str> = parameters.iter().map(String::as_str).collect();
    let mut watch = |fit: FitProgress| {
        let now = format!("mean error {:.1}", fit.mean_error);
        bar.show(&Progress { done: fit.runs, total: fit.most, now });
        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let fit = fit_watched(case, &names, &observed.observations, &mut watch).map_err(wrong)?;
    Ok(ModelAnswer::Fit { fit, left_out: observed.left_out })
}

impl ModelPlan {
    fn resolve(typed: &ModelCommand) -> Result<Self, Failure> {
        Ok(match typed {
            ModelCommand::Run(case) => match case.points(&[])?.as_slice() {
                [point] => Self::Run(Box::new(point.case.clone())),
                ends => Self::Sweep(ends.to_vec()),
            },
            ModelCommand::Sweep(SweepArgs { case, over }) => Self::Sweep(case.points(over)?),
            ModelCommand::Explain(ExplainArgs { case, over }) => Self::Explain(case.points(over)?),
            ModelCommand::Fit(fit) => fit.resolve()?,
            ModelCommand::Stories(StoriesArgs { name, fit }) => {
                Self::Stories { name: name.clone().unwrap_or_default(), fit: *fit }
            }
            ModelCommand::Cases { name: None } => Self::Cases,
            ModelCommand::Cases { name: Some(name) } => {
                let text = library().find(|(known, _)| known == name).map(|(_, text)| text);
                Self::Case(text.ok_or_else(|| {
                    usage(format!("unknown case `{name}`; `shunt model cases` lists the library"))
                })?)
            }
        })
    }

    fn run(self) -> Result<ModelAnswer, Failure> {
        Ok(match self {
            Self::Run(case) => {
                let prediction = run(&case).map_err(|impossible| wrong(impossible.into()))?;
                ModelAnswer::Run { name: case.name, prediction: Box::new(prediction) }
            }
            Self::Sweep(points) => ModelAnswer::Sweep(on_all_cores(&points, |point| {
                let prediction = run(&point.case).map_err(|impossible| wrong(impossible.into()))?;
                Ok(ModelPoint { settings: point.settings.clone(), prediction, explanation: None })
            })?),
            Self::Explain(points) => ModelAnswer::Explained(on_all_cores(&points, |point| {
                let explanation = explain(&point.case).map_err(|impossible| wrong(impossible.into()))?;
                let prediction = explanation.prediction.clone();
                Ok(ModelPoint {
                    settings: point.settings.clone(),
                    prediction,
                    explanation: Some(explanation),
                })
            })?),
            Self::Fit { case, parameters, observed } => {
                search(&case, &parameters, observed, &AtomicBool::new(false))?
            }
            Self::Stories { name, fit } => {
                let chosen: Vec<_> =
                    stories::all().iter().filter(|story| story.name.contains(&name)).collect();
                if chosen.is_empty() {
                    let known: Vec<&str> = stories::all().iter().map(|story| story.name.as_str()).collect();
                    return Err(usage(format!(
                        "unknown story `{name}`; expected one of: {}",
                        known.join(", ")
                    )));
                }
                if fit {
                    let fitted = on_all_cores(&chosen, |story| Ok(story.refit()))?;
                    ModelAnswer::Refitted(fitted.into_iter().flatten().collect())
                } else {
                    ModelAnswer::Stories(on_all_cores(&chosen, |story| story.predict().map_err(wrong))?)
                }
            }
            Self::Cases => {
                let about = |(name, text)| (name, Case::parse(text).map_or(String::new(), |case| case.name));
                ModelAnswer::Cases(library().map(about).collect())
            }
            Self::Case(text) => ModelAnswer::Case(text),
        })
    }
}

impl FitArgs {
    fn resolve(&self) -> Result<ModelPlan, Failure> {
        let text = fs::read_to_string(&self.results).map_err(|error| unreadable(&self.results, &error))?;
        let observed = observed::read(&text).map_err(|why| bad_file(&self.results, why))?;
        let observations = &observed.observations;
        let has_load = observations.iter().any(|one| one.quantity == shunt_model::Quantity::Cpu);
        let case = match &self.case {
            Some(name) => read(name)?,
            None => observed::ideal_router(observations),
        };
        let mut parameters = self.parameter.clone();
        if parameters.is_empty() {
            parameters = observed::paths(observations);
            parameters.push("bus.rx_rate".to_owned());
            if has_load {
                parameters.extend(["cpu.irq_ns", "cpu.base_load"].map(str::to_owned));
            }
        }
        Ok(ModelPlan::Fit { case: Box::new(case), parameters, observed })
    }
}

/// Does the same with each of several things, with as many threads as there are cores.
fn on_all_cores<T: Sync, R: Send>(
    of: &[T],
    work: impl Fn(&T) -> Result<R, Failure> + Sync,
) -> Result<Vec<R>, Failure> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let results = thread::scope(|scope| {
        let worker = |first: usize| {
            let work = &work;
            // Neighbours differ least in what they cost, so each thread takes every n-th.
            move || of.iter().skip(first).step_by(cores).map(work).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..cores).map(|first| scope.spawn(worker(first))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a run does not panic")).collect::<Vec<_>>()
    });
    let mut results: Vec<_> = results.into_iter().map(Vec::into_iter).collect();
    (0..of.len()).filter_map(|number| results[number % cores].next()).collect()
}
