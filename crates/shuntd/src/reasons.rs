//! Which of the data plane's reasons users should look at first.

use shunt_api::TopReason;
use shunt_bpf::abi::{Counters, REASONS, Reason, ReasonKind};

/// Reasons that `shunt status` explains.
const TOP_REASONS: usize = 5;
/// A cause with less than this fraction of the most frequent reason's packets is not listed first.
const RARE: u64 = 100;

/// The name of a reason; `None` for 0 and for unknown numbers.
pub(crate) fn name(number: u8) -> Option<&'static str> {
    Reason::numbered(usize::from(number)).map(|reason| reason.name)
}

/// The main reasons: first the causes that somebody can end, unless they are rare, then the others, each by frequency.
/// A packet from which nothing is learned counts as `miss`, too, so that `miss` alone would hide why.
pub(crate) fn top(counters: &Counters) -> Vec<TopReason> {
    let counted = REASONS.iter().map(|reason| (counters.reasons[reason.number], reason));
    let mut found: Vec<(u64, &Reason)> = counted.filter(|(packets, _)| *packets > 0).collect();
    let most = found.iter().map(|(packets, _)| *packets).max().unwrap_or(0);
    // After a refusal, a flow is not watched for a second, so a few refusals stand for many packets.
    let is_main = |packets: u64, reason: &Reason| {
        reason.is_cause && (reason.kind == ReasonKind::Refusal || packets >= most / RARE)
    };
    found.sort_by_key(|(packets, reason)| std::cmp::Reverse((is_main(*packets, reason), *packets)));
    found.truncate(TOP_REASONS);
    let top_reason = |(packets, reason): (u64, &Reason)| TopReason {
        reason: reason.name.to_owned(),
        packets,
        meaning: reason.meaning.to_owned(),
        remedy: reason.remedy.to_owned(),
    };
    found.into_iter().map(top_reason).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_top_reasons_name_causes_before_frequent_symptoms() {
        let counted = |reasons: &[(&str, u64)]| {
            let mut counters = Counters::default();
            for (name, packets) in reasons {
                counters.reasons[Reason::named(name).unwrap().number] = *packets;
            }
            top(&counters).into_iter().map(|t| t.reason).collect::<Vec<_>>()
        };
        assert_eq!(
            counted(&[("miss", 3486), ("reprove", 12), ("no-conntrack", 1740)]),
            ["no-conntrack", "miss", "reprove"]
        );
        assert_eq!(
            counted(&[("miss", 7000), ("protocol", 1), ("no-conntrack", 6)]),
            ["no-conntrack", "miss", "protocol"],
            "refusals are samples"
        );
        assert_eq!(counted(&[("miss", 9000), ("ttl", 3)]), ["miss", "ttl"], "a traceroute is not the cause");
        assert_eq!(
            counted(&[
                ("miss", 7),
                ("stale", 8),
                ("reprove", 9),
                ("pending", 4),
                ("mtu", 5),
                ("tcp-flags", 6)
            ]),
            ["reprove", "stale", "miss", "tcp-flags", "mtu"]
        );
        assert_eq!(top(&Counters::default()), []);
        assert_eq!((name(0), name(9)), (None, Some("miss")));
    }
}
