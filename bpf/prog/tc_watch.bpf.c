// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * tc egress: watches packets that Linux forwarded, and learns flows from packets whose ingress headers are still
 * kept as candidates. This program has an object of its own because it needs more of the kernel than the others.
 */
#include "include/learn/install.h"
#include "include/learn/judge.h"
#include "include/learn/off.h"
#include "include/learn/session.h"

/* Whether a refusal means that the existing action is wrong. The other refusals concern this packet only. */
static __always_inline int disproves(enum shunt_reason why)
{
	switch (why) {
	case SHUNT_FRAGMENT:
	case SHUNT_TUNNEL_AGGREGATE:
	case SHUNT_AGED:
	case SHUNT_OLD_EPOCH:
	case SHUNT_TABLE_FULL:
	case SHUNT_SOURCE_SHARE:
	case SHUNT_RETIRING:
		return 0;
	default:
		return 1;
	}
}

static __always_inline void refuse(const struct egress *s, __u32 family, enum shunt_reason why)
{
	struct shunt_flow *have;
	union shunt_key key;
	__u32 entry = 0;
	__u64 hash;

	shunt_candidate_key(family, s->c, &key);
	shunt_trace(SHUNT_TRACE_REFUSE, why, family, &key);
	if (!disproves(why))
		return;
	hash = shunt_hash(family, &key);
	have = shunt_find(family, &key, hash, &entry);
	if (!have || have->flags & SHUNT_FLOW_STATIC || have->epoch == SHUNT_EPOCH_RETIRED)
		return;
	shunt_retire(have, s->now, why);
	s->counters->retired++;
	shunt_trace(SHUNT_TRACE_RETIRE, why, family, &key);
}

/* Handles a packet that taught nothing: retires its flow, if it has one and the reason disproves it. */
__noinline int shunt_refuse_any(struct __sk_buff *skb, __u32 family, __u32 now, __u32 why)
{
	struct egress s;

	if (!shunt_find_egress(skb, now, &s))
		return 0;
	if (family == 4)
		refuse(&s, 4, why);
	else
		refuse(&s, 6, why);
	return 0;
}

/* Applies the derived action to the candidate, and installs the action if the result equals the packet at egress. */
static __always_inline enum shunt_reason prove(const struct egress *s, __u32 family, const struct shunt_packet *p)
{
	struct shunt_flow *f = &s->scratch->flow;

	s->scratch->expected = s->c->headers;
	if (!shunt_proved(&s->scratch->expected, &s->scratch->seen, s->c, f, s->scratch->to) ||
	    shunt_skb_padded(s->skb, p) != (s->c->padded && f->flags & SHUNT_FLOW_UNTRACKED))
		return SHUNT_NOT_PROVED;
	/* A port that the external engine serves has another XDP program. */
	if (s->port->flags & (s->c->in_flags & SHUNT_PORT_EXTERNAL ? SHUNT_PORT_EXTERNAL : SHUNT_PORT_XDP_OUT))
		f->flags |= SHUNT_FLOW_XDP;
	if (s->c->in_flags & SHUNT_PORT_PARTIAL)
		f->flags |= SHUNT_FLOW_PARTIAL;
	f->in_slot = s->c->in_slot;
	f->out_slot = s->port->slot;
	f->mark = s->skb->mark;
	f->priority = s->skb->priority;
	return family == 4 ? shunt_install4(s->skb, s->now) : shunt_install6(s->skb, s->now);
}

/* Lets packets use the flow that install() inserted or renewed, if any: its connection exists. */
static __always_inline void release(const struct egress *s, __u32 family)
{
	__u64 *words = shunt_words_at(family, s->scratch->entry);
	struct shunt_flow *f;

	if (!words)
		return;
	f = shunt_flow_at(family, words);
	if (f->state == SHUNT_FLOW_INSERTED)
		f->state = SHUNT_FLOW_PENDING;
}

/* Whether a person has turned the connection off. A global function, so that the verifier follows it once. */
__noinline int shunt_is_off(struct __sk_buff *skb, __u32 family)
{
	struct egress s;

	if (!shunt_find_egress(skb, 0, &s))
		return 0;
	return family == 4 ? shunt_off_any(&s, 4) : shunt_off_any(&s, 6);
}

/* Derives the action from the candidate and the packet, in the scratch space. */
__noinline int shunt_derive_any(struct __sk_buff *skb, const struct shunt_packet *p)
{
	const void *eth = (void *)(long)skb->data;
	struct shunt_flow *f;
	struct egress s;

	/* shunt_parse() has seen that the header is there, but the verifier does not know that. */
	if (!p || !shunt_find_egress(skb, 0, &s) || eth + ETH_HLEN > (void *)(long)skb->data_end)
		return SHUNT_ODD_EGRESS;
	if (shunt_save_headers(skb, p, eth, &s.scratch->seen))
		return SHUNT_ODD_EGRESS;
	f = &s.scratch->flow;
	__builtin_memset(f, 0, sizeof(*f));
	s.scratch->entry = SHUNT_NO_ENTRY;
	return shunt_derive(s.c, &s.scratch->seen, p, f, s.scratch->to);
}

