// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Copies of the packets of some flows, as they enter the router and as they leave it. Other packets cost a look-up of
 * their addresses and ports, or one load while no window is open.
 */
#include "inspect/tuple.h"
#include "inspect/verify_abi.h"

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

#define VERIFY_TUPLES(name)                                                                                            \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_HASH);                                                                       \
		__uint(max_entries, VERIFY_FLOWS_MAX);                                                                 \
		__type(key, struct trace_tuple);                                                                       \
		__type(value, struct verify_flow);                                                                     \
	} name SEC(".maps")

/* Flows by the addresses and ports of packets that enter and that leave. */
VERIFY_TUPLES(verify_enters);
VERIFY_TUPLES(verify_leaves);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct verify_window);
} verify_window SEC(".maps");

/* Records that did not fit the buffer. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} verify_lost SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
} verify_records SEC(".maps");

static __always_inline struct verify_window *window(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&verify_window, &zero);
}

static __always_inline int is_open(void)
{
	struct verify_window *w = window();

	return w && w->open;
}

static __always_inline int is_ours(const struct net_device___shunt *dev)
{
	return dev && dev->nd_net.net->ns.inum == verify_netns;
}

static __always_inline void note_sent(long error)
{
	__u32 zero = 0;
	__u64 *lost = bpf_map_lookup_elem(&verify_lost, &zero);

	if (error && lost)
		__sync_fetch_and_add(lost, 1);
}

/* Where to write, and how many bytes of the frame. */
static __always_inline __u64 verify_flags(__u32 captured)
{
	return BPF_F_CURRENT_CPU | (__u64)captured << 32;
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

/* Takes a packet into the window. */
static __always_inline int enter(__u32 bytes)
{
	struct verify_window *w = window();

	if (!w || !w->open || (long long)w->left <= 0)
		return 0;
	__sync_fetch_and_sub(&w->left, bytes + VERIFY_PACKET_COST);
	return 1;
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
	if (!flow || flow->ifindex != skb->dev->ifindex || !enter(skb->len))
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
	const struct sk_buff___verify *more = (void *)ctx[0];
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
	r.is_tracked = BPF_CORE_READ_BITFIELD_PROBED(more, _nfct) != 0;
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
	if (!flow)
		flow = bpf_map_lookup_elem(&verify_enters, &tuple);
	if (!flow)
		return 0;
	r.at_ns = bpf_ktime_get_ns();
	r.flow = flow->number;
	note_sent(bpf_perf_event_output(ctx, &verify_records, BPF_F_CURRENT_CPU, &r, sizeof(r)));
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
