//! Shows an answer: text for people and JSON for programs, from the same value.

mod columns;
mod flows;
mod statics;
mod status;
mod units;

use serde::Serialize;
use shunt_api::{Connection, Count, StaticTable, Status};
use std::{
    io::{self, Write},
    path::PathBuf,
};

/// What was found or done.
#[derive(Debug)]
pub(crate) enum Answer {
    Started { status: Status, log: PathBuf },
    Stopped(Stopped),
    Status(Status),
    Flows(Vec<Connection>),
    Flushed(Count),
    Added(Count),
    Removed(Count),
    Statics(StaticTable),
    Written(PathBuf),
}

/// How `shunt down` went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Stopped {
    /// There was a daemon.
    pub(crate) was_running: bool,
    /// It did not stop by itself.
    pub(crate) killed: bool,
    /// Its process.
    pub(crate) pid: Option<u32>,
}

/// How to show it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Format {
    pub(crate) json: bool,
    pub(crate) verbose: bool,
}

impl Answer {
    pub(crate) fn render(&self, out: &mut dyn Write, format: Format) -> io::Result<()> {
        if format.json { self.render_json(out) } else { self.render_text(out, format.verbose) }
    }

    fn render_text(&self, out: &mut dyn Write, verbose: bool) -> io::Result<()> {
        match self {
            Self::Started { status, log } => {
                out.write_all(status::ports(status).as_bytes())?;
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
            Self::Flows(connections) => {
                connections.iter().try_for_each(|c| out.write_all(flows::describe(c, verbose).as_bytes()))
            }
            Self::Flushed(Count { count }) => writeln!(out, "{count} flows sent back to the slow path"),
            Self::Added(Count { count }) => writeln!(out, "{count} flows and routes put in"),
            Self::Removed(Count { count }) => writeln!(out, "{count} flows and routes taken out"),
            Self::Statics(table) => out.write_all(statics::describe(table).as_bytes()),
            Self::Written(dir) => writeln!(out, "manual pages written to {}", dir.display()),
        }
    }

    fn render_json(&self, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Started { status, .. } | Self::Status(status) => write_json(out, status),
            Self::Stopped(stopped) => write_json(out, stopped),
            Self::Flows(connections) => write_json(out, connections),
            Self::Flushed(count) | Self::Added(count) | Self::Removed(count) => write_json(out, count),
            Self::Statics(table) => write_json(out, table),
            Self::Written(dir) => write_json(out, dir),
        }
    }
}

fn write_json(mut out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)
}

#[cfg(test)]
pub(crate) mod examples;
#[cfg(test)]
mod tests;
