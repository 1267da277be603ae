/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the data plane and the daemon share. Fixed width, no holes, every size asserted; the Rust twin is
 * crates/shunt-bpf/src/abi.rs, which asserts the same numbers.
 */
#ifndef SHUNT_ABI_H
#define SHUNT_ABI_H

#include <linux/types.h>

enum {
	SHUNT_ABI_VERSION = 1,
	SHUNT_PORTS_MAX = 64,
	SHUNT_TAGS_MAX = 2,
	SHUNT_L2_MAX = 14 + 4 * SHUNT_TAGS_MAX,
	SHUNT_L3_MAX = 40,
	SHUNT_L4_MAX = 60,
	SHUNT_REASONS_MAX = 64,
	SHUNT_CANDIDATES = 4096, /* a power of two; with a generation nibble it fits skb->tc_index */
	SHUNT_SIGHTINGS = 32768, /* a power of two */
	SHUNT_WAYS = 4,
};

/*
 * Why a packet was not forwarded by the fast path, and why a packet that Linux forwarded did not teach us a flow.
 * Append only; `shunt why` and `shunt status` print the names in abi/reasons.rs.
 */
enum shunt_reason {
	SHUNT_OK = 0,

	/* punts: the packet went to Linux */
	SHUNT_NOT_OURS = 1,	/* not Ethernet unicast to the MAC the flow was learned with */
	SHUNT_OPTIONS = 2,	/* IPv4 options or IPv6 extension headers */
	SHUNT_BAD_HEADER = 3,
	SHUNT_FRAGMENT = 4,
	SHUNT_MTU = 5,		/* larger than Linux was seen to forward on this flow */
	SHUNT_TTL = 6,
	SHUNT_PROTOCOL = 7,	/* neither TCP nor UDP, or not IP at all */
	SHUNT_TCP_FLAGS = 8,	/* SYN, FIN or RST, or no ACK */
	SHUNT_MISS = 9,
	SHUNT_STALE = 10,	/* an action of another epoch, retired, or not proved for too long */
	SHUNT_REPROVE = 11,
	SHUNT_NO_DAEMON = 12,
	SHUNT_PORT = 13,
	SHUNT_PENDING = 14,	/* proved once, not yet seen to leave only once */
	SHUNT_CLASS = 15,	/* another DSCP, VLAN priority or TTL than the flow was learned with */
	SHUNT_TAGS = 16,	/* more VLAN tags than two */
	/* it would be learned from, were it not for ... */
	SHUNT_CAPTURE = 17,	/* ... somebody who captures on the port that it came in by */
	SHUNT_INGRESS_FILTER = 18, /* ... the tc filters or TCX programs of that port */
	SHUNT_RULESET = 19,	/* ... a statement of the ruleset that must see every packet */

	/* refusals: Linux forwarded it, and nothing was learned */
	SHUNT_NOT_WATCHED = 32,	/* the candidate was overwritten before its packet left */
	SHUNT_AGED = 33,	/* the packet took longer than a second */
	SHUNT_OLD_EPOCH = 34,
	SHUNT_NO_CONNTRACK = 35,
	SHUNT_OTHER_TUPLE = 36,	/* conntrack says the packet came in as another tuple */
	SHUNT_UNCONFIRMED = 37,
	SHUNT_DYING = 38,
	SHUNT_HELPER = 39,
	SHUNT_SEQ_ADJUST = 40,
	SHUNT_UNREPLIED = 41,
	SHUNT_NOT_ESTABLISHED = 42,
	SHUNT_NOT_LIBERAL = 43,	/* BE_LIBERAL has been asked for and is not set yet */
	SHUNT_NOT_PROVED = 44,	/* applying the action does not give what Linux sent */
	SHUNT_LEFT_TWICE = 45,
	SHUNT_TABLE_FULL = 46,
	SHUNT_ODD_EGRESS = 47,	/* what left cannot be expressed by an action */
	SHUNT_RETIRING = 48,	/* the flow's former action is still within its quiet time */
	SHUNT_NOT_ROUTED = 49,	/* the TTL was not lowered by one, and it was not bridged as can be learned */
	SHUNT_EGRESS_CAPTURE = 50, /* somebody captures on the port that it left by */
	SHUNT_EXCLUDED = 51,	/* its mark, or its connection's, was configured to stay slow */

