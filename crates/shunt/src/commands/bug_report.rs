//! `shunt bug-report`: one text file with what a developer needs to know of this machine and of Shunt.

mod collect;
mod hide;

use crate::{
    command::{Command, Context},
    failure::{bad_file, unwritable},
    output::Show,
    render::{Format, Text},
};
use clap::Args;
use hide::Pseudonyms;
use nix::unistd::geteuid;
use serde::Serialize;
use std::{fs::OpenOptions, io::Write, os::unix::fs::OpenOptionsExt, path::PathBuf, time::SystemTime};

/// Write one text file for a bug report: versions, status, probe, history, configuration, ruleset,
/// links, log.
///
/// Nothing is sent. The file names what it contains; read it before you pass it on. It has no connections and no
/// contents of packets, but addresses of this network, unless --hide-addresses replaces them.
#[derive(Debug, Args)]
pub(crate) struct BugReportArgs {
    /// Write to this new file [default: shunt-bug-report-DATE.txt in the current directory].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace IP addresses and MACs, each by the same name everywhere: <ipv4 2.1> is the first address of the second
    /// network.
    #[arg(long)]
    hide_addresses: bool,
}

/// A part of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Section {
    title: &'static str,
    /// What it contains, in a few words.
    about: &'static str,
    text: String,
}

/// Where the report is, and what it contains.
#[derive(Debug, Serialize)]
struct Written {
    path: PathBuf,
    contains: Vec<String>,
    addresses_hidden: bool,
    as_root: bool,
}

impl Command for BugReportArgs {
    type Plan = Self;
    const EXAMPLES: &str = "
        [shunt bug-report]
        shunt bug-report # a file in the current directory
        shunt bug-report --hide-addresses --output report.txt # without addresses
    ";
    const USES_INSTANCE: bool = true;

    fn resolve(self, _: &Context) -> anyhow::Result<Self> {
        Ok(self)
    }

    async fn run(plan: Self, context: &Context, show: Show<'_>) -> anyhow::Result<()> {
        let Self { output, hide_addresses } = plan;
        let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let path = output.unwrap_or_else(|| format!("shunt-bug-report-{}.txt", now.replace(':', "")).into());
        // First, so that a place that cannot be written to is reported at once. Only its owner may read the file, so it
        // must be a new one.
        if path.is_file() {
            return Err(bad_file(&path, "this file exists already: name another one, or remove it").into());
        }
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
        let mut file = file.map_err(|error| unwritable(&path, &error))?;
        let sections = collect::all(context).await;
        let mut text = compose(&now, &sections, hide_addresses);
        if hide_addresses {
            text = Pseudonyms::default().hide(&text);
        }
        file.write_all(text.as_bytes()).map_err(|error| unwritable(&path, &error))?;
        let contains = sections.iter().map(|section| section.title.to_owned()).collect();
        show(&Written { path, contains, addresses_hidden: hide_addresses, as_root: geteuid().is_root() })
    }
}

/// The file: what it contains, then the sections.
fn compose(now: &str, sections: &[Section], hidden: bool) -> String {
    let hidden = if hidden { "replaced, each by the same name everywhere" } else { "as they are" };
    let mut text = format!(
        "Bug report of shunt {}, {now}. Addresses are {hidden}. It contains:\n\n",
        env!("CARGO_PKG_VERSION")
    );
    for Section { title, about, .. } in sections {
        text += &format!("- {title}: {about}\n");
    }
    for Section { title, text: content, .. } in sections {
        text += &format!("\n===== {title} =====\n\n{}\n", content.trim_end());
    }
    text
}

impl Text for Written {
    fn text(&self, _: Format) -> String {
        let Self { path, contains, addresses_hidden, as_root } = self;
        let hint = if *addresses_hidden { "" } else { "; --hide-addresses replaces the addresses in it" };
        let lacks = if *as_root { "" } else { "it lacks what only root may read: use sudo for the rest\n" };
        format!(
            "{} contains: {}\n{lacks}read it before you pass it on{hint}\n",
            path.display(),
            contains.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_names_what_it_contains_and_each_section_is_there_once() {
        let section = |title, text: &str| Section { title, about: "something", text: text.to_owned() };
        let sections = [section("status", "up\n"), section("log", "")];
        let text = compose("2026-01-02T03:04:05Z", &sections, false);
        assert!(
            text.contains(
                "Addresses are as they are. It contains:\n\n- status: something\n- log: something\n"
            )
        );
        for title in ["status", "log"] {
            assert_eq!(text.matches(&format!("===== {title} =====")).count(), 1, "{text}");
        }
        let mut written = Written {
            path: "x.txt".into(),
            contains: vec!["status".to_owned()],
            addresses_hidden: false,
            as_root: true,
        };
        let said = |written: &Written| Text::text(written, Format::default());
        assert_eq!(
            said(&written),
            "x.txt contains: status\nread it before you pass it on; --hide-addresses replaces the addresses in it\n"
        );
        written.as_root = false;
        assert!(said(&written).contains("it lacks what only root may read: use sudo"));
    }
}
