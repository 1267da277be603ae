// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * tc ingress: forwards packets of active flows through the egress port's qdisc, counts all other packets by reason, and
 * keeps the headers of packets that tc_watch can learn from as candidates.
 */
#include "include/ends.h"
#include "include/skb.h"
#include "include/survey.h"
#include "include/trace.h"
#include "include/watch.h"

#define SHUNT_FRAME struct __sk_buff
#define SHUNT_LOAD_BYTES bpf_skb_load_bytes
#include "include/verify.h"

struct ingress {
	struct __sk_buff *skb;
	struct shunt_counters *counters;
	__u64 hash;
	__u64 jiffies;
	__u32 entry; /* of the packet's flow, if any */
	__u32 now; /* the low half of jiffies */
	__u16 slot;
	__u16 port_flags;
};

/* Looks up the ingress port and its counters. Forwarded packets find the counters by the flow's slot instead. */
static __always_inline int find_port(struct ingress *h)
{
	struct shunt_port *port = shunt_port_of(h->skb->ifindex);

	if (!port)
		return -1;
	h->slot = port->slot;
	h->port_flags = port->flags;
	h->counters = shunt_counters_of(port->slot);
	return h->counters ? 0 : -1;
}

/* Passes a packet to Linux and counts the reason. `cookie` names the candidate, 0 for none. The port was looked up. */
static __always_inline int pass(struct ingress *h, __u32 bytes, enum shunt_reason why, __u16 cookie)
{
	h->counters->slow_pkts++;
	h->counters->slow_bytes += bytes;
	shunt_count_reason(h->counters, why);
	h->skb->tc_index = cookie;
	return SHUNT_TC_NEXT;
}

/* Passes a packet to Linux without a candidate, and counts the reason. */
static __always_inline int punt(struct ingress *h, __u32 bytes, enum shunt_reason why)
{
	return find_port(h) ? SHUNT_TC_NEXT : pass(h, bytes, why, 0);
}

/*
 * Whether to learn from this packet. A tuple without a flow must have been seen often enough, and not have been refused
 * recently. A flow in use always gets its proof, even if its sighting is shared with a refused tuple.
 */
static __always_inline int should_learn(const struct ingress *h, const struct shunt_packet *p, enum shunt_reason why)
{
	struct shunt_sighting *s = shunt_sighting_of(h->hash);
	__u32 want = p->l4_proto == IPPROTO_TCP ? shunt_control.learn_tcp_pkts : shunt_control.learn_udp_pkts;

	if (!(shunt_control.flags & SHUNT_CONTROL_LEARN))
		return 0;
	if (why != SHUNT_MISS && why != SHUNT_STALE)
		return 1;
	if (shunt_is_quiet(s, h->now))
		return 0;
	if (h->now - s->since_ticks > SHUNT_WINDOW_S * shunt_control.ticks_per_s) {
		s->since_ticks = h->now;
		s->pkts = 0;
	}
	if (why == SHUNT_STALE) {
		s->pkts++;
		return 1;
	}
	if (++s->pkts < want)
		return 0;
	/* While the table is nearly full, reserve entries for tuples that are seen often. */
	return shunt_free_entries(p->family) >= shunt_control.max_flows / SHUNT_CROWDED ||
	       s->pkts >= want * SHUNT_CROWDED;
}

/* The reason why nothing may be learned on this port or from this family; SHUNT_OK if learning is allowed. */
static __always_inline enum shunt_reason learning_blocked(const struct ingress *h, __u32 family)
{
	if (shunt_control.flags & (family == 4 ? SHUNT_CONTROL_HOLD4 : SHUNT_CONTROL_HOLD6))
		return SHUNT_RULESET;
	if (h->port_flags & SHUNT_PORT_CAPTURED)
		return SHUNT_CAPTURE;
	if (h->port_flags & SHUNT_PORT_FILTERED)
		return SHUNT_INGRESS_FILTER;
	return SHUNT_OK;
}

