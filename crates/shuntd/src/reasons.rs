//! What the data plane's reasons mean to people.

use shunt_api::TopReason;
use shunt_bpf::abi::{Counters, REASONS};

/// A reason in words: one sentence each, without full stop.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) name: &'static str,
    pub(crate) meaning: &'static str,
    pub(crate) remedy: &'static str,
}

/// So many reasons are top ones.
const TOP: usize = 5;

macro_rules! texts {
    ($($name:literal: $meaning:literal; $remedy:literal.)*) => {
        const TEXTS: &[Text] = &[$(Text { name: $name, meaning: $meaning, remedy: $remedy }),*];
    };
}

texts! {
    "not-ours": "its packets are broadcast, multicast, or sent to another MAC than the flow was learned with, or bridged from another";
        "nothing to do: after a change of MAC the flow is proved anew".
    "options": "its packets have IPv4 options or IPv6 extension headers, which Linux must look at";
        "have the sender leave them out".
    "bad-header": "its packets have a header that is cut short or has a wrong checksum";
        "look at the sender and the link: Linux drops such packets too".
    "fragment": "its packets are fragments, of which only the first has ports";
        "have the sender use smaller packets, for instance by path MTU discovery".
    "mtu": "its packets are larger than Linux was seen to forward on this flow";
        "nothing to do: the first packet of a new size is proved, and the flow takes the size from then on".
    "ttl": "its packets arrive with a TTL or hop limit of 1, for which Linux answers the sender";
        "have the sender use a greater TTL".
    "protocol": "it is neither TCP nor UDP over IP";
        "nothing to do: only TCP and UDP can be fast".
    "tcp-flags": "a packet with SYN, FIN or RST begins or ends the connection";
        "nothing to do: an established connection is learned again".
    "miss": "no action has been learned for it";
        "send more packets: it is learned once as many were seen as udp_packets or tcp_packets say, if it comes in and leaves by ports of Shunt".
    "stale": "its action is from before a change of Linux's state, or was not proved for too long";
        "nothing to do: its next packets prove it anew".
    "reprove": "one packet every few seconds goes through Linux, to prove the action again";
        "nothing to do: the packets between two proofs are fast; `reprove` sets how often".
    "no-daemon": "the daemon's heartbeat is too old";
        "see in the log why the daemon hangs".
    "port": "the port that it leaves by is gone or cannot be reached";
        "set the port up, and see `shunt status`".
    "pending": "its action was proved once, and not yet seen to leave only once";
        "send one more packet: it is fast from then on".
    "class": "its packets change DSCP, VLAN priority or TTL, and each change is proved anew";
        "have the sender keep them constant within a connection".
    "tags": "its packets have more than two VLAN tags";
        "use at most two tags".
    "capture": "somebody captures on the port that it comes in by";
        "end the capture, or configure that captures do not count".
    "ingress-filter": "the port that it comes in by has tc filters or TCX programs of somebody else";
        "remove them: `tc filter show dev PORT ingress`, `bpftool net show dev PORT`".
    "ruleset": "the ruleset has a statement that must see every packet";
        "see `shunt status` for the rule, and restrict it to hooks that do not forward".
    "not-watched": "the packet was not recognised when it left: too many others were between Linux's two ends";
        "nothing to do: another packet of it will be".
    "aged": "the packet took more than a second through Linux";
        "look for what holds packets up: a full queue, a neighbour that does not answer".
    "old-epoch": "Linux's state changed while the packet was on its way";
        "nothing to do: the next packet is judged by the new state".
    "no-conntrack": "nothing tracks it in conntrack's default zone";
        "add a rule that uses `ct state`, and take away what says `notrack` or sets a zone; or, if it is bridged, set net.bridge.bridge-nf-call-iptables=0".
    "other-tuple": "conntrack knows its packets by other addresses or ports than they came in with";
        "nothing to do: they come from a tunnel, an IPsec policy or a stateless translation".
    "unconfirmed": "conntrack has not confirmed the connection yet";
        "nothing to do: the next packet will find it confirmed".
    "dying": "conntrack is about to forget the connection";
        "nothing to do".
    "helper": "a conntrack helper looks into this connection";
        "nothing to do: its data connections can be fast; or assign no helper to it".
    "seq-adjust": "Linux changes its TCP sequence numbers, or two connections clash in its translation";
        "nothing to do, or assign no helper to it".
    "unreplied": "it has no reply, and the configuration asks for one";
        "have the other end answer, or set `udp_unreplied = true`".
    "not-established": "conntrack does not call the TCP connection established and assured, or lacks an acknowledgement of one end";
        "nothing to do: it is learned once the handshake and some data have passed, and no more after FIN or RST".
    "not-liberal": "conntrack is being told to accept all sequence numbers of this TCP connection";
        "nothing to do: it takes some milliseconds".
    "not-proved": "Linux changes its packets in a way that no action can repeat";
        "see which rule changes DSCP, TTL or the payload".
    "left-twice": "its packets leave more than once";
        "see what copies them: `dup`, a mirror, a bridge that floods".
    "table-full": "the flow table has no room for it";
        "raise `max_flows`".
    "odd-egress": "what leaves has a form that no action can express";
        "see what the port that it leaves by adds: a tunnel, more than two tags, fragments".
    "retiring": "its former action was taken out of use less than 100 ms ago";
        "nothing to do: the next packets are learned from".
    "not-routed": "it leaves with a TTL that is not one less than it came with: a rule sets it, or it is bridged where not all can be seen";
        "take the rule away; or have all ports of the bridge be ports of Shunt".
    "egress-capture": "somebody captures on the port that it leaves by";
        "end the capture, or configure that captures do not count".
    "excluded": "its mark, or its connection's, is one that the configuration keeps slow";
        "change `exclude_mark` or `exclude_ct_mark`, or what sets the mark".
    "idle": "it was not used for as long as `idle` says";
        "nothing to do: its next packets are learned from; raise `idle` to keep it longer".
    "flushed": "somebody flushed all flows";
        "nothing to do: its next packets are learned from".
    "conntrack-gone": "conntrack has forgotten the connection, or was told to";
        "nothing to do: if the ruleset accepts it anew, it is learned anew".
    "egress-filter": "the port that it leaves by has TCX programs of somebody else, or a device on top of it has a qdisc or tc filters";
        "`shunt status` names it: detach it, or have the qdisc on the port itself".
}

