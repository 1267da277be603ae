//! The command line that was probably meant: with an option for a bare word, or in the place of one that the command
//! calls otherwise. A line is proposed only if it is understood.

use crate::{commands, daemon::runtime_dir};
use clap::{
    Command,
    error::{ContextKind, ContextValue, ErrorKind},
};
use std::{ffi::OsString, path::Path};

/// A line with more mistakes than this is not corrected.
const MISTAKES: usize = 4;

/// What a word may be.
struct Meaning {
    /// The options that take such a word, the likeliest first; a command has some of them. Also the names of arguments
    /// without an option.
    options: &'static [&'static str],
    /// What other programs call these options.
    others: &'static [&'static str],
    is: fn(&str) -> bool,
}

/// In the order in which a word is tried.
const MEANINGS: [Meaning; 10] = [
    Meaning {
        options: &["for", "time", "seconds", "interval"],
        others: &["since", "until", "last", "during", "duration", "period", "range", "timeout", "t"],
        is: |word| word.starts_with(|c: char| c.is_ascii_digit()) && humantime::parse_duration(word).is_ok(),
    },
    Meaning {
        options: &["engine"],
        others: &["mode", "driver"],
        is: |word| matches!(word, "auto" | "tc" | "xdp" | "external"),
    },
    Meaning {
        options: &["proto"],
        others: &["protocol", "l4proto"],
        is: |word| word.eq_ignore_ascii_case("tcp") || word.eq_ignore_ascii_case("udp"),
    },
    Meaning { options: &["by"], others: &["group", "group-by", "per"], is: |word| !word.starts_with('-') },
    Meaning {
        options: &["port", "dev", "ports"],
        others: &["device", "interface", "iface", "intf", "if", "nic", "i"],
        is: is_device,
    },
    Meaning {
        options: &["host", "src"],
        others: &["source", "ip", "addr", "address", "client", "mac", "name", "from", "orig-src"],
        is: |word| {
            !is_device(word) && !is_file(word) && word.starts_with(|c: char| c.is_ascii_alphanumeric())
        },
    },
    Meaning {
        options: &["output", "config", "keep", "file"],
        others: &["out", "o", "f", "save", "write", "conf", "configuration", "c"],
        is: is_file,
    },
    Meaning {
        options: &["limit", "count", "rows"],
        others: &["n", "num", "top", "max", "lines", "head"],
        is: |word| word.parse::<u32>().is_ok_and(|number| number <= 100),
    },
    Meaning { options: &["dport"], others: &["p", "service"], is: |word| word.parse::<u16>().is_ok() },
    Meaning {
        options: &["speed", "rate"],
        others: &["bandwidth", "bps"],
        is: |word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains(['k', 'M', 'G']),
    },
];

/// Names of devices as they are usual, besides those of this machine.
const DEVICES: [&str; 18] = [
    "lan", "wan", "eth", "en", "wl", "br", "ppp", "wg", "tun", "tap", "bond", "veth", "vlan", "lte", "wwan",
    "sit", "gre", "r",
];

fn is_device(word: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let is_usual = DEVICES
        .iter()
        .any(|kind| word.strip_prefix(kind).is_some_and(|rest| rest.contains(|c: char| c.is_ascii_digit())));
    word.len() < 16
        && word.chars().all(is_plain)
        && word.starts_with(|c: char| c.is_ascii_alphabetic())
        && (is_usual && !is_file(word) || Path::new("/sys/class/net").join(word).exists())
}

fn is_file(word: &str) -> bool {
    let ends = [".txt", ".toml", ".json", ".jsonl", ".conf", ".pcap", ".log", ".html", ".csv", ".xml"];
    ends.iter().any(|end| word.ends_with(end)) || word.starts_with(['/', '.', '~'])
}

