/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Ones' complement sums over 16-bit words loaded as they lie in memory, which is right on either byte order
 * (RFC 1071), and the incremental update of RFC 1624. The zero that comes out is the one that Linux writes:
 * 0x0000 in a finished checksum, 0xffff in an unfinished one.
 */
#ifndef SHUNT_CORE_CHECKSUM_H
#define SHUNT_CORE_CHECKSUM_H

#include "core/packet.h"

static __always_inline __u16 shunt_fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/*
 * For a finished checksum: the complement of the sum. Adding 0xffff (minus zero) keeps the sum from being 0. The delta need not
 * be folded, if it is of few words.
 */
static __always_inline __u16 shunt_csum_update(__u16 check, __u32 delta)
{
	return ~shunt_fold((__u16)~check + delta + 0xffff);
}

/* For an unfinished one (CHECKSUM_PARTIAL): the sum of the pseudo header itself. */
static __always_inline __u16 shunt_csum_update_partial(__u16 check, __u16 delta)
{
	return shunt_fold((__u32)check + delta + 0xffff);
}

/* new - old over the same number of words, at most 32768 of them. */
static __always_inline __u32 shunt_sum_diff(const void *old, const void *new, __u32 words, __u32 sum)
{
	const __u16 *from = old;
	const __u16 *to = new;

#pragma unroll
	for (__u32 i = 0; i < words; i++)
		sum += (__u16)~from[i] + (__u32)to[i];
	return sum;
}

/*
 * Whether a sum of words of 16 or 32 bits is zero in ones' complement, that is, divisible by 0xffff: a multiple of an odd number, times
 * its inverse in 64 bits, is its quotient, and what is none comes out greater than any quotient.
 */
static __always_inline int shunt_sum_is_zero(__u64 sum)
{
	return sum * 0xfffefffefffeffffULL <= 0xffffffffffffffffULL / 0xffff;
}

static __always_inline int shunt_ipv4_header_good(const struct iphdr *ip)
{
	const __u32 *word = (const __u32 *)ip;

	return shunt_sum_is_zero((__u64)word[0] + word[1] + word[2] + word[3] + word[4]);
}

/*
 * Whether the L4 checksum looks unfinished: equal to the sum of the pseudo header. A finished one looks so once in
 * 65,536 packets, so this may only decide which of two right ways a packet goes.
 */
static __always_inline int shunt_looks_partial(__u32 family, const void *l3, __u8 l4_proto, __u16 l4_len, __u16 check)
{
	const __u32 *word = l3 + (family == 4 ? 12 : 8);
	__u64 sum = (__u64)shunt_htons(l4_proto) + shunt_htons(l4_len) + word[0] + word[1];

	if (family == 6)
		sum += (__u64)word[2] + word[3] + word[4] + word[5] + word[6] + word[7];
	return shunt_sum_is_zero(sum + (__u16)~check);
}

#endif
