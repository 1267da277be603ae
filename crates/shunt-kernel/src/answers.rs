//! What the kernel answers.

use std::time::Duration;

/// What XDP can do with a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum XdpSupport {
    /// The kernel said.
    Known {
        /// Native programs can run on it and may redirect from it.
        native: bool,
        /// Frames can be redirected to it.
        target: bool,
        /// AF_XDP works on it without a copy.
        zero_copy: bool,
    },
    /// It cannot be asked, and why.
    Unknown(String),
}

/// For which protocols Linux forwards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Forwarding {
    /// IPv4, from at least one device.
    pub v4: bool,
    /// IPv6, from at least one device.
    pub v6: bool,
}

/// How long conntrack remembers a silent connection, where no rule sets a timeout of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConntrackTimeouts {
    /// UDP in one direction, or for less than two seconds.
    pub udp: Duration,
    /// UDP in both directions.
    pub udp_stream: Duration,
    /// Established TCP.
    pub tcp_established: Duration,
    /// The same while data is not acknowledged, or was sent again and again.
    pub tcp_unacknowledged: Duration,
}

/// What became of a connection that was to be liberal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liberal {
    /// It is.
    Set,
    /// It has ended.
    Gone,
}
