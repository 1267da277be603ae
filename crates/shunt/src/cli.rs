//! From the words of the command line to a command: spellings of `ip`, and what to type instead of commands of other
//! programs. A line that is not understood becomes a message of one line.

mod meant;

use crate::commands::{self, Cli};
use clap::{
    FromArgMatches,
    error::{ContextKind, ContextValue, ErrorKind},
};
use shunt_api::nearest;
use std::ffi::OsString;

/// Commands without a period that is over.
const SHOW_THE_PRESENT: [&str; 5] =
    ["shunt conntrack", "shunt flows", "shunt status", "shunt top", "shunt why"];

/// The command, or an error: [`message`] tells a mistake from a request for help.
pub(crate) fn parse(typed: impl Iterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let words = words(typed);
    let matches = commands::command().try_get_matches_from(&words).map_err(|error| explain(&words, error))?;
    Cli::from_arg_matches(&matches)
}

/// Says what to type instead of a command that does not exist, or of words that the command does not take.
fn explain(words: &[OsString], mut error: clap::Error) -> clap::Error {
    keep_similar(&mut error);
    if let Some(line) = meant::meant(words, &error) {
        suggest(&mut error, format!("did you mean `{line}`?"));
    } else if let Some(command) =
        meant::own_command(words).filter(|_| error.kind() == ErrorKind::InvalidSubcommand)
    {
        suggest(&mut error, format!("`{command}` is a command of its own; see `{command} --help`"));
    } else if let Some(better) = meant::wrong_value(words, &error) {
        return better;
    } else if is_without_value(&error) {
        suggest(&mut error, format!("see `{} --help`", meant::command_of(words)));
    } else if SHOW_THE_PRESENT.contains(&meant::command_of(words).as_str())
        && let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg)
        && error.kind() == ErrorKind::UnknownArgument
        && meant::is_time_option(option)
    {
        suggest(&mut error, "`shunt usage --for 1h` and `shunt history --for 1h` show the past".to_owned());
    }
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand)
        && let Some(instead) =
            instead_of(typed).filter(|_| help_command(&error.to_string()) == Some("shunt".to_owned()))
    {
        suggest(&mut error, instead.to_owned());
    }
    error
}

/// Puts this tip in the place of clap's own.
fn suggest(error: &mut clap::Error, tip: String) {
    error.remove(ContextKind::SuggestedArg);
    error.remove(ContextKind::SuggestedSubcommand);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
}

/// Removes an option that clap suggests although it is not much like the typed one: `--instance` for `--since`.
fn keep_similar(error: &mut clap::Error) {
    let name = |kind| match error.get(kind) {
        Some(ContextValue::String(option)) => Some(option.trim_start_matches('-')),
        _ => None,
    };
    let both = name(ContextKind::InvalidArg).zip(name(ContextKind::SuggestedArg));
    if both.is_some_and(|(typed, known)| nearest(typed, [known]).is_none()) {
        error.remove(ContextKind::SuggestedArg);
    }
}

/// Whether an option lacks its value, and clap names no possible ones.
fn is_without_value(error: &clap::Error) -> bool {
    let is_empty =
        matches!(error.get(ContextKind::InvalidValue), Some(ContextValue::String(value)) if value.is_empty());
    let has_values = matches!(error.get(ContextKind::ValidValue), Some(ContextValue::Strings(values)) if !values.is_empty());
    error.kind() == ErrorKind::InvalidValue && is_empty && !has_values
}

/// What is wrong and what to type, in one line; none if help or the version was asked for.
pub(crate) fn message(error: &clap::Error) -> Option<String> {
    let is_question =
        error.exit_code() == 0 || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    (!is_question).then(|| match about_word(error) {
        Some(why) => why,
        None => one_line(&error.to_string()),
    })
}

/// What is wrong with a word of an argument without an option, whose name says less than the word.
fn about_word(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else { return None };
    let why = std::error::Error::source(error)?.to_string();
    if error.kind() != ErrorKind::ValueValidation || !argument.starts_with('[') || !why.starts_with('`') {
        return None;
    }
    Some(match error.get(ContextKind::Suggested) {
        Some(ContextValue::StyledStrs(tips)) => {
            tips.iter().fold(why, |why, tip| format!("{why}; {}", tip.to_string().trim()))
        }
        _ => why,
    })
}

/// The parts of clap's message, which takes several lines: what is wrong, the possible values, tips. Without a tip, the
/// help of the command is named.
fn one_line(text: &str) -> String {
    let parts = text.lines().map(str::trim).take_while(|line| !is_about_help(line));
    let (mut message, mut has_way_out) = (String::new(), false);
    for part in parts.filter(|part| !part.is_empty()) {
        if let Some(tip) = part.strip_prefix("tip: ") {
            // Nobody means an option as a value.
            if tip.starts_with("to pass '") {
                continue;
            }
            // The possible values are better than the one that looks alike.
            if !message.contains("; expected one of ") {
                message += &format!("; {tip}");
            }
            has_way_out = true;
        } else if let Some(values) = part.strip_prefix("[possible values: ") {
            message += &format!("; expected one of {}", values.trim_end_matches(']'));
            has_way_out = true;
        } else {
            let part = part.strip_prefix("error: ").unwrap_or(part);
            message += if message.is_empty() { part } else { " " };
            message += if message.ends_with(' ') { part } else { "" };
        }
    }
    let message = message
        .replace("invalid digit found in string", "expected a whole number")
        .replace("number too large to fit in target type", "the number is too large");
    let message = without_ranges(&message);
    if let Some(value) = negative_value(&message) {
        return format!(
            "`{value}`: a value is not negative, and no option begins with a digit{}",
            see_help(text)
        );
    }
    match help_command(text).filter(|_| !has_way_out) {
        Some(command) => format!("{message}; see `{command} --help`"),
        None => message,
    }
}

