//! Lines with something else in the place of a word.

use super::{
    line::{command_below, wrong_word},
    words::{MEANINGS, Meaning, NEEDLESS, is_device, period, word_like},
};
use crate::daemon::runtime_dir;
use clap::{
    Command,
    error::{ContextKind, ContextValue, ErrorKind},
};

/// A line with more mistakes than this is not corrected.
pub(super) const MISTAKES: usize = 4;

/// The line with each wrong word replaced.
pub(super) fn corrected(
    root: &mut Command,
    line: &[String],
    error: &clap::Error,
    mistakes: usize,
) -> Option<Vec<String>> {
    let left = mistakes.checked_sub(1)?;
    if let Some(other) = with_unit_joined(line, error) {
        return match root.try_get_matches_from_mut(&other) {
            Ok(_) => Some(other),
            Err(error) => corrected(root, &other, &error, left),
        };
    }
    let wrong = wrong_word(error)?;
    let at = (1..line.len()).rfind(|at| line[*at] == wrong || line[*at].starts_with(&format!("{wrong}=")))?;
    replacements(root, line, at).into_iter().find_map(|other| {
        match root.try_get_matches_from_mut(&other) {
            Ok(_) => Some(other),
            // Another word is wrong, too.
            Err(error) if wrong_word(&error).is_some_and(|next| next != wrong) => {
                corrected(root, &other, &error, left)
            }
            Err(_) => None,
        }
    })
}

/// The line with a number and the unit behind it as one word: `--rate 50 Mbit`, `--for 10 minutes`.
fn with_unit_joined(line: &[String], error: &clap::Error) -> Option<Vec<String>> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let is_number = |at: &usize| {
        line[*at].parse::<f64>().is_ok() && line[at - 1].starts_with("--") && !line[at - 1].contains('=')
    };
    let is_unit = |at: &usize| {
        line.get(at + 1)
            .is_some_and(|unit| unit == "%" || unit.starts_with(|c: char| c.is_ascii_alphabetic()))
    };
    let wrong = match error.kind() {
        ErrorKind::UnknownArgument => context(ContextKind::InvalidArg),
        ErrorKind::ValueValidation => context(ContextKind::InvalidValue),
        _ => None,
    }?;
    let at = (2..line.len())
        .filter(is_number)
        .filter(is_unit)
        .find(|at| line[*at] == wrong || line[at + 1] == wrong)?;
    Some([&line[..at], &[line[at].clone() + &line[at + 1]], &line[at + 2..]].concat())
}

