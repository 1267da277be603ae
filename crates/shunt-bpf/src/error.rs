//! What can go wrong between us and the kernel.

use crate::attach::Hook;
use std::io;

/// Loading, attaching or reading the data plane failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel did not take an object.
    #[error("the kernel refused the {object} programs: {source}")]
    Load {
        /// Which of the objects.
        object: &'static str,
        /// What libbpf said.
        source: libbpf_rs::Error,
    },
    /// An object lacks what the code expects in it.
    #[error("the {object} object has no `{name}`")]
    Lacks {
        /// Which of the objects.
        object: &'static str,
        /// The map or program.
        name: &'static str,
    },
    /// A program could not be attached.
    #[error("cannot attach to device {ifindex} at {hook:?}: {source}")]
    Attach {
        /// The device.
        ifindex: u32,
        /// The hook.
        hook: Hook,
        /// Why.
        source: io::Error,
    },
    /// A map could not be read or written.
    #[error("map {map}: {source}")]
    Map {
        /// The map.
        map: &'static str,
        /// Why.
        source: libbpf_rs::Error,
    },
    /// Memory shared with the kernel could not be had.
    #[error("cannot map the control block: {0}")]
    Memory(#[source] io::Error),
    /// The ring of events cannot be waited for.
    #[error("cannot wait for events: {0}")]
    Ring(#[source] io::Error),
    /// No entry of the flow table is free for this flow.
    #[error("the flow table is full")]
    Full,
    /// All port slots are in use.
    #[error("no more than {0} ports are possible")]
    TooManyPorts(u32),
}

impl Error {
    /// The error number below it, where there is one.
    pub fn os_error(&self) -> Option<i32> {
        let mut next: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(error) = next {
            if let Some(code) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
                return Some(code);
            }
            next = error.source();
        }
        None
    }
}
