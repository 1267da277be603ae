//! Progress of a measurement.

/// Progress of a measurement, for the user who waits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Number of finished trials.
    pub done: u64,
    /// Number of all trials.
    pub total: u64,
    /// Name of the current trial.
    pub now: String,
}
