/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The flow table. */
#ifndef SHUNT_ABI_FLOWS_H
#define SHUNT_ABI_FLOWS_H

#include <linux/types.h>
#include "abi/sizes.h"

enum shunt_flow_state {
	SHUNT_FLOW_PENDING = 1, /* proved; the packet may still leave a second time */
	SHUNT_FLOW_ACTIVE = 2,
	SHUNT_FLOW_INSERTED = 3, /* proved; its connection may have been deleted meanwhile */
};

/* The epoch of a retired action. The current epoch is odd, and groups move by two, so that no flow's sum is ever 0. */
enum { SHUNT_EPOCH_RETIRED = 0 };

/*
 * Home CPUs that are none: of a flow that all CPUs count atomically, and of one that the external engine counts. No
 * kernel has so many CPUs.
 */
enum shunt_home_cpu {
	SHUNT_NO_CPU = 0xfe,
	SHUNT_ENGINE_CPU = 0xff,
};

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

/* `out_tags` of an action whose packets leave through a port without layer 2; `l2` is zeros then. */
enum { SHUNT_NO_L2 = 0x80 };

/*
 * A session of PPPoE, as a packet of its ppp port was seen to leave by an Ethernet port. The header ends before the
 * length of the packet.
 */
struct shunt_session {
	__u8 header[SHUNT_L2_MAX]; /* MACs, tag, EtherType, version, code, session */
	__u8 tags; /* number of VLAN tags in `header`, at most 1 */
	__u8 _pad;
	__u32 below; /* ifindex of the Ethernet port */
	__u32 _zero;
	__u64 proved_ticks; /* when a packet was last seen; all 64 bits of jiffies */
};
_Static_assert(sizeof(struct shunt_session) == 40, "shunt_session is ABI");

/* What tells the sessions of an Ethernet port apart. */
struct shunt_session_key {
	__u32 below; /* ifindex of the Ethernet port */
	__u16 tag; /* enum shunt_tag_bits */
	__be16 session_be;
};
_Static_assert(sizeof(struct shunt_session_key) == 8, "shunt_session_key is ABI");

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
	__u8 out_tags; /* number of VLAN tags in `l2`, or SHUNT_NO_L2 */
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
	__u8 in_dmac[6]; /* zeros if the ingress port is without layer 2 */
	__u8 l2[SHUNT_L2_MAX]; /* the whole new L2 header: MACs, tags, EtherType */
	__u16 in_slot;
	__u16 out_slot;
	__u16 l4_delta; /* ones' complement sum of new minus old addresses and ports */
	__u16 l4_delta_addr; /* ones' complement sum of new minus old addresses */
	__u16 class_bits; /* DSCP and VLAN priorities the flow was learned with, see struct shunt_packet */
	__u8 in_ttl; /* TTL or hop limit the flow was learned with; compared with class_bits as one word */
	__u8 home_cpu; /* the CPU that counts without atomics, or enum shunt_home_cpu */
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

/*
 * Two cache lines: the loader has the table begin on one. The first one holds the key, so a forwarded packet touches no
 * more than these, and no flow shares a line with another one.
 */
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
	__u32 silent_ticks; /* seen_ticks, bit 0 set, when silence was reported; 0 once used again */
	__u32 _pad;
};
_Static_assert(sizeof(struct shunt_cold) == 32, "shunt_cold is ABI");

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
	__u32 entries[2]; /* entries in use; loaded together, by each packet */
	__u32 _own_line[14]; /* what follows changes with each new flow, on any CPU */
	__u64 fresh[2]; /* the first entry that was never used; none behind it was */
	__u64 free[2]; /* head of the free list, plus one; the upper half counts changes */
	__u64 expired; /* entries of shunt_expired, or more while one is added or removed */
	__u64 expired_lost; /* expired flows whose counters did not fit shunt_expired */
	__u64 traces_lost;
	__u64 finals_lost; /* final counters of flows that shunt_finals had no room for */
	__u64 unusual_ticks; /* last proof of a flow of XDP that is bridged, or gets tags; all 64 bits of jiffies */
};
_Static_assert(sizeof(struct shunt_usage) == 64 + 72, "shunt_usage is ABI");

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

#endif
