/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Hints: which entry the flow of a tuple has, by a hash that costs a third of the index's. A proof of a flow writes its
 * hint, so a flow has one for as long as no other flow takes its place.
 *
 * A hint is never believed. The entry that it names is used only if it has the key, as an entry that the index names.
 * An entry that has left the index has no complete key, and while one is written, its key comes last, so an entry with
 * the key is as whole as one that the index has. docs/adr/0035 has the argument and figures.
 */
#ifndef SHUNT_HINTS_H
#define SHUNT_HINTS_H

#include "include/table/table.h"

/* As slots of the index: the number of an entry plus one, below eight bits of the hash. */
__u32 shunt_hints[SHUNT_HINTS] SEC(".bss.hints");

/* Where the hint of a tuple is, and its digest in the upper byte. */
struct shunt_hint_place {
	__u32 index;
	__u32 digest;
};

/*
 * The place of a tuple: addresses and ports, as they follow each other in a key and in a header. Multiplication by a
 * secret number mixes all but the lower bytes of both ports, which are added: as in the index, flows from consecutive
 * ports are side by side.
 */
static __always_inline struct shunt_hint_place shunt_hint_place(__u32 family, const void *tuple)
{
	const shunt_l2_u64 *word = tuple;
	__u32 ports = *(const shunt_l2_u32 *)(tuple + (family == 4 ? 8 : 32));
	/* Odd, so that no bit of the address is lost. */
	__u64 factor = shunt_control.seed | 1, mixed = word[0] ^ (ports & 0x00ff00ff);

	if (family == 6)
		mixed ^= word[1] * 0x9e3779b97f4a7c15ULL ^ word[2] * 0xc2b2ae3d27d4eb4fULL ^
			 word[3] * 0x165667b19e3779f9ULL;
	/* Only the upper bits of a product depend on all bits of its factors. */
	mixed = __builtin_bswap64(mixed * factor);
	return (struct shunt_hint_place){
		.index = ((__u32)mixed + (__u32)((__u64)ports * 0x10001 >> 24)) % SHUNT_HINTS,
		.digest = (__u32)mixed & ~(__u32)SHUNT_SLOT_ENTRY,
	};
}

/* Writes the hint of a flow. The last writer of a place wins, until the other flow is proved. */
static __always_inline void shunt_write_hint(__u32 family, const union shunt_key *key, __u32 entry)
{
	struct shunt_hint_place place = shunt_hint_place(family, key);

	*(volatile __u32 *)&shunt_hints[place.index] = place.digest | (entry + 1);
}

/* The entry that the hint of a tuple names. With another digest, the result is beyond any table. */
static __always_inline __u32 shunt_hinted(__u32 family, const void *tuple)
{
	struct shunt_hint_place place = shunt_hint_place(family, tuple);

	return (*(const volatile __u32 *)&shunt_hints[place.index] ^ place.digest) - 1;
}

#endif
