// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Copies of the frames that XDP forwards, as they enter the router and as they leave it. The daemon puts the first
 * program in the place of the engine's, which it calls, and the second one into the entries of its devmap.
 */
#include "inspect/verify.h"

/* The programs in whose place the first one is. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, VERIFY_PORTS_MAX);
	__type(key, __u32);
	__type(value, __u32);
} verify_engines SEC(".maps");

/* The place in verify_engines of each port's program. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, VERIFY_PORTS_MAX);
	__type(key, __u32); /* ifindex */
	__type(value, __u32);
} verify_engine_of SEC(".maps");

/* Reads the tuple of a frame. Returns where its L3 header starts; 0 if there is no IP packet. */
static __always_inline __u32 read_frame(const struct xdp_md *ctx, struct trace_tuple *tuple)
{
	const void *data = (const void *)(long)ctx->data;
	const void *end = (const void *)(long)ctx->data_end;
	const struct ethhdr *eth = data;
	const void *l3 = data + sizeof(*eth);
	__be16 proto_be;

	if (l3 > end)
		return 0;
	proto_be = eth->h_proto;
	if (skip_tags(&l3, &proto_be) || !read_tuple(l3, proto_be, tuple))
		return 0;
	return l3 - data;
}

static __always_inline void send_frame(struct xdp_md *ctx, struct verify_record *r)
{
	r->at_ns = bpf_ktime_get_ns();
	r->bytes = bpf_xdp_get_buff_len(ctx);
	r->captured = r->bytes < VERIFY_FRAME_MAX ? r->bytes : VERIFY_FRAME_MAX;
	note_sent(bpf_perf_event_output(ctx, &verify_records, verify_flags(r->captured), r, sizeof(*r)));
}

static __always_inline void observe_entering(struct xdp_md *ctx)
{
	struct verify_record r = { .place = VERIFY_ENTERS };
	const struct verify_flow *flow;
	struct trace_tuple tuple;

	r.l3_at = read_frame(ctx, &tuple);
	if (!r.l3_at)
		return;
	flow = bpf_map_lookup_elem(&verify_enters, &tuple);
	if (!flow || !flow->before_xdp || flow->ifindex != ctx->ingress_ifindex || !enter(bpf_xdp_get_buff_len(ctx)))
		return;
	r.flow = flow->number;
	send_frame(ctx, &r);
}

SEC("xdp.frags")
int verify_xdp_entering(struct xdp_md *ctx)
{
	__u32 ifindex = ctx->ingress_ifindex;
	const __u32 *engine;

	if (is_open())
		observe_entering(ctx);
	engine = bpf_map_lookup_elem(&verify_engine_of, &ifindex);
	if (engine)
		bpf_tail_call(ctx, &verify_engines, *engine);
	/* Without the engine, Linux forwards the packet. */
	return XDP_PASS;
}

/* The driver of the egress port is called next. */
SEC("xdp.frags/devmap")
int verify_xdp_leaving(struct xdp_md *ctx)
{
	struct verify_record r = { .place = VERIFY_LEAVES };
	const struct verify_flow *flow;
	struct trace_tuple tuple;

	if (!is_open())
		return XDP_PASS;
	r.l3_at = read_frame(ctx, &tuple);
	if (!r.l3_at)
		return XDP_PASS;
	flow = bpf_map_lookup_elem(&verify_leaves, &tuple);
	if (!flow || flow->ifindex != ctx->egress_ifindex)
		return XDP_PASS;
	r.flow = flow->number;
	send_frame(ctx, &r);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
