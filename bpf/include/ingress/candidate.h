/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Packets that can teach a flow: which of them do, and what ingress keeps of them as candidates. */
#ifndef SHUNT_CANDIDATE_H
#define SHUNT_CANDIDATE_H

#include "include/ingress/pass.h"
#include "include/control.h"
#include "include/send/send.h"
#include "include/table/change.h"

/* Time between two requests to end a rest. */
enum { SHUNT_WAKE_MS = 100 };

static __always_inline __u32 learn_pkts(__u8 l4_proto)
{
	return l4_proto == IPPROTO_TCP ? shunt_control.learn_tcp_pkts : shunt_control.learn_udp_pkts;
}

/*
 * Whether to learn from a packet of a tuple without a flow. The tuple must be seen often, and not be refused recently.
 */
static __always_inline int shunt_is_worth_a_flow(struct shunt_sighting *s, __u8 l4_proto, __u64 hash, __u32 now)
{
	if (shunt_unlikely(shunt_is_quiet(s, hash, now)))
		return 0;
	return shunt_unlikely(shunt_count_sighting(s, hash, now) >= learn_pkts(l4_proto));
}

static __always_inline int shunt_should_learn(struct shunt_sighting *s, __u8 l4_proto, __u64 hash, __u32 now)
{
	return shunt_control.flags & SHUNT_CONTROL_LEARN && shunt_is_worth_a_flow(s, l4_proto, hash, now);
}

/* While the table is nearly full, entries are reserved for tuples that are seen often. */
static __always_inline int has_room(const struct shunt_sighting *s, __u8 l4_proto, __u32 family)
{
	return shunt_free_entries(family) >= shunt_control.max_flows / SHUNT_CROWDED ||
	       s->pkts >= learn_pkts(l4_proto) * SHUNT_CROWDED;
}

/* The flag that holds learning from packets of this family and protocol. */
static __always_inline __u32 hold_flag(__u32 family, __u8 l4_proto)
{
	if (l4_proto == IPPROTO_TCP)
		return family == 4 ? SHUNT_CONTROL_HOLD_TCP4 : SHUNT_CONTROL_HOLD_TCP6;
	return family == 4 ? SHUNT_CONTROL_HOLD_UDP4 : SHUNT_CONTROL_HOLD_UDP6;
}

/* The reason why nothing may be learned from this packet of a port; SHUNT_OK if learning is allowed. */
static __always_inline enum shunt_reason learning_blocked(__u16 port_flags, const struct shunt_packet *p)
{
	if (shunt_control.flags & hold_flag(p->family, p->l4_proto))
		return SHUNT_RULESET;
	if (port_flags & SHUNT_PORT_CAPTURED)
		return SHUNT_CAPTURE;
	if (port_flags & SHUNT_PORT_FILTERED)
		return SHUNT_INGRESS_FILTER;
	return SHUNT_OK;
}

/* Saves the packet's headers as a candidate. Returns the cookie for the skb, or 0 on failure. */
static __always_inline __u16 save_candidate(struct __sk_buff *skb, const struct shunt_packet *p, const void *macs,
					    __u64 hash)
{
	__u64 packet = shunt_skb_identity(skb), state;
	__u32 index = shunt_candidate_index(packet);
	struct shunt_candidate *c = bpf_map_lookup_elem(&shunt_candidates, &index);
	__u32 epoch = *(volatile __u32 *)&shunt_control.epoch;
	const struct shunt_port *port;
	__u16 flags;

	if (!c)
		return 0;
	state = shunt_claim_candidate(c, index);
	if (!state)
		return 0;
	/*
	 * The daemon sets flags before it moves the epoch. The claim was a full barrier, so flags read from here on
	 * are at least as new as the epoch.
	 */
	port = shunt_port_of(skb->ifindex);
	flags = port ? port->flags : 0;
	if (!port || learning_blocked(flags, p) != SHUNT_OK || shunt_save_headers(skb, p, macs, &c->headers)) {
		shunt_publish_candidate(c, state, SHUNT_CANDIDATE_EMPTY);
		return 0;
	}
	c->packet = packet;
	c->data = shunt_skb_data(skb);
	c->at_ticks = shunt_now();
	c->ifindex = skb->ifindex;
	c->epoch = epoch;
	c->changes = shunt_changes.count;
	c->sighting = shunt_sighting_index(hash);
	c->fingerprint = shunt_fingerprint(hash);
	c->class_bits = p->class_bits;
	c->family = p->family;
	c->l4_proto = p->l4_proto;
	c->partial = shunt_skb_hidden(skb).summed == SHUNT_SUMMED_PARTIAL;
	c->padded = shunt_skb_padded(skb, p);
	c->in_slot = port->slot;
	c->in_flags = flags;
	c->aggregate = !!skb->gso_size;
	shunt_publish_candidate(c, state, 0);
	return state & SHUNT_CANDIDATE_COOKIE;
}

