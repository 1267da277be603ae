//! How far a measurement has come, for whoever waits for it.

/// How far a measurement has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Trials that are over.
    pub done: u64,
    /// Of so many.
    pub total: u64,
    /// What is measured now.
    pub now: String,
}