	/* why a flow was taken out of use, besides the above */
	SHUNT_IDLE = 52,
	SHUNT_FLUSHED = 53,
	SHUNT_CONNTRACK_GONE = 54, /* conntrack has forgotten the connection, or was told to */

	/* a refusal again */
	SHUNT_EGRESS_FILTER = 55, /* something of somebody else's is where it left that a fast packet would not go through */
};
_Static_assert((int)SHUNT_EGRESS_FILTER < (int)SHUNT_REASONS_MAX, "reasons fit the counters");

enum shunt_flow_state {
	SHUNT_FLOW_PENDING = 1,
	SHUNT_FLOW_ACTIVE = 2,
};

/* The epoch of a retired action. The current epoch is never 0. */
enum { SHUNT_EPOCH_RETIRED = 0 };

enum shunt_flow_flags {
	SHUNT_FLOW_XDP = 1 << 0,     /* the XDP engine may send it to its egress port */
	SHUNT_FLOW_STATIC = 1 << 1,  /* put in by hand: no epoch, no proof, no conntrack */
	SHUNT_FLOW_NAT = 1 << 2,     /* addresses or ports change */
	SHUNT_FLOW_PARTIAL = 1 << 3, /* the ingress driver may hand up unfinished L4 checksums */
	SHUNT_FLOW_REPLY = 1 << 4,   /* the connection's reply direction */
	SHUNT_FLOW_UNREPLIED = 1 << 5, /* proved before the other side had answered: UDP only */
	SHUNT_FLOW_BRIDGED = 1 << 6, /* the TTL stays, and it is for packets of the MAC that is in `l2` only */
	SHUNT_FLOW_UNTRACKED = 1 << 7, /* bridged, and conntrack has no say in it; what pads its frames stays */
};

enum shunt_port_flags {
	SHUNT_PORT_XDP_OUT = 1 << 1, /* XDP may redirect to it: the driver can, and its qdisc is not in use */
	SHUNT_PORT_PARTIAL = 1 << 2, /* frames may come in with CHECKSUM_PARTIAL (veth, tap, virtio) */
	SHUNT_PORT_CAPTURED = 1 << 3, /* nothing is learned that comes in or leaves by it */
	SHUNT_PORT_FILTERED = 1 << 4, /* nothing is learned that comes in by it */
	SHUNT_PORT_FILTERED_OUT = 1 << 5, /* nothing is learned that leaves by it */
	SHUNT_PORT_BRIDGED = 1 << 6, /* what is bridged may be learned that comes in by it */
	SHUNT_PORT_UNTRACKED4 = 1 << 7, /* conntrack sees no IPv4 that is bridged */
	SHUNT_PORT_UNTRACKED6 = 1 << 8,
};

enum shunt_control_flags {
	SHUNT_CONTROL_LEARN = 1 << 0,
	SHUNT_CONTROL_UDP_UNREPLIED = 1 << 1, /* learn UDP before any reply was seen */
	SHUNT_CONTROL_HOLD4 = 1 << 2, /* learn no IPv4: the ruleset must see every packet */
	SHUNT_CONTROL_HOLD6 = 1 << 3,
	SHUNT_CONTROL_TRACE = 1 << 4, /* somebody reads shunt_traces */
	SHUNT_CONTROL_STATICS = 1 << 5, /* flows have been put in by hand */
};

enum shunt_event_kind {
	SHUNT_EVENT_WANT_LIBERAL = 1,
	SHUNT_EVENT_SILENT = 2, /* nobody has sent for a while, and all that was sent was answered */
};

