/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Learning: derives the action from the headers of one packet at ingress and at egress, and proves that the action does
 * what Linux did. Freestanding.
 */
#ifndef SHUNT_CORE_LEARN_H
#define SHUNT_CORE_LEARN_H

#include "core/forward.h"

/*
 * Fills the translation part of an action. Addresses are the source followed by the destination, and so are the ports.
 */
static __always_inline void shunt_translate(__u32 family, const __u8 *old_addrs, const __u8 *old_ports,
					    const __u8 *new_addrs, const __u8 *new_ports, struct shunt_flow *f,
					    __u8 *to)
{
	__u32 ports = shunt_sum_diff(old_ports, new_ports, 2, 0);
	__u32 addrs;
	int differ = shunt_differ(old_ports, new_ports, 2);

	if (family == 4) {
		__builtin_memcpy(to, new_addrs, 8);
		addrs = shunt_sum_diff(old_addrs, new_addrs, 4, 0);
		differ |= shunt_differ(old_addrs, new_addrs, 4);
	} else {
		__builtin_memcpy(to, new_addrs, 32);
		addrs = shunt_sum_diff(old_addrs, new_addrs, 16, 0);
		differ |= shunt_differ(old_addrs, new_addrs, 16);
	}
	__builtin_memcpy(&f->sport_be, new_ports, 2);
	__builtin_memcpy(&f->dport_be, new_ports + 2, 2);
	f->l4_delta_addr = shunt_fold(addrs);
	f->l4_delta = shunt_fold(addrs + ports);
	if (differ)
		f->flags |= SHUNT_FLOW_NAT;
}

/*
 * Derives the action that turns the candidate's headers into `out`, in a zeroed flow. shunt_proved() checks the result.
 */
static __always_inline enum shunt_reason shunt_derive(const struct shunt_candidate *c, const struct shunt_headers *out,
						      const struct shunt_packet *p, struct shunt_flow *f, __u8 *to)
{
	const struct shunt_headers *in = &c->headers;
	__u32 ttl_at = c->family == 4 ? 8 : 7;
	__u32 addrs_at = c->family == 4 ? 12 : 8;

	if (p->family != c->family || p->l4_proto != c->l4_proto)
		return SHUNT_ODD_EGRESS;
	if (in->l3[ttl_at] != (__u8)(out->l3[ttl_at] + 1)) {
		/* A router always writes its own source MAC. */
		if (in->l3[ttl_at] != out->l3[ttl_at] || !shunt_same_macs(in->l2, out->l2) ||
		    !(c->in_flags & SHUNT_PORT_BRIDGED))
			return SHUNT_NOT_ROUTED;
		f->flags |= SHUNT_FLOW_BRIDGED;
		if (c->in_flags & (c->family == 4 ? SHUNT_PORT_UNTRACKED4 : SHUNT_PORT_UNTRACKED6))
			f->flags |= SHUNT_FLOW_UNTRACKED;
	}

	f->out_tags = p->l2_bytes ? p->tags : SHUNT_NO_L2;
	__builtin_memcpy(f->l2, out->l2, SHUNT_L2_MAX);
	__builtin_memcpy(f->in_dmac, in->l2, 6);
	f->class_bits = c->class_bits;
	f->in_ttl = in->l3[ttl_at];
	f->max_l3_bytes = p->wire_bytes;

	shunt_translate(c->family, in->l3 + addrs_at, in->l4, out->l3 + addrs_at, out->l4, f, to);
	/* Without conntrack, the packet at egress may belong to another connection that differs in its tuple only. */
	if (f->flags & SHUNT_FLOW_UNTRACKED && f->flags & SHUNT_FLOW_NAT)
		return SHUNT_OTHER_TUPLE;
	return SHUNT_OK;
}

/* Applies the action to the ingress headers, in place. Returns whether the result equals the egress headers. */
static __always_inline int shunt_proved(struct shunt_headers *in, const struct shunt_headers *out,
					const struct shunt_candidate *c, const struct shunt_flow *f, const __u8 *to)
{
	const __u64 *a = (const __u64 *)in;
	const __u64 *b = (const __u64 *)out;
	__u64 differ = 0;

	__builtin_memcpy(in->l2, f->l2, SHUNT_L2_MAX);
	in->l2_bytes = shunt_l2_bytes_out(f->out_tags);
	shunt_rewrite(in->l3, in->l4, c->family, c->l4_proto, f, to,
		      c->partial ? SHUNT_CHECKSUM_PARTIAL : SHUNT_CHECKSUM_FINISHED);
#pragma unroll
	for (__u32 i = 0; i < sizeof(*in) / 8; i++)
		differ |= a[i] ^ b[i];
	return !differ;
}

_Static_assert(__builtin_offsetof(struct shunt_flow, class_bits) - __builtin_offsetof(struct shunt_flow, in_dmac) ==
		       6 + SHUNT_L2_MAX + 4 * 2,
	       "only what shunt_same_action() compares lies between");

/*
 * Whether an existing flow has the same action as `f`. The conditions of learning may differ: the largest size, the
 * engine, DSCP, VLAN priorities and TTL, and without conntrack, which direction counts as the original one.
 */
static __always_inline int shunt_same_action(__u32 family, const struct shunt_flow *have, const __u8 *have_to,
					     const struct shunt_flow *f, const __u8 *to)
{
	/* The fields from in_dmac to l4_delta_addr are contiguous. */
	const __u32 words =
		(__builtin_offsetof(struct shunt_flow, class_bits) - __builtin_offsetof(struct shunt_flow, in_dmac)) /
		2;
	__u8 named = f->flags & SHUNT_FLOW_UNTRACKED ? SHUNT_FLOW_REPLY : 0;
	int differ = (have->flags ^ f->flags) & ~(SHUNT_FLOW_XDP | SHUNT_FLOW_UNREPLIED | named);

	differ |= have->out_tags ^ f->out_tags;
	differ |= shunt_differ(have->in_dmac, f->in_dmac, words);
	differ |= (have->sport_be ^ f->sport_be) | (have->dport_be ^ f->dport_be);
	differ |= shunt_differ(have_to, to, family == 4 ? 4 : 16);
	return !differ && have->mark == f->mark && have->priority == f->priority;
}

#endif
