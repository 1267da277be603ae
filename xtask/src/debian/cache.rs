//! The cache of packages between runs, in the user's cache directory.

use anyhow::{Context, ensure};
use nix::{
    fcntl::{Flock, FlockArg},
    sys::statvfs::statvfs,
};
use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
};

/// Bytes in a megabyte.
pub const MEGABYTE: u64 = 1 << 20;

/// The cache directory, locked by this process.
#[derive(Debug)]
pub struct Cache {
    path: PathBuf,
    _lock: Flock<File>,
}

impl Cache {
    /// Opens the cache. Waits until no other process uses it.
    pub fn open() -> anyhow::Result<Self> {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let base = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
        let path = base.context("neither XDG_CACHE_HOME nor HOME says where caches are")?.join("shunt/vm");
        fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        let file = File::create(path.join("lock")).with_context(|| path.display().to_string())?;
        let lock = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, e)| e)?;
        Ok(Self { path, _lock: lock })
    }

    /// Path of the cache directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that the cache's file system has so many bytes left.
    pub fn require_room(&self, bytes: u64) -> anyhow::Result<()> {
        require_room(&self.path, bytes, "XDG_CACHE_HOME names another place")
    }
}

/// Checks that a directory's file system has so many bytes left. The error ends with `way_out`, another remedy.
pub fn require_room(directory: &Path, bytes: u64, way_out: &str) -> anyhow::Result<()> {
    let found = statvfs(directory).with_context(|| directory.display().to_string())?;
    let free = found.blocks_available() * found.fragment_size();
    ensure!(
        free >= bytes,
        "{}: {} MB are free, but {} MB are needed: free some space, or {way_out}",
        directory.display(),
        free / MEGABYTE,
        bytes / MEGABYTE
    );
    Ok(())
}
