//! The command line that was probably meant: with an option for a bare word, or in the place of one that the command
//! calls otherwise. A line is proposed only if it is understood.

use crate::{commands, daemon::runtime_dir};
use clap::{
    Command,
    error::{ContextKind, ContextValue, ErrorKind},
};
use std::{ffi::OsString, path::Path, sync::OnceLock};

/// A line with more mistakes than this is not corrected.
const MISTAKES: usize = 4;

/// The most options that a message lists.
const OPTIONS_LISTED: usize = 10;

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
const MEANINGS: [Meaning; 16] = [
    Meaning {
        options: &["for", "time", "seconds", "interval"],
        others: &[
            "since", "until", "last", "during", "duration", "period", "range", "timeout", "t", "d", "delay",
        ],
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
        others: &["device", "interface", "iface", "intf", "if", "nic", "i", "p"],
        is: is_device,
    },
    Meaning { options: &["tx"], others: &["sender", "source-port"], is: is_device },
    Meaning { options: &["rx"], others: &["receiver"], is: is_device },
    Meaning { options: &["in-port"], others: &["in", "iif", "iifname"], is: is_device },
    Meaning { options: &["out-port"], others: &["out", "oif", "oifname"], is: is_device },
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
    Meaning {
        options: &["dport"],
        others: &["p", "service", "port"],
        is: |word| word.parse::<u16>().is_ok(),
    },
    Meaning {
        options: &["mtu"],
        others: &["packet"],
        is: |word| word.parse::<u32>().is_ok_and(|bytes| (576..=1500).contains(&bytes) || bytes == 9000),
    },
    Meaning {
        options: &["frame", "size"],
        others: &["frame-size", "framesize", "length", "len", "bytes"],
        is: |word| word.parse::<u32>().is_ok_and(|bytes| (64..=9018).contains(&bytes)),
    },
    Meaning {
        options: &["speed"],
        others: &["bandwidth", "bps"],
        is: |word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains(['k', 'M', 'G']),
    },
];

/// Words that change nothing: what they ask for is what the command does anyway, or cannot do.
const NEEDLESS: [&str; 23] = [
    "set",
    "f",
    "force",
    "y",
    "yes",
    "now",
    "please",
    "a",
    "all",
    "daemon",
    "background",
    "bg",
    "l",
    "L",
    "list",
    "dump",
    "s",
    "S",
    "stats",
    "show",
    "o",
    "c",
    "color",
];

/// Names of subcommands that mean the same.
const SAME: [&[&str]; 4] = [
    &["del", "delete", "remove", "rm", "clear", "reset", "unset"],
    &["list", "ls", "show", "cases", "get", "dump", "print"],
    &["write", "set", "change", "put"],
    &["load", "import", "apply"],
];

/// Names of periods, as a time.
fn period(name: &str) -> Option<&'static str> {
    Some(match name {
        "hour" | "hourly" => "1h",
        "day" | "today" | "daily" => "1d",
        "yesterday" => "2d",
        "week" | "weekly" => "7d",
        "month" | "monthly" => "30d",
        _ => return None,
    })
}

/// Names of devices as they are usual, besides those of this machine.
const DEVICES: [&str; 18] = [
    "lan", "wan", "eth", "en", "wl", "br", "ppp", "wg", "tun", "tap", "bond", "veth", "vlan", "lte", "wwan",
    "sit", "gre", "r",
];

pub(super) fn is_device(word: &str) -> bool {
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

/// The definition of the command line.
fn root() -> &'static Command {
    static ROOT: OnceLock<Command> = OnceLock::new();
    ROOT.get_or_init(commands::command)
}

/// The words as text; `None` if one of them is none.
fn readable(words: &[OsString]) -> Option<Vec<String>> {
    words.iter().map(|word| word.to_str().map(str::to_owned)).collect()
}

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

/// The command of its own that a line names below another one: `shunt gen` for `shunt bench gen`.
pub(super) fn own_command(words: &[OsString]) -> Option<String> {
    let line = readable(words)?;
    let at = other_command_at(&line)?;
    Some(format!("shunt {}", line[at]))
}

