/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* State of learning: packets, tuples, stations and sets. */
#ifndef SHUNT_ABI_LEARN_H
#define SHUNT_ABI_LEARN_H

#include <linux/types.h>
#include "abi/sizes.h"

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
	__u16 fingerprint; /* of the only tuple counted within the window, or the last to end; 0 if there are several */
	__u16 refused_fingerprint;
	__u8 refused_why; /* enum shunt_reason of the last refusal */
	__u8 expired; /* number of tuples here that have a TCP position in shunt_expired; saturates at 255 */
};
_Static_assert(sizeof(struct shunt_sighting) == 16, "shunt_sighting is ABI");

/*
 * Connections that a person has turned off: those with a direction whose addresses and ports equal these under the
 * masks. An IPv4 address is the upper half of `hi`.
 */
struct shunt_off_rule {
	__u64 src_hi;
	__u64 src_lo;
	__u64 src_mask_hi;
	__u64 src_mask_lo;
	__u64 dst_hi;
	__u64 dst_lo;
	__u64 dst_mask_hi;
	__u64 dst_mask_lo;
	__be16 sport_be;
	__be16 dport_be;
	__u16 sport_mask; /* all bits, or 0 for any port */
	__u16 dport_mask;
	__u8 family; /* 4 or 6; 0 for both */
	__u8 l4_proto; /* 0 for any */
	__u8 _pad[6];
};
_Static_assert(sizeof(struct shunt_off_rule) == 80, "shunt_off_rule is ABI");

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

/* The name of a chain or a set of nftables, padded with zeros. */
struct shunt_rules_name {
	__u8 family; /* NFPROTO_*, of the table */
	__u8 is_set;
	char table[32];
	char name[64];
	__u8 _pad[2];
};
_Static_assert(sizeof(struct shunt_rules_name) == 100, "shunt_rules_name is ABI");

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

#endif