/* Saves the packet's headers as a candidate. Returns the cookie for the skb, or 0 on failure. */
static __always_inline __u16 save_candidate(struct ingress *h, const struct shunt_packet *p, const void *macs)
{
	__u32 index = h->hash % SHUNT_CANDIDATES;
	struct shunt_candidate *c = bpf_map_lookup_elem(&shunt_candidates, &index);
	__u32 epoch = *(volatile __u32 *)&shunt_control.epoch;
	const struct shunt_port *port;
	__u16 cookie;

	if (!c)
		return 0;
	cookie = shunt_claim_candidate(c, index);
	if (!cookie)
		return 0;
	/*
	 * The daemon sets flags before it moves the epoch. The claim was a full barrier, so flags read from here on
	 * are at least as new as the epoch.
	 */
	port = shunt_port_of(h->skb->ifindex);
	h->port_flags = port ? port->flags : 0;
	if (!port || learning_blocked(h, p->family) != SHUNT_OK || shunt_save_headers(h->skb, p, macs, &c->headers)) {
		shunt_publish_candidate(c, cookie, SHUNT_CANDIDATE_EMPTY);
		return 0;
	}
	c->at_ticks = h->now;
	c->ifindex = h->skb->ifindex;
	c->epoch = epoch;
	c->changes = shunt_changes.count;
	c->sighting = shunt_sighting_index(h->hash);
	c->fingerprint = shunt_fingerprint(h->hash);
	c->class_bits = p->class_bits;
	c->family = p->family;
	c->l4_proto = p->l4_proto;
	c->partial = shunt_skb_summed(h->skb) == SHUNT_SUMMED_PARTIAL;
	c->padded = shunt_skb_padded(h->skb, p);
	c->in_slot = h->slot;
	c->in_flags = h->port_flags;
	shunt_publish_candidate(c, cookie, 0);
	return cookie;
}

static __always_inline int retag(struct __sk_buff *skb, const struct shunt_packet *p, const struct shunt_flow *f)
{
	const __be16 *l2 = (const __be16 *)f->l2;
	int inner = f->out_tags > 1;

	if (p->tags == f->out_tags && (p->tags < 1 || (p->tpid_be[0] == l2[6] && p->tci_be[0] == l2[7])) &&
	    (p->tags < 2 || (p->tpid_be[1] == l2[8] && p->tci_be[1] == l2[9])))
		return 0;
	if (p->tags > 0 && bpf_skb_vlan_pop(skb))
		return -1;
	if (p->tags > 1 && bpf_skb_vlan_pop(skb))
		return -1;
	if (inner && bpf_skb_vlan_push(skb, l2[8], shunt_ntohs(l2[9])))
		return -1;
	if (f->out_tags > 0 && bpf_skb_vlan_push(skb, l2[6], shunt_ntohs(l2[7])))
		return -1;
	return 0;
}

/* Rewrites the MACs, the L3 and the L4 header in place. Returns -1 if a header is out of bounds. */
static __always_inline int rewrite(struct __sk_buff *skb, __u32 family, const struct shunt_packet *p,
				   struct shunt_flow *f, __u32 summed)
{
	enum shunt_checksum checksum =
		summed == SHUNT_SUMMED_PARTIAL ? SHUNT_CHECKSUM_PARTIAL : SHUNT_CHECKSUM_FINISHED;
	int has_l4_check = 1;
	void *data = (void *)(long)skb->data;
	void *end = (void *)(long)skb->data_end;
	__be16 *proto = data + 2 * ETH_ALEN;
	void *l3 = data + ETH_HLEN, *l4;

	if ((void *)(proto + 1) > end)
		return -1;
	/* An untagged frame to which at most one tag was added, which is not in the frame, has its L3 header here. */
	if ((p->tags || f->out_tags > 1) && shunt_is_vlan(*proto)) {
		proto = l3 + 2;
		l3 += 4;
		if (l3 > end)
			return -1;
		if (shunt_is_vlan(*proto))
			l3 += 4;
	}
	l4 = l3 + shunt_l3_size(family);
	if (l4 + sizeof(struct udphdr) > end)
		return -1;
	shunt_copy_macs(data, f->l2);
	/* 6.1's verifier loses the relation between protocol and header size unless the protocol is a constant. */
	if (p->l4_proto == IPPROTO_UDP) {
		shunt_rewrite(l3, l4, family, IPPROTO_UDP, f, shunt_new_addrs(f), checksum);
		has_l4_check = !!((struct udphdr *)l4)->check;
	} else if (l4 + sizeof(struct tcphdr) <= end) {
		shunt_rewrite(l3, l4, family, IPPROTO_TCP, f, shunt_new_addrs(f), checksum);
	} else {
		return -1;
	}
	/* Update CHECKSUM_COMPLETE. Without CHECKSUM_COMPLETE, the helper refuses. */
	if (summed == SHUNT_SUMMED_COMPLETE || summed == SHUNT_SUMMED_UNKNOWN)
		bpf_csum_update(skb, shunt_sum_change(f, family, has_l4_check));
	return 0;
}

