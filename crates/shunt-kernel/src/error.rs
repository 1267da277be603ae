//! Errors of requests to the kernel.

use shunt_core::Connection;
use std::io;

/// Why kernel state could not be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A netlink socket could not be opened or used.
    #[error("{protocol} socket: {source}")]
    Socket {
        /// The netlink protocol, for example `NETLINK_ROUTE`.
        protocol: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
    /// Waiting for notifications failed.
    #[error("waiting for netlink notifications: {0}")]
    Wait(io::Error),
    /// The kernel answered a request with an error.
    #[error("{request}: {source}")]
    Refused {
        /// The request, for example `RTM_GETLINK`.
        request: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel's tables changed during every attempt to read them.
    #[error("{request}: the kernel's tables changed during every attempt to read them")]
    Unsettled {
        /// The request, for example `RTM_GETLINK`.
        request: &'static str,
    },
    /// The reply does not have the documented format.
    #[error("unexpected netlink reply to {request}")]
    Malformed {
        /// The request, for example `RTM_GETLINK`.
        request: &'static str,
    },
    /// A sysctl cannot be read or is not a number.
    #[error("{path}: {source}")]
    Sysctl {
        /// The path in /proc/sys.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// A file of procfs cannot be read.
    #[error("{path}: {source}")]
    Proc {
        /// The path of the file.
        path: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// A table of legacy iptables or ip6tables cannot be read.
    #[error("{command}-legacy -t {table}: {source}")]
    Legacy {
        /// `iptables` or `ip6tables`.
        command: &'static str,
        /// The name of the table.
        table: String,
        /// The cause.
        source: io::Error,
    },
    /// BE_LIBERAL was requested for a connection that is not TCP or mixes address families.
    #[error("{} -> {}: not a TCP connection of one address family", .0.src, .0.dst)]
    NotTcp(Connection),
}
