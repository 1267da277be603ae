//! What became of the connections.

use std::time::Duration;

/// The counts and times of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Connections whose SYN was sent.
    pub opened: u64,
    /// Connections whose handshake the client has completed.
    pub established: u64,
    /// Connections with all requests and responses, closed by FIN of both ends, each acknowledged.
    pub completed: u64,
    /// Connections that ended otherwise.
    pub failed: Failures,
    /// Most connections that were open at once.
    pub open_most: u64,
    /// The longest delay of a SYN after it was due.
    pub late: Duration,
    /// Segments and bytes from clients to servers.
    pub to_server: Way,
    /// Segments and bytes from servers to clients.
    pub to_client: Way,
    /// Segments that arrived and did not fit any connection: other addresses, ports or numbers.
    pub stray: u64,
    /// Times in ns from a client's SYN to the arrival of the answer that opens the connection.
    pub handshake_ns: Vec<u64>,
    /// Times in ns from a request to the arrival of the last byte of its response.
    pub exchange_ns: Vec<u64>,
}

/// Counts of the segments of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Way {
    /// Segments sent, repeated ones included.
    pub sent: u64,
    /// Segments that arrived, strays included.
    pub arrived: u64,
    /// Segments sent that repeat bytes, SYN or FIN.
    pub retransmitted: u64,
    /// Bytes of payload that arrived, each counted once.
    pub bytes: u64,
}

/// Failed connections, by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Failures {
    /// A reset or an ICMP error answered the SYN.
    pub refused: u64,
    /// A reset ended an established connection.
    pub reset: u64,
    /// No answer to the SYN.
    pub unanswered: u64,
    /// An established connection whose segments were no longer acknowledged.
    pub silent: u64,
    /// Bytes arrived in a place where they were not sent.
    pub corrupted: u64,
}

/// Why a connection failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    Refused,
    Reset,
    Unanswered,
    Silent,
    Corrupted,
}

impl Failures {
    pub(super) fn add(&mut self, cause: Cause) {
        *match cause {
            Cause::Refused => &mut self.refused,
            Cause::Reset => &mut self.reset,
            Cause::Unanswered => &mut self.unanswered,
            Cause::Silent => &mut self.silent,
            Cause::Corrupted => &mut self.corrupted,
        } += 1;
    }

    /// Number of failed connections.
    pub fn sum(&self) -> u64 {
        self.refused + self.reset + self.unanswered + self.silent + self.corrupted
    }
}

impl Way {
    /// Segments that did not arrive.
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.arrived)
    }
}

impl Outcome {
    /// Connections that neither completed nor failed.
    pub fn unfinished(&self) -> u64 {
        self.opened - self.completed - self.failed.sum()
    }
}
