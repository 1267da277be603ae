/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Data shared between the BPF programs and the daemon. Fixed width, no holes: the build checks with -Wpadded.
 * The Rust side is crates/shunt-bpf/src/abi; a unit test there compares every size, every offset and every constant
 * with those of this header.
 *
 * Times that end in _ticks are the low half of jiffies and wrap, unless noted.
 */
#ifndef SHUNT_ABI_H
#define SHUNT_ABI_H

#include <linux/types.h>

enum {
	SHUNT_ABI_VERSION = 1, /* checked by processes that read the control block of a running daemon */
	SHUNT_PORTS_MAX = 64,
	SHUNT_TAGS_MAX = 2,
	SHUNT_L2_MAX = 14 + 4 * SHUNT_TAGS_MAX,
	SHUNT_L3_MAX = 40,
	SHUNT_L4_MAX = 60,
	SHUNT_REASONS_MAX = 128, /* a power of two */
	SHUNT_CANDIDATES = 4096, /* a power of two; with the 4 bits of a round, an index fits skb->tc_index */
	SHUNT_SIGHTINGS = 32768, /* a power of two */
	SHUNT_SIGHTING_TICKS = 64,
	SHUNT_WAYS = 4, /* slots per bucket of the index */
	SHUNT_UPPERS_MAX = 16384, /* devices stacked on ports */
	SHUNT_SOURCES = 16384, /* a power of two */
	SHUNT_SETS_MAX = 1024, /* sets of nftables that are described to the programs */
	SHUNT_UNSTABLE_MAX = 1024, /* stations that have changed */
	SHUNT_QUEUES_MAX = 16, /* receive queues per port that the external engine serves */
	SHUNT_INJECTED_MAX = 64, /* frames that the external engine passes to Linux at once */
	SHUNT_FRAME_MAX = 1792, /* bytes of a frame in the packet memory of the external engine */
	/*
	 * The number of the external engine among the CPUs that count packets of a flow. No kernel has so many CPUs, so
	 * only the engine counts flows with this home CPU without atomics.
	 */
	SHUNT_NO_CPU = 0xfe,
	SHUNT_ENGINE_CPU = 0xff,
	SHUNT_GROUPS = 1 << 16,
};

/* Why a packet was not forwarded, or taught nothing. */
enum shunt_reason {
	SHUNT_OK = 0,
#define SHUNT_REASON(number, constant, ...) SHUNT_##constant = (number),
#include "abi/reasons.h"
	SHUNT_REASONS_END, /* one more than the last */
};
_Static_assert((int)SHUNT_REASONS_END <= (int)SHUNT_REASONS_MAX, "reasons fit the counters");

enum shunt_flow_state {
	SHUNT_FLOW_PENDING = 1, /* proved; the packet may still leave a second time */
	SHUNT_FLOW_ACTIVE = 2,
	SHUNT_FLOW_INSERTED = 3, /* proved; its connection may have been deleted meanwhile */
};

/* The epoch of a retired action. The current epoch is odd, and groups move by two, so that no flow's sum is ever 0. */
enum { SHUNT_EPOCH_RETIRED = 0 };

enum shunt_flow_flags {
	SHUNT_FLOW_XDP = 1 << 0, /* the XDP program of the ingress port may take it: both ports have the same engine */
	SHUNT_FLOW_STATIC = 1 << 1, /* configured by the operator: no epoch, no proof, no conntrack */
	SHUNT_FLOW_NAT = 1 << 2, /* addresses or ports change */
	SHUNT_FLOW_PARTIAL = 1 << 3, /* the ingress driver may deliver unfinished L4 checksums */
	SHUNT_FLOW_REPLY = 1 << 4, /* the connection's reply direction */
	SHUNT_FLOW_UNREPLIED = 1 << 5, /* proved before the first reply; UDP only */
	SHUNT_FLOW_BRIDGED = 1 << 6, /* the TTL stays; the source MAC must be the one in `l2` */
	SHUNT_FLOW_UNTRACKED = 1 << 7, /* bridged and not tracked by conntrack; frames keep their padding */
};

