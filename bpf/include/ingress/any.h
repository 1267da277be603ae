/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Any packet at tc ingress, however it is built: the general way, which handles what the usual one leaves. */
#ifndef SHUNT_ANY_H
#define SHUNT_ANY_H

#include "include/ends/ends.h"
#include "include/ingress/candidate.h"
#include "include/send/send.h"
#include "include/table/sessions.h"
#include "include/trace.h"

/* Results of handling a packet, besides verdicts and SHUNT_TC_OTHER, which are smaller. */
enum {
	SHUNT_WATCHED = 0x200, /* plus the reason: a packet that can teach a flow, for shunt_in_watched() */
};

/* Decides on a packet of a known flow, and updates the flow's proof and state. */
static __always_inline enum shunt_reason decide(const struct shunt_packet *p, __u32 family, const union shunt_key *key,
						const void *macs, struct shunt_flow *f, __u64 jiffies)
{
	enum shunt_reason why = shunt_decide(f, p, macs, &shunt_control, shunt_current_epoch(f), jiffies, 0);

	why = shunt_forget(why, jiffies);
	if (f->punt_due) {
		f->punt_due = 0;
		return why == SHUNT_OK || why == SHUNT_PENDING || why == SHUNT_COST_SAMPLE ? SHUNT_REPROVE : why;
	}
	if (why == SHUNT_REPROVE) {
		f->reprove_at_ticks = jiffies + shunt_control.reprove_ticks;
		shunt_move_home(f, shunt_this_cpu());
	}
	/* The packet that taught this flow has left Linux once: egress would have retired the flow otherwise. */
	if (why == SHUNT_PENDING && f->state == SHUNT_FLOW_PENDING) {
		f->state = SHUNT_FLOW_ACTIVE;
		shunt_trace(SHUNT_TRACE_ACTIVATE, SHUNT_OK, family, key);
		why = SHUNT_OK;
	}
	return why;
}

/*
 * Whether packets like those that the flow was learned from came lately. Then a packet of another class or sender is
 * not proved: if both kinds alternate, each would replace the other's action, and none would be fast.
 */
static __always_inline int shunt_is_in_use(const struct shunt_flow *f, __u32 now)
{
	return shunt_is_within(f->seen_ticks, now, shunt_ticks(SHUNT_QUIET_USUAL_MS));
}

/* Whether to learn from a packet of a flow. It is not kept from that by a refusal of the tuple. */
static __always_inline int can_renew(enum shunt_reason why, const struct shunt_flow *f, __u64 hash, __u32 now)
{
	struct shunt_sighting *s = shunt_sighting_of(hash);

	if (!(shunt_control.flags & SHUNT_CONTROL_LEARN))
		return 0;
	switch (why) {
	case SHUNT_STALE:
		if (shunt_is_quiet(s, hash, now))
			return 0;
		shunt_count_sighting(s, hash, now);
		return 1;
	case SHUNT_REPROVE:
	case SHUNT_MTU:
		return 1;
	case SHUNT_CLASS:
	case SHUNT_NOT_OURS:
		return !shunt_is_in_use(f, now);
	default:
		return 0;
	}
}

/* Handles a SYN, FIN or RST of a known flow. */
static __always_inline void handle_end(__u32 family, const struct shunt_packet *p, const union shunt_key *key,
				       struct shunt_flow *f, __u32 entry, __u32 now)
{
	struct shunt_counters *counters = shunt_counters_of(f->in_slot);

	if (f->flags & SHUNT_FLOW_STATIC || !counters)
		return;
	if (shunt_handle_end(family, p, key, entry, f, now))
		counters->retired++;
	else
		shunt_trace(SHUNT_TRACE_PUNT, SHUNT_TCP_FLAGS, family, key);
}

static __always_inline int forward_any(struct __sk_buff *skb, const struct shunt_packet *p, __u32 family,
				       struct shunt_flow *f, __u32 entry, void *l3, __u32 summed, __u32 now)
{
	struct shunt_counters *counters = shunt_counters_of(f->in_slot);

	if (!counters)
		return shunt_tc_other();
	/* 6.1's verifier loses the relation between protocol and header size unless the protocol is a constant. */
	if (p->l4_proto == IPPROTO_UDP)
		return shunt_skb_forward(skb, p, family, IPPROTO_UDP, SHUNT_ANY_FORM, f, entry, l3, summed, counters,
					 now);
	return shunt_skb_forward(skb, p, family, IPPROTO_TCP, SHUNT_ANY_FORM, f, entry, l3, summed, counters, now);
}

