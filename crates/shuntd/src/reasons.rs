//! The texts of the data plane's reasons: what each means, and what to do about it.

use shunt_api::TopReason;
use shunt_bpf::abi::{Counters, FIRST_DROP, FIRST_REFUSAL, REASONS};

/// The texts of a reason. Each is one sentence without a full stop.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) name: &'static str,
    pub(crate) meaning: &'static str,
    pub(crate) remedy: &'static str,
}

/// Reasons that `shunt status` explains.
const TOP_REASONS: usize = 5;
/// A cause with less than this fraction of the most frequent reason's packets is not listed first.
const RARE: u64 = 100;

macro_rules! texts {
    ($($name:literal: $meaning:literal; $remedy:literal.)*) => {
        const TEXTS: &[Text] = &[$(Text { name: $name, meaning: $meaning, remedy: $remedy }),*];
    };
}

texts! {
    "not-ours": "the packets are broadcast or multicast, or their destination MAC (if bridged, their source MAC) is not the one the flow was learned with";
        "nothing to do: after a change of MAC the flow is learned again".
    "options": "the packets have IPv4 options or IPv6 extension headers, which Linux must handle";
        "configure the sender to send packets without them".
    "bad-header": "the packets have a truncated header or a wrong IPv4 header checksum";
        "check the sender and the link: Linux drops such packets too".
    "fragment": "the packets are fragments, and only the first fragment has port numbers";
        "configure the sender to send smaller packets, for example by path MTU discovery".
    "mtu": "the packets are larger than any packet of the flow that Linux was seen to forward";
        "nothing to do: the first packet of a new size is proved, and later ones of that size are fast".
    "ttl": "the packets arrive with a TTL or hop limit of 1, and Linux answers the sender";
        "configure the sender to use a greater TTL".
    "protocol": "the packets are neither TCP nor UDP over IP";
        "nothing to do: only TCP and UDP can be fast".
    "tcp-flags": "a packet with SYN, FIN or RST begins or ends the connection";
        "nothing to do: the flow of an established connection is learned again".
    "miss": "no action has been learned for the flow";
        "send more packets: a flow is learned after udp_packets or tcp_packets packets, if it enters and leaves through ports of Shunt".
    "stale": "the flow's action is older than the last change in Linux, or its proof is overdue";
        "nothing to do: the next packets prove the action again".
    "reprove": "one packet every few seconds goes through Linux to prove the action again";
        "nothing to do: the packets between two proofs are fast; `reprove` sets the interval".
    "no-daemon": "the daemon has not updated its heartbeat for two seconds";
        "check that shuntd is running, and read its log".
    "port": "the egress port is down, gone or unreachable for the engine";
        "set the port up: `ip link set PORT up`; `shunt status` shows the ports".
    "pending": "the action has been proved once, but Shunt has not yet seen that each packet leaves only once";
        "send one more packet: the flow is fast from then on".
    "class": "the packets differ in DSCP, VLAN priority or TTL from those that are fast in the same flow";
        "nothing to do; if all packets of the flow shall be fast, configure the sender to keep these values constant within a connection".
    "tags": "the packets have more than two VLAN tags";
        "use at most two tags".
    "capture": "a packet socket (tcpdump, an IDS) captures on the ingress port";
        "end the capture, or set `captures = \"ignore\"`".
    "ingress-filter": "the ingress port has tc filters or TCX programs that are not Shunt's";
        "remove them: `tc filter show dev PORT ingress` and `bpftool net show dev PORT` list them".
    "ruleset": "a rule must see every packet (queue, dup, tproxy, a limit that drops, ...), or the ruleset is not known yet";
        "see `shunt status` for the rule, and move the rule to a hook that forwarded packets do not pass, or restrict a limit to new connections".
    "ipsec": "the packets were decrypted by IPsec on this router, and the IPsec policy must see each of them";
        "nothing to do: traffic of IPsec tunnels that end on this router stays on the slow path".
    "bad-checksum": "the packets have a wrong TCP or UDP checksum";
        "check the sender and the links: Linux drops such packets as INVALID if nf_conntrack_checksum is on".
    "tunnel-aggregate": "the packets are aggregates of packets inside a tunnel (VXLAN, Geneve) that ends elsewhere, and Linux must check the size of each";
        "turn aggregation of tunnelled packets off on their ingress port: `ethtool -K PORT gro off`".
    "socket": "a program on this machine, such as one in a container, asks for time stamps of its packets or sends through a port with fq, etf or taprio, which treat packets by their socket";
        "nothing to do: Linux takes such packets off their socket first".
    "not-watched": "the packet was not recognised when it left: its candidate slot was overwritten, because too many packets were in flight through Linux";
        "nothing to do: the flow is learned from a later packet".
    "aged": "the packet took more than a second through Linux";
        "find what delays packets: a full queue, or a neighbour that does not answer".
    "old-epoch": "rules, routes or links changed while the packet passed through Linux";
        "nothing to do: the flow is learned from its next packet".
    "no-conntrack": "conntrack does not track the packets in its default zone";
        "add a rule that uses `ct state`, and remove rules with `notrack` or that set a zone; for bridged traffic, set net.bridge.bridge-nf-call-iptables=0".
    "other-tuple": "the addresses or ports in conntrack differ from those of the packets at ingress";
        "nothing to do: packets of a tunnel, an IPsec policy or a stateless translation stay on the slow path".
    "unconfirmed": "conntrack has not confirmed the connection yet";
        "nothing to do: conntrack will have confirmed the connection by the next packet".
    "dying": "conntrack is deleting the connection";
        "nothing to do: a new connection is learned again".
    "helper": "a conntrack helper inspects the connection";
        "nothing to do: the data connections can be fast; or remove the rule that assigns the helper".
    "seq-adjust": "Linux changes the connection's TCP sequence numbers, or its translation clashes with another connection's";
        "nothing to do; or remove the rule that assigns a helper to the connection".
    "unreplied": "the connection has no reply yet, and the configuration, or a rule that limits new connections, requires one";
        "wait for the other end to answer, or set `udp_unreplied = true`".
    "not-established": "conntrack does not list the TCP connection as ESTABLISHED and ASSURED, or has not seen an acknowledgement from one end";
        "nothing to do: the flow is learned after the handshake and some data, and is not learned again after FIN or RST".
    "not-liberal": "the daemon has yet to make conntrack accept all sequence numbers of this TCP connection";
        "nothing to do: this takes a few milliseconds".
    "not-proved": "Linux changes the packets in a way that no action can repeat";
        "find the rule that changes DSCP, TTL or the payload: `shunt status` names such rules".
    "left-twice": "the packets leave more than once";
        "find what copies them: `dup`, a mirror, or a bridge that floods".
    "table-full": "the flow table has no room for the flow";
        "raise `max_flows`".
    "odd-egress": "the packets leave in a form that no action can express";
        "check what the egress port adds: a tunnel, more than two tags, fragments".
    "retiring": "the flow's former action was retired less than 100 ms ago, and its entry is not free yet";
        "nothing to do: the flow is learned from one of the next packets".
    "not-routed": "the packets leave with a TTL that is not one less than before: a rule sets the TTL, or a bridge forwards them and Shunt does not watch all of its ports";
        "remove the rule, or make all ports of the bridge ports of Shunt".
    "egress-capture": "a packet socket (tcpdump, an IDS) captures on the egress port";
        "end the capture, or set `captures = \"ignore\"`".
    "excluded": "the configuration excludes the mark of the packets or of their connection";
        "change `exclude_mark` or `exclude_ct_mark`, or the rule that sets the mark".
    "idle": "the flow had no packets for the time that `idle` sets, or for less while the table is nearly full";
        "nothing to do: the flow is learned from its next packets; raise `idle` to keep flows longer".
    "flushed": "all flows were flushed on request";
        "nothing to do: the flow is learned from its next packets".
    "conntrack-gone": "the connection expired in conntrack, or was deleted there";
        "nothing to do: if the ruleset accepts the connection again, the flow is learned again".
    "egress-filter": "the egress port has TCX programs that are not Shunt's, or a device on top of that port has a qdisc or tc filters";
        "`shunt status` names the program, qdisc or filter: remove it, or move the qdisc to the port itself".
    "re-entered": "between two ports the packet went through another network namespace, or left and came back by a device that is not on top of the port";
        "make the devices on that path ports too (`--port`), so that each leg is learned on its own".
    "source-share": "the host that opened the connection has its full share of the flow table; the rest is left to other hosts";
        "check what that host does: `shunt flows --src HOST`; or raise `max_flows`".
    "ipvs": "IPVS balances the connection and must see its packets";
        "nothing to do: such connections stay on the slow path".
    "unstable": "a station of the flow has kept moving between ports of a bridge, or a neighbour between MACs, within the last minute";
        "`shunt status` names the station: look for two hosts with one MAC or IP address, a loop, or a bond that needs LACP".
    "tx-error": "the driver of the egress port refused a frame that XDP redirected to it";
        "nothing to do: the port uses the engine tc from now on, and `shunt status` shows the driver's error".
    "tx-full": "the driver of the egress port had no room for a frame that XDP redirected to it";
        "send less, enlarge the port's transmit ring (`ethtool -G PORT tx N`), or use `--engine tc`, which queues".
    "half-written": "the packet was lost during its rewrite: there was no room for VLAN tags, or its egress port had just been removed";
        "nothing to do: tc forwards the other packets of the flow".
    "engine-full": "the external engine had no room for the packet, or could not pass it on in time";
        "send less, or give the engine a core on which nothing else runs (`external_core`)".
    "queue": "the queue that the external engine has for the packet's class was full, or CoDel shortened it";
        "nothing to do: the port gets more than its rate".
    "policed": "the external engine's policer dropped the packet: the port receives more than the policer lets in";
        "nothing to do, or raise the rate of the policer".
}