enum shunt_port_flags {
	SHUNT_PORT_XDP_OUT = 1 << 1, /* XDP may redirect to this port: the driver can, and the qdisc is not in use */
	SHUNT_PORT_PARTIAL = 1 << 2, /* ingress frames may have CHECKSUM_PARTIAL (veth, tap, virtio) */
	SHUNT_PORT_CAPTURED = 1 << 3, /* learn nothing that arrives or leaves here */
	SHUNT_PORT_FILTERED = 1 << 4, /* learn nothing that arrives here */
	SHUNT_PORT_FILTERED_OUT = 1 << 5, /* learn nothing that leaves here */
	SHUNT_PORT_BRIDGED = 1 << 6, /* bridged traffic that arrives here may be learned */
	SHUNT_PORT_UNTRACKED4 = 1 << 7, /* conntrack does not see bridged IPv4 */
	SHUNT_PORT_UNTRACKED6 = 1 << 8, /* conntrack does not see bridged IPv6 */
	SHUNT_PORT_XDP_IN = 1 << 9, /* Shunt's XDP program runs on this port */
	SHUNT_PORT_XDP_FRAGS = 1 << 10, /* the driver accepts redirected multi-buffer frames */
	SHUNT_PORT_FLOODS_UNSEEN = 1 << 11, /* a bridge may flood packets to devices that are no ports, too */
	SHUNT_PORT_EXTERNAL = 1 << 12, /* the external engine serves this port */
	SHUNT_PORT_PACED = 1 << 13, /* a qdisc of this port treats packets by the socket that they belong to */
};

enum shunt_control_flags {
	SHUNT_CONTROL_LEARN = 1 << 0,
	SHUNT_CONTROL_UDP_UNREPLIED = 1 << 1, /* learn UDP before the first reply */
	SHUNT_CONTROL_HOLD_TCP4 = 1 << 2, /* learn no TCP over IPv4: the ruleset must see every packet */
	SHUNT_CONTROL_HOLD_TCP6 = 1 << 3,
	SHUNT_CONTROL_TRACE = 1 << 4, /* a reader of shunt_traces is present */
	SHUNT_CONTROL_STATICS = 1 << 5, /* the table has static flows */
	SHUNT_CONTROL_VERIFY_TC = 1 << 6, /* tc verifies L4 checksums of short packets, unless the driver did */
	SHUNT_CONTROL_VERIFY_XDP = 1 << 7, /* XDP verifies L4 checksums of short packets */
	SHUNT_CONTROL_VERIFY_LONG = 1 << 8, /* verify longer packets, too */
	SHUNT_CONTROL_SURVEY = 1 << 9, /* tc counts the kinds of packets that ports receive */
	SHUNT_CONTROL_HOLD_UDP4 = 1 << 10, /* learn no UDP over IPv4 */
	SHUNT_CONTROL_HOLD_UDP6 = 1 << 11,
	SHUNT_CONTROL_HOLD_NEW4 = 1 << 12, /* learn UDP over IPv4 only after the first reply */
	SHUNT_CONTROL_HOLD_NEW6 = 1 << 13,
};

enum shunt_event_kind {
	SHUNT_EVENT_SET_LIBERAL = 1, /* set BE_LIBERAL on the connection */
	SHUNT_EVENT_SILENT = 2, /* both directions are silent, and everything was acknowledged */
	SHUNT_EVENT_LAGS = 3, /* conntrack no longer follows the acknowledgements of this direction */
	SHUNT_EVENT_ENDED = 4, /* a genuine RST of this direction, or a FIN soon after a blind packet */
	SHUNT_EVENT_IN_WINDOW = 5, /* an RST within the window, which the receiver may ignore */
	SHUNT_EVENT_BLIND = 6, /* a FIN or RST outside the window: conntrack accepts it, the receiver does not */
	SHUNT_EVENT_TX_ERROR = 7, /* the driver of `ifindex` refuses redirected frames; no connection */
};

enum shunt_trace_kind {
	SHUNT_TRACE_LEARN = 1, /* a flow was proved and inserted */
	SHUNT_TRACE_ACTIVATE = 2, /* a pending flow became active */
	SHUNT_TRACE_PUNT = 3, /* a packet of a known flow went to Linux */
	SHUNT_TRACE_REFUSE = 4, /* Linux forwarded a packet that taught nothing */
	SHUNT_TRACE_RETIRE = 5, /* a flow was retired */
};

