//! A connection of a list: fast, slow, or both.

use serde::Serialize;
use shunt_api::{
    Connection, DirectionName, Engine, FlowState, Proto, Selection, SlowConnection, SlowCount, SlowDirection,
    SlowTable, Tuple,
};
use std::collections::HashMap;

/// A connection with a flow in the table, one that Linux forwards, or one that is both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
#[serde(untagged)]
pub(crate) enum Listed {
    Mixed(Box<MixedConnection>),
    Fast(Connection),
    Slow(SlowConnection),
}

/// A connection with a flow in the table, while Linux forwards a direction of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(crate) struct MixedConnection {
    /// What the flow table has of it. Its counts are those of the fast path.
    #[serde(flatten)]
    pub(crate) fast: Connection,
    /// What conntrack has of it.
    pub(crate) slow: SlowPart,
}

/// What Linux forwards of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(crate) struct SlowPart {
    /// The state that conntrack reports; none for protocols without states.
    pub(crate) conntrack_state: Option<String>,
    /// The sums of the counts of `directions`; none if conntrack does not count.
    pub(crate) count: Option<SlowCount>,
    /// One or two.
    pub(crate) directions: Vec<SlowDirection>,
}

/// Why slow connections have no rates.
pub(crate) const UNCOUNTED: &str = "conntrack counts no packets, so slow connections have no rates; to count those that \
    are opened from now on: sysctl -w net.netfilter.nf_conntrack_acct=1\n";

/// Adds the slow connections to the others. One that is in both is listed once.
pub(crate) fn listed(fast: Vec<Connection>, slow: SlowTable) -> Vec<Listed> {
    let key = |one: &SlowConnection| (one.protocol, one.orig, one.reply);
    let mut left: HashMap<_, _> =
        slow.connections.iter().enumerate().map(|(at, one)| (key(one), at)).collect();
    let mut slow: Vec<Option<SlowConnection>> = slow.connections.into_iter().map(Some).collect();
    let mut all = Vec::with_capacity(fast.len() + slow.len());
    for connection in fast {
        let (protocol, orig, reply) = (connection.proto.number(), connection.orig, connection.reply);
        // Of a flow without conntrack's entry, nobody knows which direction is the original one.
        let found = left.remove(&(protocol, orig, reply)).map(|at| (at, false));
        let found = found.or_else(|| left.remove(&(protocol, reply, orig)).map(|at| (at, true)));
        let half = found.and_then(|(at, is_swapped)| Some((slow.get_mut(at)?.take()?, is_swapped)));
        all.push(match half {
            Some((half, is_swapped)) => {
                Listed::Mixed(Box::new(MixedConnection::new(connection, half, is_swapped)))
            }
            None => Listed::Fast(connection),
        });
    }
    all.extend(slow.into_iter().flatten().map(Listed::Slow));
    all
}

impl MixedConnection {
    /// `is_swapped` says that the original direction of one is the reply of the other.
    fn new(fast: Connection, slow: SlowConnection, is_swapped: bool) -> Self {
        let half = |half: SlowDirection| SlowDirection {
            dir: if is_swapped { opposite(half.dir) } else { half.dir },
            ..half
        };
        let SlowConnection { conntrack_state, count, directions, .. } = slow;
        let directions = directions.into_iter().map(half).collect();
        Self { fast, slow: SlowPart { conntrack_state, count, directions } }
    }

    /// The state of each direction.
    pub(crate) fn states(&self) -> &'static str {
        let is_slow = |dir| self.slow.directions.iter().any(|half| half.dir == dir);
        match (is_slow(DirectionName::Orig), is_slow(DirectionName::Reply)) {
            (false, _) => "fast, replies slow",
            (true, false) => "slow, replies fast",
            (true, true) => "slow",
        }
    }

    /// What both paths have counted.
    fn count(&self) -> SlowCount {
        let Connection { packets, bytes, rate_bps, rate_pps, .. } = self.fast;
        SlowCount { packets, bytes, rate_bps, rate_pps }.plus(self.slow.count.unwrap_or_default())
    }
}

