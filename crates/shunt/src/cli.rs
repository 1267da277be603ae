//! From the words of the command line to a command: spellings of `ip`, and what to type instead of commands of other
//! programs.

use crate::commands::{self, Cli};
use clap::{
    FromArgMatches,
    error::{ContextKind, ContextValue, ErrorKind},
};
use std::ffi::OsString;

pub(crate) fn parse(typed: impl Iterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let matches = commands::command().try_get_matches_from(words(typed)).map_err(explain)?;
    Cli::from_arg_matches(&matches)
}

/// Says what to type instead of a command that does not exist.
fn explain(mut error: clap::Error) -> clap::Error {
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand)
        && let Some(instead) = instead_of(typed)
    {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![instead.into()]));
    }
    error
}

/// The words of the command line, with the short options of `ip` as clap knows them: `-br` anywhere, `-d` before the
/// command.
fn words(typed: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    let mut is_before = true;
    for (at, word) in typed.enumerate() {
        is_before &= at == 0 || word.as_encoded_bytes().starts_with(b"-");
        words.push(match word.to_str() {
            Some("-br") => "--brief".into(),
            Some("-d") if is_before => "--verbose".into(),
            _ => word,
        });
    }
    words
}

/// What to type instead of a command that other programs have.
fn instead_of(command: &str) -> Option<&'static str> {
    Some(match command {
        "start" | "run" | "attach" | "enable" => "`shunt up` starts an instance",
        "stop" | "kill" | "detach" | "disable" => "`shunt down` stops an instance",
        "restart" | "reload" => {
            "the configuration is read at the start: `shunt down`, then `shunt up`; the learned flows are learned again"
        }
        "show" | "info" | "stats" | "counters" => {
            "`shunt status` has the counters, `shunt flows` the connections"
        }
        "list" | "ls" | "connections" | "conn" | "sessions" => "`shunt flows` lists the connections",
        "monitor" | "log" | "events" | "tail" => {
            "`shunt watch` prints events as they happen, `shunt top` is a live screen"
        }
        "reset" | "clear" => "`shunt flush` sends all connections back to the slow path",
        "add" | "del" | "delete" => "`shunt flow add` and `shunt flow del` manage flows by hand",
        "explain" | "debug" => "`shunt why` explains why a connection is fast or slow",
        "check-config" | "test" => "`shunt up --dry-run` reads the configuration and attaches nothing",
        "version" => "`shunt --version`",
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
