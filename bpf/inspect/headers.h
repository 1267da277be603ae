/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The addresses and ports of a packet, to show and to filter it. Nothing is decided or forwarded by them. */
#ifndef SHUNT_INSPECT_HEADERS_H
#define SHUNT_INSPECT_HEADERS_H

#include "inspect/record.h"
#include "inspect/tuple.h"

/* Reads the tuple of a packet from a driver: skb->data is behind the Ethernet header, perhaps at VLAN tags. */
static __always_inline __u32 read_arrived(const struct sk_buff___shunt *skb, struct trace_tuple *tuple)
{
	const void *l3 = skb->data;
	__be16 proto_be = skb->protocol;

	if (skip_tags(&l3, &proto_be))
		return 0;
	return read_tuple(l3, proto_be, tuple);
}

static __always_inline int has_way(const volatile struct trace_filter *f, const __u32 *src_be, const __u32 *dst_be,
				   __be16 sport_be, __be16 dport_be)
{
	__u32 differ = 0;

	for (int n = 0; n < 4; n++) {
		differ |= (src_be[n] ^ f->tuple.src_be[n]) & f->src_mask_be[n];
		differ |= (dst_be[n] ^ f->tuple.dst_be[n]) & f->dst_mask_be[n];
	}
	return !differ && (!f->tuple.sport_be || f->tuple.sport_be == sport_be) &&
	       (!f->tuple.dport_be || f->tuple.dport_be == dport_be);
}

/* Whether a filter has this tuple, in either direction. */
static __always_inline int has_tuple(const volatile struct trace_filter *f, const struct trace_tuple *t)
{
	if (f->tuple.family && f->tuple.family != t->family)
		return 0;
	if (f->tuple.l4_proto && f->tuple.l4_proto != t->l4_proto)
		return 0;
	return has_way(f, t->src_be, t->dst_be, t->sport_be, t->dport_be) ||
	       has_way(f, t->dst_be, t->src_be, t->dport_be, t->sport_be);
}

/* Whether the plan asks for this tuple. */
static __noinline int is_wanted(const struct trace_tuple *t)
{
	if (!t->family)
		return 0;
	if (!plan.filters)
		return 1;
#pragma clang loop unroll(disable)
	for (__u32 n = 0; n < TRACE_FILTERS; n++) {
		if (n >= plan.filters)
			break;
		if (has_tuple(&plan.filter[n], t))
			return 1;
	}
	return 0;
}

#endif