/* Without conntrack, the direction that was learned first counts as the original one. */
static __always_inline void choose_direction(const struct egress *s, __u32 family)
{
	const struct shunt_flow *other = shunt_find_reverse(s, family);

	if (other && !(other->flags & SHUNT_FLOW_REPLY))
		s->scratch->flow.flags |= SHUNT_FLOW_REPLY;
}

static __always_inline enum shunt_reason learn(const struct egress *s, __u32 family, struct shunt_packet *p)
{
	struct shunt_flow *f = &s->scratch->flow;
	struct shunt_connection found = {};
	enum shunt_reason why;

	if (s->now - s->c->at_ticks > shunt_ticks(SHUNT_CANDIDATE_MS))
		return SHUNT_AGED;
	if (s->c->epoch != shunt_control.epoch)
		return SHUNT_OLD_EPOCH;
	/* A packet that went through another network namespace or a tunnel re-entered by another device. */
	if (!shunt_is_upper(s->skb->ingress_ifindex, s->c))
		return SHUNT_RE_ENTERED;
	if (shunt_skb_ipvs(s->skb))
		return SHUNT_IPVS;
	if (s->port->flags & SHUNT_PORT_CAPTURED)
		return SHUNT_EGRESS_CAPTURE;
	if (s->port->flags & SHUNT_PORT_FILTERED_OUT)
		return SHUNT_EGRESS_FILTER;
	if (shunt_mark_excluded(s->skb->mark, shunt_control.exclude_mark, shunt_control.exclude_mark_mask))
		return SHUNT_EXCLUDED;
	why = shunt_derive_any(s->skb, p);
	if (why != SHUNT_OK)
		return why;
	if (shunt_unlikely(*(volatile __u32 *)&shunt_control.off_rules) && shunt_is_off(s->skb, family))
		return SHUNT_OFF;
	/* The copies of a packet to a group differ by who has joined it, and no event reports that. */
	if (shunt_is_to_group(s->scratch->seen.l2))
		return SHUNT_ODD_EGRESS;
	if (s->port->flags & SHUNT_PORT_FLOODS_UNSEEN && !(f->flags & SHUNT_FLOW_BRIDGED) && shunt_skb_copied(s->skb))
		return SHUNT_LEFT_TWICE;
	f->reprove_at_ticks = s->now + shunt_control.reprove_ticks;
	if (f->flags & SHUNT_FLOW_UNTRACKED) {
		choose_direction(s, family);
	} else {
		found = shunt_ct_find(s, family);
		if (!found.at)
			return SHUNT_NO_CONNTRACK;
		why = shunt_ct_judge(s, family, &found, &f->flags);
		shunt_ct_limit_reprove(s, found.ct, f);
	}
	if (why == SHUNT_OK)
		why = prove(s, family, p);
	if (why == SHUNT_OK && found.at) {
		/*
		 * A CPU that deletes a connection first marks it dying and then retires its flows (ct_gone). If the
		 * flow was inserted too late for that, retire it here; no packet has used it. The insertion was a full
		 * barrier.
		 */
		if (shunt_ct_is_dying(s, family, &found))
			why = SHUNT_DYING;
		else
			release(s, family);
	}
	return why;
}

enum { FAMILY_SHIFT = 16 };

/*
 * Parses a packet. Returns the reason why it cannot be learned from, and above that its family. A global function, so
 * that the verifier checks what follows for any description of a packet, and not for each way of parsing.
 */
__noinline __u32 shunt_parse(struct __sk_buff *skb, struct shunt_packet *p)
{
	const struct shunt_port *port = shunt_port_of(skb->ifindex);
	enum shunt_reason why;
	union shunt_key key;
	void *data, *end;
	__u32 family;

	if (!p || !port || shunt_skb_parse_l2(skb, port->flags, p, &family) != SHUNT_OK)
		return SHUNT_ODD_EGRESS;
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	if (family == 4)
		why = shunt_parse_l3(4, data + shunt_bound(p->l2_bytes, 31), end, skb->ifindex, p, &key);
	else if (family == 6)
		why = shunt_parse_l3(6, data + shunt_bound(p->l2_bytes, 31), end, skb->ifindex, p, &key);
	else
		return SHUNT_ODD_EGRESS;
	return family << FAMILY_SHIFT | why;
}

static __always_inline enum shunt_reason handle(const struct egress *s, __u32 family, struct shunt_packet *p,
						enum shunt_reason why, enum shunt_reason taken)
{
	if (s->c->family != family)
		return SHUNT_ODD_EGRESS;
	if (why == SHUNT_OK) {
		/* `taken` is SHUNT_LEFT_TWICE if the packet was duplicated, which no action can express. */
		why = taken == SHUNT_OK ? shunt_skb_wire_bytes(s->skb, p) : taken;
		if (why == SHUNT_OK)
			why = learn(s, family, p);
	} else if (why != SHUNT_FRAGMENT) {
		why = SHUNT_ODD_EGRESS;
	}
	if (why != SHUNT_OK)
		shunt_refuse_any(s->skb, family, s->now, why);
	return why;
}

