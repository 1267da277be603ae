/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Ones' complement sums (RFC 1071) and the incremental update of RFC 1624. Words are summed in memory order, which is
 * correct for either byte order. Zero is represented as Linux writes it: 0x0000 in a finished checksum, 0xffff in an
 * unfinished one.
 */
#ifndef SHUNT_CORE_CHECKSUM_H
#define SHUNT_CORE_CHECKSUM_H

#include "core/parse.h"

/* The longest L4 header plus payload whose checksum is verified without a helper. */
enum { SHUNT_SHORT_L4_MAX = 127 };

/* Folds a sum of at most 65536 words into one: adds what went beyond 16 bits, with the carry of that addition. */
static __always_inline __u16 shunt_fold(__u32 sum)
{
	__u32 beyond = (sum + (sum >> 16)) >> 16;

	return sum + beyond;
}

/*
 * Updates a finished checksum, which is the complement of the sum. Adding 0xffff (minus zero) keeps the sum from
 * being 0. A delta of a few words need not be folded.
 */
static __always_inline __u16 shunt_csum_update(__u16 check, __u32 delta)
{
	return ~shunt_fold((__u16)~check + delta + 0xffff);
}

/* Updates an unfinished checksum (CHECKSUM_PARTIAL), which is the sum of the pseudo header. */
static __always_inline __u16 shunt_csum_update_partial(__u16 check, __u16 delta)
{
	return shunt_fold((__u32)check + delta + 0xffff);
}

/* Adds new - old to `sum`, over at most 32768 words. */
static __always_inline __u32 shunt_sum_diff(const void *old, const void *new, __u32 words, __u32 sum)
{
	const __u16 *from = old;
	const __u16 *to = new;

#pragma unroll
	for (__u32 i = 0; i < words; i++) {
		sum += (__u16)~from[i] + (__u32)to[i];
		/* As in shunt_differ(). */
		if (i % 4 == 3)
			shunt_in_turn(sum);
	}
	return sum;
}

/*
 * Whether a sum of 16-bit or 32-bit words is zero in ones' complement, that is, divisible by 0xffff. Multiplication
 * by the inverse of 0xffff modulo 2^64 turns a multiple of 0xffff into its quotient, and any other number into one
 * greater than every quotient.
 */
static __always_inline int shunt_sum_is_zero(__u64 sum)
{
	return sum * 0xfffefffefffeffffULL <= 0xffffffffffffffffULL / 0xffff;
}

static __always_inline int shunt_ipv4_header_good(const struct iphdr *ip)
{
	const __u32 *word = (const __u32 *)ip;

	/* The addresses first: the sum of the pseudo header begins with them, too. */
	return shunt_sum_is_zero((__u64)word[3] + word[4] + word[0] + word[1] + word[2]);
}

/* The sum of the pseudo header that an L4 checksum covers. */
static __always_inline __u64 shunt_pseudo_sum(__u32 family, const void *l3, __u8 l4_proto, __u16 l4_len)
{
	const __u32 *word = l3 + (family == 4 ? 12 : 8);
	__u64 sum = (__u64)word[0] + word[1];

	if (family == 6)
		sum += (__u64)word[2] + word[3] + word[4] + word[5] + word[6] + word[7];
	return sum + shunt_htons(l4_len) + shunt_htons(l4_proto);
}

/*
 * Whether the L4 checksum looks unfinished, that is, equals the sum of the pseudo header. One in 65,536 finished
 * checksums does so, too. Use this only to choose between two correct paths for a packet.
 */
static __always_inline int shunt_looks_partial(__u32 family, const void *l3, __u8 l4_proto, __u16 l4_len, __u16 check)
{
	/* Plus the complement of the checksum; clang adds the constants. */
	return shunt_sum_is_zero(shunt_pseudo_sum(family, l3, l4_proto, l4_len) + 0xffff - check);
}

/* Adds `part` bytes, a constant, if that bit of `bytes` is set, and moves `at` behind them. */
static __always_inline int shunt_add_part(const void **at, const void *end, __u32 bytes, __u32 part, __u64 *sum)
{
	const __u32 *word = *at;

	if (!(bytes & part))
		return 0;
	if (*at + part > end)
		return -1;
#pragma unroll
	for (__u32 i = 0; i < part / 4; i++)
		*sum += word[i];
	*at += part;
	return 0;
}

/* Adds at most SHUNT_SHORT_L4_MAX bytes to `sum`. Returns -1 if they do not end before `end`. */
static __always_inline int shunt_add_bytes(const void *at, const void *end, __u32 bytes, __u64 *sum)
{
	if (shunt_add_part(&at, end, bytes, 64, sum) || shunt_add_part(&at, end, bytes, 32, sum) ||
	    shunt_add_part(&at, end, bytes, 16, sum) || shunt_add_part(&at, end, bytes, 8, sum) ||
	    shunt_add_part(&at, end, bytes, 4, sum))
		return -1;
	if (bytes & 2) {
		if (at + 2 > end)
			return -1;
		*sum += *(const __u16 *)at;
		at += 2;
	}
	if (bytes & 1) {
		if (at + 1 > end)
			return -1;
		*sum += shunt_htons(*(const __u8 *)at << 8);
	}
	return 0;
}

#endif
