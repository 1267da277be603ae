//! A memory limit for processes.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

static NEXT: AtomicU32 = AtomicU32::new(1);

/// A memory control group. Dropping this removes the group, whose processes must have ended by then.
#[derive(Debug)]
pub struct MemoryLimit {
    group: PathBuf,
}

impl MemoryLimit {
    /// Makes a group with a limit in bytes, which covers its processes and the kernel memory that they use.
    ///
    /// # Errors
    /// If this machine has no memory controller.
    pub fn new(bytes: u64) -> io::Result<Self> {
        let name = format!("shunt-{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let root = Path::new("/sys/fs/cgroup");
        let (group, file) = if root.join("cgroup.controllers").exists() {
            // A group has only the controllers that its parent delegates.
            fs::write(root.join("cgroup.subtree_control"), "+memory")?;
            (root.join(name), "memory.max")
        } else {
            (root.join("memory").join(name), "memory.limit_in_bytes")
        };
        fs::create_dir(&group)?;
        let limit = Self { group };
        fs::write(limit.group.join(file), bytes.to_string())?;
        // With cgroup v1, let a process at the limit wait instead of being killed.
        let killer = limit.group.join("memory.oom_control");
        if killer.exists() {
            fs::write(killer, "1")?;
        }
        Ok(limit)
    }

    /// Writes a script into this directory that runs its arguments inside the group, and returns its path.
    ///
    /// # Errors
    /// If the script cannot be written.
    pub fn program(&self, directory: &Path) -> io::Result<String> {
        let path = directory.join("with-little-memory");
        // `ip netns exec` mounts a /sys of its own without control groups; this process has the original one.
        let procs = format!("/proc/{}/root{}/cgroup.procs", process::id(), self.group.display());
        fs::write(&path, format!("#!/bin/sh\necho $$ >{procs} && exec \"$@\"\n"))?;
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
        Ok(path.to_string_lossy().into_owned())
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // A group that is still in use stays visible in /sys/fs/cgroup.
        let _ = fs::remove_dir(&self.group);
    }
}
