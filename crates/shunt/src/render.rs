//! Renders answers: text for people and JSON for programs, from the same value. One module for each kind of text.

mod campaign;
mod check;
mod columns;
mod compare;
mod concurrent;
mod doctor;
mod events;
mod flows;
mod frame_size;
mod generate;
mod goodput;
mod hosts;
mod latency;
mod layout;
mod line;
mod link;
mod load;
mod model;
mod ndr;
mod next;
mod preview;
mod qos;
mod registers;
mod report;
mod screenful;
mod statics;
mod status;
mod style;
mod sweep;
pub(crate) mod top;
mod trace;
mod tracked;
mod units;
mod why;

pub(crate) use campaign::{CampaignSummary, StepState, StepSummary};
pub(crate) use doctor::{Diagnosis, Found, Gain};
pub(crate) use hosts::HostTotal;
pub(crate) use line::{Line, Row};
pub(crate) use link::{LinkChange, LinkScreen};
pub(crate) use model::{ModelPoint, Modelled};
pub(crate) use next::Next;
pub(crate) use registers::{Listed, Registers, Value, Written};
pub(crate) use report::{
    InspectionSource, ModelSource, Report, ReportForm, Source, document as report_document,
};
use serde::Serialize;
use shunt_api::{
    Connection, Count, DryRun, Explanation, Failure, FailureCode, ProbeReport, QosStatus, StaticTable,
    Status, Tracked, WatchEvent,
};
use shunt_lab::{
    Comparison,
    load::{Load, SelfTest},
    throughput,
};
use std::{
    io::{self, Write},
    path::PathBuf,
};
pub(crate) use tracked::protocol_number;

/// The outcome of a command, or of a part of it.
#[derive(Debug)]
pub(crate) enum Answer {
    Next(Next),
    Probed(Box<ProbeReport>),
    DryRun(DryRun),
    Started {
        status: Status,
        log: PathBuf,
    },
    Stopped(Stopped),
    Status(Status),
    /// The state, one of several: JSON on one line, or text that a blank line ends.
    StatusLine(Status),
    /// The state, cut to the size of a terminal.
    Screenful {
        status: Status,
        /// Why the state is not up to date; none if it is.
        failure: Option<String>,
        columns: u16,
        rows: u16,
        /// Whether to clear the terminal first.
        clear: bool,
    },
    Flows(Vec<Connection>),
    /// Bytes of `shunt export`, whatever the format of the output.
    Exported(Vec<u8>),
    Hosts(Vec<HostTotal>),
    Top(Box<top::Top>),
    Why(Explanation),
    Tracked(Vec<Tracked>),
    Event(WatchEvent),
    Flushed(Count),
    Queues(Vec<QosStatus>),
    QueuesSet(Count),
    QueuesRemoved(Count),
    Added(Count),
    Removed(Count),
    Statics(StaticTable),
    Line(Line),
    Load(Load),
    LoadSelfTest(SelfTest),
    Throughput(Box<throughput::Report>),
    Concurrent(Box<throughput::concurrent::Report>),
    FrameSize(Box<shunt_lab::frame_size::Report>),
    Sweep(Box<shunt_lab::sweep::Report>),
    CampaignStep {
        step: String,
        answer: Box<Answer>,
    },
    Campaign(Box<CampaignSummary>),
    Matrix(Box<shunt_lab::goodput::Report>),
    Rxtx(Box<shunt_lab::goodput::Report>),
    Latency(Box<shunt_lab::latency::Report>),
    Compared(Comparison),
    Traffic(Box<shunt_lab::traffic::Report>),
    /// Ports; the flag says whether more follow.
    Links(Vec<LinkScreen>, bool),
    LinkChanged(LinkChange),
    Diagnoses(Vec<Diagnosis>),
    Registers(Registers),
    Traced(Box<shunt_inspect::trace::Report>),
    Checked(Box<shunt_inspect::check::Report>),
    Modelled(Box<Modelled>),
    Report(Box<Report>, ReportForm),
    Reported {
        path: PathBuf,
        files: usize,
    },
    Completions(String),
    Written(PathBuf),
}

