// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Traffic for the bench: UDP of many flows, run by BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES.
 *
 * The pages of live frames are recycled with what others have written into them, so every frame gets all of its
 * headers again. Not attached to anything; the loader is crates/shunt-bpf/src/livegen.rs.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

enum {
	GEN_L2_BYTES = 14,
	GEN_V4_BYTES = GEN_L2_BYTES + 20 + 8,
	GEN_V6_BYTES = GEN_L2_BYTES + 40 + 8,

	GEN_V4_ID = GEN_L2_BYTES + 4,
	GEN_V4_SUM = GEN_L2_BYTES + 10,
	GEN_V4_SRC_LOW = GEN_L2_BYTES + 12 + 2,
	GEN_V4_DST_LOW = GEN_L2_BYTES + 16 + 2,
	GEN_V6_SRC_LOW = GEN_L2_BYTES + 8 + 14,
	GEN_V6_DST_LOW = GEN_L2_BYTES + 24 + 14,
};

/*
 * A flow is (high, low): the near side's port is its base + low, its address is the base + high, and the far side's
 * port is its base + high. Written by the loader; in the loader's order and in host byte order.
 */
struct gen_plan {
	__u8 headers[64]; /* of flow (0, 0), with IP id and checksums zero */
	__u32 out_ifindex;
	__u32 lows;
	__u32 highs;
	__u32 ip_sum;  /* ones' complement sums over flow (0, 0), not inverted */
	__u32 udp_sum; /* zero: no UDP checksum */
	__u16 near_address;
	__u16 near_port;
	__u16 far_port;
	__u8 family; /* 4 or 6 */
	__u8 reply;  /* the far side sends */
	__u8 near_fixed; /* all near sides have one address, as behind a masquerade */
	__u8 _pad[3];
};
_Static_assert(sizeof(struct gen_plan) == 96, "gen_plan is laid out in livegen.rs");

volatile const struct gen_plan plan;

/* One generator runs on one CPU. */
__u32 low;
__u32 high;
__u16 id;

static __always_inline __u16 finish(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return bpf_htons(~sum & 0xffff);
}

static __always_inline void put(void *at, __u16 value)
{
	*(__be16 *)at = bpf_htons(value);
}

static __always_inline void write_ports(void *udp, __u32 sum, __u32 address)
{
	__u16 near = plan.near_port + low;
	__u16 far = plan.far_port + high;
	__u16 stored;

	put(udp, plan.reply ? far : near);
	put(udp + 2, plan.reply ? near : far);
	if (!plan.udp_sum)
		return;
	stored = finish(sum + address + low + high);
	*(__be16 *)(udp + 6) = stored ? stored : 0xffff;
}

static __always_inline void copy_headers(void *to, int bytes)
{
	int i;

#pragma unroll
	for (i = 0; i < bytes; i += 2)
		*(__u16 *)(to + i) = *(volatile const __u16 *)(plan.headers + i);
}

static __always_inline void next_flow(void)
{
	if (++low < plan.lows)
		return;
	low = 0;
	if (++high >= plan.highs)
		high = 0;
}

SEC("xdp")
int shunt_gen(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u32 address = plan.near_fixed ? 0 : high;

	if (plan.family == 4) {
		if (data + GEN_V4_BYTES > end)
			return XDP_ABORTED;
		copy_headers(data, GEN_V4_BYTES);
		id++;
		put(data + GEN_V4_ID, id);
		put(data + (plan.reply ? GEN_V4_DST_LOW : GEN_V4_SRC_LOW), plan.near_address + address);
		*(__be16 *)(data + GEN_V4_SUM) = finish(plan.ip_sum + address + id);
		write_ports(data + GEN_L2_BYTES + 20, plan.udp_sum, address);
	} else {
		if (data + GEN_V6_BYTES > end)
			return XDP_ABORTED;
		copy_headers(data, GEN_V6_BYTES);
		put(data + (plan.reply ? GEN_V6_DST_LOW : GEN_V6_SRC_LOW), plan.near_address + address);
		write_ports(data + GEN_L2_BYTES + 40, plan.udp_sum, address);
	}
	next_flow();
	return bpf_redirect(plan.out_ifindex, 0);
}

char _license[] SEC("license") = "Dual BSD/GPL";