/* A VLAN tag in a key, without its priority. A priority tag (VLAN id 0) differs from no tag. */
enum shunt_tag_bits {
	SHUNT_TAG_VID = 0x0fff,
	SHUNT_TAG_8021AD = 0x1000,
	SHUNT_TAG_PRESENT = 0x8000,
};

/*
 * Addresses and ports as on the wire of `ifindex`, which is never 0 in a key. Keys are hashed and compared as 64-bit
 * words.
 */
struct shunt_key4 {
	__be32 src_be;
	__be32 dst_be;
	__be16 sport_be;
	__be16 dport_be;
	__u32 ifindex;
	__u16 tags[SHUNT_TAGS_MAX]; /* enum shunt_tag_bits; outermost first */
	__u32 l4_proto;
};
_Static_assert(sizeof(struct shunt_key4) == 24, "shunt_key4 is ABI");

struct shunt_key6 {
	__u8 src_be[16];
	__u8 dst_be[16];
	__be16 sport_be;
	__be16 dport_be;
	__u32 ifindex;
	__u16 tags[SHUNT_TAGS_MAX];
	__u32 l4_proto;
};
_Static_assert(sizeof(struct shunt_key6) == 48, "shunt_key6 is ABI");

/*
 * A flow: the action, and the state that changes with each packet. The new addresses follow in memory, source first.
 *
 * The action is written once and only read afterwards. Epoch, state, flags, punt_due, the ticks, max_l3_bytes and
 * tcp_position change; each is stored whole.
 */
struct shunt_flow {
	__u32 epoch; /* of the last proof, plus the moves of the flow's group by then; SHUNT_EPOCH_RETIRED once retired */
	__u8 state; /* enum shunt_flow_state */
	__u8 flags; /* enum shunt_flow_flags */
	__u8 out_tags; /* number of VLAN tags in `l2` */
	__u8 punt_due; /* set by XDP when a proof is due; tc punts the packet */
	union {
		__u32 reprove_at_ticks; /* when the next proof is due */
		/*
		 * When the action was retired, or the entry left the index. A concurrent store to reprove_at_ticks is
		 * later, so at worst the entry is left alone for longer.
		 */
		__u32 retired_ticks;
	};
	__u32 prove_by_ticks; /* when the last proof expires */
	__u16 max_l3_bytes; /* the largest packet that Linux was seen to forward */
	union {
		__u16 group; /* index into shunt_groups: the stations that the flow depends on */
		/*
		 * Of a retired action: enum shunt_reason. A reader that takes it for a group finds another one, at
		 * worst.
		 */
		__u8 retired_why;
	};
	__u8 in_dmac[6];
	__u8 l2[SHUNT_L2_MAX]; /* the whole new L2 header: MACs, tags, EtherType */
	__u8 in_slot;
	__u8 out_slot;
	__u16 l4_delta; /* ones' complement sum of new minus old addresses and ports */
	__u16 l4_delta_addr; /* ones' complement sum of new minus old addresses */
	__u8 home_cpu; /* this CPU counts without atomics; SHUNT_NO_CPU for none, SHUNT_ENGINE_CPU for the external engine */
	__u8 reported; /* of seen_ticks when the flow's silence was reported: the low byte with bit 0 set; 0 after a use */
	__u16 class_bits; /* DSCP and VLAN priorities the flow was learned with, see struct shunt_packet */
	__u8 in_ttl; /* TTL or hop limit the flow was learned with */
	__u8 _zero; /* so that class_bits and in_ttl are compared as one word */
	__be16 sport_be; /* new source port; copied together with the destination port */
	__be16 dport_be; /* new destination port */
	__u32 mark; /* skb->mark as Linux left it */
	__u32 priority; /* skb->priority as Linux left it */
	__u32 seen_ticks; /* last use or proof */
	__u32 pkts; /* on the home CPU; overflows into remote_pkts of struct shunt_cold */
	__u64 bytes; /* on the home CPU */
	__u64 tcp_position; /* of the last packet, see shunt_tcp_position(); 0 if unknown */
};
_Static_assert(sizeof(struct shunt_flow) == 96, "shunt_flow is ABI");
_Static_assert((int)SHUNT_PORTS_MAX <= 256, "a slot fits a byte");

