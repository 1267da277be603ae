//! Options that go by another name, or belong to another command.

use super::{
    line::{command_below, command_of, readable, root, wrong_word},
    words::{MEANINGS, Meaning, is_time_option},
};
use clap::{
    Command,
    error::{ContextKind, ContextValue, ErrorKind},
};
use std::ffi::OsString;

/// The most options that a message lists.
const OPTIONS_LISTED: usize = 10;

/// The options of a command, if they are few.
pub(in crate::cli) fn its_options(words: &[OsString], error: &clap::Error) -> Option<String> {
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

/// The option of this command that has the meaning of the typed one, with its value.
pub(in crate::cli) fn other_option(words: &[OsString], error: &clap::Error) -> Option<String> {
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
pub(in crate::cli) fn kept_option(words: &[OsString], error: &clap::Error) -> Option<String> {
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
pub(in crate::cli) fn is_option_of_flows(words: &[OsString], error: &clap::Error) -> bool {
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
pub(in crate::cli) fn options_as_typed(words: &[OsString], error: &mut clap::Error) {
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