/// The outcome of `shunt down`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Stopped {
    /// Whether a daemon ran.
    pub(crate) was_running: bool,
    /// Whether the daemon did not answer and was killed.
    pub(crate) killed: bool,
    /// The process ID of the daemon; none if none ran.
    pub(crate) pid: Option<u32>,
}

/// The format of the output: the global options --json, --brief and --verbose, and the terminal.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Format {
    pub(crate) json: bool,
    /// One line for each object.
    pub(crate) brief: bool,
    pub(crate) verbose: bool,
    /// The width of the terminal in columns; none if standard output is no terminal.
    pub(crate) width: Option<usize>,
    /// Whether colours are wanted.
    pub(crate) colour: bool,
}

impl Format {
    fn finish(self, text: &str) -> String {
        let fitted = layout::fit(text, self.width);
        if self.colour { style::doubts(&fitted) } else { style::plain(&fitted) }
    }
}

/// Why a connection is fast or slow, as plain text.
pub(crate) fn explanation_text(explanation: &Explanation) -> String {
    Format::default().finish(&why::describe(explanation))
}

impl Answer {
    /// Why the results are incomplete, though they can be shown; none if they are complete.
    pub(crate) fn failure(&self) -> Option<Failure> {
        match self {
            Self::Matrix(report) | Self::Rxtx(report) => {
                report.failure.clone().map(|why| Failure::new(FailureCode::Usage, why))
            }
            Self::Traffic(report) => {
                let recorded = report.recorded.as_ref()?;
                let why = format!("{}: {}", recorded.file.display(), recorded.failure.as_ref()?);
                Some(Failure::new(FailureCode::BadConfig, why))
            }
            Self::Checked(report) => check::failure(report),
            Self::Traced(report) => trace::failure(report),
            _ => None,
        }
    }

    pub(crate) fn render(&self, out: &mut dyn Write, format: Format) -> io::Result<()> {
        match self {
            Self::Exported(bytes) => out.write_all(bytes),
            _ if format.json => self.render_json(out),
            Self::Screenful { status, failure, columns, rows, clear } => {
                let fit = Format { width: Some((*columns).into()), colour: false, ..format };
                let text = fit.finish(&status::describe(status, format.verbose));
                let drawn = screenful::draw(&text, failure.as_deref(), (*columns, *rows), *clear);
                out.write_all(drawn.as_bytes())
            }
            Self::Report(files, form) => out.write_all(&report_document(files, *form)?),
            Self::Completions(script) => out.write_all(script.as_bytes()),
            _ => {
                let mut text = Vec::new();
                self.render_text(&mut text, format)?;
                out.write_all(format.finish(&String::from_utf8_lossy(&text)).as_bytes())
            }
        }
    }

