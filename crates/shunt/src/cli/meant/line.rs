//! The command line as it was typed.

use crate::commands;
use clap::{
    Command,
    error::{ContextKind, ContextValue, ErrorKind},
};
use std::{ffi::OsString, sync::OnceLock};

/// The definition of the command line.
pub(super) fn root() -> &'static Command {
    static ROOT: OnceLock<Command> = OnceLock::new();
    ROOT.get_or_init(commands::command)
}

/// The words as text; `None` if one of them is none.
pub(super) fn readable(words: &[OsString]) -> Option<Vec<String>> {
    words.iter().map(|word| word.to_str().map(str::to_owned)).collect()
}

/// The command of this line.
pub(super) fn command_below<'c>(root: &'c Command, line: &[String]) -> &'c Command {
    line.iter().skip(1).fold(root, |command, word| command.find_subcommand(word).unwrap_or(command))
}

/// The word that clap does not expect, or cannot take as an argument without an option.
pub(in crate::cli) fn wrong_word(error: &clap::Error) -> Option<String> {
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

/// The command of this line, with those above it.
pub(in crate::cli) fn command_of(words: &[OsString]) -> String {
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

/// As a shell takes it for one word.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+[]".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) { word.to_owned() } else { format!("'{word}'") }
}
