// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * tc ingress: forwards packets of active flows through the egress port's qdisc, counts all other packets by reason, and
 * keeps the headers of packets that tc_watch can learn from as candidates.
 *
 * Two functions handle what nearly all packets are: TCP and UDP, untagged or with the tag beside the frame, of a flow
 * whose action applies, or of no flow. They change nothing before they know that a packet is such, and leave the others
 * to shunt_ingress_general(), which starts again. These are functions because the stack of one would not hold what all
 * of them need.
 */
#include "include/ends/ends.h"
#include "include/send/send.h"
#include "include/send/survey.h"
#include "include/trace.h"
#include "include/learn/watch.h"

/* Results of the functions below, besides verdicts and SHUNT_TC_OTHER, which are smaller. */
enum {
	WATCHED = 0x200, /* plus the reason: a packet that can teach a flow, for shunt_in_watched() */
};

/* Time between two requests to end a rest. */
enum { SHUNT_WAKE_MS = 100 };

/* What handle_usual() handles; always a constant. */
enum usual {
	UNTAGGED,
	TAGGED, /* with a tag beside the frame */
	NO_FLOWS, /* untagged; there are no flows, no survey, and learning is on */
};

/* Passes a packet to Linux and counts the reason. `cookie` names the candidate, 0 for none. */
static __always_inline int pass(struct __sk_buff *skb, const struct shunt_port *port, __u32 bytes,
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
static __always_inline int punt(struct __sk_buff *skb, __u32 bytes, enum shunt_reason why)
{
	return pass(skb, shunt_port_of(skb->ifindex), bytes, why, 0);
}

/*
 * As punt(), for a packet of a tuple without a flow. If it ends a TCP connection, egress takes the reverse direction
 * from the fast path: only there are the addresses known under which that direction arrives.
 */
static __always_inline int punt_unknown(struct __sk_buff *skb, const struct shunt_packet *p, enum shunt_reason why,
					int blind)
{
	int ends = why == SHUNT_TCP_FLAGS && p->tcp_flags & (SHUNT_TCP_FIN | SHUNT_TCP_RST) && !blind;

	return pass(skb, shunt_port_of(skb->ifindex), p->l3_bytes, why, ends ? SHUNT_COOKIE_ENDS : 0);
}

static __always_inline __u32 learn_pkts(__u8 l4_proto)
{
	return l4_proto == IPPROTO_TCP ? shunt_control.learn_tcp_pkts : shunt_control.learn_udp_pkts;
}

/*
 * Whether to learn from a packet of a tuple without a flow. The tuple must be seen often, and not be refused recently.
 */
static __always_inline int is_worth_a_flow(struct shunt_sighting *s, __u8 l4_proto, __u64 hash, __u32 now)
{
	if (shunt_unlikely(shunt_is_quiet(s, hash, now)))
		return 0;
	return shunt_unlikely(shunt_count_sighting(s, hash, now) >= learn_pkts(l4_proto));
}

static __always_inline int should_learn(struct shunt_sighting *s, __u8 l4_proto, __u64 hash, __u32 now)
{
	return shunt_control.flags & SHUNT_CONTROL_LEARN && is_worth_a_flow(s, l4_proto, hash, now);
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
		return pass(skb, port, p->l3_bytes, why, 0);
	hold = shunt_skb_decrypted(skb) ? SHUNT_IPSEC : learning_blocked(port->flags, p);
	if (hold != SHUNT_OK)
		return pass(skb, port, p->l3_bytes, hold, 0);
	if (shunt_control.flags & SHUNT_CONTROL_REST) {
		wake_daemon();
		return pass(skb, port, p->l3_bytes, why, 0);
	}
	if (p->family == 6 && shunt_skb_make_headroom(skb)) {
		counters = shunt_counters_of(port->slot);
		return counters ? shunt_skb_drop(counters) : SHUNT_TC_DROP;
	}
	eth = (void *)(long)skb->data;
	if ((void *)(eth + 1) > (void *)(long)skb->data_end)
		return pass(skb, port, p->l3_bytes, why, 0);
	return pass(skb, port, p->l3_bytes, why, save_candidate(skb, p, eth, hash));
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
	return hold == SHUNT_OK ? shunt_watch_parsed(skb, &p, hash, why) : punt(skb, p.l3_bytes, why);
}

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
static __always_inline int is_in_use(const struct shunt_flow *f, __u32 now)
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
		return !is_in_use(f, now);
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
		return punt(skb, skb->len - p->l2_bytes, SHUNT_BAD_HEADER);
	why = shunt_parse_l3(family, l3, end, skb->ifindex, p, &key);
	if (why != SHUNT_OK)
		return punt(skb, skb->len - p->l2_bytes, why);
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
		why == SHUNT_MISS && should_learn(shunt_sighting_of(hash), p->l4_proto, hash, now))
		return WATCHED + why;
	return f ? punt(skb, p->l3_bytes, why) : punt_unknown(skb, p, why, blind);
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
		return punt(skb, skb->len - SHUNT_L2_MIN, why);
	if (family == 4)
		return shunt_ingress4(skb, &p);
	if (family == 6)
		return shunt_ingress6(skb, &p);
	return punt(skb, skb->len - p.l2_bytes, SHUNT_PROTOCOL);
}