    fn render_text(&self, out: &mut dyn Write, format: Format) -> io::Result<()> {
        let verbose = format.verbose;
        match self {
            Self::Started { status, .. } if format.brief => out.write_all(status::brief(status).as_bytes()),
            Self::Status(status) | Self::StatusLine(status) if format.brief => {
                out.write_all(status::brief(status).as_bytes())
            }
            Self::Flows(connections) if format.brief => out.write_all(flows::brief(connections).as_bytes()),
            Self::Why(explanation) if format.brief => out.write_all(why::brief(explanation).as_bytes()),
            Self::Links(screens, _) if format.brief => out.write_all(link::brief(screens).as_bytes()),
            Self::Next(next) => out.write_all(next::describe(next).as_bytes()),
            Self::Probed(report) => out.write_all(preview::probed(report, verbose).as_bytes()),
            Self::DryRun(plan) => out.write_all(preview::dry_run(plan, verbose).as_bytes()),
            Self::Started { status, log } => {
                out.write_all(status::started(status).as_bytes())?;
                if verbose {
                    writeln!(out, "pid {}, log {}", status.pid, log.display())?;
                }
                Ok(())
            }
            Self::Stopped(stopped) => match stopped {
                Stopped { was_running: false, .. } => writeln!(out, "not running, nothing left behind"),
                Stopped { killed: true, .. } => {
                    writeln!(out, "did not answer and was killed, nothing left behind")
                }
                _ => writeln!(out, "stopped, nothing left behind"),
            },
            Self::Status(status) => out.write_all(status::describe(status, verbose).as_bytes()),
            Self::StatusLine(status) => writeln!(out, "{}", status::describe(status, verbose)),
            Self::Hosts(totals) => out.write_all(hosts::describe(totals).as_bytes()),
            Self::Flows(connections) => {
                connections.iter().try_for_each(|c| out.write_all(flows::describe(c, verbose).as_bytes()))
            }
            Self::Top(top) => out.write_all(top::describe(top).as_bytes()),
            Self::Why(explanation) => out.write_all(why::describe(explanation).as_bytes()),
            Self::Tracked(entries) => {
                entries.iter().try_for_each(|entry| writeln!(out, "{}", tracked::describe(entry)))
            }
            Self::Event(event) => writeln!(out, "{}", events::describe(event)),
            Self::Flushed(Count { count }) => {
                writeln!(out, "{} sent back to the slow path", units::count(*count, "flow"))
            }
            Self::Added(Count { count }) => writeln!(out, "{} added", units::count(*count, "entry")),
            Self::Removed(Count { count }) => writeln!(out, "{} removed", units::count(*count, "entry")),
            Self::Statics(table) => out.write_all(statics::describe(table).as_bytes()),
            Self::Queues(all) => out.write_all(qos::describe(all).as_bytes()),
            Self::QueuesSet(Count { count }) => {
                writeln!(out, "queues of {} set", units::count(*count, "port"))
            }
            Self::QueuesRemoved(Count { count }) => {
                writeln!(out, "queues of {} removed", units::count(*count, "port"))
            }
            Self::Line(line) => out.write_all(line::describe(line).as_bytes()),
            Self::Load(load) => out.write_all(load::describe(load).as_bytes()),
            Self::LoadSelfTest(test) => out.write_all(load::describe_self_test(test).as_bytes()),
            Self::Throughput(report) => out.write_all(ndr::describe(report).as_bytes()),
            Self::Concurrent(report) => out.write_all(concurrent::describe(report).as_bytes()),
            Self::FrameSize(report) => out.write_all(frame_size::describe(report).as_bytes()),
            Self::Sweep(report) => out.write_all(sweep::describe(report).as_bytes()),
            Self::CampaignStep { step, answer } => {
                writeln!(out, "== {step}")?;
                answer.render_text(out, format)
            }
            Self::Campaign(summary) => out.write_all(campaign::describe(summary).as_bytes()),
            Self::Matrix(report) => out.write_all(goodput::matrix(report).as_bytes()),
            Self::Rxtx(report) => out.write_all(goodput::rxtx(report).as_bytes()),
            Self::Latency(report) => out.write_all(latency::describe(report, verbose).as_bytes()),
            Self::Compared(comparison) => out.write_all(compare::describe(comparison).as_bytes()),
            Self::Traffic(report) => out.write_all(generate::describe(report).as_bytes()),
            Self::Links(screens, _) => out.write_all(link::describe(screens, verbose).as_bytes()),
            Self::Diagnoses(all) => out.write_all(doctor::describe(all, verbose).as_bytes()),
            Self::LinkChanged(change) => out.write_all(link::describe_change(change).as_bytes()),
            Self::Traced(report) => out.write_all(trace::describe(report).as_bytes()),
            Self::Checked(report) => out.write_all(check::describe(report).as_bytes()),
            Self::Registers(answer) => out.write_all(registers::describe(answer, verbose).as_bytes()),
            Self::Modelled(answer) => out.write_all(model::describe(answer).as_bytes()),
            Self::Reported { path, files } => {
                writeln!(out, "{} written, from {}", path.display(), units::count(*files as u64, "file"))
            }
            // They are no text to fit, see above.
            Self::Screenful { .. } | Self::Report(..) | Self::Completions(_) | Self::Exported(_) => Ok(()),
            Self::Written(dir) => writeln!(out, "manual pages written to {}", dir.display()),
        }
    }

