//! From the words of the command line to a command: spellings of `ip`, and what to type instead of commands of other
//! programs. A line that is not understood becomes a message of one line.

mod foreign;
mod meant;

use crate::commands::{self, Cli};
use clap::{
    FromArgMatches,
    error::{ContextKind, ContextValue, ErrorKind},
};
use foreign::{instead_of, of_another_program};
use shunt_api::nearest;
use std::ffi::OsString;

/// Commands without a period that is over.
const SHOW_THE_PRESENT: [&str; 5] =
    ["shunt conntrack", "shunt flows", "shunt status", "shunt top", "shunt why"];

/// The command, or an error: [`message`] tells a mistake from a request for help.
pub(crate) fn parse(typed: impl Iterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let words = words(typed);
    if let Some(at) = words.iter().skip(1).position(|word| word.is_empty()) {
        return Err(empty_word(&words[..=at]));
    }
    let matches = commands::command().try_get_matches_from(&words).map_err(|error| explain(&words, error))?;
    if let Some(option) = meant::split_time(&words) {
        let why = format!("a time is one word: write `{option}`");
        return Err(clap::Error::raw(ErrorKind::InvalidValue, why));
    }
    Cli::from_arg_matches(&matches)
}

/// Says what to type instead of a command that does not exist, or of words that the command does not take.
fn explain(words: &[OsString], mut error: clap::Error) -> clap::Error {
    keep_similar(&mut error);
    if let Some(better) = meant::negative_value(words, &error) {
        return explain_value(words, better);
    }
    if let Some(instead) = of_another_program(words, &error) {
        suggest(&mut error, instead);
    } else if let Some(instead) = meant::kept_option(words, &error) {
        suggest(&mut error, instead);
    } else if let Some(line) = meant::meant(words, &error) {
        suggest(&mut error, format!("did you mean `{line}`?"));
    } else if let Some(command) =
        meant::own_command(words).filter(|_| error.kind() == ErrorKind::InvalidSubcommand)
    {
        suggest(&mut error, format!("`{command}` is a command of its own; see `{command} --help`"));
    } else if let Some(better) = meant::wrong_value(words, &error) {
        return explain_value(words, better);
    } else if let Some(option) = meant::other_option(words, &error) {
        suggest(&mut error, format!("did you mean `{option}`?"));
    } else if is_without_value(&error) {
        suggest(&mut error, format!("see `{} --help`", meant::command_of(words)));
    } else if SHOW_THE_PRESENT.contains(&meant::command_of(words).as_str())
        && let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg)
        && error.kind() == ErrorKind::UnknownArgument
        && meant::is_time_option(option)
    {
        suggest(&mut error, "`shunt usage --for 1h` and `shunt history --for 1h` show the past".to_owned());
    } else if meant::is_option_of_flows(words, &error) {
        suggest(&mut error, "`shunt flows` has this option".to_owned());
    } else if let Some(line) = meant::one_alone(words, &error) {
        suggest(&mut error, format!("one host at a time, as in `{line}`"));
    } else if let Some(tip) = meant::network_for_host(words, &error) {
        suggest(&mut error, tip);
    } else if let Some(line) = meant::with_missing(words, &error) {
        suggest(&mut error, format!("type `{line}`; see `{} --help`", meant::command_of(words)));
    } else if let Some(command) =
        meant::command_of_group(words, &error).or_else(|| meant::command_with_other_name(words, &error))
    {
        suggest(&mut error, format!("did you mean `{command}`? see `{command} --help`"));
    } else if error.get(ContextKind::SuggestedArg).is_none()
        && let Some(options) = meant::its_options(words, &error)
    {
        suggest(&mut error, options);
    }
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand)
        && let Some(instead) =
            instead_of(typed).filter(|_| help_command(&error.to_string()) == Some("shunt".to_owned()))
    {
        suggest(&mut error, instead.to_owned());
    }
    explain_value(words, error)
}

/// With the name of an option as it was typed, which may be another name of it.
fn explain_value(words: &[OsString], mut error: clap::Error) -> clap::Error {
    meant::options_as_typed(words, &mut error);
    error
}

/// `before` are the words before an empty one.
fn empty_word(before: &[OsString]) -> clap::Error {
    let before: Vec<_> = before.iter().skip(1).map(|word| word.to_string_lossy()).collect();
    let line = ["shunt"].into_iter().chain(before.iter().map(AsRef::as_ref)).collect::<Vec<_>>().join(" ");
    let why = format!("the word behind `{line}` is empty: name a value, or set the variable that gives it");
    clap::Error::raw(ErrorKind::InvalidValue, why)
}

/// Puts this tip in the place of clap's own.
fn suggest(error: &mut clap::Error, tip: String) {
    error.remove(ContextKind::SuggestedArg);
    error.remove(ContextKind::SuggestedSubcommand);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
}

/// Removes what clap suggests although it is not much like the typed word: `--instance` for `--since`.
fn keep_similar(error: &mut clap::Error) {
    let is_similar = |typed: &str, known: &str| {
        let [typed, known] = [typed, known].map(|word| word.trim_start_matches('-'));
        let is_part = typed.starts_with(known) || known.starts_with(typed);
        is_part || typed.len().abs_diff(known.len()) <= 2 && nearest(typed, [known]).is_some()
    };
    for (wrong, suggested) in [
        (ContextKind::InvalidArg, ContextKind::SuggestedArg),
        (ContextKind::InvalidSubcommand, ContextKind::SuggestedSubcommand),
    ] {
        let Some(ContextValue::String(typed)) = error.get(wrong) else { continue };
        let similar: Vec<String> = match error.get(suggested) {
            Some(ContextValue::String(known)) => vec![known.clone()],
            Some(ContextValue::Strings(known)) => known.clone(),
            _ => continue,
        };
        let similar: Vec<String> = similar.into_iter().filter(|known| is_similar(typed, known)).collect();
        match similar.as_slice() {
            [] => drop(error.remove(suggested)),
            [one] => drop(error.insert(suggested, ContextValue::String(one.clone()))),
            _ => drop(error.insert(suggested, ContextValue::Strings(similar))),
        }
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
    match help_command(text).filter(|_| !has_way_out) {
        Some(command) => format!("{message}; see `{command} --help`"),
        None => message,
    }
}

/// With `expected 1 to 16` for clap's `0 is not in 1..=16`.
fn without_ranges(message: &str) -> String {
    let Some((before, range)) = message.rsplit_once(" is not in ") else { return message.to_owned() };
    let Some((low, high)) = range.split_once("..") else { return message.to_owned() };
    let what = before.rsplit_once(": ").map_or(before, |(what, _)| what);
    let last = match high.strip_prefix('=') {
        Some(last) => last.parse::<u64>().ok(),
        None => high.parse::<u64>().ok().and_then(|end| end.checked_sub(1)),
    };
    // Without an upper bound, clap names the largest number that it could read.
    match last.filter(|last| *last < i64::MAX as u64) {
        Some(last) => format!("{what}: expected {low} to {last}"),
        None => format!("{what}: expected {low} or more"),
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

#[cfg(test)]
mod tests;