/// The words for a reason.
pub(crate) fn text(name: &str) -> Option<&'static Text> {
    TEXTS.iter().find(|text| text.name == name)
}

/// The name of a reason; none for 0.
pub(crate) fn name(number: u8) -> Option<&'static str> {
    REASONS.iter().find(|(n, _)| *n == usize::from(number)).map(|(_, name)| *name)
}

/// What occurred most often.
pub(crate) fn top(counters: &Counters) -> Vec<TopReason> {
    let mut found: Vec<(u64, &str)> =
        REASONS.iter().map(|(n, name)| (counters.reasons[*n], *name)).filter(|(n, _)| *n > 0).collect();
    found.sort_by_key(|(packets, _)| std::cmp::Reverse(*packets));
    found.truncate(TOP);
    let told = |(packets, name): (u64, &str)| {
        let text = text(name);
        TopReason {
            reason: name.to_owned(),
            packets,
            meaning: text.map(|t| t.meaning).unwrap_or_default().to_owned(),
            remedy: text.map(|t| t.remedy).unwrap_or_default().to_owned(),
        }
    };
    found.into_iter().map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_words_and_no_words_are_without_reason() {
        let named: Vec<&str> = REASONS.iter().map(|(_, name)| *name).collect();
        let told: Vec<&str> = TEXTS.iter().map(|text| text.name).collect();
        assert_eq!(told, named);
        for Text { name, meaning, remedy } in TEXTS {
            for sentence in [meaning, remedy] {
                assert!(sentence.len() > 8 && !sentence.ends_with('.'), "{name}: {sentence}");
                assert_eq!(sentence.trim(), *sentence, "{name}");
            }
        }
    }

    #[test]
    fn the_most_frequent_reasons_come_first_and_no_more_than_some() {
        let mut counters = Counters::default();
        for (at, (number, _)) in REASONS.iter().enumerate() {
            counters.reasons[*number] = at as u64;
        }
        let top = top(&counters);
        let last: Vec<&str> = REASONS.iter().rev().take(TOP).map(|(_, name)| *name).collect();
        assert_eq!(top.iter().map(|t| t.reason.as_str()).collect::<Vec<_>>(), last);
        assert!(top[0].packets > top[1].packets && !top[0].meaning.is_empty());
        assert_eq!(super::top(&Counters::default()), []);
        assert_eq!((name(0), name(9)), (None, Some("miss")));
    }
}
