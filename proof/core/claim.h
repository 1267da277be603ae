/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Included by every harness: arbitrary values, and objects of arbitrary bytes, chosen by the checker. */
#ifndef SHUNT_PROOF_CLAIM_H
#define SHUNT_PROOF_CLAIM_H

/* The checker has no body for the compiler's builtin. */
#define __builtin_memcpy(to, from, count) copy_bytes(to, from, count)
static inline void copy_bytes(void *to, const void *from, unsigned long count)
{
	unsigned char *x = to;
	const unsigned char *y = from;

	for (unsigned long i = 0; i < count; i++)
		x[i] = y[i];
}

#include "core/learn.h"

#define assume(condition) __CPROVER_assume(condition)
#define claim(condition, text) __CPROVER_assert(condition, text)

void *malloc(__SIZE_TYPE__ size);
__u8 nondet_u8(void);
__u16 nondet_u16(void);
__u32 nondet_u32(void);
__u64 nondet_u64(void);
_Bool nondet_bool(void);

static inline int same_bytes(const void *a, const void *b, __u32 count)
{
	const __u8 *x = a, *y = b;

	for (__u32 i = 0; i < count; i++)
		if (x[i] != y[i])
			return 0;
	return 1;
}

/* Allocates an object of exactly `size` arbitrary bytes: to the checker, memory from malloc() is arbitrary. */
static inline void *any_bytes(__u32 size)
{
	void *bytes = malloc(size);

	assume(bytes != 0);
	return bytes;
}

/* The largest headers (Ethernet, two tags, IPv6, TCP with all options) and some payload. */
enum { FRAME_MAX = SHUNT_L2_MAX + SHUNT_L3_MAX + SHUNT_L4_MAX + 38 };

/* An arbitrary flow, followed by its new addresses as in an entry. */
static inline struct shunt_flow *any_flow(__u32 family)
{
	struct shunt_flow *f = any_bytes(sizeof(*f) + (family == 4 ? 8 : 32));

	assume(f->out_tags <= SHUNT_TAGS_MAX);
	return f;
}

/* The minimum size of the L4 header. */
static inline __u32 l4_size(__u8 l4_proto)
{
	return l4_proto == IPPROTO_TCP ? sizeof(struct tcphdr) : sizeof(struct udphdr);
}

#endif
