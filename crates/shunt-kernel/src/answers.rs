//! Answers of the kernel that are not events.

use std::time::Duration;

/// The XDP features of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum XdpSupport {
    /// The kernel reports the features of the device.
    Known {
        /// Native programs can run on the device and redirect from it.
        native: bool,
        /// Frames can be redirected to the device.
        target: bool,
        /// Frames in several buffers can be redirected to the device.
        target_frags: bool,
        /// AF_XDP sockets work on the device without a copy.
        zero_copy: bool,
    },
    /// The kernel cannot report them; the text says why.
    Unknown(String),
}

/// The protocols that Linux forwards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Forwarding {
    /// IPv4, from at least one device.
    pub v4: bool,
    /// IPv6, from at least one device.
    pub v6: bool,
}

/// Conntrack's timeouts of silent connections. A rule may set other ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConntrackTimeouts {
    /// UDP with packets in one direction only, or for less than two seconds.
    pub udp: Duration,
    /// UDP with packets in both directions.
    pub udp_stream: Duration,
    /// Established TCP.
    pub tcp_established: Duration,
    /// Established TCP with data that is not acknowledged, or was retransmitted repeatedly.
    pub tcp_unacknowledged: Duration,
    /// TCP after an RST.
    pub tcp_close: Duration,
    /// TCP that both ends have closed.
    pub tcp_time_wait: Duration,
    /// TCP whose first packet has had no answer.
    pub tcp_syn_sent: Duration,
    /// Whether conntrack accepts all sequence numbers of every TCP connection (nf_conntrack_tcp_be_liberal).
    pub tcp_be_liberal: bool,
}

/// The result of setting BE_LIBERAL on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liberal {
    /// BE_LIBERAL is set.
    Set,
    /// Conntrack does not know the connection any more.
    Gone,
}
