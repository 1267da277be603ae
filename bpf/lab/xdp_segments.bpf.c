// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Hands the TCP segments of the lab's own connections to user space, so that Linux does not reset them, and passes
 * everything else to Linux. ICMP errors go both ways. The loader is crates/shunt-traffic/src/segments.rs.
 */
#include "include/bpf.h"
#include "lab/arrivals.h"

volatile const struct segments_plan plan;
/* Frames that did not fit the ring. */
__u64 missed;

struct small_frame {
	struct captured_frame head;
	__u8 bytes[SEGMENT_SMALL_BYTES];
};

struct large_frame {
	struct captured_frame head;
	__u8 bytes[SEGMENT_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 24);
} segments SEC(".maps");

static __always_inline int is_between(__be16 port_be, volatile const struct segments_ports *ports)
{
	return (__u32)shunt_ntohs(port_be) - ports->first < ports->count;
}

/* Whether a frame is an ICMP error: destination unreachable. */
static __always_inline int is_unreachable(const void *frame, const void *end)
{
	__u32 kind = frame_kind(frame, end);

	return kind == (ETH_P_IP << 16 | IPPROTO_ICMP << 8 | 3) ||
	       kind == ((__u32)ETH_P_IPV6 << 16 | IPPROTO_ICMPV6 << 8 | 1);
}

/* Whether the ports are those of the lab's connections. */
static __always_inline int is_ours(__u32 family, void *data, void *end, struct shunt_packet *p)
{
	union shunt_key key;

	if (shunt_parse_l3(family, data + p->l2_bytes, end, 0, p, &key) != SHUNT_OK || p->l4_proto != IPPROTO_TCP)
		return 0;
	if (family == 4)
		return is_between(key.v4.sport_be, &plan.source) && is_between(key.v4.dport_be, &plan.destination);
	return is_between(key.v6.sport_be, &plan.source) && is_between(key.v6.dport_be, &plan.destination);
}

/* Hands a frame to user space; counts it if there is no room. */
static __always_inline void hand_over(struct xdp_md *ctx)
{
	__u32 bytes = bpf_xdp_get_buff_len(ctx);
	struct captured_frame head = { .at_ns = bpf_ktime_get_ns(), .bytes = bytes };
	struct small_frame *small;
	struct large_frame *large;

	if (bytes - 1 < SEGMENT_SMALL_BYTES) {
		small = bpf_ringbuf_reserve(&segments, sizeof(*small), 0);
		if (small) {
			small->head = head;
			bpf_xdp_load_bytes(ctx, 0, small->bytes, shunt_bound(bytes - 1, SEGMENT_SMALL_BYTES - 1) + 1);
			bpf_ringbuf_submit(small, 0);
			return;
		}
	} else if (bytes - 1 < SEGMENT_BYTES) {
		large = bpf_ringbuf_reserve(&segments, sizeof(*large), 0);
		if (large) {
			large->head = head;
			bpf_xdp_load_bytes(ctx, 0, large->bytes, shunt_bound(bytes - 1, SEGMENT_BYTES - 1) + 1);
			bpf_ringbuf_submit(large, 0);
			return;
		}
	}
	__sync_fetch_and_add(&missed, 1);
}

SEC("xdp")
int shunt_segments(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u32 family;
	struct shunt_hw_tag none = {};
	struct shunt_packet p;
	int ours = 0;

	if (is_unreachable(data, end)) {
		hand_over(ctx);
		return XDP_PASS;
	}
	if (shunt_parse_l2(data, end, none, &p, &family) != SHUNT_OK)
		return XDP_PASS;
	if (family == 4)
		ours = is_ours(4, data, end, &p);
	else if (family == 6)
		ours = is_ours(6, data, end, &p);
	if (!ours)
		return XDP_PASS;
	hand_over(ctx);
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
