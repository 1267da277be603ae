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

static __always_inline int shunt_off_has(const struct shunt_off_rule *r, const struct shunt_off_ends *e)
{
	__u64 differ = ((e->src_hi ^ r->src_hi) & r->src_mask_hi) | ((e->src_lo ^ r->src_lo) & r->src_mask_lo) |
		       ((e->dst_hi ^ r->dst_hi) & r->dst_mask_hi) | ((e->dst_lo ^ r->dst_lo) & r->dst_mask_lo);

	return !(differ | ((e->sport_be ^ r->sport_be) & r->sport_mask) |
		 ((e->dport_be ^ r->dport_be) & r->dport_mask));
}

/* Whether one of the rules names the connection of a packet whose headers at egress have been saved. */
static __always_inline int shunt_off_any(const struct egress *s, __u32 family)
{
	const __be16 *old_ports = (const __be16 *)s->c->headers.l4, *new_ports = (const __be16 *)s->scratch->seen.l4;
	const void *old = shunt_header_addrs(family, &s->c->headers),
		   *new = shunt_header_addrs(family, &s->scratch->seen);
	__u32 next = family == 4 ? 4 : 16;
	/* As it arrived, and as the other direction arrives: what left, reversed. */
	struct shunt_off_ends here = { .sport_be = old_ports[0], .dport_be = old_ports[1] };
	struct shunt_off_ends back = { .sport_be = new_ports[1], .dport_be = new_ports[0] };

	shunt_address_words(family, old, &here.src_hi, &here.src_lo);
	shunt_address_words(family, old + next, &here.dst_hi, &here.dst_lo);
	shunt_address_words(family, new + next, &back.src_hi, &back.src_lo);
	shunt_address_words(family, new, &back.dst_hi, &back.dst_lo);
	for (__u32 i = 0; i < SHUNT_OFF_MAX; i++) {
		__u32 at = i;
		const struct shunt_off_rule *r;

		if (i >= *(volatile __u32 *)&shunt_control.off_rules)
			break;
		r = bpf_map_lookup_elem(&shunt_off, &at);
		if (r && (!r->family || r->family == family) && (!r->l4_proto || r->l4_proto == s->c->l4_proto) &&
		    (shunt_off_has(r, &here) || shunt_off_has(r, &back)))
			return 1;
	}
	return 0;
}

#endif
