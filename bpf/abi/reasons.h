/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Why the fast path did not forward a packet, and why a packet that Linux forwarded taught nothing. C takes `enum
 * shunt_reason` from here (sizes.h), and Rust the rest (crates/shunt-bpf/build.rs). Append only: numbers and names
 * are ABI.
 *
 * SHUNT_REASON(number, constant, name, kind, quiet, remedied, meaning, remedy)
 *
 * - kind: PUNT: the packet went to Linux. REFUSAL: Linux forwarded the packet, and nothing was learned, or a flow was
 *   retired. DROP: the fast path lost the packet.
 * - quiet: for how long the tuple is not watched after a refusal: NONE, SHORT, USUAL or LONG (include/learn/watch.h).
 * - remedied: CAUSE: somebody can end it, and `shunt status` names it before more frequent reasons. PASSING: a passing
 *   state, the consequence of another reason, or something that nobody needs to change.
 * - meaning, remedy: a sentence each without a full stop, for users.
 */
// clang-format off

SHUNT_REASON(1, NOT_OURS, "not-ours", PUNT, USUAL, PASSING,
	"the packets are broadcast or multicast, or their destination MAC (if bridged, their source MAC) is not the one the flow was learned with",
	"nothing to do: after a change of MAC the flow is learned again")

SHUNT_REASON(2, OPTIONS, "options", PUNT, USUAL, CAUSE,
	"the packets have IPv4 options or IPv6 extension headers, which Linux must handle",
	"configure the sender to send packets without them")

SHUNT_REASON(3, BAD_HEADER, "bad-header", PUNT, USUAL, CAUSE,
	"the packets have a truncated header or a wrong IPv4 header checksum",
	"check the sender and the link: Linux drops such packets too")

SHUNT_REASON(4, FRAGMENT, "fragment", PUNT, USUAL, CAUSE,
	"the packets are fragments, and only the first fragment has port numbers",
	"configure the sender to send smaller packets, for example by path MTU discovery")

SHUNT_REASON(5, MTU, "mtu", PUNT, USUAL, PASSING,
	"the packets are larger than any packet of the flow that Linux was seen to forward",
	"nothing to do: the first packet of a new size is proved, and later ones of that size are fast")

SHUNT_REASON(6, TTL, "ttl", PUNT, USUAL, CAUSE,
	"the packets arrive with a TTL or hop limit of 1, and Linux answers the sender",
	"configure the sender to use a greater TTL")

SHUNT_REASON(7, PROTOCOL, "protocol", PUNT, USUAL, PASSING,
	"the packets are neither TCP nor UDP over IP",
	"nothing to do: only TCP and UDP can be fast")

SHUNT_REASON(8, TCP_FLAGS, "tcp-flags", PUNT, USUAL, PASSING,
	"a packet with SYN, FIN or RST begins or ends the connection",
	"nothing to do: if the connection goes on, its flow is learned again")

SHUNT_REASON(9, MISS, "miss", PUNT, USUAL, PASSING,
	"no action has been learned for the flow",
	"send more packets: a flow is learned after udp_packets or tcp_packets packets, if it enters and leaves through ports of Shunt")

SHUNT_REASON(10, STALE, "stale", PUNT, USUAL, PASSING,
	"the flow's action is older than the last change in Linux, or its proof is overdue",
	"nothing to do: the next packets prove the action again")

SHUNT_REASON(11, REPROVE, "reprove", PUNT, USUAL, PASSING,
	"one packet every few seconds goes through Linux to prove the action again",
	"nothing to do: the packets between two proofs are fast; `reprove` sets the interval")

SHUNT_REASON(12, NO_DAEMON, "no-daemon", PUNT, USUAL, CAUSE,
	"the daemon has not updated its heartbeat for two seconds",
	"check that shuntd is running, and read its log")

SHUNT_REASON(13, PORT, "port", PUNT, USUAL, CAUSE,
	"the egress port is down, gone or unreachable for the engine",
	"set the port up: `ip link set PORT up`; `shunt status` shows the ports")

