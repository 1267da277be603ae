//! A restart that keeps flows: the messages of `/v1/restart`.

use crate::failure::Failure;
use serde::{Deserialize, Serialize};

/// The answer of `GET` and `POST /v1/restart`: how far a restart is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Restart {
    /// The process ID of the daemon that answers.
    pub pid: u32,
    /// The process ID of the next daemon, while it gets ready; absent if no restart is in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u32>,
    /// The process ID of the daemon that failed to take over last, and why. The daemon that answers has gone on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedRestart>,
    /// How the daemon that answers was started, if it was started to follow another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<RestartKind>,
}

/// A restart that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FailedRestart {
    /// The process ID of the daemon that failed to take over.
    pub pid: u32,
    /// Why it failed.
    pub why: Failure,
}

/// What became of the flows at a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum RestartKind {
    /// The daemon has taken over flows, counters and attachments.
    TakenOver {
        /// How long no daemon was in charge, in milliseconds.
        gap_ms: u64,
    },
    /// The daemon began without flows, and all were learned again.
    Clean {
        /// Why flows could not be taken over.
        why: String,
    },
}