enum shunt_trace_kind {
	SHUNT_TRACE_LEARN = 1, /* proved, and put into the table */
	SHUNT_TRACE_ACTIVATE = 2, /* in use from this packet on */
	SHUNT_TRACE_PUNT = 3, /* a packet of a known flow went to Linux */
	SHUNT_TRACE_REFUSE = 4, /* Linux forwarded a packet that taught nothing */
	SHUNT_TRACE_RETIRE = 5, /* taken out of use */
};

/* A VLAN tag in a key. Priority is no part of it; a priority tag (VLAN id 0) is not the same as no tag. */
enum shunt_tag_bits {
	SHUNT_TAG_VID = 0x0fff,
	SHUNT_TAG_8021AD = 0x1000,
	SHUNT_TAG_PRESENT = 0x8000,
};

/*
 * Addresses and ports as they are on the wire of `ifindex`, which is 0 in no key. Hashed and compared as 64-bit words,
 * so there are no holes.
 */
struct shunt_key4 {
	__be32 src_be;
	__be32 dst_be;
	__be16 sport_be;
	__be16 dport_be;
	__u32 ifindex;
	__u16 tags[SHUNT_TAGS_MAX]; /* outermost first: enum shunt_tag_bits and the VLAN id */
	__u32 l4_proto;
};
_Static_assert(sizeof(struct shunt_key4) == 24, "shunt_key4 is ABI");

struct shunt_key6 {
	__u8 src[16];
	__u8 dst[16];
	__be16 sport_be;
	__be16 dport_be;
	__u32 ifindex;
	__u16 tags[SHUNT_TAGS_MAX];
	__u32 l4_proto;
};
_Static_assert(sizeof(struct shunt_key6) == 48, "shunt_key6 is ABI");

/*
 * A flow: its action, and what changes with its packets. Times are the low half of jiffies, and wrap. The new addresses
 * follow it in memory, source and then destination.
 *
 * What the action says is written once and then only read; epoch, state, flags, punt_due, the ticks and max_l3_bytes
 * change, and each is stored whole.
 */
struct shunt_flow {
	__u32 epoch;
	__u8 state; /* enum shunt_flow_state */
	__u8 flags; /* enum shunt_flow_flags */
	__u8 out_tags;
	__u8 punt_due; /* XDP saw that it is time to prove again; tc punts the packet */
	__u32 reprove_at_ticks;
	__u32 prove_by_ticks;
	__u16 max_l3_bytes; /* the largest packet that Linux was seen to forward */
	__u16 class_bits;   /* DSCP and VLAN priorities it was learned with, see shunt_packet */
	__u8 in_dmac[6];
	__u8 l2[SHUNT_L2_MAX]; /* the whole new L2 header: MACs, tags, EtherType */
	__u16 in_slot;
	__u16 out_slot;
	__u16 l4_delta;	     /* ones' complement sum of new minus old: addresses and ports */
	__u16 l4_delta_addr; /* the same: addresses only */
	__u16 home_cpu;	     /* this CPU counts without atomics */
	__u8 in_ttl;	     /* TTL or hop limit it was learned with */
	__u8 retired_why;    /* enum shunt_reason, of the last time */
	__be16 sport_be;
	__be16 dport_be;
	__u32 mark;
	__u32 priority;
	__u32 seen_ticks;
	__u32 retired_ticks;
	__u64 pkts;
	__u64 bytes;
};
_Static_assert(sizeof(struct shunt_flow) == 96, "shunt_flow is ABI");

/* Two cache lines: with the key in the first, a packet of a flow costs no more. */
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

/* What few packets need of an entry. */
struct shunt_cold {
	__u64 away_pkts; /* counted by other CPUs, atomically */
	__u64 away_bytes;
	__u32 learned_ticks;
	__u32 told_ticks; /* the flow's seen_ticks when its silence was told last */
	__u32 next_free;  /* while it is free: the next one that is, plus one */
	__u32 _pad;
};
_Static_assert(sizeof(struct shunt_cold) == 32, "shunt_cold is ABI");

/*
 * A piece of the index. A slot has the number of an entry, plus one, and above it a byte of the hash of the entry's key; 0 is
 * free. A key is in any slot of two buckets.
 */
