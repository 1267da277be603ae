/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What ingress leaves behind for egress: sightings and candidates. Hints only; the proof makes them safe. */
#ifndef SHUNT_WATCH_H
#define SHUNT_WATCH_H

#include "include/maps.h"

enum {
	SHUNT_CANDIDATE_MS = 1000,	/* a packet that has not left by then is forgotten */
	SHUNT_WINDOW_S = 10,		/* packets of a tuple count together for so long */
	SHUNT_QUIET_MS = 1000,	/* a refused tuple is not asked about again for so long */
	SHUNT_QUIET_SHORT_MS = 10,	/* where the answer will change soon */
	SHUNT_QUIET_LONG_MS = 10000,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SHUNT_CANDIDATES);
	__type(key, __u32);
	__type(value, struct shunt_candidate);
} shunt_candidates SEC(".maps");

struct shunt_sighting shunt_sightings[SHUNT_SIGHTINGS] SEC(".bss.sightings");

static __always_inline __u32 shunt_sighting_index(__u64 hash)
{
	return hash % SHUNT_SIGHTINGS;
}

static __always_inline struct shunt_sighting *shunt_sighting_of(__u64 hash)
{
	struct shunt_sighting *s = &shunt_sightings[shunt_sighting_index(hash)];

	/* Or clang computes the address again for each member. */
	asm("" : "+r"(s));
	return s;
}

static __always_inline __u16 shunt_fingerprint(__u64 hash)
{
	return hash >> 48;
}

/* Remembers that a tuple was refused, and leaves it in peace for a while. */
static __always_inline void shunt_refuse(const struct shunt_candidate *c, enum shunt_reason why, __u32 now, __u32 ticks)
{
	struct shunt_sighting *s = &shunt_sightings[c->sighting % SHUNT_SIGHTINGS];

	s->refused_fingerprint = c->fingerprint;
	s->refused_why = why;
	if (ticks)
		s->quiet_until_ticks = now + ticks;
}

/*
 * The headers of a packet, each layer at its fixed place; from the L4 header on as much as there is room for, because a
 * rule may change what follows it. The caller has parsed it.
 */
static __always_inline int shunt_capture(struct __sk_buff *skb, const struct shunt_packet *p, const void *macs,
					 struct shunt_headers *h)
{
	__u32 l4_bytes = p->l3_bytes - shunt_l3_size(p->family);

	__builtin_memset(h, 0, sizeof(*h));
	shunt_write_l2(h->l2, macs, p);
	if (l4_bytes > SHUNT_L4_MAX)
		l4_bytes = SHUNT_L4_MAX;
	if (l4_bytes == 0)
		return -1;
	h->l2_bytes = ETH_HLEN + 4 * p->tags;
	h->l4_bytes = l4_bytes;
	if (p->family == 4) {
		if (bpf_skb_load_bytes(skb, p->l2_bytes, h->l3, sizeof(struct iphdr)))
			return -1;
	} else if (bpf_skb_load_bytes(skb, p->l2_bytes, h->l3, sizeof(struct ipv6hdr))) {
		return -1;
	}
	/* Of what is not 0, Linux 6.1 does not know that it is more. */
	return bpf_skb_load_bytes(skb, p->l2_bytes + shunt_l3_size(p->family), h->l4,
				  shunt_at_most(l4_bytes - 1, 63) + 1);
}

#endif
