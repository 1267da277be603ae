//! What can go wrong between us and the kernel.

use crate::{attach::Hook, verifier};
use libbpf_rs::ErrorKind;
use nix::libc;
use std::{io, sync::Arc};

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
    /// The verifier did not take a program.
    #[error("the kernel's verifier refused the {object} programs: {reason}")]
    Refused {
        /// Which of the objects.
        object: &'static str,
        /// What the verifier said last.
        reason: String,
    },
    /// What could be done without until now went wrong when the programs were loaded.
    #[error(transparent)]
    Earlier(Arc<Error>),
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
    /// Without TCX, filters on egress need clsact, and its place is taken.
    #[error("its qdisc `ingress` has no place for filters on egress")]
    NoEgress,
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
    /// A program cannot be put on a netlink socket.
    #[error("cannot filter a netlink socket: {0}")]
    Filter(#[source] io::Error),
    /// The ring of events cannot be waited for.
    #[error("cannot wait for events: {0}")]
    Ring(#[source] io::Error),
    /// No entry of the flow table is free for this flow.
    #[error("the flow table is full")]
    Full,
    /// All port slots are in use.
    #[error("an instance has {0} ports at most; choose them with --port")]
    TooManyPorts(u32),
}

impl Error {
    /// An object was not loaded.
    pub(crate) fn loading(object: &'static str, source: libbpf_rs::Error) -> Self {
        match verifier::last_reason() {
            Some(reason) => Self::Refused { object, reason },
            None => Self::Load { object, source },
        }
    }

    /// The error number below it, where there is one. Of libbpf's errors, those that say what to do about it have one.
    pub fn os_error(&self) -> Option<i32> {
        match self {
            Self::Load { source, .. } | Self::Map { source, .. } => match source.kind() {
                ErrorKind::OutOfMemory => Some(libc::ENOMEM),
                ErrorKind::PermissionDenied => Some(libc::EPERM),
                _ => None,
            },
            Self::Attach { source, .. }
            | Self::Memory(source)
            | Self::Filter(source)
            | Self::Ring(source) => source.raw_os_error(),
            Self::Earlier(why) => why.os_error(),
            Self::Refused { .. }
            | Self::Lacks { .. }
            | Self::NoEgress
            | Self::Full
            | Self::TooManyPorts(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_said_of_a_load_is_known_by_its_number() {
        for code in [libc::ENOMEM, libc::EPERM] {
            let source = libbpf_rs::Error::from_raw_os_error(code);
            assert_eq!(Error::Load { object: "some", source }.os_error(), Some(code));
        }
        let source = io::Error::from_raw_os_error(libc::EBUSY);
        assert_eq!(Error::Attach { ifindex: 1, hook: Hook::Xdp, source }.os_error(), Some(libc::EBUSY));
    }
}
