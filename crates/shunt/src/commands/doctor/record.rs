//! What `shunt doctor --record` writes, and `--recorded` reads.

use shunt_inspect::doctor::System;
use std::{fs, path::Path};

/// Whether `shunt doctor --record` wrote this file.
pub(crate) fn is_record(path: &Path) -> bool {
    let read = |text: String| serde_json::from_str::<Vec<System>>(&text).is_ok_and(|all| are_recorded(&all));
    fs::read_to_string(path).is_ok_and(read)
}

/// Whether these are systems, and not a list of something else: each has a port.
pub(super) fn are_recorded(systems: &[System]) -> bool {
    !systems.is_empty() && systems.iter().all(|system| !system.link.nic.name.is_empty())
}
