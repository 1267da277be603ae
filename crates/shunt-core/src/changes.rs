//! What changes were about, in words.

use crate::Cause;
use std::collections::BTreeMap;

/// What a change is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangeDetails {
    /// The name of the device; `None` if the change concerns no single device.
    pub device: Option<String>,
    /// The route, in words.
    pub object: Option<String>,
}

/// What the last changes were about.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Those that moved the epoch, by cause, until they are taken.
    moved: BTreeMap<Cause, ChangeDetails>,
    /// Those that were taken: the kernel may yet finish the change.
    settled: BTreeMap<Cause, ChangeDetails>,
    /// Those of default routes, oldest first, until they are taken. What happened twice is there once, at its last
    /// time.
    default_routes: Vec<ChangeDetails>,
}

impl Changes {
    /// Notes a change that moves the epoch.
    pub(crate) fn note(&mut self, cause: Cause, change: ChangeDetails) {
        self.moved.insert(cause, change);
    }

    /// Notes that the epoch moves once more, for the change that was taken last.
    pub(crate) fn finish(&mut self, cause: Cause) {
        self.note(cause, self.settled.get(&cause).cloned().unwrap_or_default());
    }

    /// Notes a change of a default route, whether or not it moves the epoch.
    pub(crate) fn note_default_route(&mut self, change: ChangeDetails) {
        self.default_routes.retain(|other| *other != change);
        self.default_routes.push(change);
    }

    /// What moved the epoch last for this cause; nothing if it was taken.
    pub(crate) fn take(&mut self, cause: Cause) -> ChangeDetails {
        let change = self.moved.remove(&cause).unwrap_or_default();
        // A later one stays: it tells what holds now.
        if self.default_routes.first() == Some(&change) {
            self.default_routes.remove(0);
        }
        self.settled.insert(cause, change.clone());
        change
    }

    /// The changes of default routes that [`Changes::take`] has not told.
    pub(crate) fn take_default_routes(&mut self) -> Vec<ChangeDetails> {
        std::mem::take(&mut self.default_routes)
    }
}
