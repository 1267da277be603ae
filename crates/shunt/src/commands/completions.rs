//! `shunt completions`.

use crate::{
    command::{Command, Context},
    output::Show,
    render::{self, Answer, Format},
};
use clap::Args;
use clap_complete::{
    Shell,
    env::{Bash, Elvish, EnvCompleter, Fish, Powershell, Zsh},
};
use std::io;

/// The variable by which the script asks for candidates.
const VARIABLE: &str = "COMPLETE";

/// Print a script that completes commands and options in a shell.
///
/// To use it in the present bash: source <(shunt completions bash). The script asks shunt itself, which offers devices,
/// instances and addresses of connections of this machine.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

impl Command for CompletionsArgs {
    type Plan = Shell;
    const EXAMPLES: &str = "
        [shunt completions]
        source <(shunt completions bash) # in the present bash
    ";

    fn resolve(self, _: &Context) -> anyhow::Result<Shell> {
        Ok(self.shell)
    }

    async fn run(plan: Shell, _: &Context, show: Show<'_>) -> anyhow::Result<()> {
        show(&script(plan)?)
    }
}

/// The script for a shell.
#[derive(Debug)]
struct Script(String);

impl Answer for Script {
    fn text(&self, _: Format) -> String {
        self.0.clone()
    }

    fn json(&self) -> serde_json::Result<String> {
        render::json(&self.0)
    }

    fn render(&self, format: Format) -> io::Result<Vec<u8>> {
        Ok(if format.json { self.json()? } else { self.0.clone() }.into_bytes())
    }
}

/// A script that has this shell ask shunt for candidates.
fn script(shell: Shell) -> anyhow::Result<Script> {
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
    Ok(Script(String::from_utf8(script)?))
}
