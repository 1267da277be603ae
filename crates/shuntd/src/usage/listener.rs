//! Listens for the ends of connections.

use shunt_kernel::{ConntrackEnds, Ended};

/// The receive buffer for the ends of connections.
const BYTES: usize = 4 << 20;

/// The socket to which conntrack reports the ends of connections.
pub(super) enum Listener {
    Closed,
    Open(ConntrackEnds),
    /// Conntrack reports none, or has failed to. The log says why.
    Refused,
}

impl Listener {
    /// Listens from now on. Within a runtime.
    pub(super) fn open(&mut self) {
        if matches!(self, Self::Closed) {
            *self = ConntrackEnds::open(BYTES).map_or_else(Self::refused, Self::Open);
        }
    }

    pub(super) fn close(&mut self) {
        if matches!(self, Self::Open(_)) {
            *self = Self::Closed;
        }
    }

    /// Waits for entries that have ended; forever if nobody listens. May be dropped at any time.
    pub(super) async fn next(&mut self) -> Ended {
        if let Self::Open(ends) = self {
            match ends.next().await {
                Ok(ended) => return ended,
                Err(error) => *self = Self::refused(error),
            }
        }
        std::future::pending().await
    }

    /// What has ended until now; `None` if nobody listens, or if it cannot be read now.
    pub(super) fn read_now(&mut self) -> Option<Ended> {
        match self {
            Self::Open(ends) => ends.read_now().ok(),
            Self::Closed | Self::Refused => None,
        }
    }

    fn refused(error: shunt_kernel::Error) -> Self {
        tracing::warn!("{error}; connections that end between two readings are not attributed");
        Self::Refused
    }
}
