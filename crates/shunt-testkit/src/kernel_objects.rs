//! The BPF programs, maps and links of a process.

use crate::wait_for;
use shunt_traffic::objects::{ObjectKind, exists};
use std::{collections::BTreeSet, fs, time::Duration};

/// BPF objects by kind and id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelObjects(BTreeSet<(ObjectKind, u32)>);

impl KernelObjects {
    /// The BPF objects that a daemon holds open.
    ///
    /// # Panics
    /// If the process holds no program or no map, or does not exist.
    #[must_use]
    #[track_caller]
    pub fn held_by(pid: u32) -> Self {
        let directory = format!("/proc/{pid}/fdinfo");
        let mut held = Self::default();
        for entry in fs::read_dir(&directory).unwrap_or_else(|e| panic!("{directory}: {e}")).flatten() {
            // A descriptor that was closed since the directory was read has no text.
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            for line in text.lines() {
                for (field, kind) in [
                    ("prog_id:", ObjectKind::Program),
                    ("map_id:", ObjectKind::Map),
                    ("link_id:", ObjectKind::Link),
                ] {
                    let id = line.strip_prefix(field).and_then(|id| id.trim().parse().ok());
                    held.0.extend(id.map(|id| (kind, id)));
                }
            }
        }
        for kind in [ObjectKind::Program, ObjectKind::Map] {
            assert!(held.0.iter().any(|(k, _)| *k == kind), "the daemon holds no {kind:?}: {held:?}");
        }
        held
    }

    /// The ids of the links among the objects.
    #[must_use]
    pub fn links(&self) -> BTreeSet<u32> {
        self.0.iter().filter(|(kind, _)| *kind == ObjectKind::Link).map(|(_, id)| *id).collect()
    }

    /// Those of the objects that are links.
    #[must_use]
    pub fn only_links(&self) -> Self {
        Self(self.0.iter().copied().filter(|(kind, _)| *kind == ObjectKind::Link).collect())
    }

    /// Waits up to five seconds until the kernel has freed all objects; returns those that are left, if any.
    ///
    /// # Panics
    /// If the kernel refuses to look up an object.
    #[must_use]
    #[track_caller]
    pub fn not_freed(&self) -> Option<Self> {
        let mut left = self.clone();
        let gone = wait_for(Duration::from_secs(5), || {
            left.0.retain(|(kind, id)| exists(*kind, *id).unwrap_or_else(|e| panic!("{kind:?} {id}: {e}")));
            left.0.is_empty().then_some(())
        });
        gone.is_none().then_some(left)
    }

    /// Whether the kernel has freed all objects.
    ///
    /// # Panics
    /// If the kernel refuses to look up an object.
    #[must_use]
    #[track_caller]
    pub fn is_freed(&self) -> bool {
        self.0.iter().all(|(kind, id)| !exists(*kind, *id).unwrap_or_else(|e| panic!("{kind:?} {id}: {e}")))
    }

    /// Adds the objects of `other`.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}
