/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * claim: Keys are equal if and only if all bytes are, tuples if and only if addresses, ports and protocol are.
 * Hashing reads only the key.
 * case: FAMILY=4
 * case: FAMILY=6
 * mutant: include/table/table.h | (words[2] ^ key->words[2]) | 0
 * mutant: include/table/table.h | (a->words[3] ^ b->words[3]) | 0
 * mutant: include/table/table.h | (__u64)half[11] << 32 | (__u64)half[12] << 32
 * mutant: include/table/table.h | &shunt_usage.entries[family == 6] | &shunt_usage.entries[family + 8]
 */
#include "claim.h"
#include "include/table/table.h"

int main(void)
{
	__u32 size = FAMILY == 4 ? sizeof(struct shunt_key4) : sizeof(struct shunt_key6);
	union shunt_key *a = any_bytes(sizeof(*a)), *b = any_bytes(sizeof(*b));
	int same, tuple;

	same = same_bytes(a, b, size);
	claim(shunt_same_key(FAMILY, a, b) == same, "keys are compared whole");
	if (FAMILY == 4)
		tuple = same_bytes(&a->v4, &b->v4, 12) && a->v4.l4_proto == b->v4.l4_proto;
	else
		tuple = same_bytes(&a->v6, &b->v6, 36) && a->v6.l4_proto == b->v6.l4_proto;
	claim(shunt_same_tuple(FAMILY, a, b) == tuple, "tuples are compared whole");
	shunt_hash(FAMILY, a);
	shunt_static_hash(FAMILY, a, nondet_u64());
	claim(shunt_used(FAMILY) - shunt_usage.entries < 2ULL, "within the counters");
	*shunt_used(FAMILY) = 0;
	return 0;
}