/* Passes a packet of a tuple without a flow. */
static __always_inline int miss(struct __sk_buff *skb, const struct shunt_packet *p, __u32 family, __u8 l4_proto,
				enum usual form, const void *l3, __u64 hash, __u32 now)
{
	struct shunt_sighting *s = shunt_sighting_of(hash);
	enum shunt_reason why = shunt_admit_tcp(p);

	if (l4_proto == IPPROTO_TCP && shunt_unlikely(s->expired))
		return shunt_tc_other();
	/* As shunt_admit(), without the class of the packet. */
	if (why == SHUNT_OK && shunt_unlikely(shunt_hop_limit_of(family, l3) <= 1))
		why = SHUNT_TTL;
	if (shunt_unlikely(why != SHUNT_OK)) {
		if (l4_proto == IPPROTO_TCP)
			shunt_restart_sighting(s, hash, p);
		return punt_unknown(skb, p, why, 0);
	}
	if (form == NO_FLOWS ? is_worth_a_flow(s, l4_proto, hash, now) : should_learn(s, l4_proto, hash, now))
		return WATCHED + SHUNT_MISS;
	return punt(skb, p->l3_bytes, SHUNT_MISS);
}

/* As shunt_skb_forward(), if the checksums are good. */
static __always_inline int forward_good(struct __sk_buff *skb, const struct shunt_packet *p, __u32 family,
					__u8 l4_proto, int tagged, struct shunt_flow *f, __u32 entry, void *l3,
					__u32 summed, struct shunt_counters *counters, __u32 now)
{
	if (shunt_unlikely(shunt_skb_verify(skb, p, family, f, l3, shunt_headers_end(family, l4_proto, l3), summed) !=
			   SHUNT_OK))
		return shunt_tc_other();
	return shunt_skb_forward(skb, p, family, l4_proto, tagged, f, entry, l3, summed, counters, now);
}

/* Whether a packet that is too large for its flow is an aggregate of packets that are not, and the flow is in use. */
static __always_inline int segments_fit(struct __sk_buff *skb, struct shunt_packet *p, const struct shunt_flow *f)
{
	return f->state == SHUNT_FLOW_ACTIVE && shunt_skb_wire_bytes(skb, p) == SHUNT_OK &&
	       p->wire_bytes <= f->max_l3_bytes;
}

/*
 * In this and in the functions below, `form` is a constant: whether the tag is beside the frame, or that there is none
 * and the table is empty. The headers, without options, are in the frame.
 */
static __always_inline int find(struct __sk_buff *skb, struct shunt_packet *p, __u32 family, __u8 l4_proto,
				enum usual form, void *l3, __u64 jiffies)
{
	/* Flows that are left to shunt_ingress_general(): a proof is due, or there are two tags. */
	const union shunt_head excluded = { .punt_due = 0xff, .out_tags = 0xfe };
	void *end = shunt_headers_end(family, l4_proto, l3);
	const void *eth = shunt_untagged_macs(l3);
	struct shunt_flow *f = 0;
	union shunt_key key;
	struct shunt_counters *counters;
	struct shunt_skb_hidden hidden;
	enum shunt_reason why;
	__u64 hash;
	__u32 entry;