/// The lines that have something else in the place of one word.
pub(super) fn replacements(root: &Command, line: &[String], at: usize) -> Vec<Vec<String>> {
    let with = |from: usize, to: usize, instead: &[String]| [&line[..from], instead, &line[to..]].concat();
    let word = line[at].as_str();
    let mut all = Vec::new();
    if let Some(option) = word.strip_prefix('-') {
        let (name, value) = match option.trim_start_matches('-').split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (option.trim_start_matches('-'), None),
        };
        // With its value, which stands behind it.
        let (value, to) = match value {
            Some(value) => (Some(value), at + 1),
            None => (line.get(at + 1).filter(|next| !next.starts_with('-')).cloned(), at + 2),
        };
        // `-f` with a value is a file or a format.
        let is_needless = NEEDLESS.contains(&name) && (name != "f" || value.is_none());
        let needless = is_needless.then(|| with(at, at + 1, &[]));
        if let Some(time) = period(name) {
            // The number of a month, or a date, says nothing to Shunt.
            let is_date = |next: &String| next.starts_with(|c: char| c.is_ascii_digit());
            let end = if line.get(at + 1).is_some_and(is_date) { to } else { at + 1 };
            all.extend(takes(root, line, "for", time).map(|words| with(at, end, &words)));
            all.extend(takes(root, line, "for", time).map(|words| with(at, at + 1, &words)));
        }
        // A value that is a word of its own: `--xdp`, `--tcp`.
        for option in ["engine", "proto"] {
            let mut meanings = MEANINGS.iter().filter(|meaning| meaning.options == [option]);
            if meanings.any(|meaning| (meaning.is)(name)) {
                all.extend(takes(root, line, option, name).map(|words| with(at, at + 1, &words)));
            }
        }
        let Some(value) = value else {
            all.extend(needless);
            return all;
        };
        // The name of an argument that has no option.
        let is_argument = |argument: &clap::Arg| argument.is_positional() && argument.get_id() == name;
        if command_below(root, line).get_arguments().any(is_argument) && value.parse::<u16>().is_err() {
            all.push(with(at, to, std::slice::from_ref(&value)));
        }
        // `--port 443` is no device.
        let is_other = |one: &Meaning| one.options.contains(&"port") && value.parse::<u16>().is_ok();
        let has_name = |one: &&Meaning| one.options.contains(&name) || one.others.contains(&name);
        for meaning in MEANINGS.iter().filter(has_name).filter(|one| !is_other(one)) {
            all.extend(
                meaning
                    .options
                    .iter()
                    .filter_map(|option| takes(root, line, option, &value))
                    .map(|words| with(at, to, &words)),
            );
            if meaning.options.contains(&"port") && all.is_empty() && (meaning.is)(&value) {
                // The command is about all ports.
                all.push(with(at, to, &[]));
            }
        }
        all.extend(needless);
        return all;
    }
    // `port 53`, `udp 53`.
    if matches!(line[at - 1].as_str(), "tcp" | "udp") && word.parse::<u16>().is_ok() {
        all.extend(takes(root, line, "dport", word).map(|words| with(at, at + 1, &words)));
    }
    if line[at - 1] == "port" {
        all.extend(takes(root, line, "dport", word).map(|words| with(at - 1, at + 1, &words)));
    }
    if !matches!(word, "hour" | "day") {
        let time = period(word).and_then(|time| takes(root, line, "for", time));
        all.extend(time.map(|words| with(at, at + 1, &words)));
    }
    if NEEDLESS.contains(&word) {
        all.push(with(at, at + 1, &[]));
    }
    // The name of an option without its hyphens: `for 10m`, `dry-run`.
    if at > 1 && word_like(&line[at - 1]) {
        all.push(with(at - 1, at, &[format!("--{}", line[at - 1])]));
    }
    if word_like(word) && period(word).is_none() {
        all.push(with(at, at + 1, &[format!("--{word}")]));
    }
    for meaning in MEANINGS.iter().filter(|meaning| (meaning.is)(word)) {
        all.extend(
            meaning
                .options
                .iter()
                .filter_map(|option| takes(root, line, option, word))
                .map(|words| with(at, at + 1, &words)),
        );
    }
    if is_device(word) {
        // The command is about all ports.
        all.push(with(at, at + 1, &[]));
    }
    // A device with an unusual name, where no host can be meant.
    let is_name = word.len() < 16 && word.chars().all(|c| c.is_ascii_alphanumeric());
    if is_name && word.ends_with(|c: char| c.is_ascii_digit()) && takes(root, line, "host", word).is_none() {
        all.extend(takes(root, line, "port", word).map(|words| with(at, at + 1, &words)));
    }
    // The name of an instance that there is.
    if ["sock", "log"].iter().any(|file| runtime_dir().join(format!("{word}.{file}")).exists()) {
        all.push(with(at, at + 1, &["--instance".to_owned(), word.to_owned()]));
    }
    all
}

/// The words by which the command of this line takes the value: an option and the value, or the value alone, if the
/// argument has no option.
pub(super) fn takes(root: &Command, line: &[String], option: &str, value: &str) -> Option<Vec<String>> {
    let command = command_below(root, line);
    // A host is no network.
    let is_network = value.contains('/');
    let argument = command.get_arguments().find(|argument| {
        !argument.is_hide_set()
            && (argument.get_long() != Some("host") || !is_network)
            && (argument.get_long() == Some(option)
                || argument.get_all_aliases().is_some_and(|aliases| aliases.contains(&option))
                || argument.is_positional() && argument.get_id() == option)
    })?;
    let is_shown = argument.get_visible_aliases().is_some_and(|aliases| aliases.contains(&option));
    Some(match argument.get_long() {
        Some(_) if command.get_name() == "shunt" => return None,
        Some(_) if is_shown => vec![format!("--{option}"), value.to_owned()],
        Some(name) => vec![format!("--{name}"), value.to_owned()],
        None => vec![value.to_owned()],
    })
}
