//! Measures paths in guests that count instructions, one guest for each setting.

use super::{
    CountingGuest, CountingGuests,
    row::{GuestMessage, Row},
};
use crate::rig::{path::Path, setting::Setting};
use anyhow::{Context, ensure};
use std::{
    collections::VecDeque,
    env,
    io::Write,
    path,
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

/// What each guest measures.
#[derive(Debug, Clone, Copy)]
pub struct GuestPlan<'a> {
    pub kernel: &'a str,
    /// Time limit for one guest.
    pub timeout: Duration,
    pub xdp_forward: Option<&'a path::Path>,
    /// The paths in the order of measuring; see [`super::guest::PATHS`].
    pub paths: &'a [Path],
    /// Numbers of flows.
    pub flows: &'a [u32],
    /// Number of runs of each path.
    pub runs: usize,
}

/// The rows that a guest printed, and the error if the guest failed.
#[derive(Debug)]
pub struct GuestOutput {
    pub kernel: Option<String>,
    pub rows: Vec<Row>,
    pub failed: Option<anyhow::Error>,
}

impl GuestPlan<'_> {
    /// Measures in all settings, in several guests at once, and passes on the output of each. By default, one CPU is
    /// left without a guest.
    pub fn measure(
        &self,
        guests: &dyn CountingGuests,
        settings: Vec<Setting>,
        jobs: Option<usize>,
        done: impl Fn(Setting, GuestOutput) + Sync,
    ) {
        let queue = Mutex::new(VecDeque::from(settings));
        let jobs = jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, |n| n.get() - 1));
        thread::scope(|scope| {
            for _ in 0..jobs.max(1) {
                scope.spawn(|| {
                    while let Some(setting) = take(&queue) {
                        done(setting, self.in_guest(guests, setting));
                    }
                });
            }
        });
    }

    /// Boots a guest for one setting. Rows printed before a failure count.
    fn in_guest(&self, guests: &dyn CountingGuests, setting: Setting) -> GuestOutput {
        let mut output = Vec::new();
        let failed = self.boot(guests, setting, &mut output).err();
        let mut guest = GuestOutput { kernel: None, rows: Vec::new(), failed };
        for line in String::from_utf8_lossy(&output).lines() {
            match serde_json::from_str(line) {
                Ok(GuestMessage::Kernel(release)) => guest.kernel = Some(release),
                Ok(GuestMessage::Row(row)) => guest.rows.push(row),
                Err(e) => {
                    let unexpected = anyhow::anyhow!("unexpected line from the guest: {e}: {line}");
                    guest.failed = guest.failed.or(Some(unexpected));
                }
            }
        }
        guest
    }

    fn boot(
        &self,
        guests: &dyn CountingGuests,
        setting: Setting,
        stdout: &mut dyn Write,
    ) -> anyhow::Result<()> {
        let Self { kernel, timeout, xdp_forward, paths, flows, runs } = *self;
        let own = env::current_exe().context("finding the path of xtask")?;
        let mut programs = vec![("xtask", own.as_path())];
        programs.extend(xdp_forward.map(|path| ("xdp-forward", path)));
        let (setting, paths) = (serde_json::to_string(&setting)?, serde_json::to_string(paths)?);
        let flows: Vec<String> = flows.iter().map(u32::to_string).collect();
        let (flows, runs) = (flows.join(","), runs.to_string());
        let what = ["--setting", &setting, "--paths", &paths, "--flows", &flows, "--runs", &runs];
        let command = [&["xtask", "peers-guest"], &what[..]].concat();
        let guest = CountingGuest { kernel, timeout, programs: &programs, command: &command };
        let code = guests.run(&guest, stdout)?;
        ensure!(code == 0, "the program in the guest exited with status {code}");
        Ok(())
    }
}

fn take(queue: &Mutex<VecDeque<Setting>>) -> Option<Setting> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
}