SHUNT_REASON(14, PENDING, "pending", PUNT, USUAL, PASSING,
	"the action has been proved once, but Shunt has not yet seen that each packet leaves only once",
	"send one more packet: the flow is fast from then on")

SHUNT_REASON(15, CLASS, "class", PUNT, USUAL, PASSING,
	"the packets differ in DSCP, VLAN priority or TTL from those that are fast in the same flow",
	"nothing to do; if all packets of the flow shall be fast, configure the sender to keep these values constant within a connection")

SHUNT_REASON(16, TAGS, "tags", PUNT, USUAL, CAUSE,
	"the packets have more than two VLAN tags",
	"use at most two tags")

SHUNT_REASON(17, CAPTURE, "capture", PUNT, USUAL, CAUSE,
	"a packet socket (tcpdump, an IDS) captures on the ingress port",
	"end the capture, or set `captures = \"ignore\"`")

SHUNT_REASON(18, INGRESS_FILTER, "ingress-filter", PUNT, USUAL, CAUSE,
	"the ingress port has tc filters or TCX programs that are not Shunt's",
	"remove them: `tc filter show dev PORT ingress` and `bpftool net show dev PORT` list them")

SHUNT_REASON(19, RULESET, "ruleset", PUNT, USUAL, CAUSE,
	"a rule must see every packet (queue, dup, tproxy, a limit that drops, ...), or the ruleset is not known yet",
	"see `shunt status` for the rule, and move the rule to a hook that forwarded packets do not pass, or restrict a limit to new connections")

SHUNT_REASON(20, IPSEC, "ipsec", PUNT, USUAL, PASSING,
	"the packets were decrypted by IPsec on this router, and the IPsec policy must see each of them",
	"nothing to do: traffic of IPsec tunnels that end on this router stays on the slow path")

SHUNT_REASON(21, BAD_CHECKSUM, "bad-checksum", PUNT, USUAL, CAUSE,
	"the packets have a wrong TCP or UDP checksum",
	"check the sender and the links: Linux drops such packets as INVALID if nf_conntrack_checksum is on")

SHUNT_REASON(22, TUNNEL_AGGREGATE, "tunnel-aggregate", PUNT, USUAL, CAUSE,
	"the packets are aggregates of packets inside a tunnel (VXLAN, Geneve) that ends elsewhere, and Linux must check the size of each",
	"turn aggregation of tunnelled packets off on their ingress port: `ethtool -K PORT gro off`")

SHUNT_REASON(23, SOCKET, "socket", PUNT, USUAL, PASSING,
	"a program on this machine, such as one in a container, asks for time stamps of its packets or sends through a port with fq, etf or taprio, which treat packets by their socket",
	"nothing to do: Linux takes such packets off their socket first")

SHUNT_REASON(32, NOT_WATCHED, "not-watched", REFUSAL, USUAL, PASSING,
	"the packet was not recognised when it left: its candidate slot was overwritten, because too many packets were in flight through Linux",
	"nothing to do: the flow is learned from a later packet")

SHUNT_REASON(33, AGED, "aged", REFUSAL, SHORT, CAUSE,
	"the packet took more than a second through Linux",
	"find what delays packets: a full queue, or a neighbour that does not answer")

SHUNT_REASON(34, OLD_EPOCH, "old-epoch", REFUSAL, NONE, PASSING,
	"rules, routes or links changed while the packet passed through Linux",
	"nothing to do: the flow is learned from its next packet")

SHUNT_REASON(35, NO_CONNTRACK, "no-conntrack", REFUSAL, USUAL, CAUSE,
	"conntrack does not track the packets in its default zone",
	"add a rule that uses `ct state`, and remove rules with `notrack` or that set a zone; for bridged traffic, set net.bridge.bridge-nf-call-iptables=0")

SHUNT_REASON(36, OTHER_TUPLE, "other-tuple", REFUSAL, USUAL, PASSING,
	"the addresses or ports in conntrack differ from those of the packets at ingress",
	"nothing to do: packets of a tunnel, an IPsec policy or a stateless translation stay on the slow path")