struct shunt_bucket {
	__u32 slot[SHUNT_WAYS];
};
_Static_assert(sizeof(struct shunt_bucket) == 16, "shunt_bucket is ABI");

struct shunt_usage {
	__u64 entries[2]; /* in use: IPv4, IPv6 */
	__u64 fresh[2]; /* this entry and those after it never were in use */
	__u64 free[2]; /* the first of those that were, plus one; in the upper half how often it changed */
	__u64 past_lost; /* flows whose counts found no place in shunt_past */
	__u64 traces_lost;
};
_Static_assert(sizeof(struct shunt_usage) == 64, "shunt_usage is ABI");

/* One direction of a connection, as conntrack has it; IPv4 in the first four bytes of an address. */
struct shunt_tuple {
	__u8 src[16];
	__u8 dst[16];
	__be16 sport_be;
	__be16 dport_be;
	__u8 family; /* 4 or 6 */
	__u8 l4_proto;
	__u8 _pad[2];
};
_Static_assert(sizeof(struct shunt_tuple) == 40, "shunt_tuple is ABI");

/* What flows of a tuple had counted that are no more in the table, while conntrack still knows the connection. */
struct shunt_past {
	__u64 pkts;
	__u64 bytes;
};

struct shunt_port {
	__u16 slot; /* index into the counters and the devmap */
	__u16 flags;
	__u32 ifindex;
};
_Static_assert(sizeof(struct shunt_port) == 8, "shunt_port is ABI");

/* Where ports are. */
struct shunt_places {
	struct shunt_port near[SHUNT_PORTS_MAX]; /* by the low bits of the ifindex; of ports that share them, the last one */
	__u32 ifindex[SHUNT_PORTS_MAX]; /* by the slot */
};
_Static_assert(sizeof(struct shunt_places) == 768, "shunt_places is ABI");

/* Per port and CPU. Packets as the hook sees them: a GRO or GSO aggregate is one; bytes from the L3 header on. */
struct shunt_counters {
	__u64 xdp_pkts;
	__u64 xdp_bytes;
	__u64 tc_pkts;
	__u64 tc_bytes;
	__u64 slow_pkts;
	__u64 slow_bytes;
	__u64 dropped_pkts;
	__u64 learned;
	__u64 proved;
	__u64 retired;
	__u64 reasons[SHUNT_REASONS_MAX];
};
_Static_assert(sizeof(struct shunt_counters) == 80 + 8 * 64, "shunt_counters is ABI");

/* One element, written by the daemon. */
struct shunt_control {
	__u32 abi;
	__u32 epoch;
	__u32 heartbeat_ticks;
	__u32 heartbeat_max_ticks;
	__u32 reprove_ticks;
	__u32 prove_ticks; /* how long a proof lasts */
	__u32 learn_udp_pkts;
	__u32 learn_tcp_pkts;
	__u32 flags;	   /* enum shunt_control_flags */
	__u32 bucket_mask; /* of the index */
	__u64 seed;	   /* of their hash */
	__u32 max_flows;   /* of each family */
	__u32 ticks_per_s; /* the kernel's HZ */
	__u32 exclude_mark; /* packets whose mark under the mask is this teach nothing; without a mask, none are */
	__u32 exclude_mark_mask;
	__u32 exclude_ct_mark; /* the same for the mark of the connection */
	__u32 exclude_ct_mark_mask;
};
_Static_assert(sizeof(struct shunt_control) == 72, "shunt_control is ABI");

/* The headers of a packet with every layer at a fixed place. Unused bytes are zero. */
struct shunt_headers {
	__u8 l2[SHUNT_L2_MAX];
	__u8 l2_bytes;
	__u8 l4_bytes;
	__u8 l3[SHUNT_L3_MAX];
	__u8 l4[SHUNT_L4_MAX];
	__u8 _pad[4];
};
_Static_assert(sizeof(struct shunt_headers) == 128, "shunt_headers is ABI");