const fn opposite(dir: DirectionName) -> DirectionName {
    match dir {
        DirectionName::Orig => DirectionName::Reply,
        DirectionName::Reply => DirectionName::Orig,
    }
}

impl Listed {
    /// What the flow table has of it.
    pub(crate) fn fast(&self) -> Option<&Connection> {
        match self {
            Self::Mixed(mixed) => Some(&mixed.fast),
            Self::Fast(fast) => Some(fast),
            Self::Slow(_) => None,
        }
    }

    pub(crate) fn protocol(&self) -> u8 {
        match (self.fast(), self) {
            (Some(fast), _) => fast.proto.number(),
            (None, Self::Slow(slow)) => slow.protocol,
            (None, _) => unreachable!("all others have flows"),
        }
    }

    pub(crate) fn proto(&self) -> Option<Proto> {
        [Proto::Tcp, Proto::Udp].into_iter().find(|proto| proto.number() == self.protocol())
    }

    pub(crate) fn orig(&self) -> Tuple {
        match self {
            Self::Mixed(mixed) => mixed.fast.orig,
            Self::Fast(fast) => fast.orig,
            Self::Slow(slow) => slow.orig,
        }
    }

    pub(crate) fn reply(&self) -> Tuple {
        match self {
            Self::Mixed(mixed) => mixed.fast.reply,
            Self::Fast(fast) => fast.reply,
            Self::Slow(slow) => slow.reply,
        }
    }

    /// Whether a direction is in this state.
    pub(crate) fn has_state(&self, state: FlowState) -> bool {
        match self {
            Self::Mixed(mixed) => state == FlowState::Slow || mixed.fast.state == state,
            Self::Fast(fast) => fast.state == state,
            Self::Slow(slow) => slow.state == state,
        }
    }

    /// The state in words: one for each direction if they differ.
    pub(crate) fn states(&self) -> String {
        match self {
            Self::Mixed(mixed) => mixed.states().to_owned(),
            Self::Fast(fast) => fast.state.to_string(),
            Self::Slow(slow) => slow.state.to_string(),
        }
    }

    /// Why Linux forwards it: the reason of the direction with more packets. None if it is fast, or if the daemon was
    /// not asked.
    pub(crate) fn reason(&self) -> Option<&str> {
        let slow = match self {
            Self::Mixed(mixed) => &mixed.slow.directions[..],
            Self::Fast(_) => &[],
            Self::Slow(slow) => &slow.directions[..],
        };
        let rate = |half: &&SlowDirection| half.count.map_or(0, |count| count.rate_pps);
        slow.iter().rev().max_by_key(rate)?.because.as_ref().map(|because| because.reason.as_str())
    }

    /// As [`Self::reason`], or what would tell. None if it is fast.
    pub(crate) fn why_slow(&self) -> Option<&str> {
        match self {
            Self::Mixed(_) | Self::Slow(_) => Some(self.reason().unwrap_or("see `shunt why`")),
            Self::Fast(_) => None,
        }
    }

    /// The state of each direction, and why one is slow: `fast, replies slow: no-conntrack`.
    pub(crate) fn states_and_reason(&self) -> String {
        let why = self.why_slow().map_or_else(String::new, |why| format!(": {why}"));
        format!("{}{why}", self.states())
    }

    /// Whether every direction with packets is fast.
    pub(crate) fn is_fast(&self) -> bool {
        match self {
            Self::Fast(fast) => matches!(fast.state, FlowState::Active | FlowState::Static),
            Self::Mixed(_) | Self::Slow(_) => false,
        }
    }

    /// None if Linux forwards both directions.
    pub(crate) fn engine(&self) -> Option<Engine> {
        self.fast().map(|fast| fast.engine)
    }

