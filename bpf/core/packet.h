/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A packet, as parsing describes it. Freestanding. */
#ifndef SHUNT_CORE_PACKET_H
#define SHUNT_CORE_PACKET_H

#include "abi/shunt_abi.h"
#include "core/words.h"

/* The key of either family. The family is a compile-time constant wherever a key is used. */
union shunt_key {
	struct shunt_key4 v4;
	struct shunt_key6 v6;
	__u64 words[6]; /* IPv4 uses three */
};

struct shunt_packet {
	__u64 tcp_position; /* see shunt_tcp_position(); 0 for UDP */
	__be16 tpid_be[SHUNT_TAGS_MAX]; /* outermost first, including a tag that the driver stripped */
	__be16 tci_be[SHUNT_TAGS_MAX];
	/* The first three bytes as in struct shunt_flow, see shunt_same_class_and_ttl(). */
	union {
		struct {
			/* DSCP in 0xfc, priority and DEI of the outer tag in 0xf00, of the inner in 0xf000 */
			__u16 class_bits;
			__u8 ttl;
			__u8 _zero;
		};
		__u32 class_and_ttl;
	};
	__u16 l2_bytes; /* of the L2 header in the frame, without a stripped tag; 0 on a port without layer 2 */
	__u16 l3_bytes; /* from the IP header; for a GSO aggregate, of the whole */
	__u16 wire_bytes; /* of the L3 packet, or of the largest segment of an aggregate */
	__u8 tags;
	__u8 family;
	__u8 l4_proto;
	__u8 l4_bytes; /* of the L4 header */
	__u8 tcp_flags;
};
_Static_assert(sizeof(struct shunt_packet) == 32, "crates/shunt-bpf/src/core.rs has the same layout");

/* A class and a TTL as the word of both. Bytes that are stored apart and loaded as a word make a CPU wait. */
static __always_inline __u32 shunt_class_and_ttl(__u16 class_bits, __u8 ttl)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	return class_bits | (__u32)ttl << 16;
#else
	return (__u32)class_bits << 16 | (__u32)ttl << 8;
#endif
}

/* Whether a packet's word and that of a flow, which ends in another member, have the same class and TTL. */
static __always_inline int shunt_same_class_and_ttl(__u32 of_packet, __u32 of_flow)
{
	return !((of_packet ^ of_flow) & shunt_class_and_ttl(0xffff, 0xff));
}

/* The TTL, from the whole word: clang would split the word early for a member that is rarely needed. */
static __always_inline __u8 shunt_ttl_of(__u32 class_and_ttl)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	return class_and_ttl >> 16;
#else
	return class_and_ttl >> 8;
#endif
}

#endif