/* Learns from a packet that left as a candidate. */
__noinline int shunt_out_watched(struct __sk_buff *skb)
{
	__u32 index = skb->tc_index % SHUNT_CANDIDATES, zero = 0;
	struct egress s = { .skb = skb };
	enum shunt_reason why = SHUNT_ODD_EGRESS, taken;
	struct shunt_candidate *candidate;
	struct shunt_packet p = {};
	__u32 parsed;

	candidate = bpf_map_lookup_elem(&shunt_candidates, &index);
	s.port = shunt_port_of(skb->ifindex);
	s.scratch = bpf_map_lookup_elem(&shunt_scratch, &zero);
	if (!candidate || !s.port || !s.scratch)
		return SHUNT_TC_NEXT;
	if (__sync_lock_test_and_set(&s.scratch->busy, 1))
		return SHUNT_TC_NEXT;
	s.c = &s.scratch->candidate;
	taken = shunt_take_candidate(skb, candidate, &s.scratch->candidate, &s.scratch->seen);
	s.counters = shunt_counters_of(taken == SHUNT_NOT_WATCHED ? s.port->slot : s.c->in_slot);
	if (!s.counters || taken == SHUNT_NOT_WATCHED) {
		if (s.counters)
			shunt_count_reason(s.counters, SHUNT_NOT_WATCHED);
		s.scratch->busy = 0;
		return SHUNT_TC_NEXT;
	}
	s.now = shunt_now();
	skb->tc_index = 0;
	shunt_skb_pull(skb);
	parsed = shunt_parse(skb, &p);
	if (parsed >> FAMILY_SHIFT == 4)
		why = handle(&s, 4, &p, (__u16)parsed, taken);
	else if (parsed >> FAMILY_SHIFT == 6)
		why = handle(&s, 6, &p, (__u16)parsed, taken);
	if (why != SHUNT_OK) {
		shunt_count_reason(s.counters, why);
		shunt_refuse(s.c, why, s.now, shunt_ticks(shunt_quiet_ms(why)));
	} else if (s.port->flags & SHUNT_PORT_NO_L2) {
		shunt_descend(skb, s.c->family, s.scratch->seen.l3);
	}
	s.scratch->busy = 0;
	return SHUNT_TC_NEXT;
}

/* If a packet that leaves ends a TCP connection, takes the reverse direction from the fast path. */
static __always_inline void end_reverse(struct __sk_buff *skb, __u32 family, void *l3, void *end,
					struct shunt_packet *p, const struct shunt_port *port)
{
	struct shunt_counters *counters = shunt_counters_of(port->slot);
	union shunt_key key;

	if (!counters || shunt_parse_l3(family, l3, end, skb->ifindex, p, &key) != SHUNT_OK)
		return;
	if (p->l4_proto != IPPROTO_TCP || !(p->tcp_flags & (SHUNT_TCP_FIN | SHUNT_TCP_RST)))
		return;
	skb->tc_index = 0;
	shunt_swap_key(family, &key);
	counters->retired += shunt_retire_reverse(family, &key, shunt_now(), SHUNT_TCP_FLAGS);
}

/*
 * A packet leaves that had the cookie of an end at ingress: a FIN or RST whose direction has no flow. Without this,
 * conntrack would miss the acknowledgement of a FIN until the next proof of the other direction.
 */
__noinline int shunt_out_ends(struct __sk_buff *skb)
{
	const struct shunt_port *port = shunt_port_of(skb->ifindex);
	struct shunt_packet p;
	void *data, *end;
	__u32 family;

	if (!port || shunt_empty())
		return SHUNT_TC_NEXT;
	shunt_skb_pull(skb);
	if (shunt_skb_parse_l2(skb, port->flags, &p, &family) != SHUNT_OK)
		return SHUNT_TC_NEXT;
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	if (family == 4)
		end_reverse(skb, 4, data + shunt_bound(p.l2_bytes, 31), end, &p, port);
	else if (family == 6)
		end_reverse(skb, 6, data + shunt_bound(p.l2_bytes, 31), end, &p, port);
	return SHUNT_TC_NEXT;
}

/* Apart, so that nearly all packets need neither a stack nor registers. */
SEC("tcx/egress")
int shunt_out(struct __sk_buff *skb)
{
	if (shunt_likely(!skb->tc_index))
		return SHUNT_TC_NEXT;
	if (shunt_likely(skb->tc_index > SHUNT_COOKIE_DESCENDS))
		return shunt_out_watched(skb);
	return skb->tc_index == SHUNT_COOKIE_ENDS ? shunt_out_ends(skb) : shunt_out_descends(skb);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
