//! What is counted, and the words that the series of the ledger keep of it.

use serde::{Deserialize, Serialize};
use shunt_api::{Counted, FastCount, UsageCount, UsageTotal};

/// Packets and bytes, sent and received, and the part of them that was fast.
pub(super) const COUNT_WORDS: usize = 8;
type CountWords = [u64; COUNT_WORDS];
/// The ports' counters, what connections explain of them, the seconds in which they were read, and the fast part.
pub(super) const TOTAL_WORDS: usize = 11;
type TotalWords = [u64; TOTAL_WORDS];

/// What was sent and received by both paths together, and the part of it that took the fast path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PathCount {
    pub(crate) sent: Counted,
    pub(crate) received: Counted,
    #[serde(default)]
    pub(crate) fast: FastCount,
}

/// What the ports received, and what explains it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Total {
    pub(super) received: Counted,
    /// The part that the ledger has, or that is `transit`.
    pub(super) explained: Counted,
    pub(super) local: Counted,
    pub(super) transit: Counted,
    pub(super) counted_s: u64,
    /// The part of `received` that took the fast path.
    pub(super) fast: Counted,
}

/// What ports have received.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct PortsReceived {
    pub(crate) all: Counted,
    /// The part of it that took the fast path.
    pub(crate) fast: Counted,
}

impl PortsReceived {
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self { all: self.all.plus(other.all), fast: self.fast.plus(other.fast) }
    }

    pub(super) const fn minus(self, before: Self) -> Self {
        Self { all: minus(self.all, before.all), fast: minus(self.fast, before.fast) }
    }
}

impl PathCount {
    /// The sum of both counts.
    #[must_use]
    pub(super) const fn plus(self, other: Self) -> Self {
        Self {
            sent: self.sent.plus(other.sent),
            received: self.received.plus(other.received),
            fast: FastCount {
                sent: self.fast.sent.plus(other.fast.sent),
                received: self.fast.received.plus(other.fast.received),
            },
        }
    }

    /// Bytes, sent and received.
    pub(super) const fn bytes(&self) -> u64 {
        self.sent.bytes.saturating_add(self.received.bytes)
    }

    /// The count as clients see it; `has_paths` says whether the paths were told apart.
    pub(super) fn view(self, has_paths: bool) -> UsageCount {
        let Self { sent, received, fast } = self;
        UsageCount { sent, received, fast: has_paths.then_some(fast) }
    }
}

const fn minus(now: Counted, before: Counted) -> Counted {
    Counted {
        packets: now.packets.saturating_sub(before.packets),
        bytes: now.bytes.saturating_sub(before.bytes),
    }
}

pub(super) const fn words(count: PathCount) -> CountWords {
    let PathCount { sent, received, fast } = count;
    [
        sent.packets,
        sent.bytes,
        received.packets,
        received.bytes,
        fast.sent.packets,
        fast.sent.bytes,
        fast.received.packets,
        fast.received.bytes,
    ]
}

pub(super) fn count(words: CountWords) -> PathCount {
    let counted = |at: usize| Counted { packets: words[at], bytes: words[at + 1] };
    PathCount {
        sent: counted(0),
        received: counted(2),
        fast: FastCount { sent: counted(4), received: counted(6) },
    }
}

pub(super) const fn total_words(total: Total) -> TotalWords {
    let Total { received, explained, local, transit, counted_s, fast } = total;
    [
        received.packets,
        received.bytes,
        explained.packets,
        explained.bytes,
        local.packets,
        local.bytes,
        transit.packets,
        transit.bytes,
        counted_s,
        fast.packets,
        fast.bytes,
    ]
}

/// The total as clients see it, and the seconds in which it was counted. `has_paths` says whether the paths were told
/// apart.
pub(super) fn total(words: TotalWords, has_paths: bool) -> (UsageTotal, u64) {
    let [packets, bytes, explained_packets, explained_bytes, .., counted_s, fast_packets, fast_bytes] = words;
    let rest = Counted {
        packets: packets.saturating_sub(explained_packets),
        bytes: bytes.saturating_sub(explained_bytes),
    };
    // Conntrack counts fragments as one packet with one header, so packets alone say nothing.
    let not_attributed = if rest.bytes == 0 { Counted::default() } else { rest };
    let total = UsageTotal {
        received: Counted { packets, bytes },
        local: Counted { packets: words[4], bytes: words[5] },
        transit: Counted { packets: words[6], bytes: words[7] },
        not_attributed,
        fast: has_paths.then_some(Counted { packets: fast_packets, bytes: fast_bytes }),
    };
    (total, counted_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_connection_explains_is_not_attributed() {
        let counted = |bytes| Counted { packets: 1, bytes };
        let sums = Total {
            received: counted(100),
            explained: counted(70),
            transit: counted(5),
            counted_s: 60,
            ..Total::default()
        };
        let (shown, counted_s) = total(total_words(sums), true);
        assert_eq!(
            (shown.not_attributed, shown.transit, counted_s),
            (Counted { packets: 0, bytes: 30 }, counted(5), 60)
        );
    }
}