static __always_inline int forward(struct ingress *h, struct shunt_packet *p, __u32 family, struct shunt_flow *f)
{
	struct __sk_buff *skb = h->skb;
	__u32 want = p->l2_bytes + p->l3_bytes;
	__u32 out = shunt_ifindex_of(f->out_slot);

	h->counters = shunt_counters_of(f->in_slot);
	if (shunt_unlikely(!out || !h->counters))
		return punt(h, p->l3_bytes, SHUNT_PORT);
	if (shunt_unlikely(skb->len != want)) {
		__u32 bytes = shunt_frame_bytes(f, want, skb->len);

		if (skb->len < want || (skb->len > bytes && bpf_skb_change_tail(skb, bytes, 0)))
			return punt(h, p->l3_bytes, SHUNT_BAD_HEADER);
	}
	if (retag(skb, p, f) || rewrite(skb, family, p, f, shunt_skb_summed(skb))) {
		h->counters->dropped_pkts++;
		shunt_count_reason(h->counters, SHUNT_HALF_WRITTEN);
		return SHUNT_TC_DROP;
	}
	skb->mark = f->mark;
	skb->priority = f->priority;
	skb->tc_index = 0;
	h->counters->tc_pkts++;
	h->counters->tc_bytes += p->l3_bytes;
	shunt_count_flow(family, f, h->entry, p->l3_bytes, h->now);
	return bpf_redirect(out, 0);
}

/* Whether the L4 checksum may be unfinished, on a kernel where ip_summed cannot be read. */
static __always_inline int may_be_partial(struct __sk_buff *skb, const struct shunt_packet *p, __u32 family,
					  const struct shunt_flow *f, void *l3, void *end)
{
	__u32 l3_size = shunt_l3_size(family);
	__u16 *check = l3 + l3_size + shunt_check_offset(p->l4_proto);

	if (SHUNT_SUMMED_IS_KNOWN || shunt_skb_summed(skb) != SHUNT_SUMMED_UNKNOWN || !(f->flags & SHUNT_FLOW_PARTIAL))
		return 0;
	return (void *)(check + 1) > end || shunt_looks_partial(family, l3, p->l4_proto, p->l3_bytes - l3_size, *check);
}

/* Decides on a packet of a known flow, and updates the flow's proof and state. */
static __always_inline enum shunt_reason decide(const struct ingress *h, const struct shunt_packet *p, __u32 family,
						const union shunt_key *key, const void *macs, struct shunt_flow *f)
{
	enum shunt_reason why = shunt_decide(f, p, macs, &shunt_control, h->jiffies);

	if (f->punt_due) {
		f->punt_due = 0;
		return why == SHUNT_OK || why == SHUNT_PENDING ? SHUNT_REPROVE : why;
	}
	if (why == SHUNT_REPROVE)
		f->reprove_at_ticks = h->now + shunt_control.reprove_ticks;
	/* The packet that taught this flow has left Linux once: egress would have retired the flow otherwise. */
	if (why == SHUNT_PENDING) {
		f->state = SHUNT_FLOW_ACTIVE;
		shunt_trace(SHUNT_TRACE_ACTIVATE, SHUNT_OK, family, key);
		why = SHUNT_OK;
	}
	return why;
}

static __always_inline int can_teach(enum shunt_reason why)
{
	return why == SHUNT_MISS || why == SHUNT_STALE || why == SHUNT_REPROVE || why == SHUNT_MTU ||
	       why == SHUNT_CLASS || why == SHUNT_NOT_OURS;
}