    fn render_json(&self, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Next(next) => write_json(out, next),
            Self::Probed(report) => write_json(out, report),
            Self::DryRun(plan) => write_json(out, plan),
            Self::Started { status, .. } | Self::Status(status) => write_json(out, status),
            Self::Screenful { failure: Some(why), .. } => {
                write_json_line(out, &serde_json::json!({"failure": why}))
            }
            Self::StatusLine(status) | Self::Screenful { status, .. } => write_json_line(out, status),
            Self::Hosts(totals) => write_json(out, totals),
            Self::Stopped(stopped) => write_json(out, stopped),
            Self::Flows(connections) => write_json(out, connections),
            Self::Exported(_) => Ok(()),
            Self::Top(top) => write_json(out, top),
            Self::Why(explanation) => write_json(out, explanation),
            Self::Tracked(entries) => write_json(out, entries),
            Self::Event(event) => write_json_line(out, event),
            Self::Load(load) => write_json_line(out, load),
            Self::LoadSelfTest(test) => write_json(out, test),
            Self::Flushed(count)
            | Self::Added(count)
            | Self::Removed(count)
            | Self::QueuesSet(count)
            | Self::QueuesRemoved(count) => write_json(out, count),
            Self::Statics(table) => write_json(out, table),
            Self::Queues(all) => write_json(out, all),
            Self::Line(line) => write_json(out, &line.rows),
            Self::Throughput(report) => write_json(out, report),
            Self::FrameSize(report) => write_json(out, report),
            Self::Sweep(report) => write_json(out, report),
            Self::CampaignStep { step, answer } => {
                let mut json = Vec::new();
                answer.render_json(&mut json)?;
                let report: serde_json::Value = serde_json::from_slice(&json)?;
                write_json_line(out, &serde_json::json!({"step": step, "report": report}))
            }
            Self::Campaign(summary) => write_json_line(out, summary),
            // The format of a file of results, which `shunt compare` and `shunt report` read.
            Self::Concurrent(report) => out.write_all(report.results.to_json()?.as_bytes()),
            Self::Latency(report) => out.write_all(report.results.to_json()?.as_bytes()),
            Self::Matrix(report) | Self::Rxtx(report) => out.write_all(report.results.to_json()?.as_bytes()),
            Self::Compared(comparison) => write_json(out, comparison),
            Self::Traffic(report) => write_json(out, report),
            Self::Links(screens, true) => write_json_line(out, screens),
            Self::Links(screens, false) => write_json(out, screens),
            Self::Diagnoses(all) => write_json(out, all),
            Self::LinkChanged(change) => write_json(out, change),
            Self::Traced(report) => write_json(out, report),
            Self::Checked(report) => write_json(out, report),
            Self::Modelled(answer) => write_json(out, &model::to_json(answer)),
            Self::Registers(answer @ Registers::Changed { .. }) => write_json_line(out, answer),
            Self::Registers(answer) => write_json(out, answer),
            Self::Report(files, form) => out.write_all(&report_document(files, *form)?),
            Self::Reported { path, files } => {
                write_json(out, &serde_json::json!({"path": path, "files": files}))
            }
            Self::Completions(script) => write_json(out, script),
            Self::Written(dir) => write_json(out, dir),
        }
    }
}

fn write_json(mut out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)
}

/// One value in one line, for programs that read values as they arrive.
fn write_json_line(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    writeln!(out)
}

#[cfg(test)]
pub(crate) mod examples;
#[cfg(test)]
mod tests;
