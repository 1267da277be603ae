/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * claim: For all addresses and ports, the deltas of an action are new minus old, and NAT is set exactly if they
 * differ.
 * case: FAMILY=4
 * case: FAMILY=6
 * mutant: core/learn.h | f->l4_delta = shunt_fold(addrs + ports); | f->l4_delta = shunt_fold(addrs);
 * mutant: core/learn.h | addrs = shunt_sum_diff(old_addrs, new_addrs, 16, 0); | addrs = shunt_sum_diff(old_addrs, new_addrs, 15, 0);
 * mutant: core/learn.h | differ |= shunt_differ(old_addrs, new_addrs, 4); | ;
 * mutant: core/checksum.h | sum += (__u16)~from[i] + (__u32)to[i]; | sum += ~from[i] + (__u32)to[i];
 */
#include "claim.h"

enum { ADDRS = FAMILY == 4 ? 8 : 32, ENDS = ADDRS + 4 };

/*
 * Sums new minus old plus 0xffff for each word. Each step is claimed, so that the checker can use it in the next
 * one.
 */
static __u32 difference(const void *old, const void *new, __u32 words, __u32 sum)
{
	const __u16 *from = old, *to = new;

	for (__u32 i = 0; i < words; i++) {
		__u32 next = shunt_sum_diff(from + i, to + i, 1, sum);

		claim(next == sum + 0xffff - from[i] + to[i], "a step adds new minus old");
		sum = next;
	}
	return sum;
}

int main(void)
{
	__u8 *old = any_bytes(ENDS), *new = any_bytes(ENDS), *to = any_bytes(ADDRS);
	struct shunt_flow f = {};
	__u32 addrs = difference(old, new, ADDRS / 2, 0), ports = difference(old + ADDRS, new + ADDRS, 2, 0);

	shunt_translate(FAMILY, old, old + ADDRS, new, new + ADDRS, &f, to);
	claim(f.l4_delta_addr == shunt_fold(addrs), "the sum of addresses is their difference, folded");
	claim(f.l4_delta == shunt_fold(addrs + ports), "the sum of both is their difference, folded");
	claim(!(f.flags & SHUNT_FLOW_NAT) == same_bytes(old, new, ENDS), "translated if and only if something differs");
	claim(same_bytes(to, new, ADDRS), "new addresses");
	claim(same_bytes(&f.sport_be, new + ADDRS, 2) && same_bytes(&f.dport_be, new + ADDRS + 2, 2), "new ports");
	return 0;
}
