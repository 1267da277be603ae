//! Control groups, which decide how much SCHED_IDLE yields.
//!
//! The scheduler weighs groups first, and then the threads within a group. A soaker in the group of its session or
//! service has almost no weight there, but its group weighs as much as all kernel threads together: the soaker would
//! take half of what ksoftirqd needs. So soakers are moved to a top-level group that is idle itself.

use nix::unistd::Pid;
use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

const PREFIX: &str = "shunt-load-";
/// The least weight of a group, for kernels without idle groups (before 5.15).
const LEAST_SHARES: &str = "2";
/// Number of tries to remove the group: a joined thread may still be in it for a moment.
const REMOVALS: u32 = 50;
const REMOVAL_PAUSE: Duration = Duration::from_millis(10);

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A control group that yields to all others. Removed on drop, when its threads have ended.
#[derive(Debug)]
pub(super) struct IdleGroup {
    path: PathBuf,
}

/// The mount points of control groups, and the groups of this process.
#[derive(Debug, Default, PartialEq)]
struct Groups {
    /// The `cpu` controller of version 1.
    v1: Option<GroupPath>,
    v2: Option<GroupPath>,
}

#[derive(Debug, PartialEq)]
struct GroupPath {
    root: PathBuf,
    /// Path of the group below the root.
    own: PathBuf,
}

/// Creates the group. None without a `cpu` controller of version 1 or without the right to create groups; in version 2,
/// threads of one process cannot be in such different groups.
pub(super) fn idle_group() -> Option<IdleGroup> {
    let root = Groups::here().v1?.root;
    remove_leftovers(&root);
    IdleGroup::new(&root).ok()
}

/// Whether the group or autogroup of this process has the same weight as others.
pub(super) fn weighs_as_others() -> bool {
    let autogroups = fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled");
    Groups::here().weigh_as_others(autogroups.is_ok_and(|on| on.trim() == "1"))
}

/// Whether a quota limits the CPU time of this process.
pub(super) fn has_quota(in_idle_group: bool) -> bool {
    !in_idle_group && Groups::here().have_quota()
}

impl IdleGroup {
    fn new(root: &Path) -> io::Result<Self> {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = root.join(format!("{PREFIX}{}-{n}", process::id()));
        fs::create_dir(&path)?;
        let group = Self { path };
        if fs::write(group.path.join("cpu.idle"), "1").is_err() {
            fs::write(group.path.join("cpu.shares"), LEAST_SHARES)?;
        }
        Ok(group)
    }

    #[cfg(test)]
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn admit(&self, tid: Pid) -> io::Result<()> {
        fs::write(self.path.join("tasks"), tid.to_string())
    }

    /// Moves a thread out of the group, so that the group can be removed.
    pub(super) fn dismiss(&self, tid: Pid) {
        if let Some(above) = self.path.parent() {
            let _ = fs::write(above.join("tasks"), tid.to_string());
        }
    }
}

impl Drop for IdleGroup {
    fn drop(&mut self) {
        for _ in 0..REMOVALS {
            match fs::remove_dir(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => thread::sleep(REMOVAL_PAUSE),
                // A group that cannot be removed is left to the next meter.
                _ => return,
            }
        }
    }
}

impl fmt::Display for IdleGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "control group {}", self.path.display())
    }
}

