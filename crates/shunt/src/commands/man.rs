//! `shunt man`: writes the manual pages, from the definitions of the arguments and of the exit codes.

use crate::{
    command::{self, Context, Examples},
    output::Show,
    render::{Answer, Format, json},
};
use anyhow::Context as _;
use clap::{Args, Command};
use clap_mangen::Man;
use shunt_api::{FILES, FailureCode};
use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

/// The shell.
/// Write the manual pages.
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct ManArgs {
    /// The directory for the pages.
    dir: PathBuf,
}

impl command::Command for ManArgs {
    type Plan = PathBuf;
    const EXAMPLES: Examples = &[];

    fn resolve(self, _: &Context) -> anyhow::Result<PathBuf> {
        Ok(self.dir)
    }

    async fn run(plan: PathBuf, _: &Context, show: Show<'_>) -> anyhow::Result<()> {
        write_all(super::definition(), &plan).with_context(|| plan.display().to_string())?;
        show(&Written(plan))
    }
}

/// The directory to which the pages were written.
#[derive(Debug)]
struct Written(PathBuf);

impl Answer for Written {
    fn text(&self, _: Format) -> String {
        format!("manual pages written to {}\n", self.0.display())
    }

    fn json(&self) -> serde_json::Result<String> {
        json(&self.0)
    }
}

fn write_all(command: Command, dir: &Path) -> io::Result<()> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    write_page(&command, dir)?;
    let mut page = fs::File::options().append(true).open(dir.join("shunt.1"))?;
    exit_status(&mut page)?;
    files(&mut page)?;
    writeln!(page, ".SH \"SEE ALSO\"\n\\fBshuntd\\fR(8), \\fBshunt.toml\\fR(5)")
}

fn write_page(command: &Command, dir: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        write_page(subcommand, dir)?;
    }
    let man = Man::new(command.clone()).source(concat!("shunt ", env!("CARGO_PKG_VERSION")));
    let path = man.generate_to(dir)?;
    let name = command.get_bin_name().unwrap_or(command.get_name());
    examples_section(super::examples(name), &mut fs::File::options().append(true).open(path)?)
}

fn examples_section(examples: &[(&str, &str)], page: &mut impl Write) -> io::Result<()> {
    if examples.is_empty() {
        return Ok(());
    }
    writeln!(page, ".SH EXAMPLES")?;
    examples.iter().try_for_each(|(typed, what)| {
        let typed = typed.replace('\\', "\\\\").replace('-', "\\-");
        writeln!(page, ".TP\n\\fB{typed}\\fR\n{what}")
    })
}

fn exit_status(page: &mut impl Write) -> io::Result<()> {
    writeln!(page, ".SH \"EXIT STATUS\"\n.TP\n\\fB0\\fR\nSuccess.")?;
    FailureCode::ALL.iter().try_for_each(|code| {
        let name = code.name().replace('-', "\\-");
        writeln!(page, ".TP\n\\fB{}\\fR {name}\n{}", code.exit_code(), code.meaning())
    })
}

fn files(page: &mut impl Write) -> io::Result<()> {
    writeln!(page, ".SH FILES")?;
    FILES.iter().try_for_each(|(path, what)| writeln!(page, ".TP\n\\fI{path}\\fR\n{what}"))
}