/* A packet on its way through Linux. A hint only: the proof at egress makes it safe, so nothing here is locked. */
struct shunt_candidate {
	struct shunt_headers headers;
	__u32 at_ticks;
	__u32 ifindex;
	__u32 epoch;
	__u32 sighting;
	__u16 ticket; /* what skb->tc_index carries */
	__u16 left;
	__u16 fingerprint;
	__u16 class_bits;
	__u8 family; /* 4 or 6 */
	__u8 l4_proto;
	__u8 partial; /* its L4 checksum is unfinished (CHECKSUM_PARTIAL) */
	__u8 padded; /* its frame is longer than its IP packet */
	__u16 in_slot;
	__u16 in_flags; /* enum shunt_port_flags */
};
_Static_assert(sizeof(struct shunt_candidate) == 160, "shunt_candidate is ABI");

/*
 * How often a tuple (by hash) was seen, and until when not to ask again. Shared slots only learn sooner or later. The
 * last refusal is for people; its fingerprint says, nearly always, whether it is the tuple's own.
 */
struct shunt_sighting {
	__u32 since_ticks;
	__u32 pkts;
	__u32 quiet_until_ticks;
	__u16 refused_fingerprint;
	__u8 refused_why; /* enum shunt_reason */
	__u8 _pad;
};
_Static_assert(sizeof(struct shunt_sighting) == 16, "shunt_sighting is ABI");

/* To the daemon: a connection, by one direction of it as conntrack has it. */
struct shunt_event {
	__u8 kind;
	__u8 family;
	__u8 l4_proto;
	__u8 reply; /* it is the reply direction and not the original one */
	__u8 _pad[4];
	__be16 sport_be;
	__be16 dport_be;
	__u32 ifindex;
	__u8 src[16]; /* IPv4 in the first four */
	__u8 dst[16];
};
_Static_assert(sizeof(struct shunt_event) == 48, "shunt_event is ABI");

/* To people who watch. */
struct shunt_trace {
	__u64 at_ns; /* CLOCK_MONOTONIC */
	struct shunt_tuple tuple; /* as on the wire of `ifindex` */
	__u32 ifindex; /* where the packet came in */
	__u16 tags[SHUNT_TAGS_MAX];
	__u8 kind; /* enum shunt_trace_kind */
	__u8 why; /* enum shunt_reason */
	__u8 _pad[6];
};
_Static_assert(sizeof(struct shunt_trace) == 64, "shunt_trace is ABI");

/* What the sweep is told, and what it found. */
struct shunt_sweep {
	__u32 now_ticks; /* found: the clock */
	__u32 idle_ticks;
	__u32 all; /* retire everything that was learned */
	__u32 active;
	__u32 pending;
	__u32 retired;
	__u32 statics;
	__u32 deleted;
	__u32 remove_ticks; /* how long after it was retired a flow is removed; filled in by the program */
	__u32 flushed;	    /* retired by this sweep */
	__u32 from;	    /* the first entry to look at; those of IPv6 come after those of IPv4 */
	__u32 entries;	    /* how many; found: how many are left */
	__u32 silent_ticks; /* after how long a connection is silent; filled in by the program */
};
_Static_assert(sizeof(struct shunt_sweep) == 52, "shunt_sweep is ABI");

enum shunt_edit_op {
	SHUNT_EDIT_PUT = 1, /* put in, or replace */
	SHUNT_EDIT_REMOVE = 2,
	SHUNT_EDIT_GET = 3,
	SHUNT_EDIT_SIGHTING = 4, /* what was seen of the key's tuple, with or without a flow */
};

/* A flow that the daemon puts in, takes out or looks at. */
struct shunt_edit {
	__u32 op;
	__u32 family;
	__s32 result; /* 0, or a negative errno */
	__u32 _pad;
	__u8 key[48];
	struct shunt_flow flow;
	__u8 to[32];
	struct shunt_cold cold;
	struct shunt_sighting sighting; /* its refusal is 0 where the last one was another tuple's */
};
_Static_assert(sizeof(struct shunt_edit) == 240, "shunt_edit is ABI");

#endif
