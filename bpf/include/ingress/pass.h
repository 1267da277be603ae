/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Packets that ingress passes to Linux, counted by reason. */
#ifndef SHUNT_PASS_H
#define SHUNT_PASS_H

#include "include/learn/watch.h"
#include "include/send/survey.h"

/* Passes a packet to Linux and counts the reason. `cookie` names the candidate, 0 for none. */
static __always_inline int shunt_pass(struct __sk_buff *skb, const struct shunt_port *port, __u32 bytes,
				      enum shunt_reason why, __u16 cookie)
{
	struct shunt_counters *counters;

	if (shunt_unlikely(!port))
		return SHUNT_TC_NEXT;
	counters = shunt_counters_of(port->slot);
	if (shunt_unlikely(!counters))
		return SHUNT_TC_NEXT;
	counters->slow_pkts++;
	counters->slow_bytes += bytes;
	shunt_count_reason(counters, why);
	if (shunt_unlikely(why == SHUNT_COST_SAMPLE)) {
		counters->sampled_bytes += bytes;
		counters->sampled_frames += shunt_skb_segments(skb);
	}
	skb->tc_index = cookie;
	return SHUNT_TC_NEXT;
}

/* Passes a packet to Linux without a candidate, and counts the reason. */
static __always_inline int shunt_punt(struct __sk_buff *skb, __u32 bytes, enum shunt_reason why)
{
	return shunt_pass(skb, shunt_port_of(skb->ifindex), bytes, why, 0);
}

/*
 * As shunt_punt(), for a packet of a tuple without a flow. If it ends a TCP connection, egress takes the reverse
 * direction from the fast path: only there are the addresses known under which that direction arrives.
 */
static __always_inline int shunt_punt_unknown(struct __sk_buff *skb, const struct shunt_packet *p,
					      enum shunt_reason why, int blind)
{
	int ends = why == SHUNT_TCP_FLAGS && p->tcp_flags & (SHUNT_TCP_FIN | SHUNT_TCP_RST) && !blind;

	return shunt_pass(skb, shunt_port_of(skb->ifindex), p->l3_bytes, why, ends ? SHUNT_COOKIE_ENDS : 0);
}

#endif
