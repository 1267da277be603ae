//! Errors of the data plane.

use crate::{hook::Hook, verifier};
use libbpf_rs::ErrorKind;
use nix::libc;
use std::{io, sync::Arc};

/// Loading, attaching or reading the data plane failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refused an object.
    #[error("the kernel refused the {object} programs: {source:#}")]
    Load {
        /// The name of the object.
        object: &'static str,
        /// libbpf's error.
        source: libbpf_rs::Error,
    },
    /// The verifier refused a program.
    #[error("the kernel's verifier refused the {object} programs: {reason}")]
    Refused {
        /// The name of the object.
        object: &'static str,
        /// The last line of the verifier's log.
        reason: String,
    },
    /// An optional object is needed now, and failed to load earlier, for this reason.
    #[error(transparent)]
    NotLoaded(Arc<Error>),
    /// An object has no map or program of this name.
    #[error("the {object} object has no `{name}`")]
    Missing {
        /// The name of the object; `loaded` for any of the loaded objects.
        object: &'static str,
        /// The name of the map or program.
        name: &'static str,
    },
    /// A map that another daemon made has another shape than the programs expect.
    #[error("the map `{map}` has another layout")]
    Layout {
        /// The name of the map.
        map: String,
    },
    /// A program could not be attached.
    #[error("cannot attach to device {ifindex} at {hook:?}: {source}")]
    Attach {
        /// Interface index of the device.
        ifindex: u32,
        /// The hook.
        hook: Hook,
        /// The kernel's error.
        source: io::Error,
    },
    /// Without TCX, egress filters need a clsact qdisc, and the device has an `ingress` qdisc instead.
    #[error("an `ingress` qdisc has no egress hook")]
    NoEgress,
    /// A map could not be read or written.
    #[error("map {map}: {source}")]
    Map {
        /// The name of the map.
        map: &'static str,
        /// libbpf's error.
        source: libbpf_rs::Error,
    },
    /// Memory shared with the programs could not be mapped.
    #[error("cannot map the control block: {0}")]
    Memory(#[source] io::Error),
    /// A program could not be attached to a netlink socket.
    #[error("cannot attach a filter to a netlink socket: {0}")]
    Filter(#[source] io::Error),
    /// The descriptor of a program could not be duplicated.
    #[error("cannot duplicate a descriptor: {0}")]
    Descriptor(#[source] io::Error),
    /// A ring buffer could not be polled.
    #[error("cannot wait for events: {0}")]
    Ring(#[source] io::Error),
    /// No entry or slot of the flow table is free for this flow.
    #[error("the flow table is full")]
    Full,
    /// All port slots are in use.
    #[error("an instance can have at most {0} ports; choose them with --port")]
    TooManyPorts(u32),
}

impl Error {
    /// The error for an object that failed to load, with the verifier's reason if there is one.
    pub(crate) fn loading(object: &'static str, source: libbpf_rs::Error) -> Self {
        match verifier::last_reason() {
            Some(reason) => Self::Refused { object, reason },
            None => Self::Load { object, source },
        }
    }

    /// The external engine's programs were not loaded.
    pub(crate) fn missing_external() -> Self {
        Self::Missing { object: "xdp_external", name: "shunt_xdp_ext" }
    }

    /// The errno of the cause. None if there is none; of libbpf's errors, ENOMEM, EPERM, EMFILE and ENFILE are told
    /// apart.
    pub fn os_error(&self) -> Option<i32> {
        match self {
            Self::Load { source, .. } | Self::Map { source, .. } => match source.kind() {
                ErrorKind::OutOfMemory => Some(libc::ENOMEM),
                ErrorKind::PermissionDenied => Some(libc::EPERM),
                _ => file_limit(source),
            },
            Self::Attach { source, .. }
            | Self::Memory(source)
            | Self::Filter(source)
            | Self::Descriptor(source)
            | Self::Ring(source) => source.raw_os_error(),
            Self::NotLoaded(why) => why.os_error(),
            Self::Refused { .. }
            | Self::Missing { .. }
            | Self::Layout { .. }
            | Self::NoEgress
            | Self::Full
            | Self::TooManyPorts(_) => None,
        }
    }
}

/// The errno, if the cause is a limit of open files. libbpf's errors give it neither as a number nor as a kind, so the
/// text has to tell.
fn file_limit(error: &libbpf_rs::Error) -> Option<i32> {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    let text = cause.to_string();
    [libc::EMFILE, libc::ENFILE]
        .into_iter()
        .find(|code| text == io::Error::from_raw_os_error(*code).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_loading_and_attaching_keep_their_errno() {
        for code in [libc::ENOMEM, libc::EPERM, libc::EMFILE, libc::ENFILE] {
            let source = libbpf_rs::Error::from_raw_os_error(code);
            assert_eq!(Error::Load { object: "some", source }.os_error(), Some(code));
            let source =
                libbpf_rs::ErrorExt::context(libbpf_rs::Error::from_raw_os_error(code), "on the way");
            assert_eq!(Error::Load { object: "some", source }.os_error(), Some(code));
        }
        let source = io::Error::from_raw_os_error(libc::EBUSY);
        assert_eq!(Error::Attach { ifindex: 1, hook: Hook::Xdp, source }.os_error(), Some(libc::EBUSY));
    }
}
