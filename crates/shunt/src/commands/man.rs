//! `shunt man`: writes the manual pages, from the definitions of the arguments and of the exit codes.

mod configuration;
mod daemon;

use crate::{
    command::{self, Context},
    failure::{bad_file, unwritable},
    output::Show,
    render::{Answer, Format, json},
};
use clap::{Args, Command};
use clap_mangen::{
    Man,
    roff::{Inline, Roff, bold, roman},
};
use shunt_api::{FILES, FailureCode};
use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

/// Write the manual pages.
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct ManArgs {
    /// The directory for the pages.
    dir: PathBuf,
}

impl command::Command for ManArgs {
    type Plan = PathBuf;
    const EXAMPLES: &str = "";

    fn resolve(self, _: &Context) -> anyhow::Result<PathBuf> {
        Ok(self.dir)
    }

    async fn run(plan: PathBuf, _: &Context, show: Show<'_>) -> anyhow::Result<()> {
        if !plan.is_dir() {
            let mut way_out =
                format!("there is no such directory: make it with `mkdir -p {}`", plan.display());
            if super::definition().find_subcommand(&plan).is_some() {
                way_out = format!(
                    "there is no such directory for the pages; `shunt {0} --help` shows that of {0}",
                    plan.display()
                );
            }
            return Err(bad_file(&plan, way_out).into());
        }
        write_all(super::definition(), &plan).map_err(|error| unwritable(&plan, &error))?;
        show(&Written(plan))
    }
}

const SOURCE: &str = concat!("shunt ", env!("CARGO_PKG_VERSION"));

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
    writeln!(page, ".SH \"SEE ALSO\"\n\\fBshuntd\\fR(8), \\fBshunt.toml\\fR(5)")?;
    fs::write(dir.join("shuntd.8"), daemon::page()?)?;
    fs::write(dir.join("shunt.toml.5"), configuration::page())
}

fn write_page(command: &Command, dir: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        write_page(subcommand, dir)?;
    }
    let man = Man::new(command.clone()).source(SOURCE);
    let path = man.generate_to(dir)?;
    let name = command.get_bin_name().unwrap_or(command.get_name());
    examples_section(&super::examples(name), &mut fs::File::options().append(true).open(path)?)
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

fn see_also(page: &mut Roff, pages: &str) {
    page.control("SH", ["SEE ALSO"]).text(words(pages));
}

/// Sets text between backticks in bold: commands, options and values.
fn words(text: &str) -> Vec<Inline> {
    let parts = text.split('`').enumerate();
    parts.map(|(nth, part)| if nth % 2 == 0 { roman(part) } else { bold(part) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of a command's page and of those below it.
    fn pages(command: &Command, name: &str) -> Vec<String> {
        let below = command.get_subcommands().filter(|one| !one.is_hide_set());
        let below = below.flat_map(|one| pages(one, &format!("{name}-{}", one.get_name())));
        [name.to_owned()].into_iter().chain(below).collect()
    }

    #[test]
    fn every_command_has_a_page_with_a_synopsis_and_examples() {
        let dir = tempfile::tempdir().unwrap();
        let command = super::super::definition();
        let names = pages(&command, "shunt");
        write_all(command, dir.path()).unwrap();
        for name in &names {
            let page = fs::read_to_string(dir.path().join(format!("{name}.1"))).unwrap_or_default();
            for section in [".SH SYNOPSIS\n", ".SH DESCRIPTION\n", ".SH EXAMPLES\n.TP\n"] {
                assert!(page.contains(section), "{name} has no {section}: {page}");
            }
        }
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(read("shunt.1").contains(".SH \"EXIT STATUS\"\n") && read("shunt.1").contains(".SH FILES\n"));
        // Besides those of the commands, the pages of the daemon and of its configuration.
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), names.len() + 2);
        let daemon = read("shuntd.8");
        assert!(daemon.contains(".SH SYNOPSIS\n") && daemon.contains(".SH SIGNALS\n"), "{daemon}");
        assert!(daemon.contains("\\fB\\-\\-dry\\-run\\fR"), "{daemon}");
        let configuration = read("shunt.toml.5");
        assert!(configuration.contains(".SH KEYS\n.TP\n"), "{configuration}");
    }
}