/* Two cache lines. The first one holds the key, so a forwarded packet touches no more than these. */
struct shunt_entry4 {
	struct shunt_key4 key;
	struct shunt_flow flow;
	__u8 to[8];
};
_Static_assert(sizeof(struct shunt_entry4) == 128, "shunt_entry4 is ABI");

struct shunt_entry6 {
	struct shunt_key6 key;
	struct shunt_flow flow;
	__u8 to[32];
	__u8 _pad[16];
};
_Static_assert(sizeof(struct shunt_entry6) == 192, "shunt_entry6 is ABI");

/* The rarely used part of an entry. */
struct shunt_cold {
	__u64 remote_pkts; /* counted atomically by CPUs other than the home CPU */
	__u64 remote_bytes;
	__u32 learned_ticks; /* first proof */
	union {
		__u32 next_free; /* while the entry is free: the next free entry, plus one */
		__u32 blind_ticks; /* while it is in use: when a blind FIN or RST was last reported */
	};
};
_Static_assert(sizeof(struct shunt_cold) == 24, "shunt_cold is ABI");

/*
 * A bucket of the index. A slot holds the number of an entry plus one, and in its upper byte a digest of the key's
 * hash; 0 is free. A key is in any slot of two buckets.
 */
struct shunt_bucket {
	__u32 slot[SHUNT_WAYS];
};
_Static_assert(sizeof(struct shunt_bucket) == 16, "shunt_bucket is ABI");

/* Indexed by family: IPv4, IPv6. */
struct shunt_usage {
	__u32 entries[2]; /* entries in use; loaded together */
	__u64 fresh[2]; /* the first entry that was never used; none behind it was */
	__u64 free[2]; /* head of the free list, plus one; the upper half counts changes */
	__u64 expired; /* entries of shunt_expired, or more while one is added or removed */
	__u64 expired_lost; /* expired flows whose counters did not fit shunt_expired */
	__u64 traces_lost;
};
_Static_assert(sizeof(struct shunt_usage) == 64, "shunt_usage is ABI");

/* One direction of a connection, as in conntrack. An IPv4 address uses the first four bytes. */
struct shunt_tuple {
	__u8 src_be[16];
	__u8 dst_be[16];
	__be16 sport_be;
	__be16 dport_be;
	__u8 family; /* 4 or 6 */
	__u8 l4_proto;
	__u8 _pad[2];
};
_Static_assert(sizeof(struct shunt_tuple) == 40, "shunt_tuple is ABI");

/*
 * Counters and TCP positions of a tuple whose flow has left the table. Kept while conntrack still knows the connection.
 */
struct shunt_expired {
	__u64 pkts;
	__u64 bytes;
	__u64 tcp_position; /* 0 once a packet has passed without a flow */
	__u64 other_position; /* of the other direction */
	__u32 seen_ticks;
	__u32 blind_ticks;
	__u32 reply; /* 1 for the reply direction */
	__u32 _pad;
};
_Static_assert(sizeof(struct shunt_expired) == 48, "shunt_expired is ABI");

struct shunt_port {
	__u16 slot; /* index into the counters and the devmap */
	__u16 flags; /* enum shunt_port_flags */
	__u32 ifindex;
};
_Static_assert(sizeof(struct shunt_port) == 8, "shunt_port is ABI");

/* Ports, without a hash look-up. */
struct shunt_port_cache {
	struct shunt_port by_ifindex[SHUNT_PORTS_MAX]; /* by the low bits of the ifindex; on collision, the last port */
	__u32 ifindex[SHUNT_PORTS_MAX]; /* by slot; 0 if the slot is free */
};
_Static_assert(sizeof(struct shunt_port_cache) == 768, "shunt_port_cache is ABI");