	if (shunt_unlikely(shunt_parse_l3(family, l3, end, skb->ifindex, p, &key) != SHUNT_OK))
		return shunt_tc_other();
	hash = shunt_hash(family, &key);
	if (form != NO_FLOWS && !shunt_empty())
		f = shunt_find_soon(family, &key, hash, &entry);
	if (!f)
		return shunt_is_to_group(eth) ? shunt_tc_other() :
						miss(skb, p, family, l4_proto, form, l3, hash, jiffies);
	shunt_keep(f);
	hidden = shunt_skb_hidden(skb);
	/* The last helper before the end: the checks between use registers that helpers destroy. */
	counters = shunt_counters_of(f->in_slot);
	if (shunt_unlikely(!counters || shunt_admit_tcp(p) != SHUNT_OK || hidden.extensions))
		return shunt_tc_other();
	/* Loaded once: clang has spilled it, and would load it for each check. */
	shunt_keep(f);
	why = shunt_decide_unless(f, p, eth, &shunt_control, shunt_current_epoch(f), jiffies, 0, excluded);
	if (shunt_unlikely(why == SHUNT_MTU && segments_fit(skb, p, f)))
		why = SHUNT_OK;
	if (shunt_unlikely(why == SHUNT_CLASS && shunt_admit(p) == SHUNT_OK && is_in_use(f, jiffies))) {
		if (l4_proto == IPPROTO_TCP)
			f->tcp_position = p->tcp_position;
		return punt(skb, p->l3_bytes, SHUNT_CLASS);
	}
	if (shunt_unlikely(why != SHUNT_OK || shunt_skb_needs_orphan(skb, f))) {
		/* As cheap as a packet of no flow: the cost of Linux is measured. */
		if (why == SHUNT_COST_SAMPLE && !f->punt_due) {
			if (l4_proto == IPPROTO_TCP)
				f->tcp_position = p->tcp_position;
			return punt(skb, p->l3_bytes, SHUNT_COST_SAMPLE);
		}
		return shunt_tc_other();
	}
	/* A constant for these, since most single packets are such once GRO has seen them. */
	if (hidden.summed == SHUNT_SUMMED_UNNECESSARY)
		return forward_good(skb, p, family, l4_proto, form == TAGGED, f, entry, l3, SHUNT_SUMMED_UNNECESSARY,
				    counters, jiffies);
	return forward_good(skb, p, family, l4_proto, form == TAGGED, f, entry, l3, hidden.summed, counters, jiffies);
}

static __always_inline int handle(struct __sk_buff *skb, struct shunt_packet *p, __u32 family, enum usual form,
				  void *l3, void *end, __u64 jiffies)
{
	__u8 l4_proto = shunt_l4_proto_of(family, l3);

	if (l4_proto == IPPROTO_UDP)
		return find(skb, p, family, IPPROTO_UDP, form, l3, jiffies);
	if (l4_proto == IPPROTO_TCP && shunt_headers_end(family, IPPROTO_TCP, l3) <= end)
		return find(skb, p, family, IPPROTO_TCP, form, l3, jiffies);
	return shunt_tc_other();
}

static __always_inline int handle_usual(struct __sk_buff *skb, enum usual form)
{
	void *l3, *end;
	__u32 family;
	struct shunt_packet p;
	__u64 jiffies = shunt_now();

	if (form != NO_FLOWS && shunt_unlikely(shunt_control.flags & SHUNT_CONTROL_SURVEY))
		shunt_survey(skb);
	l3 = shunt_untagged_l3((void *)(long)skb->data);
	end = (void *)(long)skb->data_end;
	/* One base register for both headers. */
	shunt_keep(l3);
	if (shunt_unlikely(shunt_headers_end(4, IPPROTO_UDP, l3) > end))
		return shunt_tc_other();
	family = shunt_family_of(shunt_proto_before(l3));
	shunt_untagged(&p);
	if (form == TAGGED)
		shunt_add_tag(&p, skb->vlan_proto, shunt_htons(skb->vlan_tci));
	if (family == 4)
		return handle(skb, &p, 4, form, l3, end, jiffies);
	if (family == 6 && shunt_headers_end(6, IPPROTO_UDP, l3) <= end)
		return handle(skb, &p, 6, form, l3, end, jiffies);
	return shunt_tc_other();
}