/* When the daemon was last asked to end the rest. Not more often than every SHUNT_WAKE_MS. */
__u64 shunt_asked SEC(".bss.asked");

/* Asks the daemon to end the rest. */
static __noinline int wake_daemon(void)
{
	__u64 now = shunt_now();
	struct shunt_event *event;

	if (now - shunt_asked < shunt_ticks(SHUNT_WAKE_MS))
		return 0;
	event = bpf_ringbuf_reserve(&shunt_events, sizeof(*event), 0);
	if (!event)
		return -1;
	shunt_asked = now;
	__builtin_memset(event, 0, sizeof(*event));
	event->kind = SHUNT_EVENT_WAKE;
	bpf_ringbuf_submit(event, 0);
	return 0;
}

/*
 * As shunt_in_watched(), for a packet that has been parsed. A global function, so that the verifier checks it once, for
 * any description of a packet, and not for each way of parsing.
 */
__noinline int shunt_watch_parsed(struct __sk_buff *skb, const struct shunt_packet *p, __u64 hash, __u32 why)
{
	const struct shunt_port *port = shunt_port_of(skb->ifindex);
	struct shunt_counters *counters;
	enum shunt_reason hold;
	struct ethhdr *eth;

	if (!port || !p)
		return SHUNT_TC_NEXT;
	if (why == SHUNT_MISS && !has_room(shunt_sighting_of(hash), p->l4_proto, p->family))
		return shunt_pass(skb, port, p->l3_bytes, why, 0);
	hold = shunt_skb_decrypted(skb) ? SHUNT_IPSEC : learning_blocked(port->flags, p);
	if (hold != SHUNT_OK)
		return shunt_pass(skb, port, p->l3_bytes, hold, 0);
	if (shunt_control.flags & SHUNT_CONTROL_REST) {
		wake_daemon();
		return shunt_pass(skb, port, p->l3_bytes, why, 0);
	}
	if (p->family == 6 && shunt_skb_make_headroom(skb)) {
		counters = shunt_counters_of(port->slot);
		return counters ? shunt_skb_drop(counters) : SHUNT_TC_DROP;
	}
	eth = (void *)(long)skb->data;
	if ((void *)(eth + 1) > (void *)(long)skb->data_end)
		return shunt_pass(skb, port, p->l3_bytes, why, 0);
	return shunt_pass(skb, port, p->l3_bytes, why, save_candidate(skb, p, eth, hash));
}

/* Passes a packet to Linux that can teach a flow: as a candidate, if learning is allowed now. */
__noinline int shunt_in_watched(struct __sk_buff *skb, __u32 why)
{
	const struct shunt_port *port = shunt_port_of(skb->ifindex);
	enum shunt_reason hold;
	struct shunt_packet p;
	union shunt_key key;
	void *data, *end;
	__u32 family;
	__u64 hash = 0;

	hold = shunt_skb_parse_l2(skb, port ? port->flags : 0, &p, &family);
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	if (hold == SHUNT_OK && family == 4) {
		hold = shunt_parse_l3(4, data + shunt_bound(p.l2_bytes, 31), end, skb->ifindex, &p, &key);
		hash = shunt_hash(4, &key);
	} else if (hold == SHUNT_OK) {
		hold = shunt_parse_l3(6, data + shunt_bound(p.l2_bytes, 31), end, skb->ifindex, &p, &key);
		hash = shunt_hash(6, &key);
	}
	return hold == SHUNT_OK ? shunt_watch_parsed(skb, &p, hash, why) : shunt_punt(skb, p.l3_bytes, why);
}

#endif
