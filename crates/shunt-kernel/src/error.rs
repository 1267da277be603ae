//! What can go wrong between us and the kernel.

use shunt_core::Connection;
use std::io;

/// The kernel could not be asked, or refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A netlink socket could not be opened or used.
    #[error("{protocol} socket: {source}")]
    Socket {
        /// Which one.
        protocol: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel answered a request with an error.
    #[error("{request}: {source}")]
    Refused {
        /// What was asked.
        request: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel's tables changed during every attempt to read them.
    #[error("{request}: the table changes faster than it can be read")]
    Unsettled {
        /// What was asked.
        request: &'static str,
    },
    /// The answer does not have the form that the kernel documents.
    #[error("{request}: the answer cannot be read")]
    Malformed {
        /// What was asked.
        request: &'static str,
    },
    /// A sysctl is missing or is not a number.
    #[error("{path}: {source}")]
    Sysctl {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// A file of procfs cannot be read.
    #[error("{path}: {source}")]
    Proc {
        /// The file.
        path: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A table of legacy iptables or ip6tables cannot be read.
    #[error("{command}-legacy -t {table}: {source}")]
    Legacy {
        /// Which of the two.
        command: &'static str,
        /// The table.
        table: String,
        /// Why.
        source: io::Error,
    },
    /// Only TCP connections within one address family have a window to be liberal about.
    #[error("{} -> {}: not a TCP connection of one address family", .0.src, .0.dst)]
    NotTcp(Connection),
}