    /// What was counted, by both directions together or by those that are slow; none if nobody counts.
    pub(crate) fn count(&self) -> Option<SlowCount> {
        match self {
            Self::Mixed(mixed) => Some(mixed.count()),
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

    /// What Linux forwards of it.
    pub(crate) fn slow_count(&self) -> SlowCount {
        let count = match self {
            Self::Mixed(mixed) => mixed.slow.count,
            Self::Fast(_) => None,
            Self::Slow(slow) => slow.count,
        };
        count.unwrap_or_default()
    }

    pub(crate) fn age_s(&self) -> Option<u64> {
        match self {
            Self::Slow(slow) => slow.age_s,
            Self::Mixed(_) | Self::Fast(_) => self.fast().map(|fast| fast.age_s),
        }
    }

    /// Seconds since the last packet; none if that is not known.
    pub(crate) fn idle_s(&self) -> Option<u64> {
        if self.slow_count().rate_pps > 0 {
            return Some(0);
        }
        self.fast().map(|fast| fast.idle_s)
    }

    /// The counts of each direction. One that was fast and is slow now has two.
    pub(crate) fn directions(&self) -> Vec<(DirectionName, SlowCount)> {
        let flows = self.fast().map(|fast| &fast.directions[..]).unwrap_or_default();
        let fast = flows.iter().map(|flow| {
            let (packets, bytes, rate_bps, rate_pps) =
                (flow.packets, flow.bytes, flow.rate_bps, flow.rate_pps);
            (flow.dir, SlowCount { packets, bytes, rate_bps, rate_pps })
        });
        let slow: Vec<(DirectionName, Option<SlowCount>)> = match self {
            Self::Mixed(mixed) => mixed.slow.directions.iter().map(|one| (one.dir, one.count)).collect(),
            Self::Fast(_) => Vec::new(),
            Self::Slow(slow) => slow.directions.iter().map(|one| (one.dir, one.count)).collect(),
        };
        fast.chain(slow.into_iter().map(|(dir, count)| (dir, count.unwrap_or_default()))).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::flows::sample::{slow, tcp, udp6};

    /// The slow part of the TCP connection: replies.
    fn replies() -> SlowConnection {
        let mut replies = slow();
        (replies.orig, replies.reply) = (tcp().orig, tcp().reply);
        replies.directions.retain(|one| one.dir == DirectionName::Reply);
        replies.count = replies.directions[0].count;
        replies
    }

    fn table(connections: Vec<SlowConnection>) -> SlowTable {
        SlowTable { counted: true, connections, more: 0 }
    }

    #[test]
    fn a_connection_that_is_fast_in_one_direction_is_listed_once_with_both_states() {
        let all = listed(vec![tcp(), udp6()], table(vec![slow(), replies()]));
        let states: Vec<String> = all.iter().map(Listed::states).collect();
        assert_eq!(states, ["fast, replies slow", "pending", "slow"]);
        let (mixed, count) = (&all[0], replies().count.unwrap());
        assert_eq!(mixed.counts().rate_bps, tcp().rate_bps + count.rate_bps);
        assert_eq!((mixed.slow_count(), mixed.engine()), (count, Some(tcp().engine)));
        assert!(mixed.has_state(FlowState::Slow) && mixed.has_state(FlowState::Active) && !mixed.is_fast());
    }

    #[test]
    fn the_directions_are_named_as_those_of_the_flows() {
        let mut swapped = replies();
        (swapped.orig, swapped.reply) = (swapped.reply, swapped.orig);
        let all = listed(vec![tcp()], table(vec![swapped]));
        assert_eq!((all.len(), all[0].states().as_str()), (1, "slow, replies fast"));
    }

    #[test]
    fn the_reason_is_that_of_the_direction_with_more_packets() {
        let mut one = slow();
        assert_eq!(Listed::Slow(one.clone()).states_and_reason(), "slow: no-conntrack", "replies are more");
        one.directions.iter_mut().for_each(|half| half.count = None);
        assert_eq!(Listed::Slow(one.clone()).reason(), Some("excluded"), "the first one");
        one.directions.iter_mut().for_each(|half| half.because = None);
        assert_eq!(Listed::Slow(one).states_and_reason(), "slow: see `shunt why`");
        assert_eq!(Listed::Fast(tcp()).reason(), None);
    }
}
