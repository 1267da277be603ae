//! A router of our own that tracks connections and drops what does not fit them; and what its conntrack says.

use crate::{
    net::NetNs,
    throughput::connections::tracked,
    traffic::{Error, masquerade},
};
use serde::{Deserialize, Serialize};

/// A stateful firewall that drops what conntrack finds invalid.
const RULESET: &str = "table inet filter { chain forward { type filter hook forward priority filter; policy drop; \
    ct state invalid drop; ct state established,related accept; iifname \"r0\" ct state new accept; }; }";

/// What the router's conntrack says of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tracked {
    /// Connections in its table after the run.
    pub connections: u64,
    /// Packets that it found invalid during the run.
    pub invalid: u64,
}

/// Sets up the router's rules. Windows are checked.
pub(super) fn set_up(router: &NetNs, nat: bool) -> Result<(), Error> {
    router.try_run(&format!("nft '{RULESET}'"))?;
    router.try_sysctl("netfilter/nf_conntrack_tcp_be_liberal", 0)?;
    if nat {
        masquerade(router)?;
    }
    Ok(())
}

impl Tracked {
    /// The table's count, and all packets found invalid so far.
    pub(super) fn read(router: &NetNs) -> Result<Self, Error> {
        let statistics = router.try_run("conntrack -S")?;
        Ok(Self { connections: tracked(router)?, invalid: sum(&statistics, "invalid") })
    }

    /// What changed since `before`.
    pub(super) fn since(self, before: Self) -> Self {
        let invalid = self.invalid.saturating_sub(before.invalid);
        Self { connections: self.connections.saturating_sub(before.connections), invalid }
    }
}

/// The sum of a counter over all CPUs in the output of `conntrack -S`.
fn sum(statistics: &str, name: &str) -> u64 {
    let words = statistics.split_whitespace().filter_map(|word| word.split_once('='));
    words.filter(|(of, _)| *of == name).filter_map(|(_, value)| value.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_all_cpus_are_added() {
        let text = "cpu=0   \tfound=1 invalid=12 insert=0 insert_failed=3 drop=3\n\
                    cpu=1   \tfound=0 invalid=30 insert=0 insert_failed=4 drop=0\n";
        assert_eq!((sum(text, "invalid"), sum(text, "insert_failed"), sum(text, "other")), (42, 7, 0));
    }
}
