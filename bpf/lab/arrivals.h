/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The lab's packets at the receiver: their kinds, and the accounts of flows and times. Freestanding. */
#ifndef SHUNT_LAB_ARRIVALS_H
#define SHUNT_LAB_ARRIVALS_H

#include "lab/traffic.h"

/*
 * The kind of a frame, from fields that a router does not change: EtherType << 16 | protocol << 8 | ICMP type.
 * Absent fields are 0.
 */
static __always_inline __u32 frame_kind(const void *frame, const void *end)
{
	const __u8 *l3 = frame + shunt_l2_bytes(0);
	__u32 ethertype, family, protocol = 0, l3_bytes = 0;
	__be16 proto_be;

	if ((const void *)l3 > end)
		return 0;
	proto_be = shunt_proto_before(l3);
#pragma unroll
	for (int tags = 0; tags < SHUNT_TAGS_MAX && shunt_is_vlan(proto_be); tags++) {
		l3 += sizeof(struct shunt_vlan);
		if ((const void *)l3 > end)
			break;
		proto_be = shunt_proto_before(l3);
	}
	ethertype = shunt_ntohs(proto_be);
	family = shunt_family_of(proto_be);
	if (family == 4 && (const void *)(l3 + 20) <= end) {
		protocol = l3[9];
		l3_bytes = (l3[0] & 15) * 4;
	} else if (family == 6 && (const void *)(l3 + 40) <= end) {
		protocol = l3[6];
		l3_bytes = 40;
	}
	if (protocol == IPPROTO_ICMP || protocol == IPPROTO_ICMPV6) {
		l3 += l3_bytes;
		if ((const void *)(l3 + 1) <= end)
			return ethertype << 16 | protocol << 8 | l3[0];
	}
	return ethertype << 16 | protocol << 8;
}

/* Advances the window by at least one number. */
static __always_inline void arrival_advance(__u64 *seen, __u32 by)
{
#pragma unroll
	for (int i = 0; i < ARRIVAL_WINDOW / 64; i++) {
		if (by < 64)
			break;
		seen[3] = seen[2];
		seen[2] = seen[1];
		seen[1] = seen[0];
		seen[0] = 0;
		by -= 64;
	}
	if (by && by < 64) {
		seen[3] = seen[3] << by | seen[2] >> (64 - by);
		seen[2] = seen[2] << by | seen[1] >> (64 - by);
		seen[1] = seen[1] << by | seen[0] >> (64 - by);
		seen[0] <<= by;
	}
}

/* Whether the account of a flow has packets with this label. */
static __always_inline int arrival_has_begun(const struct arrival *a, __u32 label)
{
	return a->packets && a->label == label;
}

/* Begins the account of a flow with the packet of this number, which is noted next. */
static __always_inline void arrival_begin(struct arrival *a, __u32 label, __u32 number)
{
	__u32 stream = a->stream;

	__builtin_memset(a, 0, sizeof(*a));
	a->stream = stream;
	a->label = label;
	a->next = number;
}

/*
 * Accounts for a packet of a flow that has begun. NICs and the kernel deliver a flow to one CPU at a time, so no
 * atomics are needed.
 */
static __always_inline void arrival_note(struct arrival *a, __u32 number, __u32 transit_ns)
{
	__s32 ahead, change;
	__u32 behind;

	if (a->packets++) {
		change = transit_ns - a->transit_ns;
		if (change < 0)
			change = -change;
		a->jitter += change - ((a->jitter + 8) >> 4);
	}
	a->transit_ns = transit_ns;
	ahead = number - a->next;
	/* The usual case: the window is full, and stays full. */
	if (!ahead && (a->seen[0] & a->seen[1] & a->seen[2] & a->seen[3]) == ~0ULL) {
		a->next = number + 1;
		return;
	}
	if (ahead >= 0) {
		arrival_advance(a->seen, ahead < ARRIVAL_WINDOW ? ahead + 1 : ARRIVAL_WINDOW);
		a->seen[0] |= 1;
		a->next = number + 1;
		return;
	}
	behind = a->next - 1 - number;
	if (behind < ARRIVAL_WINDOW) {
		__u64 bit = 1ULL << (behind & 63);
		__u64 *word = &a->seen[behind >> 6 & 3];

		if (*word & bit) {
			a->duplicated++;
			return;
		}
		*word |= bit;
	} else {
		a->beyond++;
	}
	a->reordered++;
	if (behind > a->displaced_max)
		a->displaced_max = behind;
}

/* How far to shift a time so that seven bits are left; 0 for a time of fewer bits. */
static __always_inline __u32 latency_shift(__u32 ns)
{
	__u32 shift = 0;

	if (ns < 2 * LATENCY_SUB_BUCKETS)
		return 0;
#pragma unroll
	for (int step = 16; step; step /= 2) {
		if (ns >> step >= LATENCY_SUB_BUCKETS) {
			ns >>= step;
			shift += step;
		}
	}
	return shift;
}

/* The histogram bucket of a time with this shift: exact below 128 ns, then 64 buckets per power of two. */
static __always_inline __u32 latency_bucket(__u32 ns, __u32 shift)
{
	return shift * LATENCY_SUB_BUCKETS + (ns >> shift);
}

#endif
