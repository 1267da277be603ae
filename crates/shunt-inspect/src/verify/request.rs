//! What to verify, by whose help, and why it fails.

use super::{fault::Way, programs::Taps};
use crate::probes::ProgramError;
use shunt_api::{Engine, Proto, Tuple};
use std::{io, time::Duration};

/// A direction of a connection to observe.
#[derive(Debug, Clone)]
pub struct Flow {
    /// The connection, by any number: both directions have the same.
    pub connection: usize,
    /// The protocol of `enters` and `leaves`.
    pub proto: Proto,
    /// The port through which packets arrive.
    pub in_port: String,
    /// The port through which packets leave.
    pub out_port: String,
    /// Addresses and ports of arriving packets.
    pub enters: Tuple,
    /// Addresses and ports of leaving packets.
    pub leaves: Tuple,
    /// The engine that forwards them.
    pub engine: Engine,
}

/// The flows to observe, for how long, and what of them cannot be observed.
#[derive(Debug, Clone)]
pub struct Request {
    /// The directions of fast connections.
    pub flows: Vec<Flow>,
    /// For how long.
    pub time: Duration,
    /// What cannot be observed.
    pub doubts: Vec<String>,
}

/// Packets cannot be verified.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The kernel refuses the programs.
    #[error("{0}")]
    Programs(String),
    /// The caller may not load programs.
    #[error("{0}; verifying needs root")]
    NotAllowed(String),
    /// A port is gone, or the clock cannot be read.
    #[error("{doing}: {source}")]
    System {
        /// What was tried.
        doing: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The connections could not be moved to the other path, or programs not attached or detached.
    #[error("{0}")]
    Owner(String),
}

impl From<ProgramError> for VerifyError {
    fn from(error: ProgramError) -> Self {
        let why = error.to_string();
        if error.forbidden { Self::NotAllowed(why) } else { Self::Programs(why) }
    }
}

/// The owner of the ports, which undoes by itself what it was asked to do when the time is over.
pub trait Owner {
    /// Moves the connections to a path for a time.
    ///
    /// # Errors
    /// Why they could not be moved.
    fn switch(&mut self, way: Way, time: Duration) -> Result<(), String>;

    /// Attaches programs that see the frames which XDP forwards, for a time from now on.
    ///
    /// # Errors
    /// Why they could not be attached.
    fn attach(&mut self, taps: &Taps, time: Duration) -> Result<(), String>;

    /// Detaches these programs.
    ///
    /// # Errors
    /// Why they could not be detached.
    fn detach(&mut self) -> Result<(), String>;
}
