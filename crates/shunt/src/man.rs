//! The manual pages, from what can be typed and what can go wrong.

use clap::Command;
use clap_mangen::Man;
use shunt_api::{FILES, FailureCode};
use std::{
    fs,
    io::{self, Write},
    path::Path,
};

/// Writes the page of this command and those of the commands below it.
pub(crate) fn write(command: Command, dir: &Path) -> io::Result<()> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    write_built(&command, dir)?;
    let mut page = fs::File::options().append(true).open(dir.join("shunt.1"))?;
    exit_status(&mut page)?;
    files(&mut page)?;
    writeln!(page, ".SH \"SEE ALSO\"\n\\fBshuntd\\fR(8), \\fBshunt.toml\\fR(5)")
}

fn write_built(command: &Command, dir: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_built(below, dir)?;
    }
    Man::new(command.clone()).source(concat!("shunt ", env!("CARGO_PKG_VERSION"))).generate_to(dir).map(drop)
}

fn exit_status(page: &mut impl Write) -> io::Result<()> {
    writeln!(page, ".SH \"EXIT STATUS\"\n.TP\n\\fB0\\fR\nIt is done.")?;
    FailureCode::ALL.iter().try_for_each(|code| {
        let name = code.name().replace('-', "\\-");
        writeln!(page, ".TP\n\\fB{}\\fR {name}\n{}", code.exit_code(), code.meaning())
    })
}

fn files(page: &mut impl Write) -> io::Result<()> {
    writeln!(page, ".SH FILES")?;
    FILES.iter().try_for_each(|(path, what)| writeln!(page, ".TP\n\\fI{path}\\fR\n{what}"))
}
