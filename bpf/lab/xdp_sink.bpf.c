// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The end of the scratch's traffic: counts UDP and drops it; everything else (ARP, ND) goes up. */
#include "include/bpf.h"
#include "lab/arrivals.h"

struct sink_count {
	__u64 pkts;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sink_count);
} sink_counts SEC(".maps");

static __always_inline int is_udp(const void *frame, const void *end)
{
	__u32 kind = frame_kind(frame, end);

	return kind == (ETH_P_IP << 16 | IPPROTO_UDP << 8) || kind == ((__u32)ETH_P_IPV6 << 16 | IPPROTO_UDP << 8);
}

SEC("xdp")
int shunt_sink(struct xdp_md *ctx)
{
	const void *data = (void *)(long)ctx->data;
	const void *end = (void *)(long)ctx->data_end;
	struct sink_count *count;
	__u32 zero = 0;

	if (!is_udp(data, end))
		return XDP_PASS;
	count = bpf_map_lookup_elem(&sink_counts, &zero);
	if (count) {
		count->pkts++;
		count->bytes += end - data;
	}
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
