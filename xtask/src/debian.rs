//! Debian's packages: fetched by apt, checked against the archive's index, unpacked, never installed.

mod apt;
mod cache;

pub use apt::{Apt, Package};
pub use cache::{Cache, MEGABYTE, demand_room};

use crate::{arch::Arch, tool::tool};
use anyhow::Context;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A suite of an archive.
#[derive(Debug, Clone, Copy)]
pub struct Suite {
    /// The label of the archive, as `apt-cache policy` shows it.
    pub archive: &'static str,
    /// The suite in that archive.
    pub name: &'static str,
}

/// What guests' tools and foreign libraries come from. Its support ends on 2028-06-30.
pub const STABLE: Suite = Suite { archive: "Debian", name: "bookworm" };
/// The packages of a set, in the directory that they are unpacked into.
const CONTENTS: &str = ".packages";

/// A set of packages of an architecture.
#[derive(Debug)]
pub struct Set<'a> {
    /// What the directory of the cache is called after.
    pub name: &'a str,
    pub arch: &'a Arch,
    pub packages: &'a [&'a str],
    /// Whether all that these need belongs to it.
    pub closed: bool,
}

/// A directory that has the files of a set.
pub fn unpacked(set: &Set) -> anyhow::Result<PathBuf> {
    let cache = Cache::open()?;
    // An index that is older than what the archive has by now names packages that are gone.
    unpacked_by(set, &Apt::new(STABLE, set.arch, &cache, false)?, &cache)
        .or_else(|_| unpacked_by(set, &Apt::new(STABLE, set.arch, &cache, true)?, &cache))
}

fn unpacked_by(set: &Set, apt: &Apt, cache: &Cache) -> anyhow::Result<PathBuf> {
    let Set { name, arch, packages, closed } = set;
    let found = if *closed { apt.closure(packages)? } else { apt.packages(packages)? };
    let home = cache.path().join(format!("{name}-{}-{}", STABLE.name, arch.debian));
    let contents: String = found.iter().map(|package| format!("{}\n", package.file)).collect();
    if fs::read_to_string(home.join(CONTENTS)).is_ok_and(|there| there == contents) {
        return Ok(home);
    }
    apt.fetch(&found, cache)?;
    cache.demand_room(4 * found.iter().map(|package| package.size).sum::<u64>())?;
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

/// The files of a package.
pub fn extract(package: &Path, into: &Path) -> anyhow::Result<()> {
    tool("dpkg-deb", &["--extract", &package.to_string_lossy(), &into.to_string_lossy()]).map(drop)
}