/// The line with the command that was probably meant: without the group before a command of its own, or with `flows`
/// for `flow`.
fn with_other_command(line: &[String]) -> Option<Vec<String>> {
    if let Some(at) = other_command_at(line) {
        let root = root();
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
    let flow = root().find_subcommand("flow")?;
    let next = line.get(at + 1)?;
    let has_command = flow.find_subcommand(next).is_some() || other_name(flow, next).is_some();
    if has_command || !line[1..at].iter().all(|word| word.starts_with('-')) {
        return None;
    }
    Some([&line[..at], &["flows".to_owned()], &line[at + 1..]].concat())
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

/// The line with the group that a command belongs to, or with the command of a group for a line that names the group
/// and a port: `bench sweep`, `qos set wan0`.
fn with_group(line: &[String], error: &clap::Error) -> Option<Vec<Vec<String>>> {
    let at = invalid_command_at(line, error)?;
    let root = root();
    let group = command_below(root, &line[..at]);
    let between = |word: &str| [&line[..at], &[word.to_owned()], &line[at..]].concat();
    if at > 1 {
        return (is_device(&line[at]) && group.find_subcommand("set").is_some())
            .then(|| vec![between("set")]);
    }
    let groups = root.get_subcommands().filter(|group| group.find_subcommand(&line[at]).is_some());
    Some(groups.map(|group| between(group.get_name())).collect())
}

/// The place of the word that is no command.
fn invalid_command_at(line: &[String], error: &clap::Error) -> Option<usize> {
    match (error.kind(), error.get(ContextKind::InvalidSubcommand)) {
        (ErrorKind::InvalidSubcommand, Some(ContextValue::String(typed))) => {
            line.iter().position(|word| word == typed)
        }
        _ => None,
    }
}

/// The group of commands that has the typed one: `shunt bench sweep`.
pub(super) fn command_of_group(words: &[OsString], error: &clap::Error) -> Option<String> {
    let line = readable(words)?;
    let other = with_group(&line, error)?.into_iter().next()?;
    let at = invalid_command_at(&line, error)?;
    (at == 1).then(|| other[..=at + 1].join(" ")).map(|rest| rest.replacen(other[0].as_str(), "shunt", 1))
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

/// The options of a command, if they are few.
pub(super) fn its_options(words: &[OsString], error: &clap::Error) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let line = readable(words)?;
    let command = command_below(root(), &line);
    let is_own = |one: &&clap::Arg| !one.is_hide_set() && !one.is_global_set() && !one.is_positional();
    let names = command.get_arguments().filter(is_own).filter_map(clap::Arg::get_long);
    let names: Vec<String> =
        names.filter(|name| !matches!(*name, "help" | "version")).map(|name| format!("--{name}")).collect();
    let command = command_of(words);
    match names.as_slice() {
        [] => Some(format!("`{command}` has no options of its own; see `{command} --help`")),
        names if names.len() > OPTIONS_LISTED => None,
        [one] => Some(format!("the option of `{command}` is {one}; see `{command} --help`")),
        [others @ .., last] => {
            Some(format!("`{command}` has {} and {last}; see `{command} --help`", others.join(", ")))
        }
    }
}

/// The line with another name of a command: in small letters, or one that means the same.
fn with_other_name(line: &[String], error: &clap::Error) -> Option<Vec<String>> {
    let (ErrorKind::InvalidSubcommand, Some(ContextValue::String(typed))) =
        (error.kind(), error.get(ContextKind::InvalidSubcommand))
    else {
        return None;
    };
    let at = line.iter().position(|word| word == typed)?;
    let root = root();
    let lower = typed.to_lowercase();
    let group = command_below(root, &line[..at]);
    let name = if at > 1 { other_name(group, &lower) } else { group.find_subcommand(&lower) }?;
    Some([&line[..at], &[name.get_name().to_owned()], &line[at + 1..]].concat())
}

/// The command of a group that has another name for this.
fn other_name<'c>(group: &'c Command, typed: &str) -> Option<&'c Command> {
    let same = SAME.iter().filter(|names| names.contains(&typed)).copied().flatten().copied();
    [typed].into_iter().chain(same).find_map(|name| group.find_subcommand(name))
}

/// The command of a group that was probably meant, whatever else the line has.
pub(super) fn command_with_other_name(words: &[OsString], error: &clap::Error) -> Option<String> {
    let line = readable(words)?;
    let at = invalid_command_at(&line, error).filter(|at| *at > 1)?;
    let name = other_name(command_below(root(), &line[..at]), &line[at])?;
    Some(format!("{} {}", command_of(&words[..at]), name.get_name()))
}

/// The command of this line.
fn command_below<'c>(root: &'c Command, line: &[String]) -> &'c Command {
    line.iter().skip(1).fold(root, |command, word| command.find_subcommand(word).unwrap_or(command))
}

/// The place of a word right behind a group of commands which is not in this group, but a command of its own.
fn other_command_at(line: &[String]) -> Option<usize> {
    let root = root();
    let group_at = (1..line.len()).find(|at| !line[*at].starts_with('-'))?;
    let group = root.find_subcommand(&line[group_at]).filter(|group| group.has_subcommands())?;
    let at = (group_at + 1..line.len()).find(|at| !line[*at].starts_with('-'))?;
    (group.find_subcommand(&line[at]).is_none() && root.find_subcommand(&line[at]).is_some()).then_some(at)
}

