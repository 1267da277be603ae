//! A connection of a list: fast, or slow.

use serde::Serialize;
use shunt_api::{
    Connection, DirectionName, Engine, FlowState, Proto, Selection, SlowConnection, SlowCount, SlowTable,
    Tuple,
};

/// A connection with a flow in the table, or one that Linux forwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
#[serde(untagged)]
pub(crate) enum Listed {
    Fast(Connection),
    Slow(SlowConnection),
}

/// Why slow connections have no rates.
pub(crate) const UNCOUNTED: &str = "conntrack counts no packets, so slow connections have no rates; to count those that \
    are opened from now on: sysctl -w net.netfilter.nf_conntrack_acct=1\n";

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Adds the slow connections to the others. Of a connection that is in both, one direction is slow.
pub(crate) fn listed(fast: Vec<Connection>, slow: SlowTable) -> Vec<Listed> {
    fast.into_iter().map(Listed::Fast).chain(slow.connections.into_iter().map(Listed::Slow)).collect()
}

impl Listed {
    pub(crate) const fn protocol(&self) -> u8 {
        match self {
            Self::Fast(Connection { proto: Proto::Tcp, .. }) => TCP,
            Self::Fast(Connection { proto: Proto::Udp, .. }) => UDP,
            Self::Slow(slow) => slow.protocol,
        }
    }

    pub(crate) const fn proto(&self) -> Option<Proto> {
        match self.protocol() {
            TCP => Some(Proto::Tcp),
            UDP => Some(Proto::Udp),
            _ => None,
        }
    }

    pub(crate) const fn orig(&self) -> Tuple {
        match self {
            Self::Fast(fast) => fast.orig,
            Self::Slow(slow) => slow.orig,
        }
    }

    pub(crate) const fn reply(&self) -> Tuple {
        match self {
            Self::Fast(fast) => fast.reply,
            Self::Slow(slow) => slow.reply,
        }
    }

    pub(crate) const fn state(&self) -> FlowState {
        match self {
            Self::Fast(fast) => fast.state,
            Self::Slow(slow) => slow.state,
        }
    }

    /// None if Linux forwards.
    pub(crate) const fn engine(&self) -> Option<Engine> {
        match self {
            Self::Fast(fast) => Some(fast.engine),
            Self::Slow(_) => None,
        }
    }

    /// What was counted, by both directions together or by those that are slow; none if nobody counts.
    pub(crate) const fn count(&self) -> Option<SlowCount> {
        match self {
            Self::Fast(Connection { packets, bytes, rate_bps, rate_pps, .. }) => {
                Some(SlowCount { packets: *packets, bytes: *bytes, rate_bps: *rate_bps, rate_pps: *rate_pps })
            }
            Self::Slow(slow) => slow.count,
        }
    }

    /// As [`Self::count`], or zeros.
    pub(crate) fn counts(&self) -> SlowCount {
        self.count().unwrap_or_default()
    }

    pub(crate) const fn age_s(&self) -> Option<u64> {
        match self {
            Self::Fast(fast) => Some(fast.age_s),
            Self::Slow(slow) => slow.age_s,
        }
    }

    /// Seconds since the last packet; none if that is not known.
    pub(crate) fn idle_s(&self) -> Option<u64> {
        match self {
            Self::Fast(fast) => Some(fast.idle_s),
            Self::Slow(slow) => slow.count.filter(|count| count.rate_pps > 0).map(|_| 0),
        }
    }

    /// The count of each direction.
    pub(crate) fn directions(&self) -> Vec<(DirectionName, SlowCount)> {
        match self {
            Self::Fast(fast) => fast
                .directions
                .iter()
                .map(|flow| {
                    let (packets, bytes, rate_bps, rate_pps) =
                        (flow.packets, flow.bytes, flow.rate_bps, flow.rate_pps);
                    (flow.dir, SlowCount { packets, bytes, rate_bps, rate_pps })
                })
                .collect(),
            Self::Slow(slow) => {
                slow.directions.iter().map(|one| (one.dir, one.count.unwrap_or_default())).collect()
            }
        }
    }

    /// The connection, for `shunt why`.
    pub(crate) fn selection(&self) -> Selection {
        let Tuple { src, dst, sport, dport } = self.orig();
        Selection {
            src: Some(src.into()),
            dst: Some(dst.into()),
            sport: Some(sport),
            dport: Some(dport),
            proto: self.proto(),
        }
    }
}