fn see_help(text: &str) -> String {
    help_command(text).map_or_else(String::new, |command| format!("; see `{command} --help`"))
}

/// A value below zero, which clap takes for an option: `-1` of `unexpected argument '-1' found`.
fn negative_value(message: &str) -> Option<&str> {
    let (word, _) = message.strip_prefix("unexpected argument '")?.split_once('\'')?;
    word.strip_prefix('-')?.starts_with(|first: char| first.is_ascii_digit()).then_some(word)
}

/// With `expected 1 to 16` for clap's `0 is not in 1..=16`.
fn without_ranges(message: &str) -> String {
    let Some((before, range)) = message.rsplit_once(" is not in ") else { return message.to_owned() };
    let Some((low, high)) = range.split_once("..") else { return message.to_owned() };
    let what = before.rsplit_once(": ").map_or(before, |(what, _)| what);
    let high = high.trim_start_matches('=');
    // Without an upper bound, clap names the largest number that it could read.
    if high.parse::<u64>().is_ok_and(|high| high < i64::MAX as u64) {
        format!("{what}: expected {low} to {high}")
    } else {
        format!("{what}: expected {low} or more")
    }
}

fn is_about_help(line: &str) -> bool {
    line.starts_with("Usage: ") || line.starts_with("For more information")
}

/// The command whose usage clap's message shows: `shunt flow add`.
fn help_command(text: &str) -> Option<String> {
    let usage = text.lines().find_map(|line| line.strip_prefix("Usage: "))?;
    let is_word = |word: &&str| !word.starts_with(['[', '<', '-']);
    Some(usage.split_whitespace().take_while(is_word).collect::<Vec<_>>().join(" "))
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
    #[cfg(not(feature = "full"))]
    if ONLY_FULL.contains(&command) {
        return Some(
            "this is the program for small routers; only the full programs of Shunt have this command",
        );
    }
    Some(match command {
        "start" | "run" | "attach" => "`shunt up` starts an instance",
        "stop" | "kill" | "detach" => "`shunt down` stops an instance",
        "show" | "info" | "stats" | "counters" => {
            "`shunt status` has the counters, `shunt flows` the connections"
        }
        "list" | "ls" | "connections" | "conn" | "sessions" => "`shunt flows` lists the connections",
        "monitor" | "log" | "events" | "tail" => {
            "`shunt watch` prints events as they happen, `shunt top` is a live screen"
        }
        "reset" | "clear" => "`shunt flush` sends all connections back to the slow path",
        "add" | "del" | "delete" => "`shunt flow add` and `shunt flow del` manage flows by hand",
        "disable" | "pause" => {
            "`shunt off HOST` turns the fast path off for a host, `shunt down` stops an instance"
        }
        "enable" => "`shunt up` starts an instance, `shunt on HOST` ends a rule of `shunt off`",
        "explain" | "debug" => "`shunt why` explains why a connection is fast or slow",
        "check-config" | "test" => "`shunt up --dry-run` reads the configuration and attaches nothing",
        "version" => "`shunt --version`",
        "hosts" | "clients" | "who" | "traffic" => "`shunt usage` shows what each host sends and receives",
        "config" | "configure" | "set" => {
            "the configuration is /etc/shunt/shunt.toml; `shunt reload` applies it, `shunt up --dry-run` tries it"
        }
        "logs" | "journal" => {
            "`shunt history --events` has what happened; the log is that of the service, or a file that `shunt up -v` names"
        }
        "page" | "web" | "ui" | "dashboard" => {
            "set `page` in /etc/shunt/shunt.toml, then `shunt reload`; `shunt top` is a live screen"
        }
        "savings" | "saved" | "health" | "ports" | "interfaces" | "metrics" => {
            "`shunt status` shows ports, counters, and what the fast path saves and costs"
        }
        "install" | "setup" | "init" => {
            "`shunt probe` says what this machine allows, then `shunt up` starts an instance"
        }
        "update" | "upgrade" => "`shunt restart` starts the installed version and keeps flows fast",
        "ping" | "latency" | "speedtest" | "speed" => {
            "`shunt quality` says whether the router or the line is slow, `shunt bench` measures a router"
        }
        _ => return None,
    })
}

/// Commands that the program for small routers lacks.
#[cfg(not(feature = "full"))]
const ONLY_FULL: [&str; 17] = [
    "bench",
    "check",
    "compare",
    "completions",
    "doctor",
    "gen",
    "lab",
    "line",
    "link",
    "load",
    "man",
    "model",
    "reg",
    "report",
    "top",
    "trace",
    "verify",
];

#[cfg(test)]
mod tests;
