//! The command line that was probably meant: with an option for a bare word, or in the place of one that the command
//! calls otherwise. A line is proposed only if it is understood.

mod commands;
mod line;
mod options;
mod replaced;
mod words;

pub(super) use commands::{command_of_group, command_with_other_name, own_command};
pub(super) use line::{command_of, wrong_word};
pub(super) use options::{is_option_of_flows, its_options, kept_option, options_as_typed, other_option};
pub(super) use words::{is_device, is_time_option};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use commands::{with_group, with_other_command, with_other_name};
use line::{command_below, quoted, readable, root};
use replaced::{MISTAKES, corrected, replacements, takes};
use std::ffi::OsString;

/// The line that was probably meant instead of `words`, about which clap reports `error`.
pub(super) fn meant(words: &[OsString], error: &clap::Error) -> Option<String> {
    let mut line = readable(words)?;
    *line.first_mut()? = "shunt".to_owned();
    let mut root = root().clone();
    let mut is_right = |other: &Vec<String>| root.try_get_matches_from_mut(other).is_ok();
    let with_options = with_options(&line).filter(&mut is_right);
    let right = with_options
        .or_else(|| corrected(&mut self::root().clone(), &line, error, MISTAKES))
        .or_else(|| with_other_command(&line).filter(&mut is_right))
        .or_else(|| with_group(&line, error)?.into_iter().find(&mut is_right))
        .or_else(|| with_other_name(&line, error).filter(&mut is_right))?;
    Some(right.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "))
}

/// The line with each word that is the name of an option as this option: `src laptop dport 443`.
fn with_options(line: &[String]) -> Option<Vec<String>> {
    let root = root();
    let command = command_below(root, line);
    let is_option = |word: &String| {
        let mut options = command.get_arguments().filter(|one| !one.is_hide_set() && !one.is_positional());
        options.any(|one| one.get_long() == Some(word))
    };
    let begin = command_of(&line.iter().map(OsString::from).collect::<Vec<_>>()).split(' ').count();
    let words = line.iter().enumerate();
    let changed: Vec<String> = words
        .map(|(at, word)| match at >= begin && !line[at - 1].starts_with('-') && is_option(word) {
            true => format!("--{word}"),
            false => word.clone(),
        })
        .collect();
    (changed != line).then_some(changed)
}

/// The line with what is missing, if it is as simple as an option and a value, or a word.
pub(super) fn with_missing(words: &[OsString], error: &clap::Error) -> Option<String> {
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else { return None };
    let is_simple = |word: &&String| !word.contains(['|', '[']) && !word.ends_with("...");
    if error.kind() != ErrorKind::MissingRequiredArgument || !missing.iter().all(|word| is_simple(&word)) {
        return None;
    }
    let mut line = readable(words)?;
    *line.first_mut()? = "shunt".to_owned();
    let line = line.iter().map(|word| quoted(word));
    let missing = missing.iter().map(|word| word.replace(['<', '>'], ""));
    Some(line.chain(missing).collect::<Vec<_>>().join(" "))
}

/// The line with one of several hosts, where a command takes one.
pub(super) fn one_alone(words: &[OsString], error: &clap::Error) -> Option<String> {
    let mut line = readable(words)?;
    *line.first_mut()? = "shunt".to_owned();
    let mut root = root().clone();
    let wrong = wrong_word(error).filter(|word| !word.starts_with('-'))?;
    let at = (1..line.len()).rfind(|at| line[*at] == wrong)?;
    let without = |words: &[String], at: usize| [&words[..at], &words[at + 1..]].concat();
    // The option has a host already, or the other word is one, too.
    let has_host = line.iter().any(|word| word == "--host");
    let candidates = if has_host {
        vec![without(&line, at)]
    } else {
        let next = (at + 1..line.len()).find(|next| !line[*next].starts_with('-'))?;
        let host = takes(&root, &line, "host", &wrong)?;
        vec![[&line[..at], &host, &without(&line, next)[at + 1..]].concat()]
    };
    let right = candidates.into_iter().find(|other| root.try_get_matches_from_mut(other).is_ok())?;
    Some(right.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "))
}

/// The word that stands where a command takes no network, but a host.
pub(super) fn network_for_host(words: &[OsString], error: &clap::Error) -> Option<String> {
    let line = readable(words)?;
    let wrong = wrong_word(error)?;
    // Words that a command takes have an error of their own.
    let (address, _) = wrong.split_once('/').filter(|_| error.kind() == ErrorKind::UnknownArgument)?;
    let _: std::net::IpAddr = address.parse().ok()?;
    takes(root(), &line, "host", address)?;
    Some(format!("`--host` takes one host, not a network: `--host {address}`"))
}

/// The error about a value below zero, which clap takes for options: `-1h` of `--for -1h`.
pub(super) fn negative_value(words: &[OsString], error: &clap::Error) -> Option<clap::Error> {
    let line = readable(words)?;
    let wrong = wrong_word(error)?;
    let is_negative = |word: &str| {
        word.strip_prefix('-').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
    };
    let at = (2..line.len()).find(|at| is_negative(&line[*at]) && line[*at].starts_with(&wrong))?;
    let option = line[at - 1].as_str();
    if !option.starts_with('-') {
        return None;
    }
    let joined = format!("{option}={}", line[at]);
    let other = [&line[..at - 1], &[joined], &line[at + 1..]].concat();
    root().clone().try_get_matches_from(&other).err()
}

/// Why the value is wrong that a word would have with an option, such as `30d` for `shunt history --for`.
pub(super) fn wrong_value(words: &[OsString], error: &clap::Error) -> Option<clap::Error> {
    let line = readable(words)?;
    let wrong = wrong_word(error).filter(|word| !word.starts_with('-'))?;
    let at = (1..line.len()).rfind(|at| line[*at] == wrong)?;
    let mut root = root().clone();
    replacements(&root, &line, at).into_iter().find_map(|other| {
        let error = root.try_get_matches_from_mut(&other).err()?;
        // Whatever is no address could be meant as a host.
        let is_of_option = matches!(
            error.get(ContextKind::InvalidArg),
            Some(ContextValue::String(argument))
                if argument.starts_with("--") && !argument.starts_with("--src") && !argument.starts_with("--host")
        );
        (error.kind() == ErrorKind::ValueValidation && is_of_option).then_some(error)
    })
}

/// The option and its time, if number and unit are two words: `--for 10 minutes`. The unit may pass for the name of a
/// host.
pub(super) fn split_time(words: &[OsString]) -> Option<String> {
    readable(words)?.windows(3).find_map(|at| {
        let [option, number, unit] = at else { return None };
        let time = format!("{number}{unit}");
        let is_split = number.parse::<f64>().is_ok() && unit.starts_with(|c: char| c.is_ascii_alphabetic());
        let is_time = option.starts_with("--") && is_time_option(option) && is_split;
        (is_time && humantime::parse_duration(&time).is_ok()).then(|| format!("{option} {time}"))
    })
}
