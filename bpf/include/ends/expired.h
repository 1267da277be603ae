/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * TCP positions of connections whose flows have left the table. A position is valid until the next packet passes
 * without a flow. Few tuples have one, so the tuple's sighting counts them and saves look-ups.
 */
#ifndef SHUNT_EXPIRED_H
#define SHUNT_EXPIRED_H

#include "core/tcp.h"
#include "include/trace.h"
#include "include/learn/watch.h"

enum { SHUNT_EXPIRED_MANY = 255 };

static __always_inline struct shunt_expired *shunt_find_expired(__u32 family, const union shunt_key *key)
{
	struct shunt_tuple tuple;

	shunt_tuple_of(family, key, &tuple);
	return bpf_map_lookup_elem(&shunt_expired, &tuple);
}

static __always_inline void shunt_note_position(__u64 hash)
{
	struct shunt_sighting *s = shunt_sighting_of(hash);

	if (s->expired != SHUNT_EXPIRED_MANY)
		s->expired++;
}

static __always_inline void shunt_forget_position(struct shunt_expired *expired, __u64 hash)
{
	struct shunt_sighting *s = shunt_sighting_of(hash);

	if (!expired->tcp_position)
		return;
	expired->tcp_position = 0;
	if (s->expired && s->expired != SHUNT_EXPIRED_MANY)
		s->expired--;
}

/* The TCP position of a direction, from its flow `f` if there is one, or else from shunt_expired; 0 if unknown. */
static __always_inline __u64 shunt_position(__u32 family, const union shunt_key *key, const struct shunt_flow *f)
{
	const struct shunt_expired *expired;

	if (f)
		return f->tcp_position;
	expired = shunt_find_expired(family, key);
	return expired ? expired->tcp_position : 0;
}

#endif
