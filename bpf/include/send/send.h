/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Sends an skb as its flow's action requires: verification, VLAN tags, the rewrite and the redirect. */
#ifndef SHUNT_SEND_H
#define SHUNT_SEND_H

#include "include/skb.h"
#include "include/send/verify.h"

/* How the L2 header of a packet may be, before and after its action; always a constant. */
enum shunt_form {
	SHUNT_UNTAGGED, /* without a tag; the packet gets at most one */
	SHUNT_TAGGED, /* with tags, one of them next to the frame */
	SHUNT_ANY_FORM, /* of any kind, or absent on one side or both */
};

/* Returned for an unusual packet, which shunt_ingress_general() handles. Verdicts are less. */
enum { SHUNT_TC_OTHER = 0x100 };

/* Pushes the tag number `n` of an action. The kernel keeps the outer tag beside the frame. */
static __always_inline int shunt_skb_push_tag(struct __sk_buff *skb, const struct shunt_flow *f, __u32 n)
{
	struct shunt_tag tag = shunt_tag_at(f->l2, n);

	return (int)bpf_skb_vlan_push(skb, tag.tpid_be, shunt_ntohs(tag.tci_be));
}

/* Replaces the tags of a packet by those of its action, which are `tags`. */
static __always_inline int shunt_skb_retag(struct __sk_buff *skb, const struct shunt_packet *p,
					   const struct shunt_flow *f, __u32 tags)
{
	int inner = tags > 1;

	if (shunt_same_tags(p, f->l2, tags))
		return 0;
	if (p->tags > 0 && bpf_skb_vlan_pop(skb))
		return -1;
	if (p->tags > 1 && bpf_skb_vlan_pop(skb))
		return -1;
	if (inner && shunt_skb_push_tag(skb, f, 1))
		return -1;
	if (tags > 0 && shunt_skb_push_tag(skb, f, 0))
		return -1;
	return 0;
}

/* Puts an untagged Ethernet header before a packet that came in without one. */
static __always_inline int shunt_skb_push_l2(struct __sk_buff *skb, const struct shunt_packet *p,
					     const struct shunt_flow *f)
{
	void *l2;

	if (bpf_skb_change_head(skb, shunt_l2_bytes(0), 0))
		return -1;
	l2 = (void *)(long)skb->data;
	if (l2 + shunt_l2_bytes(0) > (void *)(long)skb->data_end)
		return -1;
	shunt_write_untagged(l2, f->l2, p->family);
	return 0;
}

/*
 * Gives a packet the L2 header of its action. A packet that leaves without one keeps an untagged header: the kernel
 * removes that on the way to a device that sends none (__bpf_redirect_no_mac()).
 */
static __always_inline int shunt_skb_reform(struct __sk_buff *skb, const struct shunt_packet *p,
					    const struct shunt_flow *f)
{
	if (!p->l2_bytes && f->out_tags != SHUNT_NO_L2 && shunt_skb_push_l2(skb, p, f))
		return -1;
	return shunt_skb_retag(skb, p, f, shunt_tags_out(f->out_tags));
}

/* Finds the L3 header of a packet that shunt_skb_reform() has handled. */
static __always_inline void *shunt_reformed_l3(void *data, void *end, const struct shunt_packet *p,
					       const struct shunt_flow *f)
{
	if (f->out_tags == SHUNT_NO_L2)
		return p->l2_bytes ? shunt_untagged_l3(data) : data;
	return shunt_find_l3(data, end, p->tags || f->out_tags > 1);
}

/*
 * Whether Linux must take the packet off its socket first, as it does with each packet that it forwards. A packet of a
 * container still has its socket here: the socket would get a second time stamp of the transmission, and a qdisc such
 * as fq would pace the socket.
 */
static __always_inline int shunt_skb_needs_orphan(struct __sk_buff *skb, const struct shunt_flow *f)
{
	const struct shunt_port *port;

	if (shunt_likely(!skb->sk))
		return 0;
	port = shunt_port_of(shunt_ifindex_of(f->out_slot));
	return !port || port->flags & SHUNT_PORT_PACED || shunt_skb_wants_stamp(skb);
}

/* Rewrites the L3 and the L4 header in place. The headers are present. */
static __always_inline void shunt_skb_rewrite(struct __sk_buff *skb, __u32 family, __u8 l4_proto, struct shunt_flow *f,
					      void *l3, __u32 summed)
{
	enum shunt_checksum checksum =
		summed == SHUNT_SUMMED_PARTIAL ? SHUNT_CHECKSUM_PARTIAL : SHUNT_CHECKSUM_FINISHED;
	void *l4 = l3 + shunt_l3_size(family);
	int has_l4_check;

	shunt_rewrite(l3, l4, family, l4_proto, f, shunt_new_addrs(f), checksum);
	/* Update CHECKSUM_COMPLETE. Without CHECKSUM_COMPLETE, the helper refuses. */
	if (shunt_unlikely(summed == SHUNT_SUMMED_COMPLETE || summed == SHUNT_SUMMED_UNKNOWN)) {
		has_l4_check = l4_proto != IPPROTO_UDP || ((struct udphdr *)l4)->check;
		bpf_csum_update(skb, shunt_sum_change(f, family, has_l4_check));
	}
}

