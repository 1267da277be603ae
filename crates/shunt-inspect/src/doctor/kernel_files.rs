//! Files of sysfs and procfs. What cannot be read is absent.

use std::{fs, path::Path};

/// The names in a directory, sorted.
pub(super) fn entries(directory: &Path) -> Vec<String> {
    let all = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = all.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

/// The text of a file, without space around it.
pub(super) fn text(directory: &Path, file: &str) -> Option<String> {
    Some(fs::read_to_string(directory.join(file)).ok()?.trim().to_owned())
}
