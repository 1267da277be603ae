//! Where packages are kept between runs: in the user's cache directory, outside the tree.

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

/// In bytes.
pub const MEGABYTE: u64 = 1 << 20;

/// The directory, locked for this process.
#[derive(Debug)]
pub struct Cache {
    path: PathBuf,
    _lock: Flock<File>,
}

impl Cache {
    /// Waits until nobody else uses it.
    pub fn open() -> anyhow::Result<Self> {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let base = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
        let path = base.context("neither XDG_CACHE_HOME nor HOME says where caches are")?.join("shunt/vm");
        fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        let file = File::create(path.join("lock")).with_context(|| path.display().to_string())?;
        let lock = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, e)| e)?;
        Ok(Self { path, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// That it has so much room left.
    pub fn demand_room(&self, bytes: u64) -> anyhow::Result<()> {
        demand_room(&self.path, bytes, "XDG_CACHE_HOME names another place")
    }
}

/// That a directory has so much room left; what else can be done is the end of the error.
pub fn demand_room(directory: &Path, bytes: u64, way_out: &str) -> anyhow::Result<()> {
    let found = statvfs(directory).with_context(|| directory.display().to_string())?;
    let free = found.blocks_available() * found.fragment_size();
    ensure!(
        free >= bytes,
        "{}: {} MB are free, and {} MB are needed: make room, or {way_out}",
        directory.display(),
        free / MEGABYTE,
        bytes / MEGABYTE
    );
    Ok(())
}