/* Per port and CPU. Packets as the hook sees them: a GRO or GSO aggregate is one. Bytes from the L3 header on. */
struct shunt_counters {
	__u64 xdp_pkts; /* forwarded by XDP */
	__u64 xdp_bytes;
	__u64 tc_pkts; /* forwarded by tc */
	__u64 tc_bytes;
	__u64 slow_pkts; /* passed to Linux */
	__u64 slow_bytes;
	__u64 dropped_pkts;
	__u64 learned; /* actions installed */
	__u64 proved; /* actions renewed */
	__u64 retired; /* actions retired */
	__u64 surveyed_pkts; /* during surveys: packets received; an aggregate counts as its segments */
	__u64 aggregated_pkts; /* those that arrived in aggregates */
	__u64 copied_pkts; /* those in buffers that native XDP of a virtual device would have to copy */
	__u64 external_pkts; /* forwarded by the external engine, which counts in struct shunt_external */
	__u64 external_bytes;
	__u64 reasons[SHUNT_REASONS_MAX]; /* by enum shunt_reason */
};
_Static_assert(sizeof(struct shunt_counters) == 120 + 8 * 128, "shunt_counters is ABI");

/* The control block. A single element, written by the daemon; the programs write epoch and heartbeat_ticks as well. */
struct shunt_control {
	__u32 abi; /* SHUNT_ABI_VERSION */
	__u32 epoch; /* actions of another epoch are stale */
	__u64 heartbeat_ticks; /* all 64 bits of jiffies: no wrap, so a dead daemon stays dead */
	__u32 heartbeat_max_ticks;
	__u32 reprove_ticks; /* interval between proofs of a flow */
	__u32 prove_ticks; /* how long a proof lasts */
	__u32 learn_udp_pkts; /* learn from this packet of a direction on */
	__u32 learn_tcp_pkts;
	__u32 flags; /* enum shunt_control_flags */
	__u32 bucket_mask; /* buckets of an index, minus one */
	__u32 max_flows; /* per family */
	__u64 seed; /* of the hash */
	__u32 ticks_per_s; /* the kernel's HZ */
	__u32 exclude_mark; /* learn nothing from packets with this mark, under exclude_mark_mask */
	__u32 exclude_mark_mask; /* 0 excludes nothing */
	__u32 exclude_ct_mark; /* learn nothing from connections with this mark, under exclude_ct_mark_mask */
	__u32 exclude_ct_mark_mask; /* 0 excludes nothing */
	__u32 netns; /* inode number of the ports' network namespace */
	__u32 mark_mask; /* lines of shunt_marks, minus one */
	__u32 rule_changes; /* counts the commits that may change how rules use sets; written by the programs */
	__u32 sets_at; /* rule_changes when the rules were read of which shunt_sets is made */
	__u32 station_moves; /* counts the changes of a bridge's stations that ended flows; written by the programs */
};
_Static_assert(sizeof(struct shunt_control) == 96, "shunt_control is ABI");

/* What the external engine counts, by ingress port. */
struct shunt_external_port {
	__u64 pkts; /* forwarded */
	__u64 bytes; /* from the L3 header on */
	__u64 passed_pkts; /* given back to Linux, where the tc program counts them */
	__u64 full_pkts; /* dropped: no room, or the engine took too long */
	__u64 queue_pkts; /* dropped at the queue of their egress port */
	__u64 policed_pkts; /* dropped by the policer */
};
_Static_assert(sizeof(struct shunt_external_port) == 48, "shunt_external_port is ABI");

/* Shared by the external engine, the programs and the daemon. A single element. */
struct shunt_external {
	__u64 beat_ticks; /* the engine's last heartbeat: all 64 bits of jiffies */
	__u32 beat_max_ticks; /* age at which a heartbeat is too old, and packets pass by the engine */
	__u32 inject_next; /* the next frame to pass to Linux */
	__u32 copy_vlan; /* the engine copies frames with this outer VLAN ID from port to port; 0 for none */
	__u32 _pad;
	struct shunt_external_port ports[SHUNT_PORTS_MAX]; /* by slot */
};
_Static_assert(sizeof(struct shunt_external) == 24 + 48 * 64, "shunt_external is ABI");

/* A frame on its way from the external engine to Linux. */
struct shunt_injected {
	__u32 bytes;
	__u32 _pad;
	__u8 frame[SHUNT_FRAME_MAX];
};
_Static_assert(sizeof(struct shunt_injected) == 8 + 1792, "shunt_injected is ABI");

/*
 * The metadata before a frame that XDP gives to the external engine: where its flow is, which is a hint that the engine
 * checks, and when the frame arrived.
 */
struct shunt_flow_id {
	__u32 entry;
	__u32 family; /* 4 or 6 */
	__u32 arrived_ticks;
};
_Static_assert(sizeof(struct shunt_flow_id) == 12, "shunt_flow_id is ABI");