/// The line that was probably meant instead of `words`, about which clap reports `error`.
pub(super) fn meant(words: &[OsString], error: &clap::Error) -> Option<String> {
    let mut line: Vec<String> =
        words.iter().map(|word| word.to_str().map(str::to_owned)).collect::<Option<_>>()?;
    *line.first_mut()? = "shunt".to_owned();
    let mut root = commands::command();
    let right = corrected(&mut root, &line, error, MISTAKES)
        .or_else(|| with_other_command(&line).filter(|other| root.try_get_matches_from_mut(other).is_ok()))?;
    Some(right.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "))
}

/// The command of its own that a line names below another one: `shunt gen` for `shunt bench gen`.
pub(super) fn own_command(words: &[OsString]) -> Option<String> {
    let line: Vec<String> =
        words.iter().map(|word| word.to_str().map(str::to_owned)).collect::<Option<_>>()?;
    let at = other_command_at(&line)?;
    Some(format!("shunt {}", line[at]))
}

/// The line with the command that was probably meant: without the group before a command of its own, or with `flows`
/// for `flow`.
fn with_other_command(line: &[String]) -> Option<Vec<String>> {
    if let Some(at) = other_command_at(line) {
        let root = commands::command();
        let is_group = |word: &String| root.find_subcommand(word).is_some();
        return Some(
            line.iter()
                .enumerate()
                .filter(|(n, word)| *n >= at || !is_group(word))
                .map(|(_, word)| word.clone())
                .collect(),
        );
    }
    let at = line.iter().position(|word| word == "flow")?;
    let root = commands::command();
    let has_command = root.find_subcommand("flow")?.find_subcommand(line.get(at + 1)?).is_some();
    if has_command || !line[1..at].iter().all(|word| word.starts_with('-')) {
        return None;
    }
    Some([&line[..at], &["flows".to_owned()], &line[at + 1..]].concat())
}

/// The place of a word right behind a group of commands which is not in this group, but a command of its own.
fn other_command_at(line: &[String]) -> Option<usize> {
    let root = commands::command();
    let group_at = (1..line.len()).find(|at| !line[*at].starts_with('-'))?;
    let group = root.find_subcommand(&line[group_at]).filter(|group| group.has_subcommands())?;
    let at = (group_at + 1..line.len()).find(|at| !line[*at].starts_with('-'))?;
    (group.find_subcommand(&line[at]).is_none() && root.find_subcommand(&line[at]).is_some()).then_some(at)
}

/// Whether this names a time in the past or a period: of an option, with its hyphens.
pub(super) fn is_time_option(option: &str) -> bool {
    let name = option.trim_start_matches('-').split('=').next().unwrap_or_default();
    let [time, ..] = &MEANINGS;
    name.len() > 1 && (time.options.contains(&name) || time.others.contains(&name))
}

/// Why the value is wrong that a word would have with an option, such as `30d` for `shunt history --for`.
pub(super) fn wrong_value(words: &[OsString], error: &clap::Error) -> Option<clap::Error> {
    let line: Vec<String> =
        words.iter().map(|word| word.to_str().map(str::to_owned)).collect::<Option<_>>()?;
    let wrong = wrong_word(error).filter(|word| !word.starts_with('-'))?;
    let at = (1..line.len()).rfind(|at| line[*at] == wrong)?;
    let mut root = commands::command();
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

/// The line with each wrong word replaced.
fn corrected(
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

/// The word that clap does not expect, or cannot take as an argument without an option.
fn wrong_word(error: &clap::Error) -> Option<String> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::UnknownArgument => context(ContextKind::InvalidArg).map(str::to_owned),
        ErrorKind::ValueValidation if context(ContextKind::InvalidArg)?.starts_with(['[', '<']) => {
            context(ContextKind::InvalidValue).map(str::to_owned)
        }
        _ => None,
    }
}

/// The lines that have something else in the place of one word.
fn replacements(root: &Command, line: &[String], at: usize) -> Vec<Vec<String>> {
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
        let Some(value) = value else { return all };
        for meaning in MEANINGS.iter().filter(|one| one.options.contains(&name) || one.others.contains(&name))
        {
            all.extend(
                meaning
                    .options
                    .iter()
                    .filter_map(|option| takes(root, line, option, &value))
                    .map(|words| with(at, to, &words)),
            );
        }
        return all;
    }
    // The name of an option without its hyphens: `for 10m`, `dry-run`.
    if at > 1 && word_like(&line[at - 1]) {
        all.push(with(at - 1, at, &[format!("--{}", line[at - 1])]));
    }
    if word_like(word) {
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
    // The name of an instance that there is.
    if ["sock", "log"].iter().any(|file| runtime_dir().join(format!("{word}.{file}")).exists()) {
        all.push(with(at, at + 1, &["--instance".to_owned(), word.to_owned()]));
    }
    all
}

/// Whether this may be the name of an option.
fn word_like(word: &str) -> bool {
    word.len() > 1 && word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-')
}

/// The command of this line, with those above it.
pub(super) fn command_of(words: &[OsString]) -> String {
    let root = commands::command();
    let (mut command, mut name) = (&root, "shunt".to_owned());
    for word in words.iter().skip(1) {
        if let Some(below) = command.find_subcommand(word) {
            command = below;
            name += &format!(" {}", below.get_name());
        }
    }
    name
}

/// The words by which the command of this line takes the value: an option and the value, or the value alone, if the
/// argument has no option.
fn takes(root: &Command, line: &[String], option: &str, value: &str) -> Option<Vec<String>> {
    let mut command = root;
    for word in line.iter().skip(1) {
        if let Some(below) = command.find_subcommand(word) {
            command = below;
        }
    }
    let argument = command.get_arguments().find(|argument| {
        !argument.is_hide_set()
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

/// As a shell takes it for one word.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+[]".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) { word.to_owned() } else { format!("'{word}'") }
}