impl Groups {
    fn here() -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        Self::parse(&text("/proc/self/mounts"), &text("/proc/self/cgroup"))
    }

    fn parse(mounts: &str, own: &str) -> Self {
        let mounted = |wanted: &dyn Fn(&str, &str) -> bool| {
            mounts.lines().find_map(|line| {
                let mut fields = line.split(' ').skip(1);
                let (at, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
                wanted(kind, options).then(|| PathBuf::from(at))
            })
        };
        let has_cpu = |list: &str| list.split(',').any(|word| word == "cpu");
        let own = |wanted: &dyn Fn(&str) -> bool| {
            own.lines().find_map(|line| {
                let mut fields = line.splitn(3, ':').skip(1);
                let (controllers, path) = (fields.next()?, fields.next()?);
                wanted(controllers).then(|| PathBuf::from(path.trim_start_matches('/')))
            })
        };
        let path = |root: Option<PathBuf>, own: Option<PathBuf>| Some(GroupPath { root: root?, own: own? });
        Self {
            v1: path(mounted(&|kind, options| kind == "cgroup" && has_cpu(options)), own(&has_cpu)),
            v2: path(mounted(&|kind, _| kind == "cgroup2"), own(&str::is_empty)),
        }
    }

    fn weigh_as_others(&self, autogroups: bool) -> bool {
        let v1 = self.v1.as_ref().and_then(|path| path.top("cpu.shares"));
        let v2 = self.v2.as_ref().and_then(|path| path.top("cpu.weight"));
        match v1.or(v2) {
            Some(top) => fs::read_to_string(top.join("cpu.idle")).is_ok_and(|idle| idle.trim() != "1"),
            // Autogroups apply only to processes in the top-level group.
            None => autogroups,
        }
    }

    fn have_quota(&self) -> bool {
        let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
        let v1 = |group: PathBuf| {
            read(group.join("cpu.cfs_quota_us")).trim().parse::<i64>().is_ok_and(|us| us > 0)
        };
        let v2 = |group: PathBuf| {
            let limit = read(group.join("cpu.max"));
            !limit.is_empty() && !limit.starts_with("max")
        };
        self.v1.as_ref().is_some_and(|path| path.groups().any(v1))
            || self.v2.as_ref().is_some_and(|path| path.groups().any(v2))
    }
}

impl GroupPath {
    /// The group of this process and its parents.
    fn groups(&self) -> impl Iterator<Item = PathBuf> {
        self.own.ancestors().map(|path| self.root.join(path))
    }

    /// A file of the group below the root, if the controller is enabled there.
    fn top(&self, file: &str) -> Option<PathBuf> {
        let top = self.root.join(self.own.components().next()?);
        top.join(file).exists().then_some(top)
    }
}

/// Removes the groups of meters that were killed. A group that is in use cannot be removed.
fn remove_leftovers(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
        cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\n\
        cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n\
        cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";

    #[test]
    fn groups_of_both_cgroup_versions_are_found() {
        let groups = Groups::parse(HYBRID, "5:cpuset:/x\n4:cpu,cpuacct:/a/b\n0::/c\n");
        let path = |root: &str, own: &str| Some(GroupPath { root: root.into(), own: own.into() });
        assert_eq!(groups.v1, path("/sys/fs/cgroup/cpu,cpuacct", "a/b"));
        assert_eq!(groups.v2, path("/sys/fs/cgroup/unified", "c"));
        let only_v2 =
            Groups::parse("cgroup2 /sys/fs/cgroup cgroup2 rw,cpu 0 0\n", "0::/user.slice/x.scope\n");
        assert_eq!((only_v2.v1, only_v2.v2), (None, path("/sys/fs/cgroup", "user.slice/x.scope")));
        assert_eq!(Groups::parse("", ""), Groups::default());
    }

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn v2(root: &tempfile::TempDir, own: &str) -> Groups {
        Groups { v1: None, v2: Some(GroupPath { root: root.path().to_owned(), own: own.into() }) }
    }

    #[test]
    fn a_group_weighs_unless_it_is_idle_at_the_top() {
        let root = tree(&[
            ("user.slice/cpu.weight", "100\n"),
            ("user.slice/cpu.idle", "0\n"),
            ("shunt.scope/cpu.weight", "0\n"),
            ("shunt.scope/cpu.idle", "1\n"),
            ("bare.slice/cgroup.procs", ""),
        ]);
        for (own, autogroups, weighs) in [
            ("user.slice/a.scope", false, true),
            ("shunt.scope", true, false),
            ("bare.slice", false, false),
            ("bare.slice", true, true),
            ("", true, true),
            ("", false, false),
        ] {
            assert_eq!(v2(&root, own).weigh_as_others(autogroups), weighs, "{own} {autogroups}");
        }
    }

    #[test]
    fn a_quota_of_any_parent_counts() {
        let root = tree(&[
            ("a/cpu.max", "50000 100000\n"),
            ("a/b/cpu.max", "max 100000\n"),
            ("c/cpu.max", "max 1\n"),
        ]);
        assert_eq!(["a/b", "a", "c", ""].map(|own| v2(&root, own).have_quota()), [true, true, false, false]);
        let root = tree(&[("a/cpu.cfs_quota_us", "-1\n"), ("b/cpu.cfs_quota_us", "5000\n")]);
        let v1 = |own: &str| Groups {
            v1: Some(GroupPath { root: root.path().to_owned(), own: own.into() }),
            v2: None,
        };
        assert_eq!((v1("a").have_quota(), v1("b").have_quota()), (false, true));
    }
}
