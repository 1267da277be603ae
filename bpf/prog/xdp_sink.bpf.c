// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The end of the bench's traffic: counts UDP and drops it; everything else (ARP, ND) goes up. */
#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

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

static __always_inline int is_udp(const __u8 *frame, const __u8 *end)
{
	if (frame + 34 > end)
		return 0;
	if (frame[12] == 0x08 && frame[13] == 0x00)
		return frame[23] == IPPROTO_UDP;
	return frame[12] == 0x86 && frame[13] == 0xdd && frame[20] == IPPROTO_UDP;
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

char _license[] SEC("license") = "Dual BSD/GPL";
