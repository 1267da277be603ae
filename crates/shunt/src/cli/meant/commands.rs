//! Commands that go by another name, or stand below another command.

use super::{
    line::{command_below, command_of, readable, root},
    words::{SAME, is_device},
};
use clap::{
    Command,
    error::{ContextKind, ContextValue, ErrorKind},
};
use std::ffi::OsString;

/// The command of its own that a line names below another one: `shunt gen` for `shunt bench gen`.
pub(in crate::cli) fn own_command(words: &[OsString]) -> Option<String> {
    let line = readable(words)?;
    let at = other_command_at(&line)?;
    Some(format!("shunt {}", line[at]))
}

/// The line with the command that was probably meant: without the group before a command of its own, or with `flows`
/// for `flow`.
pub(super) fn with_other_command(line: &[String]) -> Option<Vec<String>> {
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

/// The line with the group that a command belongs to, or with the command of a group for a line that names the group
/// and a port: `bench sweep`, `qos set wan0`.
pub(super) fn with_group(line: &[String], error: &clap::Error) -> Option<Vec<Vec<String>>> {
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
pub(in crate::cli) fn command_of_group(words: &[OsString], error: &clap::Error) -> Option<String> {
    let line = readable(words)?;
    let other = with_group(&line, error)?.into_iter().next()?;
    let at = invalid_command_at(&line, error)?;
    (at == 1).then(|| other[..=at + 1].join(" ")).map(|rest| rest.replacen(other[0].as_str(), "shunt", 1))
}

/// The line with another name of a command: in small letters, or one that means the same.
pub(super) fn with_other_name(line: &[String], error: &clap::Error) -> Option<Vec<String>> {
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
pub(in crate::cli) fn command_with_other_name(words: &[OsString], error: &clap::Error) -> Option<String> {
    let line = readable(words)?;
    let at = invalid_command_at(&line, error).filter(|at| *at > 1)?;
    let name = other_name(command_below(root(), &line[..at]), &line[at])?;
    Some(format!("{} {}", command_of(&words[..at]), name.get_name()))
}

/// The place of a word right behind a group of commands which is not in this group, but a command of its own.
fn other_command_at(line: &[String]) -> Option<usize> {
    let root = root();
    let group_at = (1..line.len()).find(|at| !line[*at].starts_with('-'))?;
    let group = root.find_subcommand(&line[group_at]).filter(|group| group.has_subcommands())?;
    let at = (group_at + 1..line.len()).find(|at| !line[*at].starts_with('-'))?;
    (group.find_subcommand(&line[at]).is_none() && root.find_subcommand(&line[at]).is_some()).then_some(at)
}