/// Whether this names a time in the past or a period: of an option, with its hyphens.
pub(super) fn is_time_option(option: &str) -> bool {
    let name = option.trim_start_matches('-').split('=').next().unwrap_or_default();
    let [time, ..] = &MEANINGS;
    name.len() > 1 && (time.options.contains(&name) || time.others.contains(&name) || period(name).is_some())
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

/// The option of this command that has the meaning of the typed one, with its value.
pub(super) fn other_option(words: &[OsString], error: &clap::Error) -> Option<String> {
    let line = readable(words)?;
    let wrong = wrong_word(error)?;
    let name = wrong.strip_prefix('-')?.trim_start_matches('-');
    let root = root();
    let command = command_below(root, &line);
    let has = |option: &&str| {
        let mut arguments = command.get_arguments().filter(|one| !one.is_hide_set());
        let argument = arguments.find(|one| one.get_long() == Some(option))?;
        let value = argument.get_value_names().and_then(<[_]>::first).map(|name| format!(" <{name}>"));
        Some(format!("--{option}{}", value.unwrap_or_default()))
    };
    let is_time = is_time_option(&wrong);
    let meant = |meaning: &&Meaning| {
        meaning.others.contains(&name) || is_time && meaning.options.first() == Some(&"for")
    };
    MEANINGS.iter().filter(meant).find_map(|meaning| meaning.options.iter().find_map(&has))
}

/// What to type instead of an option of `shunt up` behind a command that keeps what the daemon was started with.
pub(super) fn kept_option(words: &[OsString], error: &clap::Error) -> Option<String> {
    let line = readable(words)?;
    let wrong = wrong_word(error)?;
    let root = root();
    let command = command_below(root, &line).get_name();
    if !matches!(command, "restart" | "reload") || !has_option(root.find_subcommand("up")?, &wrong) {
        return None;
    }
    let at = line.iter().position(|word| word.starts_with(&wrong))?;
    let value = line.get(at + 1).filter(|next| !next.starts_with('-'));
    let option: Vec<&str> = [Some(&line[at]), value].into_iter().flatten().map(String::as_str).collect();
    let option = option.join(" ");
    Some(format!(
        "`shunt {command}` keeps the options of `shunt up`; for others, `shunt down`, then `shunt up {option}`"
    ))
}

/// Whether this command of an instance lacks the option, and `shunt flows` has it.
pub(super) fn is_option_of_flows(words: &[OsString], error: &clap::Error) -> bool {
    let root = root();
    let line: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    // The others, or the groups that they belong to, have an argument of their own, which hides the global one.
    let path = line.iter().skip(1).scan(root, |command, word| {
        *command = command.find_subcommand(word).unwrap_or(*command);
        Some(*command)
    });
    let mut arguments = path.filter(|command| command.get_name() != "shunt").flat_map(Command::get_arguments);
    let uses_instance = arguments.all(|argument| argument.get_id() != "instance");
    let flows = root.find_subcommand("flows").filter(|_| uses_instance);
    flows.zip(wrong_word(error)).is_some_and(|(flows, wrong)| has_option(flows, &wrong))
}

/// Whether a command shows this option, with its hyphens, in its help.
fn has_option(command: &Command, option: &str) -> bool {
    let Some(name) = option.strip_prefix("--").and_then(|option| option.split('=').next()) else {
        return false;
    };
    command.get_arguments().any(|one| {
        let aliases = one.get_visible_aliases().unwrap_or_default();
        !one.is_hide_set() && (one.get_long() == Some(name) || aliases.contains(&name))
    })
}

/// The arguments that the error is about, with the names by which they were typed: `--for <TIME>` of `--seconds`.
pub(super) fn options_as_typed(words: &[OsString], error: &mut clap::Error) {
    for kind in [ContextKind::InvalidArg, ContextKind::PriorArg] {
        if let Some(ContextValue::String(shown)) = error.get(kind)
            && let Some(typed) = option_as_typed(words, shown)
        {
            error.insert(kind, ContextValue::String(typed));
        }
    }
}

fn option_as_typed(words: &[OsString], shown: &str) -> Option<String> {
    let line = readable(words)?;
    let name = shown.strip_prefix("--")?.split([' ', '=', '[']).next()?;
    let root = root();
    let argument = command_below(root, &line).get_arguments().find(|one| one.get_long() == Some(name))?;
    let is_typed = |name: &str| {
        line.iter().any(|word| word.strip_prefix("--").and_then(|word| word.split('=').next()) == Some(name))
    };
    let aliases = argument.get_all_aliases().unwrap_or_default();
    let alias = aliases.into_iter().find(|alias| is_typed(alias)).filter(|_| !is_typed(name))?;
    Some(shown.replacen(name, alias, 1))
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

/// The word that clap does not expect, or cannot take as an argument without an option.
pub(super) fn wrong_word(error: &clap::Error) -> Option<String> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::UnknownArgument => context(ContextKind::InvalidArg).map(str::to_owned),
        ErrorKind::ValueValidation | ErrorKind::TooManyValues
            if context(ContextKind::InvalidArg)?.starts_with(['[', '<']) =>
        {
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

/// Whether this may be the name of an option.
fn word_like(word: &str) -> bool {
    word.len() > 1 && word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-')
}

/// The command of this line, with those above it.
pub(super) fn command_of(words: &[OsString]) -> String {
    let root = root();
    let (mut command, mut name) = (root, "shunt".to_owned());
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

/// As a shell takes it for one word.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+[]".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) { word.to_owned() } else { format!("'{word}'") }
}