SHUNT_REASON(37, UNCONFIRMED, "unconfirmed", REFUSAL, SHORT, PASSING,
	"conntrack has not confirmed the connection yet",
	"nothing to do: conntrack will have confirmed the connection by the next packet")

SHUNT_REASON(38, DYING, "dying", REFUSAL, USUAL, PASSING,
	"conntrack is deleting the connection",
	"nothing to do: a new connection is learned again")

SHUNT_REASON(39, HELPER, "helper", REFUSAL, USUAL, PASSING,
	"a conntrack helper inspects the connection",
	"nothing to do: the data connections can be fast; or remove the rule that assigns the helper")

SHUNT_REASON(40, SEQ_ADJUST, "seq-adjust", REFUSAL, USUAL, PASSING,
	"Linux changes the connection's TCP sequence numbers, or its translation clashes with another connection's",
	"nothing to do; or remove the rule that assigns a helper to the connection")

SHUNT_REASON(41, UNREPLIED, "unreplied", REFUSAL, SHORT, CAUSE,
	"the connection has no reply yet, and the configuration, or a rule that limits new connections, requires one",
	"wait for the other end to answer, or set `udp_unreplied = true`")

SHUNT_REASON(42, NOT_ESTABLISHED, "not-established", REFUSAL, SHORT, PASSING,
	"conntrack does not list the TCP connection as ESTABLISHED and ASSURED, or has not seen an acknowledgement from one end",
	"nothing to do: the flow is learned after the handshake and some data, and is not learned again after FIN or RST")

SHUNT_REASON(43, NOT_LIBERAL, "not-liberal", REFUSAL, SHORT, PASSING,
	"the daemon has yet to make conntrack accept all sequence numbers of this TCP connection",
	"nothing to do: this takes a few milliseconds")

SHUNT_REASON(44, NOT_PROVED, "not-proved", REFUSAL, USUAL, CAUSE,
	"Linux changes the packets in a way that no action can repeat",
	"find the rule that changes DSCP, TTL or the payload: `shunt status` names such rules")

SHUNT_REASON(45, LEFT_TWICE, "left-twice", REFUSAL, LONG, CAUSE,
	"the packets leave more than once",
	"find what copies them: `dup`, a mirror, or a bridge that floods")

SHUNT_REASON(46, TABLE_FULL, "table-full", REFUSAL, USUAL, CAUSE,
	"the flow table has no room for the flow",
	"raise `max_flows`")

SHUNT_REASON(47, ODD_EGRESS, "odd-egress", REFUSAL, USUAL, CAUSE,
	"the packets leave in a form that no action can express",
	"check what the egress port adds: a tunnel, more than two tags, fragments")

SHUNT_REASON(48, RETIRING, "retiring", REFUSAL, NONE, PASSING,
	"the flow's former action was retired less than 100 ms ago, and its entry is not free yet",
	"nothing to do: the flow is learned from one of the next packets")

SHUNT_REASON(49, NOT_ROUTED, "not-routed", REFUSAL, USUAL, CAUSE,
	"the packets leave with a TTL that is not one less than before: a rule sets the TTL, or a bridge forwards them and Shunt does not watch all of its ports",
	"remove the rule, or make all ports of the bridge ports of Shunt")

SHUNT_REASON(50, EGRESS_CAPTURE, "egress-capture", REFUSAL, SHORT, CAUSE,
	"a packet socket (tcpdump, an IDS) captures on the egress port",
	"end the capture, or set `captures = \"ignore\"`")

SHUNT_REASON(51, EXCLUDED, "excluded", REFUSAL, USUAL, CAUSE,
	"the configuration excludes the mark of the packets or of their connection",
	"change `exclude_mark` or `exclude_ct_mark`, or the rule that sets the mark")

SHUNT_REASON(52, IDLE, "idle", REFUSAL, USUAL, PASSING,
	"the flow had no packets for the time that `idle` sets, or for less while the table is nearly full",
	"nothing to do: the flow is learned from its next packets; raise `idle` to keep flows longer")

