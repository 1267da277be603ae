/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Connections that a person has turned off. Egress compares a packet with the rules before it teaches anything, and
 * only if there are rules: packets of the fast path are never compared. After a change of the rules the daemon moves
 * the epoch, so every flow is proved again, or refused, by its next packet.
 */
#ifndef SHUNT_OFF_H
#define SHUNT_OFF_H

#include "include/changes/dependencies.h"
#include "include/learn/egress.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SHUNT_OFF_MAX);
	__type(key, __u32);
	__type(value, struct shunt_off_rule);
} shunt_off SEC(".maps");

/* Addresses and ports of a packet, as its direction arrives. */
struct shunt_off_ends {
	__u64 src_hi, src_lo, dst_hi, dst_lo;
	__be16 sport_be, dport_be;
};

/* A connection that the rules are compared with. */
struct shunt_off_search {
	struct shunt_off_ends here; /* as the packet arrived */
	struct shunt_off_ends back; /* as the other direction arrives: what left, reversed */
	__u32 family;
	__u32 l4_proto;
	int found;
};

static __always_inline int shunt_off_has(const struct shunt_off_rule *r, const struct shunt_off_ends *e)
{
	__u64 differ = ((e->src_hi ^ r->src_hi) & r->src_mask_hi) | ((e->src_lo ^ r->src_lo) & r->src_mask_lo) |
		       ((e->dst_hi ^ r->dst_hi) & r->dst_mask_hi) | ((e->dst_lo ^ r->dst_lo) & r->dst_mask_lo);

	return !(differ | ((e->sport_be ^ r->sport_be) & r->sport_mask) |
		 ((e->dport_be ^ r->dport_be) & r->dport_mask));
}

/* Compares one rule, for bpf_for_each_map_elem(): the verifier follows it once, and a loop once for each rule. */
static long shunt_off_compare(void *map, const __u32 *at, const struct shunt_off_rule *r, struct shunt_off_search *s)
{
	(void)map;
	if (*at >= *(volatile __u32 *)&shunt_control.off_rules)
		return 1;
	if ((!r->family || r->family == s->family) && (!r->l4_proto || r->l4_proto == s->l4_proto) &&
	    (shunt_off_has(r, &s->here) || shunt_off_has(r, &s->back))) {
		s->found = 1;
		return 1;
	}
	return 0;
}

/* Whether one of the rules names the connection of a packet whose headers at egress have been saved. */
static __always_inline int shunt_off_any(const struct egress *s, __u32 family)
{
	const __be16 *old_ports = (const __be16 *)s->c->headers.l4, *new_ports = (const __be16 *)s->scratch->seen.l4;
	const void *old = shunt_header_addrs(family, &s->c->headers),
		   *new = shunt_header_addrs(family, &s->scratch->seen);
	__u32 next = family == 4 ? 4 : 16;
	struct shunt_off_search search = {
		.here = { .sport_be = old_ports[0], .dport_be = old_ports[1] },
		.back = { .sport_be = new_ports[1], .dport_be = new_ports[0] },
		.family = family,
		.l4_proto = s->c->l4_proto,
	};

	shunt_address_words(family, old, &search.here.src_hi, &search.here.src_lo);
	shunt_address_words(family, old + next, &search.here.dst_hi, &search.here.dst_lo);
	shunt_address_words(family, new + next, &search.back.src_hi, &search.back.src_lo);
	shunt_address_words(family, new, &search.back.dst_hi, &search.back.dst_lo);
	bpf_for_each_map_elem(&shunt_off, shunt_off_compare, &search, 0);
	return search.found;
}

#endif
