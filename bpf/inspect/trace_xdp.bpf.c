// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Stages of frames that XDP redirects. Such a frame has no skb; the programs of one CPU follow one frame at a time,
 * from its entry to the batch in which the egress driver takes it.
 */
#include "inspect/headers.h"

struct xdp_rxq_info___shunt {
	struct net_device___shunt *dev;
} RELOCATED;

struct xdp_buff___shunt {
	void *data;
	void *data_end;
	struct xdp_rxq_info___shunt *rxq;
} RELOCATED;

enum { XDP_REDIRECT___shunt = 4 };

/* The frame that a CPU follows. */
struct trace_frame {
	__u64 previous_ns; /* when the frame before was redirected in the same batch; 0: unknown */
	__u64 active;
	struct trace_record record;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct trace_frame);
} trace_frames SEC(".maps");

static __always_inline struct trace_frame *frame_of_cpu(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&trace_frames, &zero);
}

static __always_inline void begin(struct trace_frame *frame, __u64 began_ns, __u32 ifindex)
{
	__builtin_memset(&frame->record, 0, __builtin_offsetof(struct trace_record, event));
	frame->record.began_ns = began_ns;
	frame->record.in_ifindex = ifindex;
	frame->active = 1;
}

static __always_inline void end(struct trace_frame *frame, enum trace_end why)
{
	publish(&frame->record, why);
	frame->active = 0;
}

/* Entry of the XDP program. The loader attaches it where the kernel has fentry. */
SEC("fentry")
int trace_xdp_entry(__u64 *ctx)
{
	const struct xdp_buff___shunt *xdp = (void *)ctx[0];
	struct trace_frame *frame = frame_of_cpu();
	const struct net_device___shunt *dev;
	struct trace_tuple tuple;
	struct ethhdr eth;
	const void *l3;
	__be16 proto_be;
	__u64 now;

	if (!frame || (frame->active && frame->record.position == TRACE_XDP_REDIRECT))
		return 0;
	frame->active = 0;
	if (!plan.filters && !is_sampled())
		return 0;
	now = bpf_ktime_get_ns();
	dev = xdp->rxq->dev;
	if (!is_ours(dev) || (plan.ifindex && dev->ifindex != plan.ifindex) ||
	    bpf_probe_read_kernel(&eth, sizeof(eth), xdp->data))
		return 0;
	l3 = xdp->data + sizeof(eth);
	proto_be = eth.h_proto;
	if (skip_tags(&l3, &proto_be))
		return 0;
	begin(frame, now, dev->ifindex);
	frame->record.bytes = read_tuple(l3, proto_be, &tuple);
	frame->record.in = tuple;
	if (!is_wanted(&tuple) || (plan.filters && !is_sampled())) {
		frame->active = 0;
		return 0;
	}
	stamp_at(&frame->record, TRACE_XDP_ENTRY, 0, now);
	return 0;
}

/* The XDP program returns. */
SEC("fexit")
int trace_xdp_exit(__u64 *ctx)
{
	struct trace_frame *frame = frame_of_cpu();

	if (!frame || !frame->active || frame->record.position != TRACE_XDP_ENTRY)
		return 0;
	stamp(&frame->record, TRACE_XDP_DECIDED);
	if ((__u32)ctx[1] != XDP_REDIRECT___shunt)
		end(frame, TRACE_PASSED);
	return 0;
}

/* xdp_redirect(dev, prog, tgt, err, map_type, map_id, index): the frame is in the batch of its egress. */
SEC("tp_btf/xdp_redirect")
int trace_xdp_redirect(__u64 *ctx)
{
	const struct net_device___shunt *dev;
	struct trace_frame *frame = frame_of_cpu();

	if (!frame)
		return 0;
	if (plan.xdp_entry) {
		if (frame->active && frame->record.position == TRACE_XDP_DECIDED)
			stamp(&frame->record, TRACE_XDP_REDIRECT);
		return 0;
	}
	if (frame->active)
		return 0;
	/* Without a probe at the entry, a frame begins where the one before it in the batch ends. */
	if (frame->previous_ns) {
		dev = (void *)ctx[0];
		begin(frame, frame->previous_ns, dev->ifindex);
		frame->previous_ns = 0;
		stamp_at(&frame->record, TRACE_XDP_PREVIOUS, 0, frame->record.began_ns);
		stamp(&frame->record, TRACE_XDP_REDIRECT);
		return 0;
	}
	/* Frames do not show their headers here, so a filter finds none. */
	if (plan.filters || !is_sampled())
		return 0;
	dev = (void *)ctx[0];
	if (is_ours(dev) && (!plan.ifindex || dev->ifindex == plan.ifindex))
		frame->previous_ns = bpf_ktime_get_ns();
	return 0;
}

/* xdp_devmap_xmit(from, to, sent, drops, err): the egress driver has taken the batch. */
SEC("tp_btf/xdp_devmap_xmit")
int trace_xdp_xmit(__u64 *ctx)
{
	const struct net_device___shunt *to = (void *)ctx[1];
	struct trace_frame *frame = frame_of_cpu();

	if (!frame)
		return 0;
	frame->previous_ns = 0;
	if (!frame->active || frame->record.position != TRACE_XDP_REDIRECT)
		return 0;
	stamp(&frame->record, TRACE_XDP_XMIT);
	frame->record.out_ifindex = to->ifindex;
	end(frame, (int)ctx[3] > 0 ? TRACE_DROPPED : TRACE_DONE);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
