//! Debian packages that are fetched by apt, checked against the archive's index and unpacked, but never installed.

mod apt;
mod cache;

pub use apt::{Apt, Package};
pub use cache::{Cache, MEGABYTE, require_room};

use crate::{arch::Arch, tool::tool};
use anyhow::Context;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A suite of an archive.
#[derive(Debug, Clone, Copy)]
pub struct Suite {
    /// Label of the archive, as `apt-cache policy` shows it.
    pub archive: &'static str,
    /// Name of the suite in that archive.
    pub name: &'static str,
}

/// The suite of guests' tools and of libraries for other architectures. Its support ends on 2028-06-30.
pub const STABLE: Suite = Suite { archive: "Debian", name: "bookworm" };
/// The release after [`STABLE`], for packages that [`STABLE`] lacks.
pub const NEXT: Suite = Suite { archive: "Debian", name: "trixie" };
/// File that lists the packages of a set, in the directory into which they are unpacked.
const CONTENTS: &str = ".packages";

/// A set of packages for an architecture.
#[derive(Debug)]
pub struct Set<'a> {
    /// Name of the directory in the cache.
    pub name: &'a str,
    pub suite: Suite,
    pub arch: &'a Arch,
    pub packages: &'a [&'a str],
    /// Whether the dependencies of the packages belong to the set.
    pub closed: bool,
}

/// Fetches and unpacks a set unless it is in the cache; returns the directory with its files.
pub fn unpacked(set: &Set) -> anyhow::Result<PathBuf> {
    let cache = Cache::open()?;
    // If the local index is older than the archive, it names packages that the archive no longer has.
    unpacked_by(set, &Apt::new(set.suite, set.arch, &cache, false)?, &cache)
        .or_else(|_| unpacked_by(set, &Apt::new(set.suite, set.arch, &cache, true)?, &cache))
}

fn unpacked_by(set: &Set, apt: &Apt, cache: &Cache) -> anyhow::Result<PathBuf> {
    let Set { name, suite, arch, packages, closed } = set;
    let found = if *closed { apt.closure(packages)? } else { apt.packages(packages)? };
    let home = cache.path().join(format!("{name}-{}-{}", suite.name, arch.debian));
    let contents: String = found.iter().map(|package| format!("{}\n", package.file)).collect();
    if fs::read_to_string(home.join(CONTENTS)).is_ok_and(|there| there == contents) {
        return Ok(home);
    }
    apt.fetch(&found, cache)?;
    cache.require_room(4 * found.iter().map(|package| package.size).sum::<u64>())?;
    let partial = tempfile::tempdir_in(cache.path())?;
    for package in &found {
        extract(&cache.path().join(&package.file), partial.path())?;
    }
    fs::write(partial.path().join(CONTENTS), contents)?;
    if home.exists() {
        fs::remove_dir_all(&home).with_context(|| home.display().to_string())?;
    }
    fs::rename(partial.keep(), &home).with_context(|| home.display().to_string())?;
    Ok(home)
}

/// Unpacks the files of a package into a directory.
pub fn extract(package: &Path, into: &Path) -> anyhow::Result<()> {
    tool("dpkg-deb", &["--extract", &package.to_string_lossy(), &into.to_string_lossy()]).map(drop)
}