static __always_inline int shunt_skb_drop(struct shunt_counters *counters)
{
	counters->dropped_pkts++;
	shunt_count_reason(counters, SHUNT_HALF_WRITTEN);
	return SHUNT_TC_DROP;
}

/* A function, because clang would load a constant before every test that may end in its return. */
static __noinline int shunt_tc_other(void)
{
	int what = SHUNT_TC_OTHER;

	shunt_keep(what);
	return what;
}

/*
 * Forwards a packet to which the action applies. `l4_proto` is a constant. Returns SHUNT_TC_OTHER for a packet that
 * cannot be forwarded and is unchanged.
 */
static __always_inline int shunt_skb_forward(struct __sk_buff *skb, const struct shunt_packet *p, __u32 family,
					     __u8 l4_proto, enum shunt_form form, struct shunt_flow *f, __u32 entry,
					     void *l3, __u32 summed, struct shunt_counters *counters, __u32 now)
{
	__u32 want = p->l2_bytes + p->l3_bytes;
	__u32 out = shunt_ifindex_of(f->out_slot);
	int moved = form, with_l2 = form != SHUNT_ANY_FORM || f->out_tags != SHUNT_NO_L2;
	void *data, *end;

	if (shunt_unlikely(!out))
		return shunt_tc_other();
	if (shunt_unlikely(skb->len != want)) {
		__u32 bytes = shunt_frame_bytes(f, want, skb->len);

		if (skb->len < want || (skb->len > bytes && bpf_skb_change_tail(skb, bytes, 0)))
			return shunt_tc_other();
		moved = 1;
		/* Clang 19 would compare the lengths again below, and the verifier would not know the result. */
		shunt_keep(moved);
	}
	if (form || shunt_unlikely(f->out_tags)) {
		int failed = form == SHUNT_UNTAGGED ? shunt_skb_push_tag(skb, f, 0) :
			     form == SHUNT_TAGGED   ? shunt_skb_retag(skb, p, f, f->out_tags) :
						      shunt_skb_reform(skb, p, f);

		if (failed)
			return shunt_skb_drop(counters);
		moved = 1;
	}
	if (shunt_unlikely(moved)) {
		data = (void *)(long)skb->data;
		end = (void *)(long)skb->data_end;
		/* An untagged frame to which at most one tag was added has no tag in the frame. */
		l3 = form == SHUNT_ANY_FORM ? shunt_reformed_l3(data, end, p, f) :
					      shunt_find_l3(data, end, form && (p->tags || f->out_tags > 1));
		if (!l3 || l3 + shunt_l3_size(family) + shunt_l4_size(l4_proto) > end)
			return shunt_skb_drop(counters);
		if (with_l2)
			shunt_copy_macs(data, f->l2);
	} else {
		shunt_copy_macs(shunt_untagged_macs(l3), f->l2);
		/* Keep clang from sharing the last store with the branch above: it would compute the address. */
		barrier();
	}
	shunt_skb_rewrite(skb, family, l4_proto, f, l3, summed);
	skb->mark = f->mark;
	skb->priority = f->priority;
	skb->tc_index = 0;
	counters->tc_pkts++;
	counters->tc_bytes += p->l3_bytes;
	if (l4_proto == IPPROTO_TCP)
		f->tcp_position = p->tcp_position;
	shunt_count_flow(family, f, &entry, p->l3_bytes, now);
	return bpf_redirect(out, 0);
}

/* Whether the L4 checksum may be unfinished, on a kernel where ip_summed cannot be read. */
static __always_inline int shunt_skb_may_be_partial(__u32 summed, const struct shunt_packet *p, __u32 family,
						    const struct shunt_flow *f, void *l3, void *end)
{
	__u32 l3_size = shunt_l3_size(family);
	__u16 *check = l3 + l3_size + shunt_check_offset(p->l4_proto);

	if (SHUNT_SUMMED_IS_KNOWN || summed != SHUNT_SUMMED_UNKNOWN || !(f->flags & SHUNT_FLOW_PARTIAL))
		return 0;
	return (void *)(check + 1) > end || shunt_looks_partial(family, l3, p->l4_proto, p->l3_bytes - l3_size, *check);
}

/* Whether the checksums are correct, as far as the tc engine verifies them, or the reason for passing the packet. */
static __always_inline enum shunt_reason shunt_skb_verify(struct __sk_buff *skb, const struct shunt_packet *p,
							  __u32 family, const struct shunt_flow *f, void *l3, void *end,
							  __u32 summed)
{
	if (family == 4 && shunt_unlikely(!shunt_ipv4_header_good(l3)))
		return SHUNT_BAD_HEADER;
	if (shunt_unlikely(shunt_skb_may_be_partial(summed, p, family, f, l3, end)))
		return SHUNT_BAD_HEADER;
	if (!shunt_is_verified(summed) && shunt_control.flags & SHUNT_CONTROL_VERIFY_TC &&
	    shunt_unlikely(!shunt_checksum_good(skb, p, family, f, l3, end)))
		return skb->len < (__u32)p->l2_bytes + p->l3_bytes ? SHUNT_BAD_HEADER : SHUNT_BAD_CHECKSUM;
	return SHUNT_OK;
}

#endif
