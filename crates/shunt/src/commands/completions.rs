//! `shunt completions`.

use crate::render::Answer;
use clap_complete::{
    Shell,
    env::{Bash, Elvish, EnvCompleter, Fish, Powershell, Zsh},
};

/// The variable by which the script asks for candidates.
const VARIABLE: &str = "COMPLETE";

/// A script that has this shell ask shunt for candidates.
pub(crate) fn run(shell: Shell) -> anyhow::Result<Answer> {
    let completer: &dyn EnvCompleter = match shell {
        Shell::Bash => &Bash,
        Shell::Elvish => &Elvish,
        Shell::Fish => &Fish,
        Shell::PowerShell => &Powershell,
        Shell::Zsh => &Zsh,
        other => anyhow::bail!("there is no completion script for {other}"),
    };
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, "shunt", "shunt", "shunt", &mut script)?;
    Ok(Answer::Completions(String::from_utf8(script)?))
}
