// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Copies of the packets of some flows, as they enter the router and as they leave it. Other packets cost a look-up of
 * their addresses and ports, or one load while no window is open.
 */
#include "inspect/verify.h"

#include <bpf/bpf_core_read.h>

struct sk_buff___verify {
	__u8 ip_summed : 2;
	__u16 csum_start;
	__be16 vlan_proto;
	__u16 vlan_tci;
	unsigned long _nfct;
} RELOCATED;

enum { VERIFY_CHECKSUM_PARTIAL = 3 };

/* The number of the network namespace. Written by the loader. */
volatile const __u32 verify_netns SEC(".rodata.verify");

/* Whether conntrack has seen an skb, which never happens on the fast path. */
static __always_inline int is_tracked(const struct sk_buff___verify *skb)
{
	return BPF_CORE_READ_BITFIELD_PROBED(skb, _nfct) != 0;
}

static __always_inline int is_ours(const struct net_device___shunt *dev)
{
	return dev && dev->nd_net.net->ns.inum == verify_netns;
}

/* Sends a copy of an skb, from its data on. */
static __always_inline void send_skb(void *skb_ctx, struct verify_record *r)
{
	const struct sk_buff___shunt *skb = skb_ctx;
	const struct sk_buff___verify *more = skb_ctx;
	const unsigned char *head = skb->head;

	r->bytes = skb->len;
	if (BPF_CORE_READ_BITFIELD_PROBED(more, ip_summed) == VERIFY_CHECKSUM_PARTIAL)
		r->sum_from = distance(head + more->csum_start, skb->data);
	r->segment_bytes = segment_bytes(skb);
	r->tag_tpid_be = more->vlan_proto;
	r->tag_tci = more->vlan_tci;
	r->captured = r->bytes < VERIFY_FRAME_MAX ? r->bytes : VERIFY_FRAME_MAX;
	note_sent(bpf_skb_output(skb_ctx, &verify_records, verify_flags(r->captured), r, sizeof(*r)));
}

SEC("tp_btf/netif_receive_skb")
int verify_entering(__u64 *ctx)
{
	const struct sk_buff___shunt *skb = (void *)ctx[0];
	struct verify_record r = { .place = VERIFY_ENTERS };
	const struct verify_flow *flow;
	struct trace_tuple tuple;
	const void *l3;
	__be16 proto_be;

	if (!is_open() || !is_ours(skb->dev))
		return 0;
	l3 = skb->data;
	proto_be = skb->protocol;
	if (skip_tags(&l3, &proto_be))
		return 0;
	read_tuple(l3, proto_be, &tuple);
	flow = bpf_map_lookup_elem(&verify_enters, &tuple);
	if (!flow || flow->ifindex != skb->dev->ifindex)
		return 0;
	if (flow->before_xdp)
		r.place = VERIFY_RECEIVED;
	else if (!enter(skb->len))
		return 0;
	r.at_ns = bpf_ktime_get_ns();
	r.flow = flow->number;
	r.l3_at = distance(l3, skb->data);
	send_skb((void *)ctx[0], &r);
	return 0;
}

/* net_dev_start_xmit(skb, dev): behind qdiscs and segmentation. */
SEC("tp_btf/net_dev_start_xmit")
int verify_leaving(__u64 *ctx)
{
	const struct sk_buff___shunt *skb = (void *)ctx[0];
	struct verify_record r = { .place = VERIFY_LEAVES };
	const struct verify_flow *flow;
	struct trace_tuple tuple;

	if (!is_open() || !is_ours(skb->dev))
		return 0;
	read_known(skb, &tuple);
	flow = bpf_map_lookup_elem(&verify_leaves, &tuple);
	if (!flow || flow->ifindex != skb->dev->ifindex)
		return 0;
	r.at_ns = bpf_ktime_get_ns();
	r.flow = flow->number;
	r.is_tracked = is_tracked((void *)ctx[0]);
	r.l3_at = distance(skb->head + skb->network_header, skb->data);
	send_skb((void *)ctx[0], &r);
	return 0;
}

/* kfree_skb(skb, location, reason, ...) */
SEC("tp_btf/kfree_skb")
int verify_dropped(__u64 *ctx)
{
	const struct sk_buff___shunt *skb = (void *)ctx[0];
	struct verify_record r = { .place = VERIFY_DROPPED, .reason = ctx[2] };
	const struct verify_flow *flow;
	struct trace_tuple tuple;

	if (!is_open() || !is_ours(skb->dev))
		return 0;
	read_known(skb, &tuple);
	flow = bpf_map_lookup_elem(&verify_leaves, &tuple);
	if (flow && flow->ifindex == skb->dev->ifindex) {
		r.place = VERIFY_DROPPED_LEAVING;
		r.is_tracked = is_tracked((void *)ctx[0]);
	} else if (!flow) {
		flow = bpf_map_lookup_elem(&verify_enters, &tuple);
	}
	if (!flow)
		return 0;
	r.at_ns = bpf_ktime_get_ns();
	r.flow = flow->number;
	r.packets = segment_count(skb);
	note_sent(bpf_perf_event_output(ctx, &verify_records, BPF_F_CURRENT_CPU, &r, sizeof(r)));
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
