/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * claim: For every checksum and every difference, the update equals the checksum computed over the whole packet.
 * runs: all inputs, one after the other
 * mutant: core/checksum.h | return ~shunt_fold((__u16)~check + delta + 0xffff); | return ~shunt_fold((__u16)~check + delta);
 * mutant: core/checksum.h | return shunt_fold((__u32)check + delta + 0xffff); | return shunt_fold((__u32)check + delta);
 * mutant: core/checksum.h | (sum + (sum >> 16)) >> 16 | sum >> 16
 * mutant: core/checksum.h | sum * 0xfffefffefffeffffULL | sum * 0xfffefffefffefffbULL
 * mutant: core/forward.h | if (family == 6)\n\t\tsum += f->l4_delta_addr; | ;
 * mutant: core/forward.h | if (family == 6 && !(f->flags & SHUNT_FLOW_BRIDGED)) | if (family == 6)
 *
 * Ones' complement sums are numbers modulo 65535. The sum that a checksum covers is never the number 0, since it
 * includes the protocol, or in an IPv4 header the version. Folded, it is therefore the number from 1 to 65535 with
 * the same remainder, and the finished checksum is its complement. An update is correct if and only if the sum that
 * it represents has the remainder of the old sum plus the difference, and is not 0. This needs too many
 * multiplications for a model checker, but all pairs of 16-bit numbers can be tried.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/learn.h"

static const char *failed;

static void claim(int holds, const char *text)
{
	if (!holds)
		failed = text;
}

/* The remainder of a 32-bit number modulo 65535. */
static __u32 rest(__u32 number)
{
	return number % 0xffff;
}

/* Whether `sum`, which the updated checksum represents, is correct for the old sum and the difference. */
static int right(__u32 old, __u32 difference, __u16 sum)
{
	return sum != 0 && rest(sum) == rest(old + difference);
}

static void pair(__u32 check, __u32 delta)
{
	__u16 old = ~check;

	claim(right(old, delta, ~shunt_csum_update(check, delta)), "update of a finished checksum");
	claim(right(check, delta, shunt_csum_update_partial(check, delta)), "update of an unfinished checksum");
	/* A TTL lowered by one: minus 0x0100, in memory order. */
	claim(right(old, delta + 0xffff - shunt_htons(0x0100),
		    ~shunt_csum_update(check, delta + (__u16)~shunt_htons(0x0100))),
	      "update of the checksum of an IPv4 header");
	claim(shunt_fold(check << 16 | delta) <= 0xffff &&
		      rest(shunt_fold(check << 16 | delta)) == rest(check + delta) &&
		      !shunt_fold(check << 16 | delta) == !(check | delta),
	      "folding keeps the remainder, and zero");
	/* The usual test for divisibility by an odd constant. 2^32 sums of 48 bits check the inverse. */
	claim(shunt_sum_is_zero((__u64)check << 32 | delta << 16 | (check ^ delta)) ==
		      !((((__u64)check << 32) + ((__u64)delta << 16) + (check ^ delta)) % 0xffff),
	      "a sum is known to be zero");
}

/*
 * An L4 checksum makes the sum over L4 minus that of the pseudo header, where the addresses are what changes; an
 * IPv4 header's makes it 0. Where there is no L4 checksum, the ports change.
 */
static void change(__u32 ends, __u32 addrs)
{
	for (__u32 kind = 0; kind < 8; kind++) {
		__u32 family = kind & 1 ? 6 : 4, has_check = kind & 2;
		struct shunt_flow f = { .l4_delta = ends,
					.l4_delta_addr = addrs,
					.flags = kind & 4 ? SHUNT_FLOW_BRIDGED : 0 };
		__u32 want = has_check ? 0xffff - addrs : ends + 0xffff - addrs;

		if (family == 6)
			want += addrs + (kind & 4 ? 0 : 0xffff - shunt_htons(1));
		claim(rest(shunt_sum_change(&f, family, has_check)) == rest(want), "change of the sum over a packet");
	}
}

int main(void)
{
	_Static_assert(0xfffefffefffeffffULL * 0xffff == 1, "the inverse of 65535");
	/* From both ends, since that is where a wrong update shows first. */
	for (__u32 n = 0; n < 0x10000 && !failed; n++)
		for (__u32 a = n & 1 ? 0xffff - n / 2 : n / 2, b = 0; b < 0x10000; b++) {
			pair(a, b);
			change(a, b);
		}
	if (failed)
		printf("FAILURE: %s\n", failed);
	return !!failed;
}
