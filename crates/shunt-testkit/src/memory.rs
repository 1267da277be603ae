//! A process with little memory.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

static NEXT: AtomicU32 = AtomicU32::new(1);

/// A memory control group. Removed on drop; what runs inside must have ended by then.
#[derive(Debug)]
pub struct MemoryLimit {
    group: PathBuf,
}

impl MemoryLimit {
    /// A group with so much memory for programs and for what the kernel holds for them.
    ///
    /// # Errors
    /// When there is no memory controller here.
    pub fn new(bytes: u64) -> io::Result<Self> {
        let name = format!("shunt-{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let root = Path::new("/sys/fs/cgroup");
        let (group, file) = if root.join("cgroup.controllers").exists() {
            // Controllers must be passed down before a group has them.
            fs::write(root.join("cgroup.subtree_control"), "+memory")?;
            (root.join(name), "memory.max")
        } else {
            (root.join("memory").join(name), "memory.limit_in_bytes")
        };
        fs::create_dir(&group)?;
        let limit = Self { group };
        fs::write(limit.group.join(file), bytes.to_string())?;
        // Whoever asks while another takes all that there is waits, where the kernel has this, instead of being killed.
        let killer = limit.group.join("memory.oom_control");
        if killer.exists() {
            fs::write(killer, "1")?;
        }
        Ok(limit)
    }

    /// A program that runs its arguments inside; it is put into this directory.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn program(&self, directory: &Path) -> io::Result<String> {
        let path = directory.join("with-little-memory");
        // `ip netns exec` mounts a /sys of its own, in which there are no groups. This process sees the first.
        let procs = format!("/proc/{}/root{}/cgroup.procs", process::id(), self.group.display());
        fs::write(&path, format!("#!/bin/sh\necho $$ >{procs} && exec \"$@\"\n"))?;
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
        Ok(path.to_string_lossy().into_owned())
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // One that is still in use stays, which the next look at /sys/fs/cgroup shows.
        let _ = fs::remove_dir(&self.group);
    }
}