SHUNT_REASON(53, FLUSHED, "flushed", REFUSAL, USUAL, PASSING,
	"all flows were flushed on request",
	"nothing to do: the flow is learned from its next packets")

SHUNT_REASON(54, CONNTRACK_GONE, "conntrack-gone", REFUSAL, USUAL, PASSING,
	"the connection expired in conntrack, or was deleted there",
	"nothing to do: if the ruleset accepts the connection again, the flow is learned again")

SHUNT_REASON(55, EGRESS_FILTER, "egress-filter", REFUSAL, SHORT, CAUSE,
	"the egress port has TCX programs that are not Shunt's, or a device on top of that port has a qdisc or tc filters",
	"`shunt status` names the program, qdisc or filter: remove it, or move the qdisc to the port itself")

SHUNT_REASON(56, RE_ENTERED, "re-entered", REFUSAL, USUAL, CAUSE,
	"between two ports the packet went through another network namespace, or left and came back by a device that is not on top of the port",
	"make the devices on that path ports too (`--port`), so that each leg is learned on its own")

SHUNT_REASON(57, SOURCE_SHARE, "source-share", REFUSAL, USUAL, CAUSE,
	"the host that opened the connection has its full share of the flow table; the rest is left to other hosts",
	"check what that host does: `shunt flows --src HOST`; or raise `max_flows`")

SHUNT_REASON(58, IPVS, "ipvs", REFUSAL, USUAL, PASSING,
	"IPVS balances the connection and must see its packets",
	"nothing to do: such connections stay on the slow path")

SHUNT_REASON(59, UNSTABLE, "unstable", REFUSAL, USUAL, CAUSE,
	"a station of the flow has kept moving between ports of a bridge, or a neighbour between MACs, within the last minute",
	"`shunt status` names the station: look for two hosts with one MAC or IP address, a loop, or a bond that needs LACP")

SHUNT_REASON(60, TX_ERROR, "tx-error", DROP, USUAL, PASSING,
	"the driver of the egress port refused a frame that XDP redirected to it",
	"nothing to do: the port uses the engine tc from now on, and `shunt status` shows the driver's error")

SHUNT_REASON(61, TX_FULL, "tx-full", DROP, USUAL, CAUSE,
	"the driver of the egress port had no room for a frame that XDP redirected to it",
	"send less, enlarge the port's transmit ring (`ethtool -G PORT tx N`), or use `--engine tc`, which queues")

SHUNT_REASON(62, HALF_WRITTEN, "half-written", DROP, USUAL, PASSING,
	"the packet was lost during its rewrite: there was no room for VLAN tags, or its egress port had just been removed",
	"nothing to do: tc forwards the other packets of the flow")

SHUNT_REASON(63, ENGINE_FULL, "engine-full", DROP, USUAL, CAUSE,
	"the external engine had no room for the packet, or could not pass it on in time",
	"send less, or give the engine a core on which nothing else runs (`external_core`)")

SHUNT_REASON(64, QUEUE, "queue", DROP, USUAL, PASSING,
	"the queue that the external engine has for the packet's class was full, or CoDel shortened it",
	"nothing to do: the port gets more than its rate")

SHUNT_REASON(65, POLICED, "policed", DROP, USUAL, PASSING,
	"the external engine's policer dropped the packet: the port receives more than the policer lets in",
	"nothing to do, or raise the rate of the policer")

SHUNT_REASON(66, OFF, "off", REFUSAL, USUAL, CAUSE,
	"the fast path is off for the connection",
	"`shunt off` lists the rules, and how to end each; those of `shunt verify` end by themselves")

SHUNT_REASON(67, COST_SAMPLE, "cost-sample", PUNT, USUAL, PASSING,
	"for some milliseconds a minute, all packets go through Linux to measure what the slow path costs",
	"nothing to do: the packets between two samples are fast; `savings = false` ends the samples")

// clang-format on
#undef SHUNT_REASON
