//! Reading the configuration file again while the daemon runs: the messages of `/v1/reload`.

use crate::qos::UnusedQueues;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The body of `POST /v1/reload`; an empty body stands for `{}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ReloadRequest {
    /// Say what would happen, and change nothing.
    pub dry_run: bool,
    /// Apply what needs no restart although other keys need one. Without this, nothing is applied then.
    pub partial: bool,
    /// With `dry_run`: the absolute path of another file, to try it; the daemon goes on with its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// What a reload has done, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Reload {
    /// Path of the configuration file.
    pub file: String,
    /// Whether this says only what would happen.
    pub dry_run: bool,
    /// Whether the changes that need no restart were applied, or would be.
    pub applied: bool,
    /// The keys whose values in the file differ from those that run.
    pub changes: Vec<KeyChange>,
    /// Keys that options of the command line give. Their values in the file count for nothing.
    pub overridden: Vec<String>,
    /// Devices that become ports.
    pub ports_added: Vec<String>,
    /// Devices that are no longer ports.
    pub ports_removed: Vec<String>,
    /// Queues of the file that no packet passes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unused_queues: Vec<UnusedQueues>,
    /// What did not work when the changes were applied, each in one sentence; the daemon goes on without.
    pub failures: Vec<String>,
}

/// A key whose value differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KeyChange {
    /// The key, such as `idle` or `qos.wan0.rate`.
    pub key: String,
    /// The value that runs, as TOML; `none` if the port or the class had no such key.
    pub from: String,
    /// The value in the file, as TOML; `none` if the port or the class has no such key.
    pub to: String,
    /// What the change needs.
    pub effect: ChangeEffect,
    /// What becomes of flows, or why a restart is needed: a sentence.
    pub why: String,
}

/// What a change of the configuration needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ChangeEffect {
    /// Applied while flows go on.
    InPlace,
    /// Applied, and flows prove themselves again.
    Relearn,
    /// Applied by a restart of the daemon only.
    Restart,
}

/// The configuration file of a running daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ConfigStatus {
    /// Path of the file.
    pub file: String,
    /// The keys whose values in the file differ from those that run, some seconds ago; empty if none does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differs: Vec<String>,
    /// Why the file cannot be used; absent if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unusable: Option<String>,
    /// The last reload; absent if there was none since the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reload: Option<LastReload>,
}

/// When the configuration was last read again, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LastReload {
    /// When, in seconds since 1970.
    pub at: u64,
    /// Who asked for it, such as `SIGHUP` or `shunt reload`.
    pub by: String,
    /// The keys that were changed; empty if there was nothing to change.
    pub keys: Vec<String>,
    /// Why nothing was changed although something should have been; absent if the reload was carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl Reload {
    /// The changes that need a restart.
    pub fn restarts(&self) -> impl Iterator<Item = &KeyChange> {
        self.changes.iter().filter(|change| change.effect == ChangeEffect::Restart)
    }
}

impl fmt::Display for ChangeEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::InPlace => "in place",
            Self::Relearn => "relearn",
            Self::Restart => "restart",
        })
    }
}