static __noinline int shunt_in_untagged(struct __sk_buff *skb)
{
	return handle_usual(skb, UNTAGGED);
}

static __noinline int shunt_in_tagged(struct __sk_buff *skb)
{
	/* Before Linux 6.2, the kernel may leave the protocol of a tag that it has removed. */
	return skb->vlan_present ? handle_usual(skb, TAGGED) : shunt_tc_other();
}

/* Handles a packet that the functions above have left. */
static __always_inline int finish(struct __sk_buff *skb, int verdict)
{
	if (shunt_likely(verdict < SHUNT_TC_OTHER))
		return verdict;
	if (verdict == SHUNT_TC_OTHER)
		verdict = shunt_ingress_general(skb);
	return verdict < WATCHED ? verdict : shunt_in_watched(skb, verdict - WATCHED);
}

SEC("tcx/ingress")
int shunt_in(struct __sk_buff *skb)
{
	return finish(skb, shunt_unlikely(skb->vlan_proto) ? shunt_in_tagged(skb) : shunt_in_untagged(skb));
}

/*
 * As shunt_in(), while the data plane rests: the table is empty. Only what nearly all packets are is handled here, so
 * little that it needs no function of its own. Nothing depends on when the programs are exchanged.
 */
SEC("tcx/ingress")
int shunt_in_rest(struct __sk_buff *skb)
{
	const __u32 usual = SHUNT_CONTROL_LEARN, mask = usual | SHUNT_CONTROL_SURVEY;

	if (shunt_unlikely(skb->vlan_proto || !shunt_empty() || (shunt_control.flags & mask) != usual)) {
		if (shunt_control.flags & SHUNT_CONTROL_SURVEY)
			shunt_survey(skb);
		return finish(skb, SHUNT_TC_OTHER);
	}
	return finish(skb, handle_usual(skb, NO_FLOWS));
}

/*
 * Whether a packet without an L2 header is to a group of hosts: multicast, or the broadcast address of IPv4. On a port
 * with layer 2, its MAC says so.
 */
static __always_inline int is_to_group(__u32 family, const __u8 *l3, const void *end)
{
	__u8 v4, v6;

	/* A shorter packet is no TCP or UDP. */
	if ((const void *)(l3 + sizeof(struct iphdr) + sizeof(struct udphdr)) > end)
		return 0;
	v4 = l3[16];
	v6 = l3[24];
	/* Clang would choose the address, and the verifier would lose its bounds. */
	shunt_keep(v4);
	shunt_keep(v6);
	return family == 4 ? v4 >= 224 : v6 == 0xff;
}

/* For ports without layer 2: the packet begins with its IP header. */
SEC("tcx/ingress")
int shunt_in_l3(struct __sk_buff *skb)
{
	struct shunt_packet p;
	enum shunt_reason why;
	__u32 family;
	int verdict;

	shunt_skb_pull(skb);
	why = shunt_skb_parse_l2(skb, SHUNT_PORT_NO_L2, &p, &family);
	if (why == SHUNT_OK && !family)
		why = SHUNT_PROTOCOL;
	if (why == SHUNT_OK && is_to_group(family, (void *)(long)skb->data, (void *)(long)skb->data_end))
		why = SHUNT_NOT_OURS;
	if (shunt_skb_decrypted(skb))
		why = SHUNT_IPSEC;
	if (why != SHUNT_OK)
		return punt(skb, skb->len, why);
	verdict = family == 4 ? shunt_ingress4(skb, &p) : shunt_ingress6(skb, &p);
	return verdict < WATCHED ? verdict : shunt_in_watched(skb, verdict - WATCHED);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
