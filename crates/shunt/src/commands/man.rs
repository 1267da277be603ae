//! `shunt man`: writes the manual pages, from the definitions of the arguments and of the exit codes.

use crate::render::Answer;
use anyhow::Context;
use clap::Command;
use clap_mangen::Man;
use shunt_api::{FILES, FailureCode};
use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

/// The examples of a command by its name: what to type, and what it does.
type Examples = fn(&str) -> &'static [(&'static str, &'static str)];

/// Writes one page for `command` and one for each of its subcommands into the directory.
pub(crate) fn run(command: Command, dir: PathBuf, examples: Examples) -> anyhow::Result<Answer> {
    write_all(command, &dir, examples).with_context(|| dir.display().to_string())?;
    Ok(Answer::Written(dir))
}

fn write_all(command: Command, dir: &Path, examples: Examples) -> io::Result<()> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    write_page(&command, dir, examples)?;
    let mut page = fs::File::options().append(true).open(dir.join("shunt.1"))?;
    exit_status(&mut page)?;
    files(&mut page)?;
    writeln!(page, ".SH \"SEE ALSO\"\n\\fBshuntd\\fR(8), \\fBshunt.toml\\fR(5)")
}

fn write_page(command: &Command, dir: &Path, examples: Examples) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        write_page(subcommand, dir, examples)?;
    }
    let man = Man::new(command.clone()).source(concat!("shunt ", env!("CARGO_PKG_VERSION")));
    let path = man.generate_to(dir)?;
    let name = command.get_bin_name().unwrap_or(command.get_name());
    examples_section(examples(name), &mut fs::File::options().append(true).open(path)?)
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