/* Handles a SYN, FIN or RST of a known flow. */
static __always_inline void handle_end(struct ingress *h, __u32 family, const struct shunt_packet *p,
				       const union shunt_key *key, struct shunt_flow *f)
{
	struct shunt_counters *counters = shunt_counters_of(f->in_slot);

	if (f->flags & SHUNT_FLOW_STATIC || !counters)
		return;
	if (shunt_handle_end(family, p, key, h->entry, f, h->now))
		counters->retired++;
	else
		shunt_trace(SHUNT_TRACE_PUNT, SHUNT_TCP_FLAGS, family, key);
}

static __always_inline int handle(struct ingress *h, struct shunt_packet *p, __u32 family, struct ethhdr *eth,
				  void *end)
{
	void *l3 = (void *)eth + p->l2_bytes;
	union shunt_key key;
	struct shunt_flow *f;
	enum shunt_reason why = shunt_parse_l3(family, l3, end, h->skb->ifindex, p, &key), hold;

	if (why != SHUNT_OK)
		return punt(h, h->skb->len - p->l2_bytes, why);
	h->hash = shunt_hash(family, &key);
	why = shunt_admit(p);
	f = shunt_empty() ? 0 : shunt_find_soon(family, &key, h->hash, &h->entry);
	if (!f) {
		if (why == SHUNT_OK)
			why = SHUNT_MISS;
		if (p->l4_proto == IPPROTO_TCP)
			shunt_update_expired(family, p, &key, h->hash, h->now);
	} else if (why == SHUNT_OK) {
		/* Keep clang from recomputing the addresses of the members from the entry. */
		asm("" : "+r"(f));
		f->tcp_position = p->tcp_position;
		why = shunt_skb_wire_bytes(h->skb, p);
		if (why == SHUNT_OK)
			why = decide(h, p, family, &key, eth, f);
		if (why == SHUNT_OK && family == 4 && !shunt_ipv4_header_good(l3))
			why = SHUNT_BAD_HEADER;
		if (why == SHUNT_OK && may_be_partial(h->skb, p, family, f, l3, end))
			why = SHUNT_BAD_HEADER;
		if (why == SHUNT_OK && shunt_control.flags & SHUNT_CONTROL_VERIFY_TC && !shunt_skb_verified(h->skb) &&
		    !shunt_checksum_good(h->skb, p, family, f, l3, end))
			why = h->skb->len < p->l2_bytes + p->l3_bytes ? SHUNT_BAD_HEADER : SHUNT_BAD_CHECKSUM;
		if (why == SHUNT_OK)
			return forward(h, p, family, f);
		shunt_trace(SHUNT_TRACE_PUNT, why, family, &key);
	} else if (why == SHUNT_TCP_FLAGS && p->tcp_flags & SHUNT_TCP_BOUNDS) {
		handle_end(h, family, p, &key, f);
	}
	if (find_port(h))
		return SHUNT_TC_NEXT;
	if (!can_teach(why) || !should_learn(h, p, why))
		return pass(h, p->l3_bytes, why, 0);
	hold = learning_blocked(h, family);
	if (hold != SHUNT_OK)
		return pass(h, p->l3_bytes, hold, 0);
	return pass(h, p->l3_bytes, why, save_candidate(h, p, eth));
}

SEC("tcx/ingress")
int shunt_in(struct __sk_buff *skb)
{
	struct shunt_packet p;
	enum shunt_reason why;
	struct ethhdr *eth;
	__be16 proto_be;
	struct ingress h;
	void *end;

	if (shunt_unlikely(shunt_control.flags & SHUNT_CONTROL_SURVEY))
		shunt_survey(skb);
	h.skb = skb;
	h.jiffies = shunt_now();
	h.now = h.jiffies;
	shunt_skb_pull(skb);
	eth = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	why = shunt_parse_l2(eth, end, shunt_skb_tag(skb), &p, &proto_be);
	if (why == SHUNT_OK && eth->h_dest[0] & 1)
		why = SHUNT_NOT_OURS;
	if (shunt_unlikely(shunt_skb_decrypted(skb)))
		why = SHUNT_IPSEC;
	if (why != SHUNT_OK)
		return punt(&h, skb->len - ETH_HLEN, why);
	if (proto_be == shunt_htons(ETH_P_IP))
		return handle(&h, &p, 4, eth, end);
	if (proto_be == shunt_htons(ETH_P_IPV6))
		return handle(&h, &p, 6, eth, end);
	return punt(&h, skb->len - p.l2_bytes, SHUNT_PROTOCOL);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
