//! New and deleted conntrack entries, as `conntrack -E` reports them.

use crate::{Process, Topology, wait_until};
use std::{
    fs::{self, File},
    path::PathBuf,
    process::Stdio,
};

/// A running `conntrack -E` on a router. Dropping it ends the program.
#[derive(Debug)]
pub struct ConntrackEvents {
    file: PathBuf,
    _process: Process,
}

impl ConntrackEvents {
    /// Starts `conntrack -E` and waits until it reports events.
    ///
    /// # Panics
    /// If the program cannot be started or reports nothing.
    #[must_use]
    #[track_caller]
    pub fn listen(lab: &Topology) -> Self {
        let file = std::env::temp_dir().join(format!("{}.events", lab.router().name()));
        let mut command = lab.router().command("conntrack");
        let output = File::create(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        command.args(["-E", "-e", "NEW,DESTROY"]).stdout(output).stderr(Stdio::null());
        let events = Self { file, _process: Process::start(command) };
        // The program says nothing when it begins to listen, so make an entry until it reports one.
        wait_until("conntrack -E reports an entry", || {
            lab.router()
                .run("conntrack -I -p udp -s 192.0.2.1 -d 192.0.2.2 --sport 1 --dport 1 -t 9 || true");
            lab.router().run("conntrack -D -p udp -s 192.0.2.1 || true");
            events.count("NEW", "src=192.0.2.1 ") > 0
        });
        events
    }

    /// Number of events so far of this kind (`NEW` or `DESTROY`) whose line contains `part`.
    ///
    /// # Panics
    /// If the output of the program cannot be read.
    #[must_use]
    #[track_caller]
    pub fn count(&self, kind: &str, part: &str) -> usize {
        let text = fs::read_to_string(&self.file).unwrap_or_else(|e| panic!("{}: {e}", self.file.display()));
        text.lines().filter(|line| line.contains(&format!("[{kind}]")) && line.contains(part)).count()
    }
}

impl Drop for ConntrackEvents {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}
