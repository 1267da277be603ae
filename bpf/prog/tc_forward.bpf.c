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
#include "include/ingress/any.h"
#include "include/table/hints.h"

/* What handle_usual() handles; always a constant. */
enum usual {
	UNTAGGED,
	TAGGED, /* with a tag beside the frame */
	NO_FLOWS, /* untagged; there are no flows, no survey, and learning is on */
};

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
		return shunt_punt_unknown(skb, p, why, 0);
	}
	if (form == NO_FLOWS ? shunt_is_worth_a_flow(s, l4_proto, hash, now) :
			       shunt_should_learn(s, l4_proto, hash, now))
		return SHUNT_WATCHED + SHUNT_MISS;
	return shunt_punt(skb, p->l3_bytes, SHUNT_MISS);
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
	if (form != NO_FLOWS && !shunt_empty()) {
		if (form == UNTAGGED) {
			entry = shunt_hinted(family, &key);
			f = shunt_match(family, &key, entry);
		}
		if (!f) {
			hash = shunt_hash(family, &key);
			f = shunt_find_soon(family, &key, hash, &entry);
		}
	} else {
		hash = shunt_hash(family, &key);
	}
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
	if (shunt_unlikely(why == SHUNT_CLASS && shunt_admit(p) == SHUNT_OK && shunt_is_in_use(f, jiffies))) {
		if (l4_proto == IPPROTO_TCP)
			f->tcp_position = p->tcp_position;
		return shunt_punt(skb, p->l3_bytes, SHUNT_CLASS);
	}
	if (shunt_unlikely(why != SHUNT_OK || shunt_skb_needs_orphan(skb, f))) {
		/* As cheap as a packet of no flow: the cost of Linux is measured. */
		if (why == SHUNT_COST_SAMPLE && !f->punt_due) {
			if (l4_proto == IPPROTO_TCP)
				f->tcp_position = p->tcp_position;
			return shunt_punt(skb, p->l3_bytes, SHUNT_COST_SAMPLE);
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
	return verdict < SHUNT_WATCHED ? verdict : shunt_in_watched(skb, verdict - SHUNT_WATCHED);
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
		return shunt_punt(skb, skb->len, why);
	verdict = family == 4 ? shunt_ingress4(skb, &p) : shunt_ingress6(skb, &p);
	return verdict < SHUNT_WATCHED ? verdict : shunt_in_watched(skb, verdict - SHUNT_WATCHED);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
