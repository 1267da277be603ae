//! Keys of a file that are options of a command: they become the words of a command line, which the parser of that
//! command reads.

use clap::{
    ArgAction,
    error::{ContextKind, ContextValue},
};
use std::fmt;
use toml::Value;

/// A key that is wrong.
#[derive(Debug)]
pub(super) struct WrongKey {
    pub(super) key: String,
    pub(super) why: String,
}

/// The options of a command, as the keys of a file name them.
pub(super) struct OptionKeys<'c> {
    pub(super) command: &'c clap::Command,
    /// What has the options in messages, such as `shunt bench size`.
    pub(super) owner: String,
    /// What the file has one of for each value, such as a step.
    pub(super) unit: &'static str,
    /// An option that is not a key, and why.
    pub(super) reserved: Option<(&'static str, &'static str)>,
}

impl OptionKeys<'_> {
    pub(super) fn has(&self, key: &str) -> bool {
        self.command.get_arguments().any(|arg| arg.get_long() == Some(key))
    }

    /// The words of the command line for a key and its value.
    pub(super) fn words(&self, key: &str, value: &Value) -> Result<Vec<String>, WrongKey> {
        let wrong = |why: String| WrongKey { key: key.to_owned(), why };
        if let Some((_, why)) = self.reserved.filter(|(name, _)| *name == key) {
            return Err(wrong(why.to_owned()));
        }
        let Some(arg) = self.command.get_arguments().find(|arg| arg.get_long() == Some(key)) else {
            let is_key = |name: &&str| self.reserved.is_none_or(|(reserved, _)| *name != reserved);
            let known = self.command.get_arguments().filter_map(clap::Arg::get_long).filter(is_key);
            let known = known.collect::<Vec<_>>().join(", ");
            return Err(wrong(format!("{} has no such option; its options are {known}", self.owner)));
        };
        let takes_value = arg.get_action().takes_values();
        let may_be_bare = !takes_value || arg.get_num_args().is_some_and(|range| range.min_values() == 0);
        let word = |value: &Value| match value {
            _ if !takes_value => Err(wrong("expected true or false".to_owned())),
            Value::String(text) => Ok(format!("--{key}={text}")),
            Value::Integer(number) => Ok(format!("--{key}={number}")),
            Value::Float(number) => Ok(format!("--{key}={number}")),
            Value::Boolean(_) => Err(wrong("expected a value, not true or false".to_owned())),
            other => Err(wrong(format!("expected a string, number or list, got {}", other.type_str()))),
        };
        match value {
            Value::Boolean(on) if may_be_bare => Ok(on.then(|| format!("--{key}")).into_iter().collect()),
            Value::Array(values) if matches!(arg.get_action(), ArgAction::Append) => {
                values.iter().map(word).collect()
            }
            Value::Array(_) => {
                Err(wrong(format!("expected one value, not a list; make a {} for each value", self.unit)))
            }
            other => Ok(vec![word(other)?]),
        }
    }
}

impl From<clap::Error> for WrongKey {
    fn from(error: clap::Error) -> Self {
        let key = match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::String(arg)) => arg.as_str(),
            Some(ContextValue::Strings(args)) => args.first().map_or("", String::as_str),
            _ => "",
        };
        let key = key.trim_start_matches('-').split([' ', '=']).next().unwrap_or_default();
        // Take the first paragraph; the usage follows.
        let text = error.to_string();
        let why: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
        Self { key: key.to_owned(), why: why.join(" ").trim_start_matches("error: ").to_owned() }
    }
}

impl fmt::Display for WrongKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.why)
    }
}