static __always_inline int handle_any(struct __sk_buff *skb, struct shunt_packet *p, __u32 family)
{
	void *eth = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	void *l3 = eth + shunt_bound(p->l2_bytes, 31);
	__u64 jiffies = shunt_now(), hash;
	__u32 now = jiffies, summed = shunt_skb_hidden(skb).summed, entry;
	const __u64 no_macs[2] = {};
	const void *macs = p->l2_bytes ? eth : (const void *)no_macs;
	union shunt_key key;
	struct shunt_flow *f;
	enum shunt_reason why;
	int verdict, blind = 0;

	/* The caller has seen that the header is there, but the verifier does not know that. */
	if (eth + ETH_HLEN > end)
		return shunt_punt(skb, skb->len - p->l2_bytes, SHUNT_BAD_HEADER);
	why = shunt_parse_l3(family, l3, end, skb->ifindex, p, &key);
	if (why != SHUNT_OK)
		return shunt_punt(skb, skb->len - p->l2_bytes, why);
	hash = shunt_hash(family, &key);
	why = shunt_forget(shunt_admit(p), hash);
	f = shunt_empty() ? 0 : shunt_find_soon(family, &key, hash, &entry);
	if (!f) {
		if (why == SHUNT_OK)
			why = SHUNT_MISS;
		if (p->l4_proto == IPPROTO_TCP) {
			shunt_restart_sighting(shunt_sighting_of(hash), hash, p);
			blind = !shunt_update_expired(family, p, &key, hash, now);
		}
	} else if (why == SHUNT_OK) {
		f->tcp_position = p->tcp_position;
		why = shunt_skb_wire_bytes(skb, p);
		if (why == SHUNT_OK)
			why = decide(p, family, &key, macs, f, jiffies);
		if (why == SHUNT_OK && shunt_skb_needs_orphan(skb, f))
			why = SHUNT_SOCKET;
		if (why == SHUNT_OK)
			why = shunt_skb_verify(skb, p, family, f, l3, end, summed);
		if (why == SHUNT_OK) {
			verdict = forward_any(skb, p, family, f, entry, l3, summed, now);
			if (verdict != SHUNT_TC_OTHER)
				return verdict;
			why = shunt_ifindex_of(f->out_slot) ? SHUNT_BAD_HEADER : SHUNT_PORT;
		}
		shunt_trace(SHUNT_TRACE_PUNT, why, family, &key);
	} else if (why == SHUNT_TCP_FLAGS && p->tcp_flags & SHUNT_TCP_BOUNDS) {
		handle_end(family, p, &key, f, entry, now);
	}
	if (f ? can_renew(why, f, hash, now) :
		why == SHUNT_MISS && shunt_should_learn(shunt_sighting_of(hash), p->l4_proto, hash, now))
		return SHUNT_WATCHED + why;
	return f ? shunt_punt(skb, p->l3_bytes, why) : shunt_punt_unknown(skb, p, why, blind);
}

_Static_assert(SHUNT_L2_MAX <= 31, "a bound of the length of the L2 header");

/* Global functions, which the verifier checks once each, and not for each number of tags. */
__noinline int shunt_ingress4(struct __sk_buff *skb, struct shunt_packet *p)
{
	return p ? handle_any(skb, p, 4) : SHUNT_TC_NEXT;
}

__noinline int shunt_ingress6(struct __sk_buff *skb, struct shunt_packet *p)
{
	return p ? handle_any(skb, p, 6) : SHUNT_TC_NEXT;
}

/* Handles any packet. */
__noinline int shunt_ingress_general(struct __sk_buff *skb)
{
	struct shunt_session_key key;
	struct shunt_packet p;
	enum shunt_reason why;
	struct ethhdr *eth;
	__u32 family;
	void *end;

	shunt_skb_pull(skb);
	eth = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	why = shunt_parse_l2(eth, end, shunt_skb_tag(skb), &p, &family);
	if (why == SHUNT_OK && shunt_is_to_group(eth))
		why = SHUNT_NOT_OURS;
	if (shunt_skb_decrypted(skb))
		why = SHUNT_IPSEC;
	if (why != SHUNT_OK)
		return shunt_punt(skb, skb->len - SHUNT_L2_MIN, why);
	if (family == 4)
		return shunt_ingress4(skb, &p);
	if (family == 6)
		return shunt_ingress6(skb, &p);
	if (shunt_session_port((void *)(eth + 1) + shunt_bound(p.l2_bytes - sizeof(*eth), 15), end, skb->ifindex, &p,
			       &key)) {
		/* The packet is counted on the ppp port. */
		skb->tc_index = 0;
		return SHUNT_TC_NEXT;
	}
	return shunt_punt(skb, skb->len - p.l2_bytes, SHUNT_PROTOCOL);
}

#endif
