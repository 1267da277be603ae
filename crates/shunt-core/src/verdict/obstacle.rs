//! What keeps every packet of a direction from being forwarded, and what to do about it.

use super::{
    Verdict,
    facts::{DirectionFacts, Obstacle, Reason},
};
use shunt_api::Family;

/// Reasons that a direction has whose packets are not forwarded at all.
const STOPPED: [Reason; 6] = ["miss", "stale", "pending", "retiring", "not-proved", "not-liberal"];

impl Obstacle {
    /// What it is, and the remedy.
    fn words(&self) -> (String, String) {
        match self {
            Self::Down(device) => (format!("{device} is down"), format!("`ip link set {device} up`")),
            Self::NoCarrier(device) => (
                format!("{device} has no carrier"),
                "see the cable, and whether the other end is on".to_owned(),
            ),
            Self::NotForwarding(family) => {
                let sysctl = match family {
                    Family::V4 => "net.ipv4.ip_forward",
                    Family::V6 => "net.ipv6.conf.all.forwarding",
                };
                (format!("Linux does not forward: {sysctl} is 0"), format!("`sysctl -w {sysctl}=1`"))
            }
        }
    }
}

impl DirectionFacts<'_> {
    /// Adds what stops every packet, unless they are slow for a reason of their own anyway, or nothing more will come.
    pub(super) fn with_obstacle(&self, verdict: Verdict) -> Verdict {
        let is_waiting = verdict.idle.is_some() && verdict.slow.is_none();
        let is_off = matches!(verdict.slow, Some("off" | "excluded"));
        let could_go = is_waiting || is_off || verdict.slow.is_some_and(|why| STOPPED.contains(&why));
        let Some(obstacle) = self.obstacle.as_ref().filter(|_| could_go && !self.has_ended()) else {
            return verdict;
        };
        let (what, remedy) = obstacle.words();
        let reason = if self.flow.is_some() { "stale" } else { "miss" };
        let detail = match verdict.detail.as_str() {
            "" => what,
            rule if is_off => format!("{what}; besides, it is {} {rule}", verdict.slow.unwrap_or_default()),
            before => format!("{what}; {before}"),
        };
        Verdict {
            slow: verdict.slow.filter(|_| !is_off).or(Some(reason)),
            detail,
            remedy: Some(remedy),
            ..verdict
        }
    }
}