/* The headers of a packet, each layer at a fixed offset. Unused bytes are zero. */
struct shunt_headers {
	__u8 l2[SHUNT_L2_MAX];
	__u8 l2_bytes;
	__u8 l4_bytes;
	__u8 l3[SHUNT_L3_MAX];
	__u8 l4[SHUNT_L4_MAX];
	__u8 _pad[4];
};
_Static_assert(sizeof(struct shunt_headers) == 128, "shunt_headers is ABI");

/*
 * The state word of a candidate slot: the cookie in skb->tc_index, flags, and how often the slot was written. Changed
 * by atomic operations only.
 */
enum shunt_candidate_state {
	SHUNT_CANDIDATE_COOKIE = 0xffff,
	SHUNT_CANDIDATE_BUSY = 1 << 16, /* a program is writing the slot; nobody else may read or claim it */
	SHUNT_CANDIDATE_LEFT = 1 << 17, /* the packet, or a copy of it, has left once */
	SHUNT_CANDIDATE_EMPTY = 1 << 18, /* the headers could not be copied */
	SHUNT_CANDIDATE_WRITES = 1 << 24, /* from this bit on: the number of writes */
};

/* A packet on its way through Linux, as it arrived. */
struct shunt_candidate {
	struct shunt_headers headers;
	__u64 state; /* enum shunt_candidate_state */
	__u64 packet; /* the identity of the sk_buff, see shunt_skb_identity() */
	__u64 data; /* likewise of its data */
	__u64 changes; /* shunt_changes.count at ingress */
	__u32 at_ticks; /* time of arrival */
	__u32 ifindex;
	__u32 epoch;
	__u32 sighting; /* index into shunt_sightings */
	__u16 fingerprint;
	__u16 class_bits;
	__u8 family; /* 4 or 6 */
	__u8 l4_proto;
	__u8 partial; /* the L4 checksum is unfinished (CHECKSUM_PARTIAL) */
	__u8 padded; /* the frame is longer than the IP packet */
	__u16 in_slot;
	__u16 in_flags; /* enum shunt_port_flags */
	__u8 aggregate; /* a GRO or GSO aggregate */
	__u8 _pad[3];
};
_Static_assert(sizeof(struct shunt_candidate) == 192, "shunt_candidate is ABI");

/*
 * How often a tuple was seen, and until when not to watch it. Indexed by hash, and several tuples may share one. They
 * share the count, so they are learned sooner than configured. Everything that keeps a tuple from being learned
 * concerns the tuple with that fingerprint alone: 31 bits of a keyed hash, together with the index.
 */
struct shunt_sighting {
	__u32 pkts; /* packets within the window */
	__u32 quiet_until_ticks; /* the refused tuple is not watched until then; 0 if none was refused */
	__u16 since; /* start of the window, in units of SHUNT_SIGHTING_TICKS; wraps */
	__u16 fingerprint; /* of the only tuple counted within the window; 0 if there are several */
	__u16 refused_fingerprint;
	__u8 refused_why; /* enum shunt_reason of the last refusal */
	__u8 expired; /* number of tuples here that have a TCP position in shunt_expired; saturates at 255 */
};
_Static_assert(sizeof(struct shunt_sighting) == 16, "shunt_sighting is ABI");

/* An event for the daemon. The tuple is that of one direction of the connection, as in conntrack. */
struct shunt_event {
	__u8 kind; /* enum shunt_event_kind */
	__u8 family; /* 4 or 6 */
	__u8 l4_proto;
	__u8 reply; /* 1 for the reply direction */
	__u32 value; /* IN_WINDOW, BLIND: seconds since the connection's last packet; TX_ERROR: an errno */
	__be16 sport_be;
	__be16 dport_be;
	__u32 ifindex; /* the ingress port; TX_ERROR: the egress port */
	__u8 src_be[16]; /* an IPv4 address uses the first four bytes */
	__u8 dst_be[16];
};
_Static_assert(sizeof(struct shunt_event) == 48, "shunt_event is ABI");

