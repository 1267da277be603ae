//! What a policy has found out over time, and the next daemon's policy would have to find out again.

use crate::{Core, Program, Received};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The findings of a policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    /// The TCX programs of others.
    programs: BTreeSet<Program>,
    /// The packets that ports receive, by ifindex.
    received: BTreeMap<u32, Received>,
}

impl Core {
    /// The findings until now.
    pub fn findings(&self) -> Findings {
        Findings { programs: self.programs.clone(), received: self.surveys.found() }
    }

    /// Begins with the findings of the daemon before this one. To be called before the first event.
    pub fn begin_with(&mut self, findings: Findings) {
        self.programs = findings.programs;
        self.surveys.begin_with(findings.received);
    }
}