/// The texts of a reason; `None` if no reason has this name.
pub(crate) fn text(name: &str) -> Option<&'static Text> {
    TEXTS.iter().find(|text| text.name == name)
}

/// The name of a reason; `None` for 0 and for unknown numbers.
pub(crate) fn name(number: u8) -> Option<&'static str> {
    REASONS.iter().find(|(n, _)| *n == usize::from(number)).map(|(_, name)| *name)
}

/// Whether a reason is a cause that somebody can end, not a passing state nor a consequence of another reason.
fn is_cause(text: &Text) -> bool {
    !matches!(text.name, "miss" | "pending") && !text.remedy.starts_with("nothing to do")
}

/// The main reasons: first the causes that somebody can end, unless they are rare, then the others, each by frequency. A packet
/// from which nothing is learned counts as `miss`, too, so that `miss` alone would hide why.
pub(crate) fn top(counters: &Counters) -> Vec<TopReason> {
    let mut found: Vec<(u64, &str)> =
        REASONS.iter().map(|(n, name)| (counters.reasons[*n], *name)).filter(|(n, _)| *n > 0).collect();
    let most = found.iter().map(|(packets, _)| *packets).max().unwrap_or(0);
    // After a refusal, a flow is not watched for a second, so a few refusals stand for many packets.
    let is_refusal = |name: &str| {
        REASONS.iter().any(|(n, known)| *known == name && (FIRST_REFUSAL..FIRST_DROP).contains(n))
    };
    let is_main = |packets: u64, name: &str| {
        (is_refusal(name) || packets >= most / RARE) && text(name).is_some_and(is_cause)
    };
    found.sort_by_key(|(packets, name)| std::cmp::Reverse((is_main(*packets, name), *packets)));
    found.truncate(TOP_REASONS);
    let top_reason = |(packets, name): (u64, &str)| {
        let text = text(name);
        TopReason {
            reason: name.to_owned(),
            packets,
            meaning: text.map(|t| t.meaning).unwrap_or_default().to_owned(),
            remedy: text.map(|t| t.remedy).unwrap_or_default().to_owned(),
        }
    };
    found.into_iter().map(top_reason).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_of_the_abi_has_texts_in_the_same_order() {
        let named: Vec<&str> = REASONS.iter().map(|(_, name)| *name).collect();
        let with_texts: Vec<&str> = TEXTS.iter().map(|text| text.name).collect();
        assert_eq!(with_texts, named);
        for Text { name, meaning, remedy } in TEXTS {
            for sentence in [meaning, remedy] {
                assert!(sentence.len() > 8 && !sentence.ends_with('.'), "{name}: {sentence}");
                assert_eq!(sentence.trim(), *sentence, "{name}");
            }
        }
    }

    #[test]
    fn the_top_reasons_name_causes_before_frequent_symptoms() {
        let counted = |reasons: &[(&str, u64)]| {
            let mut counters = Counters::default();
            for (name, packets) in reasons {
                let (number, _) = REASONS.iter().find(|(_, known)| known == name).unwrap();
                counters.reasons[*number] = *packets;
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