/* A trace record for `shunt watch`. */
struct shunt_trace {
	__u64 at_ns; /* CLOCK_MONOTONIC */
	struct shunt_tuple tuple; /* as on the wire of `ifindex` */
	__u32 ifindex; /* the ingress port */
	__u16 tags[SHUNT_TAGS_MAX]; /* enum shunt_tag_bits; outermost first */
	__u8 kind; /* enum shunt_trace_kind */
	__u8 why; /* enum shunt_reason */
	__u8 _pad[6];
};
_Static_assert(sizeof(struct shunt_trace) == 64, "shunt_trace is ABI");

/* Arguments and results of a sweep. */
struct shunt_sweep {
	__u32 now_ticks; /* result: the clock */
	__u32 idle_ticks; /* retire flows that were unused for longer; less applies in a table that is nearly full */
	__u32 all; /* retire all learned flows */
	__u32 active; /* results: flows found, by state */
	__u32 pending;
	__u32 retired;
	__u32 statics;
	__u32 deleted; /* result: flows removed */
	__u32 remove_ticks; /* age at which a retired flow is removed; set by the program */
	__u32 flushed; /* result: flows retired by this sweep */
	__u32 from; /* the first entry to visit; IPv6 entries follow the IPv4 entries */
	__u32 entries; /* how many entries to visit; result: how many are left */
	__u32 silent_ticks; /* silence after which a connection is reported; set by the program */
};
_Static_assert(sizeof(struct shunt_sweep) == 52, "shunt_sweep is ABI");

/* A change that the daemon has seen, and what it concerns. */
struct shunt_change {
	__u32 family; /* 4 or 6 for a prefix; 0 for a station */
	__u32 prefix_len;
	__u8 address[16]; /* of the prefix; or the MAC of the station, in the first six bytes */
	__u32 moved; /* result: 1 if the change may concern a flow; the epoch or the groups of the station have moved then */
};
_Static_assert(sizeof(struct shunt_change) == 28, "shunt_change is ABI");

/* A MAC, padded with zeros. */
struct shunt_mac {
	__u8 bytes[6];
	__u8 _pad[2];
};
_Static_assert(sizeof(struct shunt_mac) == 8, "shunt_mac is ABI");

/* A station whose changes have ended flows. Times are all 64 bits of jiffies. */
struct shunt_unstable {
	__u64 since_ticks; /* when the first of these changes was seen */
	__u64 until_ticks; /* nothing is learned from its packets until then; 0 if it may be learned */
	__u32 changes; /* number of changes */
	__u32 _pad;
};
_Static_assert(sizeof(struct shunt_unstable) == 24, "shunt_unstable is ABI");

/* The name of a set of nftables, padded with zeros. */
struct shunt_set_name {
	__u8 family; /* NFPROTO_*, of the table */
	char table[32];
	char set[64];
	__u8 _pad[3];
};
_Static_assert(sizeof(struct shunt_set_name) == 100, "shunt_set_name is ABI");

enum shunt_set_flags {
	SHUNT_SET_INTERVALS = 1 << 0, /* elements are boundaries of intervals */
};

/* A set of nftables whose elements concern only packets with an address in their key. */
struct shunt_set {
	__u8 family; /* 4 or 6, of the address */
	__u8 offset; /* of the address in the key */
	__u8 key_bytes;
	__u8 flags; /* enum shunt_set_flags */
	__u32 number; /* differs between sets; never 0 */
};
_Static_assert(sizeof(struct shunt_set) == 8, "shunt_set is ABI");

enum shunt_edit_op {
	SHUNT_EDIT_PUT = 1, /* insert or replace a flow */
	SHUNT_EDIT_REMOVE = 2,
	SHUNT_EDIT_GET = 3,
	SHUNT_EDIT_SIGHTING = 4, /* read the sighting of the key's tuple, with or without a flow */
};

/* A request of the daemon for one flow. */
struct shunt_edit {
	__u32 op; /* enum shunt_edit_op */
	__u32 family; /* 4 or 6 */
	__s32 result; /* 0, or a negative errno */
	__u32 _pad;
	__u8 key[48]; /* struct shunt_key4 or struct shunt_key6 */
	struct shunt_flow flow;
	__u8 to[32];
	struct shunt_cold cold;
	struct shunt_sighting sighting; /* refused_why is 0 if the last refusal was of another tuple */
};
_Static_assert(sizeof(struct shunt_edit) == 232, "shunt_edit is ABI");

#endif
